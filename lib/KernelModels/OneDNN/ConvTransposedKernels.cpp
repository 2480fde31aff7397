//===- ConvTransposedKernels.cpp - Kernels of transposed convolutions -----===//
//
// The kernels of oneDNN that compute the gradient of a convolution with respect
// to its input, and serve transposed convolutions that brgemm refuses.
//
//===----------------------------------------------------------------------===//

#include "ConvTransposed.h"

using namespace koila;
using namespace koila::conv;

std::array<Axis, 3> conv::getAxes(const Geometry &g) {
  return {
      Axis{g.inputD, g.outputD, g.kernelD, g.strideD, g.paddingD, g.dilationD},
      Axis{g.inputH, g.outputH, g.kernelH, g.strideH, g.paddingH, g.dilationH},
      Axis{g.inputW, g.outputW, g.kernelW, g.strideW, g.paddingW, g.dilationW}};
}

int64_t conv::biasScratchpad(const Geometry &g, int64_t result) {
  return g.hasBias ? booked(result) : 0;
}

//===----------------------------------------------------------------------===//
// jit:avx512_core
//===----------------------------------------------------------------------===//

namespace {
/// How the kernel unrolls: `columns` of the result by `blocks` of channels.
struct Unroll {
  int64_t columns, blocks;
  /// A kernel as wide as the result, of one column.
  bool isWide;
};
} // namespace

/// Source: jit_avx512_common_conv_bwd_data_kernel_f32_t::init_conf.
static Unroll unrollDirect(const Geometry &g, int64_t block, int64_t l1Bytes) {
  constexpr int64_t kColumns = 28;
  int64_t blocks = llvm::divideCeilSigned(g.groupOutput, block), together = 1;
  bool isWide = g.kernelW >= 14 && g.kernelW < 20 && g.inputW == 1 &&
                blocks > 1 && g.kernelW == g.outputW && g.strideW == 1 &&
                !g.isDilated();
  int64_t bytes = FloatBytes * block *
                  (2 * g.outputW * g.kernelH + g.inputW +
                   2 * g.kernelH * g.kernelW * block);
  bool few =
      g.kernelW < 5 &&
      (g.outputW <= 5 || (g.outputW > 8 && g.outputW <= 13) || bytes > l1Bytes);
  bool isRowStrided = g.strideH > 1 || g.strideD > 1;
  bool embeds = isRowStrided ||
                !(g.kernelW == 1 || (g.kernelW == 5 && g.outputW < 8) || few);
  if (embeds && !isWide) {
    bool small = g.kernelW == 3 && bytes < l1Bytes && g.inputW > 8;
    if (g.kernelW > 3 || small || isRowStrided || blocks % 2 != 0)
      return {std::min(g.outputW, kColumns), 1, false};
    together = 2;
  } else {
    together = std::min<int64_t>(blocks, isWide ? 2 : 4);
    while (blocks % together)
      --together;
  }
  return {std::min(g.outputW, 31 / (together + 1)), together, isWide};
}

/// Whether the padding is met within the unrolled columns, and the code small.
static bool fitsUnroll(const Geometry &g, int64_t block, const Unroll &unroll) {
  constexpr int64_t kMostCode = 256 * 1024, kInstruction = 15;
  Axis axis = getAxes(g).back();
  int64_t reach = axis.extent() - 1, columns = unroll.columns;
  int64_t tail = axis.output % columns;
  int64_t left = std::max<int64_t>(0, (reach - axis.padding) / axis.stride);
  int64_t right = std::max<int64_t>(
      0,
      (reach - std::max<int64_t>(0, axis.endPadding() + tail)) / axis.stride);
  if (right * axis.stride > columns)
    return false;
  if (axis.output > columns &&
      (columns % axis.stride != 0 || axis.endPadding() + tail < 0))
    return false;
  if (unroll.isWide)
    return true;
  int64_t variants = 1 + (left > 0) + (right > 0);
  return left * axis.stride <= columns && variants * g.kernelW * block *
                                                  unroll.blocks * columns *
                                                  kInstruction <=
                                              kMostCode;
}

TriBool conv::fitsTransposedUnroll(const Geometry &g, int64_t block) {
  bool fits = false, fails = false;
  forEachSize(g.l1Bytes, L1Sizes, [&](int64_t size) {
    (fitsUnroll(g, block, unrollDirect(g, block, size)) ? fits : fails) = true;
  });
  if (fits && fails)
    return TriBool::Unknown;
  return fits ? TriBool::Yes : TriBool::No;
}

bool conv::fitsTransposedDirect(const Geometry &g) {
  for (const Axis &axis : getAxes(g))
    if ((axis.stride != 1 && axis.dilation != 1) ||
        axis.extent() <= std::max(axis.padding, axis.endPadding()))
      return false;
  return true;
}

