//===- ConvWorkspaceBackward.cpp - Bytes that gradients hide --------------===//
//
// oneDNN computes the gradient of the input as a transposed convolution, and
// that of the weight after it. Which kernel computes a weight's gradient, and
// what it copies, was read from oneDNN's source, from its log and from the
// allocator (test/oracle/convolution_gradients.py).
//
//===----------------------------------------------------------------------===//

#include "ConvWeightGrad.h"

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

/// The gradient of the input of a transposed convolution is a convolution.
static Workspace convolved(Geometry g, bool channelsLast) {
  g.isGradient = false;
  g.isNested = true;
  return channelsLast ? channelsLastOneDnn(g) : contiguousOneDnn(g);
}

Workspace conv::oneDnnBackward(const Geometry &g, bool isTransposed,
                               bool channelsLast, bool wantsInput,
                               bool wantsWeight) {
  int64_t input = wantsInput ? g.inputBytes() : 0;
  Workspace found = {0, true};
  Geometry other = transposed(g);
  if (wantsInput) {
    Workspace first = isTransposed ? convolved(other, channelsLast)
                                   : transposedOneDnn(other, channelsLast);
    found = {first.bytes + input, first.exact};
  }
  if (!wantsWeight)
    return found;
  WeightGradient kernel =
      weightGradient(isTransposed ? other : g, channelsLast);
  if (isTransposed)
    kernel.scratchpad = booked(kernel.scratchpad);
  int64_t bias = g.hasBias ? g.outputChannels() * g.elementBytes : 0;
  int64_t running = kernel.source + kernel.gradient + kernel.weight +
                    kernel.scratchpad + bias;
  // Both are copied as PyTorch's tensors are, a weight again to its layout.
  int64_t copied =
      kernel.weight + (channelsLast ? 2 : 1) * g.weightBytes() + 2 * bias;
  found.bytes = std::max(found.bytes, input + std::max(running, copied));
  found.exact &= kernel.exact;
  return found;
}

Workspace conv::slowBackward(const Geometry &g, bool wantsInput,
                             bool wantsWeight) {
  bool reads = g.isPointwise() && !g.isStrided() && !g.isPadded();
  int64_t image =
      g.groupInput * g.kernelArea() * g.outputArea() * g.elementBytes;
  int64_t bias = g.hasBias ? g.outputChannels() * g.elementBytes : 0;
  int64_t made = (wantsInput ? g.inputBytes() : 0) +
                 (wantsWeight ? g.weightBytes() + bias : 0);
  // What is not known is no bound.
  if (g.groups != 1 || g.isVolume)
    return {0, false};
  // Columns of one image at a time, also of a pointwise kernel.
  if (g.isDilated())
    return {made + image + (wantsWeight ? bias : 0), true};
  if (reads)
    return {made, true};
  if (g.batch != 1)
    return {0, false};
  return {made + (wantsWeight ? image : 0), true};
}
