//===- ConvChannelsLast.cpp - Workspace of channels-last convolutions -----===//
//
// oneDNN convolves channels-last tensors in place: the output is allocated
// first and written directly. What is hidden is a reordered weight and a small
// scratchpad; both live until the end.
//
//===----------------------------------------------------------------------===//

#include "ConvGeometry.h"

using namespace koila;
using namespace koila::conv;

/// Elements of brgemm's batches, and the pages its buffers are aligned to.
static constexpr int64_t BatchElement = 40;

bool conv::isInnerProduct(const Geometry &g) {
  return g.groups == 1 && !g.isPadded() && !g.isStrided() && !g.isDilated() &&
         g.outputArea() == 1 && g.batch > 1 && g.kernelArea() > 27;
}

int64_t conv::innerProductScratchpad(const Geometry &g) {
  // Blocks of both operands per thread; 273 KiB was the most ever seen.
  return g.threads * (1 << 20);
}

/// A weight whose output channels are padded to a multiple of `block`.
static int64_t blockedWeight(const Geometry &g, int64_t block) {
  return g.groups * roundUp(g.groupOutput, block) * g.groupInput *
         g.kernelArea() * FloatBytes;
}

int64_t conv::batchScratchpad(const Geometry &g, int64_t products) {
  int64_t elements = llvm::divideCeilSigned(
      roundUp(products * BatchElement, Page), BatchElement);
  return g.threads * elements * BatchElement + Page;
}

/// brgconv_1x1. The block of output channels is 16, 32, 48 or 64, by a cost
/// model; the figure is exact where the admissible ones pad alike.
static Workspace pointwise(const Geometry &g) {
  int64_t least = roundUp(g.groupOutput, 16), most = least;
  if (least > 16)
    most = roundUp(g.groupOutput, 32);
  int64_t by48 = roundUp(g.groupOutput, 48);
  if (least > 32 && (float)g.groupOutput / by48 >= 0.95f)
    most = std::max(most, by48);
  return inPlacePeak(g, g.nested(batchScratchpad(g, 1)),
                     blockedWeight(g, 1) / g.groupOutput * most, least == most);
}

/// brg_conv. Blocks of 48 and 64 are tried where they divide the channels.
static Workspace general(const Geometry &g) {
  int64_t block = roundUp(g.groupOutput, 16) > 16 ? 32 : 16;
  int64_t kernel = g.kernelArea();
  Workspace found = inPlacePeak(
      g, g.nested(batchScratchpad(g, kernel)), blockedWeight(g, block),
      roundUp(g.groupOutput, 16) == roundUp(g.groupOutput, block) &&
          kernel * BatchElement <= Page);
  // One input channel is unfolded along the kernel; one output column may be
  // unfolded along the rows. Both copy padded rows for each thread.
  bool folds = g.strideW > 1 && !g.paddingW; // Columns become channels.
  bool column = g.outputW == 1 && (g.kernelW == 1 || folds);
  if ((g.groupInput == 1 && kernel > 1) || column) {
    int64_t rows = g.inputH + 2 * g.paddingH + g.outputH + g.extentH();
    int64_t lane = roundUp(g.groupInput * kernel, 16) + 16;
    int64_t buffer = g.kernelH * rows * (g.inputW + 2 * g.paddingW) * g.groups *
                     lane * FloatBytes;
    // Rounded up to 4096 floats each, and flags.
    found.bytes +=
        g.threads * (buffer + 8 * Page) + blockedWeight(g, 64) + 8 * Page;
    found.exact = false;
  }
  return found;
}

Workspace conv::channelsLastBrgemm(const Geometry &g) {
  return g.isPointwise() && !g.isPadded() ? pointwise(g) : general(g);
}

Workspace conv::channelsLastOneDnn(const Geometry &g) {
  if (g.isDepthwise()) {
    // brdgmm_dw, or of an image jit_dw if dilated: the weight in blocks of 16
    // channels.
    int64_t weight = roundUp(g.groups, 16) * g.kernelArea() * FloatBytes;
    bool fits =
        !g.isDilated() ||
        (!g.isVolume &&
         g.paddingW <= std::min<int64_t>(g.outputW > 7 ? 6 : 4, g.outputW));
    if (g.kernelMeetsInput() && fits)
      return inPlacePeak(g, 0, weight, true);
    // Else jit:avx512_core, a block of sixteen by sixteen for each channel.
    if (g.isVolume && g.kernelMeetsInput() &&
        fitsDirectUnroll(g, 16) == TriBool::Yes)
      return inPlacePeak(g, 0, 256 * g.weightBytes(), true);
    return {2 * (g.inputBytes() + g.outputBytes()) + 256 * g.weightBytes() +
                Page,
            false};
  }
  if (isInnerProduct(g))
    return {innerProductScratchpad(g) + blockedWeight(g, 64), false};
  // brgemm leaves small groups to jit:avx512_core.
  if (g.groups > 1 && g.groupInput <= 16) {
    // Tails need no padding of the tensors, so odd channels use whole vectors.
    int64_t block = directBlock(g);
    if (!block || g.groupInput == 16 || g.groupOutput >= 16)
      block = 16;
    int64_t weight = g.groups * roundUp(g.groupInput, block) *
                     roundUp(g.groupOutput, block) * g.kernelArea() *
                     FloatBytes;
    if (g.kernelMeetsInput() && fitsDirectUnroll(g, block) == TriBool::Yes)
      return inPlacePeak(g, 0, weight, true);
    // brg_conv:avx2, in blocks of up to 32.
    int64_t other =
        g.nested(batchScratchpad(g, g.kernelArea())) + blockedWeight(g, 32);
    return {std::max(weight, other) + g.threads * 64 * Page, false};
  }
  return channelsLastBrgemm(g);
}
