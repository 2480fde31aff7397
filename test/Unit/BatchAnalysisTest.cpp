//===- BatchAnalysisTest.cpp - Where the batch is in values ---------------===//

#include "koila/Analysis/BatchAnalysis.h"
#include "AnalysisFixture.h"

using namespace mlir;
using namespace koila;

namespace {
class BatchAnalysisTest : public AnalysisTest {
protected:
  void analyse(StringRef body) {
    func::FuncOp function = parse(body);
    dims.emplace(function);
    batch.emplace(function, *dims, "B");
  }
  std::string describe(Value value) {
    const BatchFact &fact = batch->lookup(value);
    switch (fact.kind) {
    case BatchFact::Kind::Unset:
      return "unset";
    case BatchFact::Kind::Free:
      return "free";
    case BatchFact::Kind::At:
      return "at " + std::to_string(fact.dim) + " by " +
             std::to_string(fact.factor);
    case BatchFact::Kind::Inner:
      if (fact.isSelected())
        return "selected " + std::to_string(fact.dim);
      return "inner " + std::to_string(fact.dim) + " by " +
             std::to_string(fact.factor) + ", " + fact.outer.str() + " times";
    case BatchFact::Kind::Mixed:
      return "mixed: " + fact.reason;
    }
    return "";
  }

  std::optional<DimAnalysis> dims;
  std::optional<BatchAnalysis> batch;
};
} // namespace

