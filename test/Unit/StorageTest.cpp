//===- StorageTest.cpp - Alias classes and tie resolution -----------------===//

#include "AnalysisFixture.h"

using namespace mlir;
using namespace koila;

namespace {
class StorageTest : public AnalysisTest {
protected:
  void analyse(StringRef body) {
    func::FuncOp function = parse(body);
    dims.emplace(function);
    storage.emplace(function, *dims);
    ties.emplace(function);
  }
  bool mayReuse(StringRef name) {
    EXPECT_EQ(ties->mayReuse(op(name)), storage->mayReuse(op(name)));
    return ties->mayReuse(op(name));
  }
  bool shareStorage(StringRef lhs, StringRef rhs) {
    return storage->lookup(value(lhs)) == storage->lookup(value(rhs));
  }

  std::optional<DimAnalysis> dims;
  std::optional<StorageAnalysis> storage;
  std::optional<TieResolution> ties;
};
} // namespace

TEST_F(StorageTest, LastUseOfOwnStorageMayBeOverwritten) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
    %0 = koila.exp %x {name = "a"} : (tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.relu tied %0 {name = "b"} : (tensor<8xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32> })");
  EXPECT_TRUE(mayReuse("b"));
  EXPECT_TRUE(shareStorage("a", "b"));
}

TEST_F(StorageTest, ArgumentsAndWeightsAreNeverOverwritten) {
  analyse(R"(koila.param @w : tensor<8xf32> keys ["w"] strides [1]
    func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %0 = koila.relu tied %x {name = "argument"} : (tensor<8xf32>) -> tensor<8xf32>
    %w = koila.param.get @w : tensor<8xf32>
    %1 = koila.relu tied %w {name = "weight"} : (tensor<8xf32>) -> tensor<8xf32>
    %v = koila.flatten_using_ints %x : (tensor<8xf32>) -> tensor<8xf32>
    %2 = koila.relu tied %v {name = "view"} : (tensor<8xf32>) -> tensor<8xf32>
    return %0, %1 : tensor<8xf32>, tensor<8xf32> })");
  EXPECT_FALSE(mayReuse("argument"));
  EXPECT_FALSE(mayReuse("weight"));
  EXPECT_FALSE(mayReuse("view"));
}

TEST_F(StorageTest, LaterUsesKeepTheOldContents) {
  analyse(R"(func.func @f(%x: tensor<2x4xf32>)
      -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<8xf32>) {
    %0 = koila.exp %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %1 = koila.relu tied %0 {name = "used"} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %2 = koila.exp %0 : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %3 = koila.relu tied %2 {name = "returned"} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %4 = koila.exp %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %v = koila.flatten_using_ints %4 : (tensor<2x4xf32>) -> tensor<8xf32>
    %5 = koila.relu tied %4 {name = "viewed"} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    return %1, %2, %v : tensor<2x4xf32>, tensor<2x4xf32>, tensor<8xf32> })");
  EXPECT_FALSE(mayReuse("used"));
  EXPECT_FALSE(mayReuse("returned"));
  EXPECT_FALSE(mayReuse("viewed"));
}

// A view writes through to what it is a view of.
TEST_F(StorageTest, WritingAViewNeedsTheBaseToBeDead) {
  analyse(
      R"(func.func @f(%x: tensor<2x4xf32>) -> (tensor<8xf32>, tensor<2x4xf32>, tensor<8xf32>) {
    %0 = koila.exp %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %v = koila.flatten_using_ints %0 : (tensor<2x4xf32>) -> tensor<8xf32>
    %1 = koila.relu tied %v {name = "baseAlive"} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = koila.exp %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %u = koila.flatten_using_ints %2 : (tensor<2x4xf32>) -> tensor<8xf32>
    %3 = koila.relu tied %u {name = "baseDead"} : (tensor<8xf32>) -> tensor<8xf32>
    return %1, %0, %3 : tensor<8xf32>, tensor<2x4xf32>, tensor<8xf32> })");
  EXPECT_FALSE(mayReuse("baseAlive"));
  EXPECT_TRUE(mayReuse("baseDead"));
}

