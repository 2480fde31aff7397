//===- DimAnalysisTest.cpp - Symbolic shapes of values --------------------===//

#include "koila/Analysis/DimAnalysis.h"
#include "AnalysisFixture.h"

using namespace mlir;
using namespace koila;

namespace {
class DimAnalysisTest : public AnalysisTest {
protected:
  /// `B x 64 : f32`, or what is unknown.
  std::string describe(Value value) {
    const ValueInfo &info = dims->lookup(value);
    std::string text;
    llvm::raw_string_ostream os(text);
    if (!info.tensor) {
      if (info.integer)
        os << info.integer;
      return text;
    }
    if (!info.tensor->hasRank())
      os << "?";
    else
      llvm::interleave(*info.tensor->dims, os, " x ");
    os << " : ";
    if (info.tensor->elementType)
      os << info.tensor->elementType;
    else
      os << "?";
    return text;
  }
  void analyse(StringRef body) { dims.emplace(parse(body)); }

  std::optional<DimAnalysis> dims;
};
} // namespace

TEST_F(DimAnalysisTest, FactsOfArgumentsFlowThroughUnknownTypes) {
  analyse(R"(func.func @f(
      %x: tensor<?x3x8xf32> {koila.dims = #koila.dims<[B, 3, 8]>}) {
    %0 = koila.relu %x {name = "a"}
        : (tensor<?x3x8xf32>) -> tensor<*x!koila.any>
    %1 = koila.flatten_using_ints %0 {start_dim = 1 : i64, name = "b"}
        : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    %2 = koila.flatten_using_ints %0 {name = "c"}
        : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return })");
  ASSERT_TRUE(dims->isValid());
  EXPECT_EQ(describe(value("a")), "B x 3 x 8 : f32");
  EXPECT_EQ(describe(value("b")), "B x 24 : f32");
  EXPECT_EQ(describe(value("c")), "24*B : f32");
}

TEST_F(DimAnalysisTest, SizesAreIntegersAndShapesAgain) {
  analyse(R"(func.func @f(
      %x: tensor<?x6xf32> {koila.dims = #koila.dims<[B, 6]>}) {
    %s = koila.size_int %x {dim = 0 : i64, name = "s"}
        : (tensor<?x6xf32>) -> i64
    %0 = koila.view %x sizes(%s)
        {size = array<i64: -9223372036854775808, 2, -1>, name = "v"}
        : (tensor<?x6xf32>, i64) -> tensor<*x!koila.any>
    return })");
  EXPECT_EQ(describe(value("s")), "B");
  EXPECT_EQ(describe(value("v")), "B x 2 x 3 : f32");
}

// Data decides the integer: it is a symbol of its own, the same wherever it
// is used.
TEST_F(DimAnalysisTest, UnknownIntegersAreSymbolsOfTheirOwn) {
  analyse(R"(func.func @f(%n: index, %m: index) {
    %0 = tensor.empty(%n, %n) {name = "a"} : tensor<?x?xf32>
    %1 = tensor.empty(%m) {name = "b"} : tensor<?xf32>
    return })");
  auto dim = [&](StringRef name, int64_t index) {
    return dims->lookup(value(name)).tensor->dim(index);
  };
  EXPECT_EQ(dim("a", 0), dim("a", 1));
  EXPECT_NE(dim("a", 0), dim("b", 0));
  EXPECT_TRUE(dim("a", 0).hasLocalSymbol());
}

TEST_F(DimAnalysisTest, BranchesThatDifferLoseTheExtentTheyDifferIn) {
  analyse(R"(func.func @f(%p: i1,
      %x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>},
      %y: tensor<?x8xf32> {koila.dims = #koila.dims<[B, 8]>}) {
    %0 = scf.if %p -> (tensor<?x?xf32>) {
      %a = tensor.cast %x : tensor<?x4xf32> to tensor<?x?xf32>
      scf.yield %a : tensor<?x?xf32>
    } else {
      %b = tensor.cast %y : tensor<?x8xf32> to tensor<?x?xf32>
      scf.yield %b : tensor<?x?xf32>
    } {name = "r"}
    return })");
  const TensorInfo &info = *dims->lookup(value("r")).tensor;
  EXPECT_EQ(info.dim(0).str(), "B");
  EXPECT_EQ(info.dim(1).getConstant(), std::nullopt);
  EXPECT_TRUE(info.dim(1).hasLocalSymbol());
}

// What is computed from a loop-carried integer keeps its relation to it: the
// tile sizes of a tiled program depend on this.
TEST_F(DimAnalysisTest, CarriedIntegersKeepTheirRelations) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c8 = arith.constant 8 : index
    %r = scf.for %i = %c0 to %c8 step %c1 iter_args(%n = %c8) -> (index) {
      %twice = arith.muli %n, %c2 {name = "twice"} : index
      %e = tensor.empty(%n) {name = "e"} : tensor<?xf32>
      %half = arith.floordivsi %n, %c2 : index
      scf.yield %half : index
    }
    return })");
  DimExpr carried = dims->lookup(value("e")).tensor->dim(0);
  EXPECT_EQ(carried.getConstant(), std::nullopt);
  EXPECT_EQ(dims->lookup(value("twice")).integer, carried * 2);
}

TEST_F(DimAnalysisTest, WhatPyTorchRefusesIsDiagnosedAtTheOperation) {
  std::vector<std::string> errors;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    errors.push_back(diagnostic.str());
  });
  analyse(R"(func.func @f(%x: tensor<2x3xf32>, %w: tensor<5x4xf32>) {
    %0 = koila.relu %x : (tensor<2x3xf32>) -> tensor<*x!koila.any>
    %1 = koila.linear %0, %w
        : (tensor<*x!koila.any>, tensor<5x4xf32>) -> tensor<*x!koila.any>
    return })");
  EXPECT_FALSE(dims->isValid());
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0], "'koila.linear' op the weight takes 4 features, the "
                       "input has 3");
}

TEST_F(DimAnalysisTest, StridesFollowTheMemoryFormat) {
  analyse(R"(func.func @f(
      %x: tensor<?x3x8x8xf32> {koila.dims = #koila.dims<[B, 3, 8, 8]>,
                               koila.memory_format = "channels_last"}) {
    %0 = koila.relu %x {name = "a"}
        : (tensor<?x3x8x8xf32>) -> tensor<?x3x8x8xf32>
    return })");
  const TensorInfo &info = *dims->lookup(value("a")).tensor;
  EXPECT_EQ(info.isChannelsLast(), TriBool::Yes);
  EXPECT_EQ(info.isContiguous(), TriBool::No);
}
