//===- ConvTransposed.cpp - Workspace of transposed convolutions ----------===//
//
// oneDNN computes a transposed convolution as the gradient of a convolution
// with respect to its input; with unit strides on channels-last tensors as a
// convolution with the kernel turned around.
//
//===----------------------------------------------------------------------===//

#include "ConvTransposed.h"

using namespace koila;
using namespace koila::conv;

/// Shapes for which oneDNN knows brgconv_strided to be slow, of one slice.
/// Source: init_jcp in jit_brgemm_conv_bwd_utils.cpp.
static bool isSlowStrided(const Geometry &g) {
  struct Shape {
    int64_t outputs, inputs, outputH, outputW, inputH, inputW, kernel, stride;
  };
  static constexpr Shape kShapes[] = {{128, 256, 101, 85, 49, 41, 0, 0},
                                      {3, 128, 207, 175, 101, 85, 0, 0},
                                      {512, 1024, 8, 8, 4, 4, 4, 2},
                                      {1024, 2048, 4, 4, 2, 2, 4, 2},
                                      {64, 128, 513, 513, 256, 256, 3, 2},
                                      {32, 64, 1025, 1025, 512, 512, 3, 2},
                                      {128, 256, 257, 257, 128, 128, 3, 2},
                                      {256, 512, 49, 41, 23, 19, 5, 2},
                                      {64, 128, 14, 14, 7, 7, 4, 2},
                                      {1, 64, 28, 28, 14, 14, 4, 2}};
  if (g.inputD != 1 || g.outputD != 1)
    return false;
  for (const Shape &shape : kShapes)
    if (g.groupOutput == shape.outputs && g.groupInput == shape.inputs &&
        g.outputH == shape.outputH && g.outputW == shape.outputW &&
        g.inputH == shape.inputH && g.inputW == shape.inputW &&
        (!shape.kernel ||
         (g.kernelH == shape.kernel && g.kernelW == shape.kernel &&
          g.strideH == shape.stride && g.strideW == shape.stride)))
      return true;
  return false;
}

/// The scratchpad of brgconv_strided. Source: init_scratchpad.
static int64_t stridedScratchpad(const Geometry &g,
                                 const StridedExtents &extents,
                                 const StridedBlocks &blocks) {
  int64_t products = blocks.kernelD * blocks.kernelH * g.kernelW;
  int64_t input = roundUp(extents.paddedD * extents.paddedH * extents.paddedW *
                              g.inputChannels(),
                          Page);
  int64_t parts = llvm::divideCeilSigned(g.outputD, blocks.blockD) *
                  llvm::divideCeilSigned(g.outputH, blocks.blockH) *
                  llvm::divideCeilSigned(g.outputW, blocks.blockW);
  int64_t mask = roundUp(parts * g.groups, Page);
  int64_t result =
      extents.isUneven
          ? roundUp(blocks.blockW * g.strideW * g.outputChannels(), Page)
          : 0;
  return batchScratchpad(g, products) +
         bookedPage(g.threads * input * FloatBytes) +
         bookedPage(g.threads * mask) +
         bookedPage(g.threads * result * FloatBytes);
}

/// Brings the buffers of a convolution together. Channels-last tensors are
/// worked on as they are.
static Workspace finish(const Geometry &g, bool channelsLast,
                        int64_t scratchpad, int64_t weight, bool exact) {
  if (channelsLast)
    return inPlacePeak(g, scratchpad, weight, exact);
  return rowsPeak(g, scratchpad, weight, exact);
}

/// A bound for pointwise kernels with strides: their blocks are scored in
/// another way, and jit_1x1 or gemm may serve them.
static Workspace boundPointwise(const Geometry &g, bool channelsLast) {
  int64_t weight = g.groups * roundUp(g.groupInput, 16) *
                   roundUp(g.groupOutput, 64) * FloatBytes;
  int64_t source =
      blocked(g.batch, g.groups * roundUp(g.groupInput, 16), 16, g.inputArea());
  int64_t result = blocked(g.batch, g.groups * roundUp(g.groupOutput, 16), 16,
                           g.outputArea());
  // A strip of a thread is at most a sample, of whole strides, each column
  // `strideW` times.
  int64_t strip =
      blocked(1, g.groups * roundUp(g.groupOutput, 16), 16,
              roundUp(g.outputD, g.strideD) * roundUp(g.outputH, g.strideH) *
                  roundUp(g.outputW, g.strideW) * g.strideW);
  int64_t sample =
      g.threads * (llvm::divideCeilSigned(source, g.batch) + strip);
  int64_t running =
      source + weight + 2 * result + 2 * sample + g.threads * 16 * Page;
  if (channelsLast)
    return {running, false};
  return {std::max(running, 2 * result), false};
}