TEST_F(StorageTest, AnOperandGivenTwiceIsNotOverwritten) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
    %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.mul_Tensor tied %0, %0 {name = "a"}
        : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32> })");
  EXPECT_FALSE(mayReuse("a"));
}

TEST_F(StorageTest, OneOfTwoTiesOnOneOperandIsResolved) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.relu tied %0 {name = "first"} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = koila.neg tied %0 {name = "last"} : (tensor<8xf32>) -> tensor<8xf32>
    return %1, %2 : tensor<8xf32>, tensor<8xf32> })");
  EXPECT_FALSE(mayReuse("first"));
  EXPECT_TRUE(mayReuse("last"));
  EXPECT_FALSE(shareStorage("first", "last"));
}

// The second iteration reads what was defined outside again.
TEST_F(StorageTest, LoopsReadOuterValuesAgain) {
  analyse(R"(func.func @f(%x: tensor<8xf32>, %n: index) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    scf.for %i = %c0 to %n step %c1 {
      %1 = koila.relu tied %0 {name = "outer"} : (tensor<8xf32>) -> tensor<8xf32>
      %2 = koila.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
      %3 = koila.relu tied %2 {name = "inner"} : (tensor<8xf32>) -> tensor<8xf32>
    }
    return })");
  EXPECT_FALSE(mayReuse("outer"));
  EXPECT_TRUE(mayReuse("inner"));
}

// The buffer of a tiled program: carried through the loop, written in place.
TEST_F(StorageTest, CarriedBuffersAreWrittenInPlace) {
  analyse(R"(func.func @f(%x: tensor<8xf32>, %n: index) -> tensor<8xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %0 = tensor.empty() {name = "buffer"} : tensor<8xf32>
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %0) -> tensor<8xf32> {
      %1 = koila.add_Tensor tied %a, %x {alpha = 1 : i64, name = "write"}
          : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      scf.yield %1 : tensor<8xf32>
    }
    return %r : tensor<8xf32> })");
  EXPECT_TRUE(mayReuse("write"));
  EXPECT_TRUE(shareStorage("buffer", "write"));
}

// -cse merges equal tensor.empty: one value then starts two buffers, and
// neither may write into it.
TEST_F(StorageTest, ABufferThatStartsTwoCarriedValuesIsShared) {
  analyse(
      R"(func.func @f(%x: tensor<8xf32>, %n: index) -> (tensor<8xf32>, tensor<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %0 = tensor.empty() : tensor<8xf32>
    %r:2 = scf.for %i = %c0 to %n step %c1
        iter_args(%a = %0, %b = %0) -> (tensor<8xf32>, tensor<8xf32>) {
      %1 = koila.add_Tensor tied %a, %x {alpha = 1 : i64, name = "left"}
          : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      %2 = koila.mul_Tensor tied %b, %x {name = "right"}
          : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      scf.yield %1, %2 : tensor<8xf32>, tensor<8xf32>
    }
    return %r#0, %r#1 : tensor<8xf32>, tensor<8xf32> })");
  EXPECT_FALSE(mayReuse("left"));
  EXPECT_FALSE(mayReuse("right"));
}

// The value carried in is used after the loop: it must keep its contents.
TEST_F(StorageTest, AnInitThatIsUsedAfterTheLoopIsKept) {
  analyse(
      R"(func.func @f(%x: tensor<8xf32>, %n: index) -> (tensor<8xf32>, tensor<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %0) -> tensor<8xf32> {
      %1 = koila.relu tied %a {name = "write"} : (tensor<8xf32>) -> tensor<8xf32>
      scf.yield %1 : tensor<8xf32>
    }
    return %r, %0 : tensor<8xf32>, tensor<8xf32> })");
  EXPECT_FALSE(mayReuse("write"));
}

