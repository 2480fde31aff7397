//===- ConvNarrowTest.cpp - Hidden bytes of convolutions with AVX2 --------===//
//
// The figures are as measured: AVX2, 32 and 512 KiB of cache, two threads where
// nothing else is said. All have a bias.
//
//===----------------------------------------------------------------------===//

#include "KernelModels/OneDNN/ConvWorkspace.h"
#include "gtest/gtest.h"

using namespace koila;

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
  shape.hasBias = true;
  return shape;
}

static ConvolutionShape makeGroups(ConvolutionShape shape, int64_t groups) {
  shape.groups = groups;
  return shape;
}

static ConvolutionShape makeDilated(ConvolutionShape shape) {
  shape.dilation.assign(shape.dilation.size(), 2);
  return shape;
}

static ConvolutionShape makeTransposed(int64_t stride, int64_t outputPadding) {
  ConvolutionShape shape = makeShape({2, 32, 8, 8}, {32, 48, 3, 3}, stride, 1);
  shape.transposed = true;
  shape.outputPadding.assign(2, outputPadding);
  return shape;
}

/// `forward` in the call, and `backward` in both gradients.
static void expectBytes(const ConvolutionShape &shape, int64_t forward,
                        int64_t backward, int64_t threads = 2) {
  for (const char *isa : {"avx2", "avx2_vnni"}) {
    WorkspaceTarget target = {threads, isa, 32 << 10, 512 << 10};
    auto gradients = [&] {
      return convolutionBackwardWorkspace(shape, target, /*wantsInput=*/true,
                                          /*wantsWeight=*/true);
    };
    Workspace found = convolutionWorkspace(shape, target);
    EXPECT_EQ(found.bytes, forward);
    EXPECT_TRUE(found.exact);
    found = gradients();
    EXPECT_EQ(found.bytes, backward);
    EXPECT_TRUE(found.exact);
    // Caches that are not known are a range, which must hold the figure.
    target.l1Bytes = target.l2Bytes = 0;
    EXPECT_GE(gradients().bytes, backward);
  }
}

TEST(ConvNarrowTest, BlocksOfEight) {
  expectBytes(makeShape({3, 24, 9, 9}, {40, 24, 3, 3}, 1, 1), 57888, 120256);
  // Three channels are read from the image, unless it is one pixel.
  expectBytes(makeShape({3, 3, 20, 20}, {20, 3, 5, 5}, 2, 2), 28800, 115888);
  expectBytes(makeShape({3, 3, 1, 1}, {16, 3, 3, 3}, 1, 1), 1728, 16124);
}

TEST(ConvNarrowTest, Strided) {
  expectBytes(makeShape({3, 24, 9, 9}, {20, 24, 3, 3}, 2, 1), 45488, 144960);
}

TEST(ConvNarrowTest, Pointwise) {
  expectBytes(makeShape({5, 40, 6, 6}, {48, 40, 1, 1}, 1, 0), 36480, 123712);
  expectBytes(makeShape({5, 40, 6, 6}, {48, 40, 1, 1}, 2, 0), 39488, 108144);
  // Another kernel serves what counts as dilated.
  expectBytes(makeDilated(makeShape({5, 40, 6, 6}, {48, 40, 1, 1}, 2, 0)),
              38048, 75680, /*threads=*/1);
}

TEST(ConvNarrowTest, Groups) {
  expectBytes(makeGroups(makeShape({3, 20, 9, 9}, {20, 1, 3, 3}, 1, 1), 20),
              28304, 67040);
  expectBytes(makeGroups(makeShape({3, 32, 9, 9}, {16, 16, 3, 3}, 1, 1), 2),
              40320, 87040);
}

TEST(ConvNarrowTest, Columns) {
  expectBytes(makeDilated(makeShape({3, 24, 9, 9}, {40, 24, 3, 3}, 2, 1)),
              57888, 362432);
}

TEST(ConvNarrowTest, Volumes) {
  expectBytes(makeShape({2, 12, 4, 4, 4}, {20, 12, 3, 3, 3}, 1, 1), 51936,
              281232);
  expectBytes(
      makeGroups(makeShape({2, 12, 4, 4, 4}, {12, 1, 3, 3, 3}, 1, 1), 12),
      12288, 21568);
}

TEST(ConvNarrowTest, Transposed) {
  expectBytes(makeTransposed(1, 0), 96384, 127360);
  expectBytes(makeTransposed(2, 1), 196608, 186560);
  // The bias is added beside a result that the stride does not divide.
  expectBytes(makeTransposed(2, 0), 256688, 174656);
}

// The blocks of brg_conv are not known; gradients of weights are.
TEST(ConvNarrowTest, ChannelsLastIsABound) {
  ConvolutionShape shape = makeShape({3, 24, 9, 9}, {40, 24, 3, 3}, 1, 1);
  shape.inputLayout = {true, true, false};
  WorkspaceTarget target = {2, "avx2", 32 << 10, 512 << 10};
  EXPECT_FALSE(convolutionWorkspace(shape, target).exact);
  Workspace both = convolutionBackwardWorkspace(shape, target, true, true);
  EXPECT_FALSE(both.exact);
  EXPECT_GE(both.bytes, 161888);
  Workspace weight = convolutionBackwardWorkspace(shape, target, false, true);
  EXPECT_EQ(weight.bytes, 138560);
  EXPECT_TRUE(weight.exact);
}
