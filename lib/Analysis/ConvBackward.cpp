//===- ConvBackward.cpp - Hidden bytes of a convolution's gradients -------===//
//
// oneDNN computes the gradient of the input as a transposed convolution, and
// that of the weight after it. Of contiguous tensors; which kernel computes a
// weight's gradient, and what it copies, was read from oneDNN's own log and
// from the allocator for 1,200 convolutions.
//
//===----------------------------------------------------------------------===//

#include "ConvTransposed.h"

using namespace koila;
using namespace koila::conv;

Geometry conv::transposed(const Geometry &g) {
  Geometry other = g;
  std::swap(other.groupInput, other.groupOutput);
  std::swap(other.inputD, other.outputD);
  std::swap(other.inputH, other.outputH);
  std::swap(other.inputW, other.outputW);
  other.hasBias = false;
  other.isGradient = true;
  return other;
}

namespace {
/// What the gradient of a weight is computed of and from.
struct Kernel {
  /// Copies of the input and of the gradient; 0: read as they are.
  int64_t source, gradient;
  int64_t weight, scratchpad;
  bool exact = true;
};
} // namespace

/// Vectors of a bias whose channels were padded.
static int64_t padBias(const Geometry &g, int64_t block) {
  if (!g.hasBias || g.groupOutput % block == 0)
    return 0;
  return booked(roundUp(g.groupOutput, block) * FloatBytes);
}

static Kernel runBlocked(const Geometry &g, int64_t block, bool plain) {
  int64_t inputs = plain ? g.groupInput : roundUp(g.groupInput, block);
  return {plain ? 0 : blocked(g.batch, g.groups * inputs, 1, g.inputArea()),
          blocked(g.batch, g.groups * roundUp(g.groupOutput, block), 1,
                  g.outputArea()),
          g.groups * inputs * roundUp(g.groupOutput, block) * g.kernelArea() *
              FloatBytes,
          padBias(g, block)};
}

/// Columns of one image, and sums of the weight, which oneDNN counts in bytes
/// as if they were elements.
static Kernel runGemm(const Geometry &g) {
  bool reads = g.isPointwise() && !g.isStrided() && !g.isPadded();
  int64_t columns =
      reads ? 0 : g.groupInput * g.kernelArea() * g.outputArea() * FloatBytes;
  return {0, 0, g.weightBytes(),
          booked(g.threads * columns) +
              booked(g.threads * FloatBytes * g.weightBytes()),
          g.batch >= g.threads};
}

/// jit_1x1, which copies the pixels that a stride reads.
static bool fitsPointwise(const Geometry &g) {
  return g.groups == 1 && g.isPointwise() && !g.isPadded() &&
         g.outputH * g.strideH == g.inputH && g.outputW * g.strideW == g.inputW;
}

static Kernel runPointwise(const Geometry &g) {
  Kernel kernel = runBlocked(g, 16, /*plain=*/false);
  if (g.isStrided())
    kernel.scratchpad +=
        booked(g.threads * roundUp(g.groupInput, 16) * g.outputArea() *
               FloatBytes);
  return kernel;
}

/// Threads share the images and add up their weights, or share the channels: at
/// most each has a weight, a sample of both tensors, and some pages.
static Kernel boundThreads(const Geometry &g, Kernel kernel) {
  if (g.threads == 1)
    return kernel;
  constexpr int64_t kPages = 64 << 10;
  int64_t samples = ceilDiv(kernel.source + kernel.gradient, g.batch);
  kernel.scratchpad += g.threads * (kernel.weight + samples + kPages +
                                    g.outputChannels() * FloatBytes);
  kernel.exact = false;
  return kernel;
}

/// The kernel that oneDNN takes for the weight's gradient.
static Kernel chooseKernel(const Geometry &g) {
  Kernel unknown = runBlocked(g, 16, /*plain=*/false);
  Kernel gemm = runGemm(g);
  unknown.scratchpad += gemm.scratchpad;
  unknown = boundThreads(g, unknown);
  unknown.exact = false;
  if (g.isDilated() || g.isVolume || isInnerProduct(g) ||
      2 * g.paddingH > g.kernelH || 2 * g.paddingW > g.kernelW)
    return unknown;
  int64_t widest = std::max(g.kernelH, g.kernelW);
  // jit:avx2 takes no image that is lower than the kernel.
  constexpr int64_t kWidest = 14;
  bool fitsNarrow = widest < kWidest && g.inputH >= g.kernelH;
  if (g.isDepthwise()) {
    // One filter for each channel, of three rows, or of one without a stride.
    Kernel rows = {blocked(g.batch, g.groups, 16, g.inputArea()),
                   blocked(g.batch, g.groups, 16, g.outputArea()),
                   blocked(1, g.groups, 16, g.kernelArea()), 0};
    if (g.kernelH != g.kernelW || g.strideH != g.strideW)
      return unknown;
    bool isThree = g.kernelH == 3 && std::min(g.inputH, g.inputW) >= 3;
    if (isThree || (g.isPointwise() && !g.isStrided()))
      return boundThreads(g, rows);
    return g.kernelH % 2 ? gemm : unknown;
  }
  if (fitsPointwise(g))
    return boundThreads(g, runPointwise(g));
  int64_t block = directBlock(g);
  if (g.groups == 1 && g.groupInput > 3 && g.groupInput < 16)
    block = 8;
  if (block == 16 && widest <= kWidest)
    return boundThreads(
        g, runBlocked(g, 16, /*plain=*/g.groups == 1 && g.groupInput <= 3));
  if (block == 8 && fitsNarrow)
    return boundThreads(g, runBlocked(g, 8, /*plain=*/false));
  return gemm;
}

Workspace conv::oneDnnBackward(const Geometry &g, bool wantsInput,
                               bool wantsWeight) {
  int64_t input = wantsInput ? g.inputBytes() : 0;
  Workspace found = {0, true};
  if (wantsInput) {
    Workspace first = transposedOneDnn(transposed(g), /*channelsLast=*/false);
    found = {first.bytes + input, first.exact};
  }
  if (!wantsWeight)
    return found;
  Kernel kernel = chooseKernel(g);
  int64_t bias = g.hasBias ? g.outputChannels() * g.elementBytes : 0;
  int64_t running = kernel.source + kernel.gradient + kernel.weight +
                    kernel.scratchpad + bias;
  // Both are copied as PyTorch's tensors are.
  int64_t copied = kernel.weight + g.weightBytes() + 2 * bias;
  found.bytes = std::max(found.bytes, input + std::max(running, copied));
  found.exact &= kernel.exact;
  return found;
}

Workspace conv::slowBackward(const Geometry &g, bool wantsInput,
                             bool wantsWeight) {
  bool reads = g.isPointwise() && !g.isStrided() && !g.isPadded();
  int64_t columns = reads ? 0
                          : g.batch * g.groupInput * g.kernelArea() *
                                g.outputArea() * g.elementBytes;
  int64_t bias = g.hasBias ? g.outputChannels() * g.elementBytes : 0;
  int64_t made = (wantsInput ? g.inputBytes() : 0) +
                 (wantsWeight ? g.weightBytes() + bias : 0);
  bool known = g.groups == 1 && !g.isDilated() && !g.isVolume &&
               (reads || (g.batch == 1 && wantsInput && wantsWeight));
  // What is not known is no bound.
  return {known ? made + columns : 0, known};
}