/// Whether the stride divides the result: then the bias is part of the kernel.
static bool isEven(const Geometry &g) {
  return g.outputD % g.strideD == 0 && g.outputH % g.strideH == 0 &&
         g.outputW % g.strideW == 0;
}

std::optional<Workspace> conv::transposedStrided(const Geometry &g,
                                                 bool channelsLast) {
  if (!g.isStrided() || g.isDilated() || isSlowStrided(g) ||
      (g.groups > 1 && g.groupInput <= g.lanes))
    return std::nullopt;
  std::array<Axis, 3> axes = getAxes(g);
  StridedExtents extents = {axes[0].padded(), axes[1].padded(),
                            axes[2].padded(), g.outputW % g.strideW != 0};
  int64_t bias = isEven(g) ? 0 : biasScratchpad(g, g.outputBytes());
  std::optional<Workspace> found;
  bool fails = false, differs = false;
  forEachCache(g, [&](int64_t l1Bytes, int64_t l2Bytes) {
    auto blocks = findStridedBlocks(g, extents, l1Bytes, l2Bytes);
    if (!blocks) {
      fails = true;
      return;
    }
    int64_t weight = g.groups * roundUp(g.groupOutput, blocks->channels) *
                     g.groupInput * g.kernelArea() * FloatBytes;
    int64_t scratchpad = stridedScratchpad(g, extents, *blocks);
    scratchpad = (g.isGradient ? scratchpad : booked(scratchpad)) + bias;
    Workspace one = finish(g, channelsLast, scratchpad, weight, true);
    differs |= found && found->bytes != one.bytes;
    if (!found || one.bytes > found->bytes)
      found = one;
  });
  if (found && (fails || differs))
    found->exact = false;
  return found;
}

std::optional<Geometry> conv::turnKernel(Geometry g) {
  if (g.isStrided())
    return std::nullopt;
  for (const Axis &axis : getAxes(g))
    if (axis.padding > axis.extent() - 1)
      return std::nullopt;
  g.paddingD = g.extentD() - 1 - g.paddingD;
  g.paddingH = g.extentH() - 1 - g.paddingH;
  g.paddingW = g.extentW() - 1 - g.paddingW;
  return g;
}

/// Unit strides on channels-last tensors. Groups of few channels go to the
/// kernel for AVX2.
static std::optional<Workspace> turned(const Geometry &given) {
  std::optional<Geometry> made = turnKernel(given);
  if (!made || given.isDepthwise())
    return std::nullopt;
  made->isNested = true;
  const Geometry &g = *made;
  Workspace found = channelsLastBrgemm(g);
  if (g.groups > 1 && g.groupInput <= 16) {
    constexpr int64_t kLanes = 8, kMost = 4 * kLanes;
    // Where up to four vectors pad alike, the choice does not matter.
    found.exact = g.groupOutput <= 2 * kLanes && g.groupInput > 1 &&
                  g.outputW > 1 &&
                  batchScratchpad(g, 1) == batchScratchpad(g, g.kernelArea());
    int64_t block = found.exact ? kLanes : kMost;
    int64_t weight = g.groups * roundUp(g.groupOutput, block) * g.groupInput *
                     g.kernelArea() * FloatBytes;
    Workspace narrow = inPlacePeak(
        g, g.nested(batchScratchpad(g, g.kernelArea())), weight, found.exact);
    if (found.exact || narrow.bytes > found.bytes)
      return narrow;
  }
  return found;
}

/// With AVX2, for groups of few channels.
static Geometry narrow(Geometry g) {
  g.lanes = 8;
  return g;
}

