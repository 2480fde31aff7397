//===- RequiresGradAnalysisTest.cpp - Values to which a gradient flows ----===//

#include "koila/Analysis/RequiresGradAnalysis.h"
#include "AnalysisFixture.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Operations of somebody else, of whose bytes nothing is known
//===----------------------------------------------------------------------===//

namespace elsewhere {
template <typename ConcreteOp>
using UnaryOp = Op<ConcreteOp, OpTrait::OneOperand, OpTrait::OneResult,
                   OpTrait::ZeroRegions, ShapeRuleInterface::Trait,
                   DifferentiationInterface::Trait>;

/// Lets a gradient pass if it is told to.
class GateOp : public UnaryOp<GateOp> {
public:
  using Op::Op;
  static StringRef getOperationName() { return "elsewhere.gate"; }
  static ArrayRef<StringRef> getAttributeNames() { return {}; }
  LogicalResult inferShapes(ShapeRule &rule) {
    rule.setResult(0, rule.tensor(getOperand()));
    return success();
  }
  void describeDifferentiation(DifferentiationRule &rule) {
    if (!(*this)->hasAttr("open") || !rule.wantsGradient(getOperand()))
      return rule.setDetached();
    if (isa_and_nonnull<FloatType>(rule.getElementType(getOperand())))
      rule.save((*this)->getResult(0));
    else
      rule.saveInner();
  }
};

class ElsewhereDialect : public Dialect {
public:
  explicit ElsewhereDialect(MLIRContext *context)
      : Dialect(getDialectNamespace(), context,
                TypeID::get<ElsewhereDialect>()) {
    addOperations<GateOp>();
  }
  static StringRef getDialectNamespace() { return "elsewhere"; }
};
} // namespace elsewhere

namespace {
class RequiresGradAnalysisTest : public AnalysisTest {
protected:
  void analyse(StringRef body) {
    func::FuncOp function = parse(body);
    dims.emplace(function);
    storage.emplace(function, *dims);
    flow.emplace(function, *dims, *storage);
  }
  bool wants(StringRef name) { return flow->wants(value(name)); }

  std::optional<DimAnalysis> dims;
  std::optional<StorageAnalysis> storage;
  std::optional<RequiresGradAnalysis> flow;
};
} // namespace

TEST_F(RequiresGradAnalysisTest, FromTrainedWeightsAndArguments) {
  analyse(R"(koila.param @w : tensor<8xf32> keys ["w"] strides [1] requires_grad
    koila.param @frozen : tensor<8xf32> keys ["frozen"] strides [1]
    func.func @f(%x: tensor<8xf32>, %g: tensor<8xf32> {koila.requires_grad}) {
    %w = koila.param.get @w : tensor<8xf32>
    %c = koila.param.get @frozen : tensor<8xf32>
    %0 = koila.mul_Tensor %x, %w {name = "trained"} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.mul_Tensor %x, %c {name = "frozen"} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %2 = koila.exp %g {name = "argument"} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = koila.detach %0 {name = "detached"} : (tensor<8xf32>) -> tensor<8xf32>
    return })");
  EXPECT_TRUE(wants("trained"));
  EXPECT_FALSE(wants("frozen"));
  EXPECT_TRUE(wants("argument"));
  EXPECT_FALSE(wants("detached"));
}

TEST_F(RequiresGradAnalysisTest, NotToIntegersAndTruth) {
  analyse(R"(koila.param @w : tensor<8xf32> keys ["w"] strides [1] requires_grad
    func.func @f() {
    %w = koila.param.get @w : tensor<8xf32>
    %0 = koila.gt_Scalar %w {name = "truth", other = 0.0 : f64} : (tensor<8xf32>) -> tensor<8xi1>
    %1 = koila.argmax %w {name = "place"} : (tensor<8xf32>) -> tensor<i64>
    return })");
  EXPECT_FALSE(wants("truth"));
  EXPECT_FALSE(wants("place"));
}

TEST_F(RequiresGradAnalysisTest, WritesReachAllViews) {
  analyse(R"(koila.param @w : tensor<4xf32> keys ["w"] strides [1] requires_grad
    func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
    %w = koila.param.get @w : tensor<4xf32>
    %0 = koila.exp %x {name = "whole", koila.reads} : (tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.slice_Tensor %0 {name = "part", dim = 0 : i64, end = 4 : i64, step = 1 : i64, koila.reads} : (tensor<8xf32>) -> tensor<4xf32>
    %2 = koila.add_Tensor tied %1, %w {name = "written", alpha = 1 : i64, koila.writes} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<8xf32> })");
  EXPECT_TRUE(wants("written"));
  EXPECT_TRUE(wants("whole"));
  EXPECT_FALSE(flow->wantsUnwritten(value("whole")));
}

