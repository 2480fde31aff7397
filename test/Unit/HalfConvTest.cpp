//===- HalfConvTest.cpp - Hidden bytes of convolutions of half types ------===//
//
// The figures are as measured: one thread, 48 KiB and 2 MiB of cache.
//
//===----------------------------------------------------------------------===//

#include "KernelModels/OneDNN/ConvWorkspace.h"
#include "gtest/gtest.h"

using namespace koila;

namespace {
const WorkspaceTarget tiles = {1, "avx512_core_amx", 48 << 10, 2 << 20};
const WorkspaceTarget vectors = {1, "avx512_core_fp16", 48 << 10, 2 << 20};
/// What a tensor of rows of channels is, of one that is made so, or of one
/// channel or pixel.
constexpr TensorLayout rows = {true, true, false}, both = {false, true, true};

/// Bytes of the call, of the gradient of the input, and of that of the weight.
struct Bytes {
  int64_t forward, input, weight;
};
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
  shape.elementBytes = 2;
  return shape;
}

static void expectBytes(const ConvolutionShape &shape,
                        const WorkspaceTarget &target, const Bytes &bytes) {
  Workspace forward = convolutionWorkspace(shape, target);
  Workspace input = convolutionBackwardWorkspace(shape, target, true, false);
  Workspace weight = convolutionBackwardWorkspace(shape, target, false, true);
  EXPECT_EQ(forward.bytes, bytes.forward);
  EXPECT_EQ(input.bytes, bytes.input);
  EXPECT_EQ(weight.bytes, bytes.weight);
  EXPECT_TRUE(forward.exact && input.exact && weight.exact);
  // Caches that are not known are a range, which must hold the figure.
  WorkspaceTarget unknown = target;
  unknown.l1Bytes = unknown.l2Bytes = 0;
  EXPECT_GE(convolutionWorkspace(shape, unknown).bytes, bytes.forward);
}

TEST(HalfConvTest, ContiguousIsCopiedToRows) {
  expectBytes(makeShape({1, 64, 28, 28}, {10, 64, 7, 7}, 1, 3), tiles,
              {356376, 301056, 702936});
}

TEST(HalfConvTest, RowsAreReadAsTheyAre) {
  ConvolutionShape shape = makeShape({2, 5, 64, 16}, {128, 5, 3, 3}, 1, 1);
  shape.inputLayout = rows;
  expectBytes(shape, tiles, {96792, 191896, 517016});
}

TEST(HalfConvTest, Pointwise) {
  ConvolutionShape shape = makeShape({3, 8, 56, 16}, {12, 8, 1, 1}, 1, 0);
  shape.inputLayout = rows;
  shape.weightLayout = both;
  shape.hasBias = true;
  expectBytes(shape, tiles, {20760, 64024, 117488});
}

TEST(HalfConvTest, TransposedGroups) {
  ConvolutionShape shape = makeShape({2, 136, 16, 16}, {136, 2, 4, 4}, 1, 2);
  shape.transposed = true;
  shape.groups = 8;
  expectBytes(shape, tiles, {426136, 417792, 962392});
}

// float16 without tiles; the reference computes the gradient of the weight.
TEST(HalfConvTest, Float16) {
  ConvolutionShape shape = makeShape({3, 48, 9, 9}, {64, 48, 3, 3}, 1, 1);
  shape.isFloat16 = true;
  expectBytes(shape, vectors, {86840, 136504, 110592});
}

// A few pixels are left to kernels without tiles, whose buffers are a bound.
TEST(HalfConvTest, FewPixelsAreABound) {
  ConvolutionShape shape = makeShape({1, 40, 4, 4}, {128, 40, 1, 1}, 2, 0);
  shape.weightLayout = both;
  shape.hasBias = true;
  Workspace found = convolutionWorkspace(shape, tiles);
  EXPECT_FALSE(found.exact);
  EXPECT_GE(found.bytes, 16512);
}

// PyTorch's own kernels: a bound.
TEST(HalfConvTest, DepthwiseGradientsAreATightBound) {
  const WorkspaceTarget own = {1, "avx512_core_bf16", 48 << 10, 2 << 20};
  struct Measured {
    int64_t samples, channels, side, kernel;
    bool isRows;
    int64_t bytes;
  };
  for (const Measured &call : {Measured{24, 48, 16, 3, false, 1772192},
                               {24, 48, 16, 3, true, 592544},
                               {24, 48, 16, 5, false, 1182048},
                               {4, 40, 16, 3, false, 281248},
                               {1, 48, 16, 3, false, 76448}}) {
    ConvolutionShape shape = makeShape(
        {call.samples, call.channels, call.side, call.side},
        {call.channels, 1, call.kernel, call.kernel}, 1, call.kernel / 2);
    shape.groups = call.channels;
    shape.weightLayout = both;
    if (call.isRows)
      shape.inputLayout = rows;
    Workspace found = convolutionBackwardWorkspace(shape, own, true, true);
    EXPECT_FALSE(found.exact);
    EXPECT_GE(found.bytes, call.bytes);
    EXPECT_LE(found.bytes, 2 * call.bytes + (256 << 10));
  }
}

TEST(HalfConvTest, WithoutInstructionsForTheTypeIsABound) {
  ConvolutionShape shape = makeShape({2, 16, 8, 8}, {16, 16, 3, 3}, 1, 1);
  shape.isFloat16 = true;
  WorkspaceTarget other = vectors;
  for (const char *isa : {"avx2", "avx512_core", "avx512_core_bf16"}) {
    other.isa = isa;
    Workspace found = convolutionWorkspace(shape, other);
    Workspace gradients =
        convolutionBackwardWorkspace(shape, other, true, true);
    EXPECT_FALSE(found.exact || gradients.exact);
    // The columns of two images.
    EXPECT_GE(found.bytes, 2 * 16 * 9 * 64 * 2);
    EXPECT_GE(gradients.bytes, found.bytes);
  }
}