TEST_F(BatchAnalysisTest, SymbolsOfArgumentDimsAreTheBatch) {
  func::FuncOp function = parse(R"(func.func @f(
      %a: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>},
      %b: tensor<3x?xf32> {koila.dims = #koila.dims<[3, 2*B]>},
      %c: tensor<3xf32>,
      %d: tensor<?xf32> {koila.dims = #koila.dims<[B + 1]>},
      %e: tensor<?x?xf32> {koila.dims = #koila.dims<[B, B]>}) { return })");
  dims.emplace(function);
  batch.emplace(function, *dims, "B");
  EXPECT_EQ(describe(function.getArgument(0)), "at 0 by 1");
  EXPECT_EQ(describe(function.getArgument(1)), "at 1 by 2");
  EXPECT_EQ(describe(function.getArgument(2)), "free");
  EXPECT_EQ(describe(function.getArgument(3)),
            "mixed: extent B + 1 of an argument is no multiple of B");
  EXPECT_EQ(describe(function.getArgument(4)),
            "mixed: an argument has the batch in two dims");
}

TEST_F(BatchAnalysisTest, FlattenKeepsSamplesThatStartTheGroup) {
  analyse(R"(func.func @f(
      %x: tensor<?x3x4xf32> {koila.dims = #koila.dims<[B, 3, 4]>},
      %y: tensor<3x?x4xf32> {koila.dims = #koila.dims<[3, B, 4]>}) {
    %0 = koila.flatten_using_ints %x {name = "all"}
        : (tensor<?x3x4xf32>) -> tensor<*xf32>
    %1 = koila.flatten_using_ints %y {start_dim = 1 : i64, name = "tail"}
        : (tensor<3x?x4xf32>) -> tensor<*xf32>
    %2 = koila.flatten_using_ints %y {name = "second"}
        : (tensor<3x?x4xf32>) -> tensor<*xf32>
    return })");
  EXPECT_EQ(describe(value("all")), "at 0 by 12");
  EXPECT_EQ(describe(value("tail")), "at 1 by 4");
  EXPECT_EQ(describe(value("second")), "inner 0 by 4, 3 times");
}

TEST_F(BatchAnalysisTest, RowsKeepTheirOrder) {
  analyse(R"(func.func @f(
      %x: tensor<3x?x4xf32> {koila.dims = #koila.dims<[3, B, 4]>},
      %y: tensor<?x4xf32> {koila.dims = #koila.dims<[3*B, 4]>}) {
    %rows = koila.flatten_using_ints %x {end_dim = 1 : i64, name = "rows"}
        : (tensor<3x?x4xf32>) -> tensor<*xf32>
    %relu = koila.relu %rows {name = "relu"} : (tensor<*xf32>) -> tensor<*xf32>
    %n = koila.size_int %relu {dim = 0 : i64, name = "count"}
        : (tensor<*xf32>) -> i64
    %sum = koila.sum_dim_IntList %relu {dim = array<i64: 1>, name = "sum"}
        : (tensor<*xf32>) -> tensor<*xf32>
    %both = koila.add_Tensor %relu, %y {alpha = 1 : i64, name = "both"}
        : (tensor<*xf32>, tensor<?x4xf32>) -> tensor<*xf32>
    %apart = koila.view %relu {size = array<i64: 3, -1, 4>, name = "apart"}
        : (tensor<*xf32>) -> tensor<*xf32>
    return })");
  EXPECT_EQ(describe(value("rows")), "inner 0 by 1, 3 times");
  EXPECT_EQ(describe(value("relu")), "inner 0 by 1, 3 times");
  EXPECT_EQ(describe(value("count")), "at -1 by 3");
  EXPECT_EQ(describe(value("sum")), "inner 0 by 1, 3 times");
  EXPECT_EQ(describe(value("both")), "mixed: the rows of the operands belong "
                                     "to samples in different orders");
  EXPECT_EQ(describe(value("apart")), "at 1 by 1");
}

TEST_F(BatchAnalysisTest, BroadcastMeetsTheSameDimOnly) {
  analyse(R"(func.func @f(
      %x: tensor<?x1xf32> {koila.dims = #koila.dims<[B, 1]>},
      %y: tensor<?xf32> {koila.dims = #koila.dims<[B]>},
      %w: tensor<8x1xf32>, %v: tensor<1x5xf32>) {
    %0 = koila.mul_Tensor %x, %x {name = "same"}
        : (tensor<?x1xf32>, tensor<?x1xf32>) -> tensor<*xf32>
    %1 = koila.mul_Tensor %x, %y {name = "outer"}
        : (tensor<?x1xf32>, tensor<?xf32>) -> tensor<*xf32>
    %2 = koila.mul_Tensor %x, %w {name = "fixed"}
        : (tensor<?x1xf32>, tensor<8x1xf32>) -> tensor<*xf32>
    %3 = koila.mul_Tensor %v, %x {name = "row"}
        : (tensor<1x5xf32>, tensor<?x1xf32>) -> tensor<*xf32>
    return })");
  EXPECT_EQ(describe(value("same")), "at 0 by 1");
  EXPECT_EQ(describe(value("outer")).substr(0, 6), "mixed:");
  EXPECT_EQ(describe(value("fixed")).substr(0, 6), "mixed:");
  EXPECT_EQ(describe(value("row")), "at 0 by 1");
}

TEST_F(BatchAnalysisTest, ReductionsOverTheBatchMix) {
  analyse(R"(func.func @f(
      %x: tensor<?x3x4xf32> {koila.dims = #koila.dims<[B, 3, 4]>}) {
    %0 = koila.mean_dim %x {dim = array<i64: 2>, name = "columns"}
        : (tensor<?x3x4xf32>) -> tensor<*xf32>
    %1 = koila.mean_dim %x {dim = array<i64: -3>, name = "samples"}
        : (tensor<?x3x4xf32>) -> tensor<*xf32>
    %2 = koila.mean_dim %x {name = "all"}
        : (tensor<?x3x4xf32>) -> tensor<*xf32>
    %3 = koila.softmax_int %x {dim = 0 : i64, name = "softmax"}
        : (tensor<?x3x4xf32>) -> tensor<*xf32>
    %4 = koila.softmax_int %x {dim = -1 : i64, name = "rows"}
        : (tensor<?x3x4xf32>) -> tensor<*xf32>
    return })");
  EXPECT_EQ(describe(value("columns")), "at 0 by 1");
  EXPECT_EQ(describe(value("samples")), "mixed: mean over dim 0 mixes samples");
  EXPECT_EQ(describe(value("all")), "mixed: mean over dim 0 mixes samples");
  EXPECT_EQ(describe(value("softmax")),
            "mixed: softmax over dim 0 mixes samples");
  EXPECT_EQ(describe(value("rows")), "at 0 by 1");
}

// A reason is said once, where samples met, not at every later operation.
TEST_F(BatchAnalysisTest, TheFirstReasonTravels) {
  analyse(R"(func.func @f(
      %x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>}) {
    %0 = koila.softmax_int %x {dim = 0 : i64, name = "origin"}
        : (tensor<?x4xf32>) -> tensor<*xf32>
    %1 = koila.mean_dim %0 {dim = array<i64: 0>, name = "later"}
        : (tensor<*xf32>) -> tensor<*xf32>
    return })");
  EXPECT_EQ(batch->lookup(value("later")).origin, op("origin"));
  EXPECT_EQ(describe(value("later")), describe(value("origin")));
}

// What reads no batch has none, opaque operators included; what reads it
// through an opaque operator is mixed.
TEST_F(BatchAnalysisTest, OpaqueOperatorsMixOnlyWhatTheyRead) {
  analyse(R"(func.func @f(%w: tensor<4xf32>,
      %x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>}) {
    %0 = koila.torch_op "aten::erfinv"(%w) args [#koila.operand<0>]
        effects none {name = "free"} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = koila.torch_op "aten::erfinv"(%x) args [#koila.operand<0>]
        effects none {name = "batched"} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    return })");
  EXPECT_EQ(describe(value("free")), "free");
  EXPECT_EQ(describe(value("batched")),
            "mixed: koila does not know how 'aten::erfinv' treats samples");
}

TEST_F(BatchAnalysisTest, ViewsKeepSamplesApartBySizesOfTheBatch) {
  analyse(R"(func.func @f(
      %x: tensor<?x6xf32> {koila.dims = #koila.dims<[B, 6]>}) {
    %s = koila.size_int %x {dim = 0 : i64, name = "size"}
        : (tensor<?x6xf32>) -> i64
    %0 = koila.view %x sizes(%s)
        {size = array<i64: -9223372036854775808, 6>, name = "dynamic"}
        : (tensor<?x6xf32>, i64) -> tensor<*xf32>
    %1 = koila.view %x {size = array<i64: -1, 3>, name = "split"}
        : (tensor<?x6xf32>) -> tensor<*xf32>
    %2 = koila.view %x {size = array<i64: 6, -1>, name = "turned"}
        : (tensor<?x6xf32>) -> tensor<*xf32>
    %3 = koila.view %x {size = array<i64: -1, 4>, name = "across"}
        : (tensor<?x6xf32>) -> tensor<*xf32>
    return })");
  EXPECT_EQ(describe(value("dynamic")), "at 0 by 1");
  EXPECT_EQ(describe(value("split")), "at 0 by 2");
  EXPECT_EQ(describe(value("turned")).substr(0, 6), "mixed:");
  EXPECT_EQ(describe(value("across")).substr(0, 6), "mixed:");
  EXPECT_EQ(describe(value("size")), "at -1 by 1");
}

/// Rows that one mask selects belong together; those of two do not, nor is
/// there a place for them where their number matters.
TEST_F(BatchAnalysisTest, RowsAreSelectedByTheirMask) {
  analyse(R"(func.func @f(
      %x: tensor<?x5x3xf32> {koila.dims = #koila.dims<[B, 5, 3]>},
      %m: tensor<?x5xi1> {koila.dims = #koila.dims<[B, 5]>},
      %n: tensor<?x5xi1> {koila.dims = #koila.dims<[B, 5]>}) {
    %first = koila.index_Tensor %x, %m
        {name = "first", indices_mask = array<i1: true>}
        : (tensor<?x5x3xf32>, tensor<?x5xi1>) -> tensor<?x3xf32>
    %again = koila.index_Tensor %x, %m
        {name = "again", indices_mask = array<i1: true>}
        : (tensor<?x5x3xf32>, tensor<?x5xi1>) -> tensor<?x3xf32>
    %other = koila.index_Tensor %x, %n
        {name = "other", indices_mask = array<i1: true>}
        : (tensor<?x5x3xf32>, tensor<?x5xi1>) -> tensor<?x3xf32>
    %same = koila.mul_Tensor %first, %again {name = "same"}
        : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
    %meet = koila.mul_Tensor %first, %other {name = "meet"}
        : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
    %column = koila.sum_dim_IntList %first
        {name = "column", dim = array<i64: 1>, keepdim = false}
        : (tensor<?x3xf32>) -> tensor<?xf32>
    %rows = koila.log_softmax_int %first {name = "rows", dim = 0 : i64}
        : (tensor<?x3xf32>) -> tensor<?x3xf32>
    %few = koila.slice_Tensor %first
        {name = "few", dim = 0 : i64, start = 0 : i64, end = 2 : i64,
         step = 1 : i64}
        : (tensor<?x3xf32>) -> tensor<?x3xf32>
    %long = koila.view %first {name = "long", size = array<i64: -1>}
        : (tensor<?x3xf32>) -> tensor<?xf32>
    return })");
  EXPECT_EQ(describe(value("first")), "selected 0");
  EXPECT_EQ(describe(value("same")), "selected 0");
  EXPECT_EQ(describe(value("column")), "selected 0");
  for (StringRef mixed : {"meet", "rows", "few", "long"})
    EXPECT_TRUE(batch->lookup(value(mixed)).isMixed()) << mixed.str();
}
