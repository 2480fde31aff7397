//===- KernelLibraryTest.cpp - Models by target ---------------------------===//

#include "AnalysisFixture.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Dialect/Koila/IR/PointwiseOps.h"
#include "koila/Interfaces/BackwardRule.h"
#include "koila/KernelModels/KernelModel.h"
#include "llvm/Support/Error.h"
#include <map>

using namespace mlir;
using namespace koila;

namespace {
class KernelLibraryTest : public AnalysisTest {
protected:
  KernelLibraries &libraries() {
    return KernelLibraries::getOrAdd(*context.getLoadedDialect<KoilaDialect>());
  }
};

void first(WorkspaceRule &) {}
void second(WorkspaceRule &) {}
void saved(SavedRule &) {}
} // namespace

TEST_F(KernelLibraryTest, OwnRowsComeBeforeThoseOfTheBase) {
  KernelLibrary *base = libraries().addBase("base");
  base->add<ReluOp>({.forward = first, .saved = saved});
  base->add<ExpOp>({.forward = first});
  KernelLibrary *own = libraries().add("own", base);
  own->add<ReluOp>({.forward = second});
  EXPECT_EQ(own->find(TypeID::get<ReluOp>()).forward, second);
  // Member by member.
  EXPECT_EQ(own->find(TypeID::get<ReluOp>()).saved, saved);
  EXPECT_EQ(own->find(TypeID::get<ExpOp>()).forward, first);
  EXPECT_EQ(own->find(TypeID::get<SigmoidOp>()).forward, nullptr);
  EXPECT_EQ(libraries().add("own"), nullptr);
  // What others are built on is no target.
  SmallVector<StringRef> targets = libraries().getTargets();
  EXPECT_TRUE(llvm::is_contained(targets, "own"));
  EXPECT_TRUE(llvm::is_contained(targets, "cuda"));
  EXPECT_FALSE(llvm::is_contained(targets, "base"));
}

TEST_F(KernelLibraryTest, TwoRowsOfOneOperationAreAnError) {
  KernelLibrary *own = libraries().add("own");
  own->add<ReluOp>({.forward = first});
  own->add<ReluOp>({.saved = saved});
  EXPECT_DEATH(own->add<ReluOp>({.forward = second}),
               "two kernel models of 'koila.relu' in 'own'");
}

// The list may only become shorter.
TEST_F(KernelLibraryTest, WhatTheCPUHasNoModelOf) {
  SmallVector<RegisteredOperationName> operations(
      context.getRegisteredOperationsByDialect("koila"));
  EXPECT_GT(operations.size(), 600u);
  EXPECT_EQ(libraries().lookup("cpu")->findMissing(operations),
            (SmallVector<StringRef>{
                "koila._pack_padded_sequence", "koila._pad_packed_sequence",
                "koila._scaled_dot_product_attention_math", "koila.bincount",
                "koila.conv_tbc", "koila.histc", "koila.linalg_qr",
                "koila.pinverse", "koila.repeat_interleave_Tensor",
                "koila.repeat_interleave_self_Tensor", "koila.unique_dim"}));
}

TEST_F(KernelLibraryTest, ARegistryMayBeAppliedTwice) {
  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  context.appendDialectRegistry(registry);
  EXPECT_TRUE(libraries().lookup("cpu"));
}

TEST(KernelLibraries, ForgettingTheRegistrationIsAnError) {
  DialectRegistry registry;
  registerAllDialects(registry);
  MLIRContext context(registry);
  context.loadDialect<KoilaDialect>();
  auto module = parseSourceString<ModuleOp>(
      R"(func.func @f(%x: tensor<4xf32>) {
        %0 = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
        return })",
      &context);
  std::string error;
  ScopedDiagnosticHandler handler(
      &context, [&](Diagnostic &diagnostic) { error = diagnostic.str(); });
  func::FuncOp function = *module->getOps<func::FuncOp>().begin();
  EXPECT_FALSE(PeakMemoryAnalysis(function).isValid());
  EXPECT_EQ(error, "no kernel models are registered; a tool calls "
                   "koila::registerAllExtensions(registry)");
}

