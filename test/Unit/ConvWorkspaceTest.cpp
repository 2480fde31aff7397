//===- ConvWorkspaceTest.cpp - Hidden bytes of convolutions in oneDNN -----===//
//
// The figures are as measured: AVX-512, 32 KiB and 1 MiB of cache, two threads.
//
//===----------------------------------------------------------------------===//

#include "KernelModels/OneDNN/ConvWorkspace.h"
#include "gtest/gtest.h"

using namespace koila;

namespace {
const WorkspaceTarget target = {2, "avx512_core_bf16", 32 << 10, 1 << 20};

} // namespace

static ConvolutionShape makeShape(std::vector<int64_t> input,
                                  std::vector<int64_t> weight, int64_t stride,
                                  int64_t padding) {
  size_t rank = input.size() - 2;
  ConvolutionShape shape;
  shape.input = input;
  shape.weight = weight;
  shape.stride.assign(rank, stride);
  shape.padding.assign(rank, padding);
  shape.dilation.assign(rank, 1);
  shape.outputPadding.assign(rank, 0);
  return shape;
}

static ConvolutionShape makeTransposed(int64_t stride, int64_t outputPadding) {
  ConvolutionShape shape = makeShape({2, 32, 8, 8}, {32, 48, 3, 3}, stride, 1);
  shape.transposed = true;
  shape.outputPadding.assign(2, outputPadding);
  return shape;
}

static void expectBytes(const ConvolutionShape &shape, int64_t bytes) {
  Workspace found = convolutionWorkspace(shape, target);
  EXPECT_EQ(found.bytes, bytes);
  EXPECT_TRUE(found.exact);
  // Caches that are not known are a range, which must hold the figure.
  WorkspaceTarget unknown = target;
  unknown.l1Bytes = unknown.l2Bytes = 0;
  EXPECT_GE(convolutionWorkspace(shape, unknown).bytes, bytes);
}

TEST(ConvWorkspaceTest, StridedIsCopiedTwice) {
  expectBytes(makeTransposed(2, 1), 2 * 98304);
}

TEST(ConvWorkspaceTest, ChannelsLastIsNotCopied) {
  ConvolutionShape shape = makeTransposed(2, 1);
  shape.inputLayout = {true, true, false};
  expectBytes(shape, 288944 - 98304);
}

TEST(ConvWorkspaceTest, BiasIsAddedToACopy) {
  ConvolutionShape shape = makeTransposed(1, 0);
  shape.hasBias = true;
  expectBytes(shape, 120960 - 24576);
  shape = makeTransposed(2, 0);
  shape.hasBias = true;
  expectBytes(shape, 361520 - 86400);
}

TEST(ConvWorkspaceTest, TransposedDepthwise) {
  ConvolutionShape shape = makeShape({2, 32, 8, 8}, {32, 1, 4, 4}, 2, 1);
  shape.transposed = true;
  shape.groups = 32;
  expectBytes(shape, 65536);
}

TEST(ConvWorkspaceTest, DepthwiseVolume) {
  ConvolutionShape shape = makeShape({2, 16, 4, 4, 4}, {16, 1, 3, 3, 3}, 1, 1);
  shape.groups = 16;
  expectBytes(shape, 2 * 8192);
}

// The last extent of a volume does not count when PyTorch asks whether it is
// small enough for columns.
TEST(ConvWorkspaceTest, FlatVolumeIsUnfolded) {
  expectBytes(makeShape({1, 4, 8, 16, 16}, {8, 4, 3, 3, 3}, 1, 1), 884736);
}

// As measured on one thread, where a single small image is not oneDNN's.
static void expectBackwardBytes(const ConvolutionShape &shape, int64_t bytes,
                                bool wantsInput = true,
                                bool wantsWeight = true) {
  WorkspaceTarget one = target;
  one.threads = 1;
  Workspace found =
      convolutionBackwardWorkspace(shape, one, wantsInput, wantsWeight);
  EXPECT_EQ(found.bytes, bytes);
  EXPECT_TRUE(found.exact);
}

TEST(ConvWorkspaceTest, BackwardOfOneTransposedImage) {
  ConvolutionShape shape = makeShape({1, 4, 8, 8}, {4, 3, 2, 2}, 2, 0);
  shape.transposed = shape.hasBias = true;
  expectBackwardBytes(shape, 4300);
  expectBackwardBytes(shape, 3276, /*wantsInput=*/false);
  expectBackwardBytes(shape, 4096, /*wantsInput=*/true, /*wantsWeight=*/false);
  // Nothing is unfolded.
  shape = makeShape({1, 4, 8, 8}, {4, 3, 1, 1}, 1, 0);
  shape.transposed = shape.hasBias = true;
  expectBackwardBytes(shape, 1084);
}

TEST(ConvWorkspaceTest, BackwardOfOneVolume) {
  ConvolutionShape shape = makeShape({1, 4, 4, 4, 4}, {6, 4, 2, 2, 2}, 1, 0);
  shape.hasBias = true;
  expectBackwardBytes(shape, 5272);
  expectBackwardBytes(shape, 4480, /*wantsInput=*/true, /*wantsWeight=*/false);
  // The input unfolds into itself, its gradient does not.
  shape = makeShape({1, 4, 4, 4, 4}, {6, 4, 1, 1, 1}, 1, 0);
  shape.hasBias = true;
  expectBackwardBytes(shape, 2048);
}

TEST(ConvWorkspaceTest, BackwardOfGroupsInFloat64) {
  ConvolutionShape shape = makeShape({3, 4, 8, 8}, {6, 2, 3, 3}, 1, 0);
  shape.hasBias = true;
  shape.groups = 2;
  shape.elementBytes = 8;
  expectBackwardBytes(shape, 28272);
  shape.hasBias = false;
  expectBackwardBytes(shape, 12288, /*wantsInput=*/true, /*wantsWeight=*/false);
}
