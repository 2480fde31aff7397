//===- PhiloxOffsetTest.cpp - How far draws move a GPU's generator --------===//
//
// Worked out by hand from calc_execution_policy of PyTorch: blocks of 256
// threads, as many as the elements need and no more than run at a time; each
// thread draws `perCall` numbers in a round; four is added for each round.
//
//===----------------------------------------------------------------------===//

#include "AnalysisFixture.h"
#include "Dialect/Koila/Transforms/BatchTiling/DrawnOffsets.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"

using namespace mlir;
using namespace koila;

namespace {
class PhiloxOffsetTest : public AnalysisTest {
protected:
  /// Of the profiles that koila comes with.
  static PhiloxDevice get(StringRef card) {
    for (const DeviceProfile &profile : DeviceProfile::getShipped())
      if (profile.getDevice() == card)
        return *PhiloxDevice::get(profile.getProperties());
    ADD_FAILURE() << card.str();
    return {1, 256};
  }
  /// 132 * 2048 / 256 = 1056 blocks: 270,336 threads.
  const PhiloxDevice h100 = get("h100-80gb-hbm3");
  /// 28 * 1536 / 256 = 168 blocks: 43,008 threads.
  const PhiloxDevice rtx3060 = get("rtx-3060");
};
} // namespace

TEST_F(PhiloxOffsetTest, RoundsOfAThread) {
  EXPECT_EQ(getDistributionOffset(0, 4, h100), 0);
  EXPECT_EQ(getDistributionOffset(1, 4, h100), 4);
  // 270,336 * 4 = 1,081,344 numbers in one round; 43,008 * 4 = 172,032.
  EXPECT_EQ(getDistributionOffset(1081344, 4, h100), 4);
  EXPECT_EQ(getDistributionOffset(1081345, 4, h100), 8);
  EXPECT_EQ(getDistributionOffset(1081344, 4, rtx3060), 28); // 6.3 rounds
  EXPECT_EQ(getFusedDropoutOffset(172032, rtx3060), 4);
  EXPECT_EQ(getFusedDropoutOffset(172033, rtx3060), 8);
  // Doubles: 540,672 numbers in one round, and 86,016.
  EXPECT_EQ(getDistributionOffset(1081344, 2, h100), 8);
  EXPECT_EQ(getDistributionOffset(1081345, 2, h100), 12);
  EXPECT_EQ(getDistributionOffset(86017, 2, rtx3060), 8);
}

TEST_F(PhiloxOffsetTest, OrdersAndRows) {
  // Keys of 1000 elements: four blocks, 2,048 keys in one round. Then one for
  // each element, rounded up to a multiple of four.
  EXPECT_EQ(getPermutationOffset(1000, h100), 4 + 1000);
  EXPECT_EQ(getPermutationOffset(1001, h100), 4 + 1004);
  EXPECT_EQ(getPermutationOffset(0, h100), 0);
  EXPECT_EQ(getReplacementOffset(10), 4);
  EXPECT_EQ(getReplacementOffset(65536), 8);
}