// Tiling asks the library of the CPU which gradients are views of those that
// arrive (SharedGradients.cpp), whatever the target is.
TEST_F(KernelLibraryTest, GradientsAreViewsOnAllDevicesAlike) {
  func::FuncOp function = parse(R"(
    func.func @f(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>, %w: tensor<6x6xf32>, %b: tensor<6xf32>, %i: tensor<4x2x6x6xf32>) {
      %0 = koila.add_Tensor %x, %y {alpha = 1 : i64} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
      %1 = koila.sub_Tensor %x, %y {alpha = 1 : i64} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
      %2 = koila.add_Tensor %x, %b {alpha = 1 : i64} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
      %3 = koila.mul_Tensor %x, %y : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
      %4 = koila.view %x {size = array<i64: 24>} : (tensor<4x6xf32>) -> tensor<24xf32>
      %5 = koila.permute %x {dims = array<i64: 1, 0>} : (tensor<4x6xf32>) -> tensor<6x4xf32>
      %6 = koila.expand %b {implicit = false, size = array<i64: 4, 6>} : (tensor<6xf32>) -> tensor<4x6xf32>
      %7 = koila.cat %x, %y {dim = 0 : i64} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
      %8 = koila.sum %x : (tensor<4x6xf32>) -> tensor<f32>
      %9 = koila.mean %x : (tensor<4x6xf32>) -> tensor<f32>
      %10 = koila.linear %x, %w, %b : (tensor<4x6xf32>, tensor<6x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
      %11 = koila.relu %x : (tensor<4x6xf32>) -> tensor<4x6xf32>
      %12 = koila.softmax_int %x {dim = 1 : i64} : (tensor<4x6xf32>) -> tensor<4x6xf32>
      %14 = koila.layer_norm %x weight %b bias %b {normalized_shape = array<i64: 6>} : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
      %13 = koila.dropout %x {p = 0.5 : f64, train = true} : (tensor<4x6xf32>) -> tensor<4x6xf32>
      %15 = koila.max_pool2d %i {dilation = array<i64: 1, 1>, kernel_size = array<i64: 2, 2>, padding = array<i64: 0, 0>, stride = array<i64: 2, 2>} : (tensor<4x2x6x6xf32>) -> tensor<4x2x3x3xf32>
      %16 = koila.mse_loss %x, %y {reduction = 1 : i64} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<f32>
      return
    })");
  auto lookup = [](Value value) -> std::optional<ConcreteTensor> {
    auto type = cast<RankedTensorType>(value.getType());
    return ConcreteTensor{SmallVector<int64_t>(type.getShape()),
                          type.getElementType()};
  };
  // Of each operand whether it gets the gradient itself, a view of it, or a new
  // tensor.
  auto describe = [&](StringRef name, Operation *op) {
    const KernelLibrary *library = libraries().lookup(name);
    WorkspaceTarget target;
    target.leaves = library->getLeaves();
    target.profile = library->getProfile();
    std::optional<ConcreteTensor> arrives[] = {lookup(op->getResult(0))};
    auto wants = [](Value) { return true; };
    BackwardRule rule(op, target, lookup, wants, arrives);
    library->describeBackward(rule);
    std::map<unsigned, std::string> shares;
    for (const BackwardRule::Output &output : rule.getOutputs())
      shares[output.operand] = !output.of      ? "new"
                               : output.isSame ? "same"
                                               : "view";
    return shares;
  };
  std::map<std::string, unsigned> seen;
  for (Operation &op : function.getOps())
    if (op.getNumResults() > 0) {
      auto expected = describe("cpu", &op);
      EXPECT_EQ(expected.size(), op.getNumOperands())
          << op.getName().getStringRef().str();
      for (StringRef device : {"cuda", "h100-80gb-hbm3"})
        EXPECT_EQ(describe(device, &op), expected)
            << op.getName().getStringRef().str();
      for (auto &[operand, share] : expected)
        ++seen[share];
    }
  EXPECT_GT(seen["same"], 3u);
  EXPECT_GT(seen["view"], 3u);
  EXPECT_GT(seen["new"], 5u);
}

static std::string getProblem(StringRef json) {
  auto profile = DeviceProfile::parse(json);
  return profile ? "" : llvm::toString(profile.takeError());
}

TEST(DeviceProfile, RowsAreChecked) {
  EXPECT_EQ(getProblem(R"({"device": "a", "rows": [{"key": "k", "bytes": 1,
      "trust": "exact", "source": "s"}]})"),
            "");
  EXPECT_EQ(getProblem("{}"),
            "a device profile: an object with 'device' and 'rows' is expected");
  for (StringRef row :
       {R"({"bytes": 1, "trust": "exact", "source": "s"})",
        R"({"key": "k", "bytes": -1, "trust": "exact", "source": "s"})",
        R"({"key": "k", "bytes": 1, "trust": "perhaps", "source": "s"})",
        R"({"key": "k", "bytes": 1, "trust": "exact"})", "3"})
    EXPECT_EQ(getProblem((R"({"device": "a", "rows": [)" + row + "]}").str()),
              "a device profile: row 0 needs 'key', 'bytes' of zero or more, "
              "'source', and 'trust', which is exact, bound or unknown");
  EXPECT_EQ(getProblem(R"({"device": "a", "rows": [
      {"key": "k", "bytes": 1, "trust": "exact", "source": "s"},
      {"key": "k", "bytes": 2, "trust": "exact", "source": "s"}]})"),
            "a device profile: row 1 has the key 'k' once more");
}