TEST_F(RequiresGradAnalysisTest, LeavesHaveGradientsOfTheirOwn) {
  analyse(R"(
    func.func @f(%x: tensor<8xf32> {koila.requires_grad}) {
    %0 = koila.leaf %x {name = "leaf"} : (tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.exp %0 {name = "made"} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = koila.detach %x {name = "plain"} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = tensor.extract_slice %x[0] [4] [1] {name = "slice"} : tensor<8xf32> to tensor<4xf32>
    %4 = koila.leaf %3 {name = "part"} : (tensor<4xf32>) -> tensor<4xf32>
    %5 = koila.leaf.grad %0 {name = "gradient"} : (tensor<8xf32>) -> tensor<8xf32>
    return })");
  EXPECT_TRUE(wants("leaf"));
  EXPECT_TRUE(wants("made"));
  EXPECT_TRUE(wants("part"));
  EXPECT_FALSE(wants("plain"));
  EXPECT_FALSE(wants("gradient"));
  // Whatever the argument requires, nothing is recorded of it.
  EXPECT_FALSE(wants("slice"));
}

// No rule of bytes is asked, nor is a target there to ask it for.
TEST_F(RequiresGradAnalysisTest, ForeignOperationsSayWhetherAGradientPasses) {
  context.loadDialect<elsewhere::ElsewhereDialect>();
  analyse(R"(
    func.func @f(%x: tensor<8xf32> {koila.requires_grad}, %y: tensor<8xf32>) {
    %0 = "elsewhere.gate"(%x) {name = "open", open} : (tensor<8xf32>) -> tensor<8xf32>
    %1 = "elsewhere.gate"(%x) {name = "closed"} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = "elsewhere.gate"(%y) {name = "unwanted", open} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = arith.negf %x {name = "silent"} : tensor<8xf32>
    return })");
  EXPECT_TRUE(wants("open"));
  EXPECT_FALSE(wants("closed"));
  EXPECT_FALSE(wants("unwanted"));

  auto ask = [&](StringRef name) {
    return getDifferentiation(
        op(name), [&](Value value) { return flow->wants(value); },
        [&](Value value) { return dims->lookup(value).getElementType(); });
  };
  DifferentiationFacts open = ask("open");
  EXPECT_TRUE(open.isKnown());
  EXPECT_FALSE(open.savesInner);
  ASSERT_EQ(open.saved.size(), 1u);
  EXPECT_EQ(open.saved.front(), value("open"));
  EXPECT_FALSE(open.savesNothing());
  EXPECT_TRUE(ask("closed").isDetached);
  EXPECT_FALSE(ask("silent").isKnown());
}

// What the table of derivatives says of an operator depends on what wants a
// gradient, and not on extents, which are unknown here.
TEST_F(RequiresGradAnalysisTest, OperatorsSayWhatTheirGradientsRead) {
  analyse(R"(
    func.func @f(%x: tensor<*xf32> {koila.requires_grad}, %y: tensor<*xf32>) {
    %0 = koila.mul_Tensor %x, %y {name = "product"} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
    %1 = koila.matmul %x, %y {name = "matmul"} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
    %2 = koila.add_Tensor %x, %y {name = "sum", alpha = 1 : i64} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
    %3 = koila.mul_Tensor tied %2, %x {name = "written"} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
    %4 = koila.l1_loss %x, %y {name = "loss", reduction = 1 : i64} : (tensor<*xf32>, tensor<*xf32>) -> tensor<f32>
    return })");
  auto ask = [&](StringRef name) {
    return getDifferentiation(
        op(name), [&](Value value) { return flow->wants(value); },
        [&](Value value) { return dims->lookup(value).getElementType(); });
  };
  for (StringRef name : {"product", "matmul"}) {
    DifferentiationFacts facts = ask(name);
    EXPECT_TRUE(facts.isKnown()) << name.str();
    EXPECT_FALSE(facts.savesInner) << name.str();
    ASSERT_EQ(facts.saved.size(), 1u) << name.str();
    EXPECT_EQ(facts.saved.front(), op(name)->getOperand(1)) << name.str();
  }
  EXPECT_TRUE(ask("sum").savesNothing());
  DifferentiationFacts written = ask("written");
  ASSERT_EQ(written.overwritten.size(), 1u);
  EXPECT_EQ(written.overwritten.front(), value("sum"));
  EXPECT_TRUE(ask("loss").savesInner);
}