TEST_F(PhiloxOffsetTest, OfOperations) {
  func::FuncOp function = parse(R"(
    func.func @f(%x: tensor<1081345xf32>, %y: tensor<1081345xf64>, %p: tensor<3x5xf32>) {
      %0 = koila.dropout %x {name = "fused", p = 0.1 : f64, train = true} : (tensor<1081345xf32>) -> tensor<1081345xf32>
      %1 = koila.dropout %y {name = "fused_double", p = 0.1 : f64, train = true} : (tensor<1081345xf64>) -> tensor<1081345xf64>
      %2 = koila.dropout %y {name = "in_place", p = 0.1 : f64, tied, train = true} : (tensor<1081345xf64>) -> tensor<1081345xf64>
      %3 = koila.dropout %x {name = "all", p = 1.0 : f64, train = true} : (tensor<1081345xf32>) -> tensor<1081345xf32>
      %4 = koila.randint_like %x {name = "narrow", high = 268435455 : i64} : (tensor<1081345xf32>) -> tensor<1081345xf32>
      %5 = koila.randint_like %x {name = "wide", high = 268435456 : i64} : (tensor<1081345xf32>) -> tensor<1081345xf32>
      %6 = koila.bernoulli %p {name = "probabilities"} : (tensor<3x5xf32>) -> tensor<3x5xf32>
      %7 = koila.multinomial %p {name = "rows", num_samples = 2 : i64, replacement = true} : (tensor<3x5xf32>) -> tensor<3x2xi64>
      %8 = koila.relu %x {name = "nothing"} : (tensor<1081345xf32>) -> tensor<1081345xf32>
      return
    })");
  DimAnalysis dims(function);
  auto lookup = [&](Value value) -> std::optional<ConcreteTensor> {
    auto type = cast<RankedTensorType>(value.getType());
    return ConcreteTensor{SmallVector<int64_t>(type.getShape()),
                          type.getElementType()};
  };
  std::pair<StringRef, int64_t> expected[] = {
      // A dropout that is one kernel draws floats for doubles, too.
      {"fused", 8},
      {"fused_double", 8},
      {"in_place", 12},
      {"all", 0},
      {"narrow", 8},
      {"wide", 12},
      // Ten, rounded up.
      {"probabilities", 12},
      {"rows", 4},
      {"nothing", 0}};
  for (auto [name, offset] : expected)
    EXPECT_EQ(getPhiloxOffset(op(name), lookup, h100), offset) << name.str();
}

// What tiles draw from masks of the whole batch leaves the generator where the
// untiled program does, and what they draw themselves does not.
TEST_F(PhiloxOffsetTest, OfTiledPrograms) {
  constexpr StringLiteral kText = R"(
    func.func @f(%x: tensor<?x100000xf32> {koila.dims = #koila.dims<[B, 100000]>}) -> tensor<?x100000xf32> {
      %0 = koila.relu %x : (tensor<?x100000xf32>) -> tensor<?x100000xf32>
      %1 = koila.dropout %0 {p = 0.1 : f64, train = true} : (tensor<?x100000xf32>) -> tensor<?x100000xf32>
      %2 = koila.randn_like %1 : (tensor<?x100000xf32>) -> tensor<?x100000xf32>
      %3 = koila.mul_Tensor %1, %2 : (tensor<?x100000xf32>, tensor<?x100000xf32>) -> tensor<?x100000xf32>
      return %3 : tensor<?x100000xf32>
    })";
  // 6,400,000 / 1,081,344 = 5.9 rounds, of each of the two.
  func::FuncOp function = parse(kText, 64);
  EXPECT_EQ(getPhiloxOffset(function, h100), 2 * 6 * 4);
  function->setAttr(kDrawsOnAttr, StringAttr::get(&context, "cuda"));
  ASSERT_TRUE(
      succeeded(TiledFunction::create(function, "B", RandomMode::FullBatch)));
  EXPECT_EQ(getPhiloxOffset(function, h100), 2 * 6 * 4);
  // The loops draw both in each of 16 tiles of four: 400,000 numbers, one
  // round.
  function = parse(kText, 64);
  auto tiled = TiledFunction::create(function, "B", RandomMode::PerTile);
  ASSERT_TRUE(succeeded(tiled));
  EXPECT_EQ(getPhiloxOffset(function, h100), std::nullopt);
  int64_t inTiles = 0;
  auto lookup = [&](Value value) -> std::optional<ConcreteTensor> {
    return ConcreteTensor{{4, 100000}, getElementTypeOrSelf(value.getType())};
  };
  function.walk([&](Operation *op) {
    if (op->getNumRegions() == 0 && op->getParentOp() != function)
      inTiles += 16 * *getPhiloxOffset(op, lookup, h100);
  });
  EXPECT_EQ(inTiles, 16 * 2 * 4);
}
