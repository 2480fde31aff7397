//===- HalfConvStrided.cpp - What brgconv_strided of half types holds -----===//
//
// Source: oneDNN 3.12, init_jcp, init_conf, iterate_ker_block and
// init_scratchpad in cpu/x64/jit_brgemm_conv_bwd_utils.cpp.
//
//===----------------------------------------------------------------------===//

#include "ConvTransposed.h"
#include "HalfConv.h"

using namespace koila;
using namespace koila::conv;

static int64_t divideCeil(int64_t value, int64_t by) {
  return llvm::divideCeilSigned(value, by);
}

/// Whether the kernel is for the shape.
static bool serves(const Geometry &g, const HalfKernels &kernels) {
  if (!g.isStrided() || g.isDilated())
    return false;
  bool isPointwise = g.isPointwise() && !g.isPadded();
  if (kernels.hasTiles) {
    // A product of an odd number of terms has no tiles.
    if (g.groupInput % 2 != 0)
      return false;
    constexpr int64_t kSmallArea = 4, kMostChannels = 512;
    int64_t most = isPointwise ? g.l1Bytes / 2 : g.l1Bytes;
    if (g.outputArea() <= kSmallArea && g.groupInput <= kMostChannels &&
        g.batch * g.groups * g.groupInput * g.groupOutput <= most)
      return false;
  }
  bool isSmall = g.groups > 1 && g.groupInput <= 16 && g.groupInput % 4 == 0 &&
                 g.groupOutput % 4 == 0;
  if (kernels.hasTiles)
    isSmall =
        isSmall && g.groupInput < 16 && g.groupOutput < 16 && !isPointwise;
  return !isSmall;
}

/// Source: fast_check_ic_block and fast_check_ic_block_1x1.
static bool admits(const Geometry &g, const HalfKernels &kernels,
                   int64_t block) {
  if (block < 48)
    return true;
  int64_t padded = roundUp(g.groupOutput, 16);
  int64_t strides = g.strideD * g.strideH * g.strideW;
  if (!g.isPointwise() || g.isPadded()) {
    if (block == 64)
      return padded % 64 == 0 && padded * HalfBytes < 192 * 4;
    return padded % 48 == 0 && padded * HalfBytes <= 384 * 4 &&
           g.inputArea() > 81 * strides;
  }
  if (kernels.hasTiles)
    return true;
  if (block == 64)
    return padded % 64 == 0 && g.outputArea() >= 64 * strides;
  return (float)g.groupOutput / roundUp(g.groupOutput, 48) >= 0.95f;
}

std::optional<HalfBuffers> conv::findHalfStrided(const Geometry &g,
                                                 const HalfKernels &kernels) {
  if (!serves(g, kernels))
    return std::nullopt;
  std::array<Axis, 3> axes = getAxes(g);
  bool isUneven = g.outputW % g.strideW != 0;
  bool copies = kernels.hasTiles || isUneven;
  auto book = [&](int64_t bytes) { return bookedPage(g.threads * bytes); };
  // The input's channels are padded in copies alone.
  int64_t step =
      kernels.pairs * (kernels.hasTiles && g.groupInput > 32 ? 16 : 1);
  int64_t inputs = roundUp(g.groupInput, step);
  int64_t copied = copies ? inputs : g.groupInput;
  int64_t fixed = book(roundUp(axes[0].padded() * axes[1].padded() *
                                   axes[2].padded() * g.groups * copied,
                               Page) *
                       HalfBytes);
  if (kernels.hasTiles)
    fixed += book(2 * Page);
  constexpr int64_t kElement = 40;
  auto list = [&](int64_t products) {
    return book(divideCeil(roundUp(products * kElement, Page), kElement) *
                kElement);
  };
  int64_t width = isUneven ? roundUp(g.outputW, g.strideW) : g.outputW;
  int64_t mostBytes = 0, leastBytes = 0, mostWeight = 0, leastWeight = 0;
  bool isFirst = true;
  int64_t vectors = std::min<int64_t>(divideCeil(g.groupOutput, 16), 4);
  for (int64_t vector = vectors; vector > 0; --vector) {
    int64_t block = vector * 16;
    if (!admits(g, kernels, block))
      continue;
    int64_t weight = g.groups * roundUp(g.groupOutput, block) * inputs *
                     g.kernelArea() * HalfBytes;
    for (int64_t parts = 1; parts <= width; ++parts) {
      int64_t columns = divideCeil(width, parts);
      if (columns % g.strideW || (!isUneven && g.outputW % columns))
        continue;
      int64_t rows = divideCeil(columns, g.strideW);
      int64_t bytes = fixed + book(block * rows * FloatBytes);
      if (isUneven && copies)
        bytes +=
            book(roundUp(columns * g.strideW * g.groups * g.groupOutput, Page) *
                 HalfBytes);
      for (bool isWhole : {true, false}) {
        int64_t places = (isWhole ? 1 : g.outputD * g.outputH) *
                         divideCeil(g.outputW, columns) * g.groups;
        int64_t products = isWhole
                               ? g.kernelArea()
                               : std::min(g.kernelD, g.strideD) *
                                     std::min(g.kernelH, g.strideH) * g.kernelW;
        int64_t all = bytes + book(roundUp(places, Page)) + list(products);
        mostBytes = std::max(mostBytes, all);
        leastBytes = isFirst ? all : std::min(leastBytes, all);
        leastWeight = isFirst ? weight : std::min(leastWeight, weight);
        mostWeight = std::max(mostWeight, weight);
        isFirst = false;
      }
    }
  }
  if (isFirst)
    return std::nullopt;
  return HalfBuffers{mostWeight, mostBytes,
                     mostBytes == leastBytes && mostWeight == leastWeight};
}