// Every iteration reads the value that the buffer started as.
TEST_F(StorageTest, AnInitThatTheLoopReadsIsKept) {
  analyse(R"(func.func @f(%x: tensor<8xf32>, %n: index) -> tensor<8xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %0) -> tensor<8xf32> {
      %1 = koila.mul_Tensor tied %a, %0 {name = "write"}
          : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      scf.yield %1 : tensor<8xf32>
    }
    return %r : tensor<8xf32> })");
  EXPECT_FALSE(mayReuse("write"));
}

// From the second iteration on both carried values are one storage.
TEST_F(StorageTest, CarriedValuesThatBecomeOneAreKept) {
  analyse(R"(func.func @f(%x: tensor<8xf32>, %n: index) -> tensor<8xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.neg %x : (tensor<8xf32>) -> tensor<8xf32>
    %r:2 = scf.for %i = %c0 to %n step %c1
        iter_args(%a = %0, %b = %1) -> (tensor<8xf32>, tensor<8xf32>) {
      %2 = koila.relu tied %b {name = "write"} : (tensor<8xf32>) -> tensor<8xf32>
      scf.yield %a, %a : tensor<8xf32>, tensor<8xf32>
    }
    return %r#0 : tensor<8xf32> })");
  EXPECT_FALSE(mayReuse("write"));
}

// A branch that hands on an argument merges its storage with the caller's.
TEST_F(StorageTest, WhatABranchMergedWithAnArgumentIsKept) {
  analyse(R"(func.func @f(%x: tensor<8xf32>, %p: i1) -> tensor<8xf32> {
    %r = scf.if %p -> tensor<8xf32> {
      %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
      scf.yield %0 : tensor<8xf32>
    } else {
      scf.yield %x : tensor<8xf32>
    }
    %1 = koila.relu tied %r {name = "write"} : (tensor<8xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32> })");
  EXPECT_FALSE(mayReuse("write"));
}

// An opaque operator shares what its schema says, and nothing else.
TEST_F(StorageTest, OpaqueAliasesComeFromTheSchema) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %0 = koila.exp %x {name = "a"} : (tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.torch_op "aten::alias"(%0) args [#koila.operand<0>]
        effects none aliases [[0]] {name = "alias"} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = koila.torch_op "aten::erfinv"(%0) args [#koila.operand<0>]
        effects none {name = "own"} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = koila.relu tied %0 {name = "write"} : (tensor<8xf32>) -> tensor<8xf32>
    return %1, %2 : tensor<8xf32>, tensor<8xf32> })");
  EXPECT_TRUE(shareStorage("a", "alias"));
  EXPECT_FALSE(shareStorage("a", "own"));
  EXPECT_FALSE(mayReuse("write"));
}

// A container keeps its elements: what it holds is not overwritten.
TEST_F(StorageTest, ElementsOfContainersAreKept) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) -> tuple<tensor<8xf32>> {
    %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %t = koila.construct tuple(%0) : (tensor<8xf32>) -> tuple<tensor<8xf32>>
    %1 = koila.relu tied %0 {name = "write"} : (tensor<8xf32>) -> tensor<8xf32>
    return %t : tuple<tensor<8xf32>> })");
  EXPECT_FALSE(mayReuse("write"));
}

// Also where the types do not say so yet, and the verifier cannot refuse.
TEST_F(StorageTest, AResultOfAnotherElementTypeDoesNotFit) {
  analyse(R"(func.func @f(%x: tensor<8xi8>) -> tensor<*x!koila.any> {
    %0 = koila.neg %x : (tensor<8xi8>) -> tensor<*x!koila.any>
    %1 = koila.sqrt tied %0 {name = "wider"} : (tensor<*x!koila.any>) -> tensor<*x!koila.any>
    return %1 : tensor<*x!koila.any> })");
  // Either an error of the shape rule, or a storage of its own.
  EXPECT_TRUE(!dims->isValid() || !mayReuse("wider"));
}