int64_t conv::transposedBlock(const Geometry &g, bool channelsLast) {
  if (!channelsLast)
    return directBlock(g);
  int64_t block = directBlock(g);
  bool few = g.groups > 1 && g.groupInput < 16 && g.groupOutput < 16;
  return few && block ? block : 16;
}

Workspace conv::transposedDirect(const Geometry &g, bool channelsLast,
                                 int64_t block) {
  int64_t weight = g.groups * roundUp(g.groupInput, block) *
                   roundUp(g.groupOutput, block) * g.kernelArea() * FloatBytes;
  if (channelsLast)
    return inPlacePeak(g, biasScratchpad(g, g.outputBytes()), weight, true);
  int64_t result = blocked(g.batch, g.outputChannels(), block, g.outputArea());
  return blockedPeak(g, biasScratchpad(g, result),
                     blocked(g.batch, g.inputChannels(), block, g.inputArea()),
                     weight, result);
}

//===----------------------------------------------------------------------===//
// Others
//===----------------------------------------------------------------------===//

Workspace conv::transposedDepthwise(const Geometry &g, bool channelsLast) {
  int64_t weight = blocked(1, g.groups, g.lanes, g.kernelArea());
  if (channelsLast)
    return inPlacePeak(g, biasScratchpad(g, g.outputBytes()), weight, true);
  int64_t result = blocked(g.batch, g.groups, g.lanes, g.outputArea());
  return blockedPeak(g, biasScratchpad(g, result),
                     blocked(g.batch, g.groups, g.lanes, g.inputArea()), weight,
                     result);
}

Workspace conv::transposedPointwise(const Geometry &g) {
  int64_t result = blocked(g.batch, g.groupOutput, g.lanes, g.outputArea());
  return blockedPeak(g, biasScratchpad(g, result),
                     blocked(g.batch, g.groupInput, g.lanes, g.inputArea()),
                     roundUp(g.groupInput, g.lanes) *
                         roundUp(g.groupOutput, g.lanes) * FloatBytes,
                     result);
}

/// Source: init_conf in gemm_convolution_utils.cpp.
Workspace conv::transposedGemm(const Geometry &g, bool channelsLast) {
  constexpr int64_t kSmall = 64 * 1024;
  bool unfolds =
      !g.isPointwise() || g.isStrided() || g.inputArea() != g.outputArea();
  int64_t input = g.inputH * g.inputW, output = g.outputH * g.outputW;
  int64_t outer = g.groups * g.batch;
  int64_t inner = llvm::divideCeilSigned(output, g.lanes) *
                  llvm::divideCeilSigned(g.groupOutput, g.lanes);
  auto balance = [&g](int64_t work) {
    return (float)work / roundUp(work, g.threads);
  };
  int64_t work = output * g.groupOutput * g.groupInput / g.threads;
  bool pays = balance(outer) / balance(inner) >= 1.f || work < kSmall;
  bool isOuter =
      channelsLast ? !g.isVolume && (g.isDepthwise() ||
                                     (output / g.threads < 64 && g.batch != 1))
                   : (input / g.threads < 512 || g.kernelArea() < 64) &&
                         (g.batch != 1 || g.groups > 2);
  int64_t threads = isOuter && pays ? g.threads : 1;
  int64_t columns =
      unfolds ? threads * g.groupOutput * g.kernelArea() * input * FloatBytes
              : 0;
  int64_t bias = biasScratchpad(g, g.outputBytes());
  int64_t most = g.mostUnfolded();
  if (!channelsLast) {
    bool fits = columns <= most;
    int64_t scratchpad = booked(columns);
    if (!g.isGradient)
      scratchpad = booked(scratchpad);
    return blockedPeak(g, scratchpad + bias, 0, 0, g.outputBytes(), fits);
  }
  columns *= g.inputD;
  int64_t sums = g.groups > 1
                     ? threads * output * g.outputD * g.groupOutput * FloatBytes
                     : 0;
  // The weight is turned around, unless that changes nothing. One channel or
  // pixel is contiguous as well, which jit_uni_ncsp would take.
  bool degenerate = g.isPointwise() || g.groupInput == 1 ||
                    g.groupOutput == 1 || g.inputArea() == 1 ||
                    g.outputArea() == 1;
  int64_t rows = degenerate ? g.inputBytes() + g.outputBytes() + 4 * Page : 0;
  int64_t scratchpad = booked(columns) + booked(sums);
  if (!g.isGradient)
    scratchpad = booked(scratchpad);
  return inPlacePeak(g, scratchpad + bias, g.weightBytes() + rows,
                     !degenerate && scratchpad <= most);
}