TEST(DeviceProfile, PropertiesAreChecked) {
  auto getProblemOf = [](StringRef properties) {
    return getProblem(
        (R"({"device": "a", "rows": [], "properties": )" + properties + "}")
            .str());
  };
  EXPECT_EQ(getProblemOf(R"({"capability": {"value": [9, 0], "source": "s"},
      "multiprocessors": {"value": 132, "source": "s"}})"),
            "");
  EXPECT_EQ(getProblemOf(R"({"multiprocessors": {"value": 132}})"),
            "a device profile: property 'multiprocessors' needs 'value' and "
            "'source'");
  EXPECT_EQ(getProblemOf(R"({"capability": {"value": [9], "source": "s"}})"),
            "a device profile: property 'capability' is a list of two numbers");
  EXPECT_EQ(getProblemOf(R"({"total_bytes": {"value": 0, "source": "s"}})"),
            "a device profile: property 'total_bytes' is a number above zero");
  EXPECT_EQ(getProblemOf(R"({"speed": {"value": 1, "source": "s"}})"),
            "a device profile: property 'speed' is unknown");
  EXPECT_EQ(getProblem(R"({"schema": 2, "device": "a", "rows": []})"),
            "a device profile: schema 2 is not known; this version reads "
            "schema 1");
}

// They are what the page says.
TEST(DeviceProfile, ThoseThatAreShipped) {
  llvm::StringMap<const DeviceProfile *> shipped;
  for (const DeviceProfile &profile : DeviceProfile::getShipped())
    shipped[profile.getDevice()] = &profile;
  ASSERT_TRUE(shipped.contains("h100-80gb-hbm3"));
  const DeviceProperties &h100 = shipped["h100-80gb-hbm3"]->getProperties();
  EXPECT_EQ(h100.major, 9);
  EXPECT_EQ(h100.multiprocessors, 132);
  EXPECT_EQ(h100.threadsPerMultiprocessor, 2048);
  ASSERT_TRUE(shipped.contains("rtx-3060"));
  EXPECT_EQ(shipped["rtx-3060"]->getProperties().threadsPerMultiprocessor,
            1536);
}

TEST(DeviceProfile, ABoundIsSaidWithItsSource) {
  DeviceProfile profile("a");
  profile.add("k", {7, Trust::UpperBound, "a table"});
  WorkspaceTarget target;
  auto lookup = [](Value) { return std::optional<ConcreteTensor>(); };
  WorkspaceRule rule(nullptr, target, lookup);
  EXPECT_EQ(profile.read(rule, "k"), 7);
  ASSERT_EQ(rule.getDoubts().getAll().size(), 1u);
  const Doubt &doubt = rule.getDoubts().getAll().front();
  EXPECT_EQ(doubt.trust, Trust::UpperBound);
  EXPECT_EQ(doubt.reason, "'k' of the profile of 'a'");
  EXPECT_EQ(doubt.source, "a table");
}