// Whether flatten copies depends on strides; a guess is said.
TEST_F(StorageTest, GuessesAreSaid) {
  analyse(R"(func.func @f(%x: tensor<2x4xf32>) -> tensor<8xf32> {
    %0 = koila.torch_op "aten::erfinv"(%x) args [#koila.operand<0>]
        effects none : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %1 = koila.flatten_using_ints %0 {name = "guess"} : (tensor<2x4xf32>) -> tensor<8xf32>
    %2 = koila.flatten_using_ints %x : (tensor<2x4xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32> })");
  ASSERT_EQ(storage->getGuesses().size(), 1u);
  EXPECT_EQ(storage->getGuesses().front().first, op("guess"));
}

// The size of a tile may be one. What is a copy for one sample and for more is
// one; what is a view of one sample is a guess.
TEST_F(StorageTest, TilesOfOneSampleAreThoughtOf) {
  analyse(
      R"(func.func @f(%x: tensor<?x6x4xf32> {koila.dims = #koila.dims<[B, 6, 4]>}) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    scf.for %i = %c0 to %c2 step %c1 iter_args(%size = %c2) -> (index) {
      %tile = tensor.extract_slice %x[%i, 0, 0] [%size, 6, 4] [1, 1, 1] : tensor<?x6x4xf32> to tensor<?x6x4xf32>
      %n = arith.index_cast %size : index to i64
      %0 = koila.view %tile sizes(%n) {size = array<i64: -9223372036854775808, 2, 3, 4>} : (tensor<?x6x4xf32>, i64) -> tensor<?x2x3x4xf32>
      %1 = koila.permute %0 {dims = array<i64: 0, 2, 1, 3>} : (tensor<?x2x3x4xf32>) -> tensor<?x3x2x4xf32>
      %2 = koila.reshape %1 sizes(%n) {name = "copy", shape = array<i64: -9223372036854775808, 6, 4>} : (tensor<?x3x2x4xf32>, i64) -> tensor<?x6x4xf32>
      %3 = koila.permute %tile {dims = array<i64: 1, 0, 2>} : (tensor<?x6x4xf32>) -> tensor<6x?x4xf32>
      %4 = koila.reshape %3 {name = "guess", shape = array<i64: -1, 4>} : (tensor<6x?x4xf32>) -> tensor<?x4xf32>
      %half = arith.floordivsi %size, %c2 : index
      scf.yield %half : index
    }
    return })");
  ASSERT_EQ(storage->getGuesses().size(), 1u);
  EXPECT_EQ(storage->getGuesses().front().first, op("guess"));
}

// Parts of one split share no element; of a tensor that is expanded, they do.
TEST_F(StorageTest, PartsAreWrittenBesideEachOther) {
  analyse(R"(func.func @f(%x: tensor<2x4xf32>, %row: tensor<1x4xf32>)
      -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<4xf32>) {
    %0 = koila.exp %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %1:2 = koila.unsafe_chunk %0 {chunks = 2 : i64, dim = 1 : i64} : (tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %2 = koila.tanh tied %1#0 {name = "first"} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %3 = koila.relu tied %1#1 {name = "second"} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %4 = koila.exp %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %5:2 = koila.chunk %4 {chunks = 2 : i64, dim = 1 : i64} : (tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %6:2 = koila.chunk %4 {chunks = 2 : i64, dim = 1 : i64} : (tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %7 = koila.relu tied %5#0 {name = "twice"} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %8 = koila.add_Tensor %7, %6#1 {alpha = 1 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %9 = koila.exp %row : (tensor<1x4xf32>) -> tensor<1x4xf32>
    %10 = koila.expand %9 {implicit = false, size = array<i64: 2, 4>} : (tensor<1x4xf32>) -> tensor<2x4xf32>
    %11:2 = koila.unbind_int %10 {dim = 0 : i64} : (tensor<2x4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    %12 = koila.relu tied %11#0 {name = "repeated"} : (tensor<4xf32>) -> tensor<4xf32>
    %13 = koila.add_Tensor %12, %11#1 {alpha = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %2, %3, %8, %13 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<4xf32> })");
  EXPECT_TRUE(mayReuse("first"));
  EXPECT_TRUE(mayReuse("second"));
  EXPECT_TRUE(shareStorage("first", "second"));
  EXPECT_FALSE(mayReuse("twice"));
  EXPECT_FALSE(mayReuse("repeated"));
}
