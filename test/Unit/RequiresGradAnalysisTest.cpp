//===- RequiresGradAnalysisTest.cpp - Values to which a gradient flows ----===//

#include "koila/Analysis/RequiresGradAnalysis.h"
#include "AnalysisFixture.h"

using namespace mlir;
using namespace koila;

namespace {
class GradientFlowTest : public AnalysisTest {
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

TEST_F(GradientFlowTest, FromTrainedWeightsAndArguments) {
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

TEST_F(GradientFlowTest, NotToIntegersAndTruth) {
  analyse(R"(koila.param @w : tensor<8xf32> keys ["w"] strides [1] requires_grad
    func.func @f() {
    %w = koila.param.get @w : tensor<8xf32>
    %0 = koila.gt_Scalar %w {name = "truth", other = 0.0 : f64} : (tensor<8xf32>) -> tensor<8xi1>
    %1 = koila.argmax %w {name = "place"} : (tensor<8xf32>) -> tensor<i64>
    return })");
  EXPECT_FALSE(wants("truth"));
  EXPECT_FALSE(wants("place"));
}

TEST_F(GradientFlowTest, WritesReachAllViews) {
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

TEST_F(GradientFlowTest, LeavesHaveGradientsOfTheirOwn) {
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