/// What no brgemm for AVX-512 serves.
static Workspace withoutBrgemm(const Geometry &g, bool channelsLast) {
  // Where jit:avx512_core may serve it as well.
  int64_t block = transposedBlock(g, channelsLast);
  auto unsure = [&](Workspace workspace, bool isUnsure) {
    if (!isUnsure)
      return workspace;
    int64_t direct = block ? transposedDirect(g, channelsLast, block).bytes : 0;
    return Workspace{std::max(workspace.bytes, direct), false};
  };
  // With AVX2 a result of one channel is another kind of product.
  bool isVector = g.groupOutput == 1;
  if (isEven(g))
    if (auto found = transposedStrided(narrow(g), channelsLast))
      // As a gradient, jit:avx512_core may serve it before.
      return unsure(
          *found, isVector || (g.isGradient &&
                               (g.groups > 1 || g.isVolume || g.threads > 1)));
  if (g.isDepthwise() && !g.isDilated() && !g.isVolume)
    return transposedDepthwise(g, channelsLast);
  if (g.groups == 1 && g.isPointwise() && !g.isPadded() && !channelsLast &&
      !g.isStrided() && g.inputArea() == g.outputArea())
    return transposedPointwise(g);
  bool isDirect = block && fitsTransposedDirect(g);
  TriBool fits = isDirect ? fitsTransposedUnroll(g, block) : TriBool::No;
  if (fits == TriBool::Yes)
    return transposedDirect(g, channelsLast, block);
  if (!isEven(g))
    if (auto found = transposedStrided(narrow(g), channelsLast))
      return unsure(*found, isVector || fits == TriBool::Unknown);
  Workspace last = transposedGemm(g, channelsLast);
  // Between them there is jit:avx2.
  if (!isDirect || g.strideD != 1 || g.strideH != g.strideW)
    return last;
  Workspace direct = transposedDirect(g, channelsLast, block);
  return {std::max(last.bytes, direct.bytes), false};
}

/// brgconv_strided of a pointwise kernel, as a gradient. Blocks of 48 and 64
/// channels are taken where they divide them; more than two threads were seen
/// to take others.
static Workspace stridedPointwise(const Geometry &g) {
  int64_t channels = roundUp(g.groupOutput, 16);
  bool isKnown = g.threads <= 2 || channels % 64 == 0 || channels == 16;
  if (channels > 16 && g.groupOutput % 48 != 0)
    channels = roundUp(channels, 32);
  if (!isKnown)
    channels = roundUp(channels, 64);
  StridedExtents extents = {g.inputD, g.inputH, g.inputW,
                            g.outputW % g.strideW != 0};
  StridedBlocks blocks{channels, 1, 1, roundUp(g.outputW, g.strideW), 1, 1};
  int64_t few = stridedScratchpad(g, extents, blocks);
  blocks.blockW = 1;
  int64_t many = stridedScratchpad(g, extents, blocks);
  int64_t weight = channels * g.groupInput * FloatBytes;
  return rowsPeak(g, std::max(few, many), weight, isKnown && few == many);
}

Workspace conv::transposedOneDnn(const Geometry &g, bool channelsLast) {
  if (g.lanes == 8)
    return narrowTransposed(g, channelsLast);
  // As a gradient, jit:avx512_core is asked before brgemm for AVX2.
  bool isSmallGroup = g.isGradient && g.groups > 1 && g.groupInput <= 16;
  auto turnedAround = channelsLast ? turned(g) : std::nullopt;
  if (turnedAround && isSmallGroup) {
    int64_t block = transposedBlock(g, channelsLast);
    if (block && fitsTransposedDirect(g) &&
        fitsTransposedUnroll(g, block) == TriBool::Yes)
      return transposedDirect(g, channelsLast, block);
    return {std::max(turnedAround->bytes, transposedGemm(g, true).bytes),
            false};
  }
  if (turnedAround)
    return *turnedAround;
  bool isInner = g.groups == 1 && !g.isPadded() && !g.isStrided() &&
                 !g.isDilated() && g.inputArea() == 1 && g.batch > 1 &&
                 g.kernelArea() > 27;
  if (isInner)
    return {blockedPeak(g, innerProductScratchpad(g), g.inputBytes(),
                        2 * g.weightBytes(), 2 * g.outputBytes())
                .bytes,
            false};
  if (g.isGradient && g.isPointwise() && g.isStrided() && !g.isPadded() &&
      g.groups == 1 && !channelsLast && !g.isDilated() && !g.isVolume)
    return stridedPointwise(g);
  if (g.isPointwise() && g.isStrided() && !g.isPadded() &&
      (g.groups == 1 || g.groupInput > 8))
    return boundPointwise(g, channelsLast);
  auto found = transposedStrided(g, channelsLast);
  if (found && found->exact)
    return *found;
  Workspace other = withoutBrgemm(g, channelsLast);
  // The caches decide.
  return found ? Workspace{std::max(found->bytes, other.bytes), false} : other;
}
