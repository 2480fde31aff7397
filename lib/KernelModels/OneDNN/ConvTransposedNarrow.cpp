//===- ConvTransposedNarrow.cpp - Gradients of inputs with AVX2 -----------===//
//
// The kernels that oneDNN asks for the gradient of a convolution's input where
// the processor has AVX2 and no AVX-512, in the order of
// cpu_convolution_list.cpp. The geometry is that of the transposed convolution.
//
//===----------------------------------------------------------------------===//

#include "ConvTransposed.h"

using namespace koila;
using namespace koila::conv;

/// The floats of a vector, and the channels of a block.
static constexpr int64_t Lanes = 8;

/// The columns of the result that jit:avx2 keeps in registers; 0 if there is no
/// way to. Source: jit_avx2_conv_bwd_data_kernel_f32::init_conf.
static int64_t unrollColumns(const Geometry &g) {
  constexpr int64_t kRegisters = 15;
  Axis axis = getAxes(g).back();
  int64_t blocks = llvm::divideCeilSigned(g.groupOutput, Lanes);
  int64_t reach = std::max<int64_t>(0, (axis.extent() - 1 - axis.padding) /
                                           axis.stride * axis.stride);
  int64_t found = 0, most = 0;
  for (int64_t together = 1; together <= 4; ++together) {
    if (blocks % together != 0)
      continue;
    for (int64_t steps = 1;; ++steps) {
      int64_t width = steps * axis.stride;
      if (width * together + steps > kRegisters ||
          width >= axis.output + axis.stride)
        break;
      int64_t columns = std::min(width, axis.output);
      if (reach > columns && columns != axis.output)
        continue;
      int64_t products =
          llvm::divideCeilSigned(columns, axis.stride) * together;
      if (products < most || (products == most && found >= columns))
        continue;
      found = columns;
      most = products;
    }
  }
  return found;
}

/// Whether jit:avx2 serves the convolution.
static bool fitsDirect(const Geometry &g) {
  if (!fitsTransposedDirect(g) || g.strideW != g.strideH || g.strideD != 1 ||
      (g.groupOutput < Lanes && g.kernelW > 3 && g.strideW > 1) ||
      (g.groups > 1 &&
       (g.groupInput % Lanes != 0 || g.groupOutput % Lanes != 0)))
    return false;
  int64_t columns = unrollColumns(g);
  if (columns == 0)
    return false;
  Axis axis = getAxes(g).back();
  int64_t end = axis.endPadding() + axis.output % columns;
  int64_t beyond =
      std::max<int64_t>(0, (axis.extent() - 1 - end) / axis.stride) *
      axis.stride;
  return beyond <= columns &&
         (axis.output <= columns || (columns % axis.stride == 0 && end >= 0));
}

/// jit_1x1. Strides are for kernels that count as dilated: the pixels that a
/// thread computes lie in a buffer of 18 blocks, the most it takes at once.
static std::optional<Workspace> pointwise(const Geometry &g) {
  constexpr int64_t kBlocks = 18;
  if (g.groups != 1 || !g.isPointwise() || g.isPadded())
    return std::nullopt;
  if (g.inputD != g.outputD || g.inputH * g.strideH != g.outputH ||
      g.inputW * g.strideW != g.outputW || (g.isVolume && g.isStrided()))
    return std::nullopt;
  if (!g.isStrided())
    return transposedPointwise(g);
  int64_t result = blocked(g.batch, g.groupOutput, Lanes, g.outputArea());
  int64_t weight =
      roundUp(g.groupInput, Lanes) * roundUp(g.groupOutput, Lanes) * FloatBytes;
  return blockedPeak(
      g, booked(g.threads * kBlocks * Lanes * g.inputArea() * FloatBytes),
      blocked(g.batch, g.groupInput, Lanes, g.inputArea()), weight, result);
}

/// What brgconv_strided refuses.
static Workspace withoutStrided(const Geometry &g) {
  if (g.isDepthwise() && !g.isDilated() && !g.isVolume)
    return transposedDepthwise(g, /*channelsLast=*/false);
  if (auto found = pointwise(g))
    return *found;
  if (fitsDirect(g))
    return transposedDirect(g, /*channelsLast=*/false, Lanes);
  return transposedGemm(g, /*channelsLast=*/false);
}

/// A bound for channels-last tensors: brg_conv, whose blocks are scored, or
/// what it refuses.
static Workspace boundChannelsLast(const Geometry &g) {
  constexpr int64_t kWidest = 32;
  int64_t inputs = g.groups * roundUp(g.groupInput, kWidest);
  int64_t outputs = g.groups * roundUp(g.groupOutput, kWidest);
  int64_t weight = inputs / g.groups * outputs * g.kernelArea() * FloatBytes;
  // Rows of the input with padding on both sides, and sums.
  int64_t padded = (g.inputD + 2 * g.extentD()) * (g.inputH + 2 * g.extentH()) *
                   (g.inputW + 2 * g.extentW());
  int64_t ofThread =
      roundUp(FloatBytes * (padded * inputs + g.outputArea() * outputs), Page);
  int64_t brgemm = batchScratchpad(g, g.kernelArea()) + 8 * Page +
                   g.threads * (ofThread + 2 * Page) + 2 * weight;
  int64_t gemm = transposedGemm(g, /*channelsLast=*/true).bytes;
  // The reference and others may copy both.
  return {g.inputBytes() + 2 * g.outputBytes() + std::max(brgemm, gemm), false};
}

static Workspace channelsLastTransposed(const Geometry &g) {
  // Unit strides are brg_conv's, but for filters of one channel.
  if (auto found = transposedStrided(g, /*channelsLast=*/true)) {
    if (found->exact)
      return *found;
    return {std::max(found->bytes, boundChannelsLast(g).bytes), false};
  }
  if (g.isDepthwise() && !g.isDilated() && !g.isVolume)
    return transposedDepthwise(g, /*channelsLast=*/true);
  return boundChannelsLast(g);
}

Workspace conv::narrowTransposed(const Geometry &g, bool channelsLast) {
  if (channelsLast)
    return channelsLastTransposed(g);
  auto found = transposedStrided(g, /*channelsLast=*/false);
  if (found && found->exact)
    return *found;
  Workspace other = withoutStrided(g);
  // The caches decide.
  return found ? Workspace{std::max(found->bytes, other.bytes), false} : other;
}
