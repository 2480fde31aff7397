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

Workspace conv::joinWeightGradient(Workspace found, WeightGradient kernel,
                                   const Geometry &g, bool isTransposed,
                                   bool channelsLast, int64_t input) {
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
  return joinWeightGradient(
      found, weightGradient(isTransposed ? other : g, channelsLast), g,
      isTransposed, channelsLast, input);
}

/// Of volumes the columns of all samples and groups, also for the input, whose
/// gradient reads the weight alone. Source: ConvolutionMM3d.cpp.
static Workspace slowVolumeBackward(const Geometry &g, bool reads,
                                    int64_t madeInput, int64_t madeWeight,
                                    const Copies &copies) {
  int64_t columns = g.batch * g.inputChannels() * g.kernelArea() *
                    g.outputArea() * g.elementBytes;
  // The input as it is serves the weight, not its own gradient.
  int64_t ofWeight = reads && g.groups == 1 ? 0 : columns;
  int64_t first = madeInput ? madeInput + columns + copies.weight : 0;
  int64_t second =
      madeWeight ? madeInput + madeWeight + ofWeight + copies.input : 0;
  return {std::max(first, second) + copies.gradient, true};
}

// Source: ConvolutionMM2d.cpp, NaiveDilatedConvolution.cpp and
// NaiveConvolutionTranspose2d.cpp and 3d, and for groups convolution_backward
// in Convolution.cpp; test/oracle/convolution_gradients.py measures them.
Workspace conv::slowBackward(const Geometry &g, bool isTransposed,
                             bool channelsLast, bool wantsInput,
                             bool wantsWeight, const Copies &copies) {
  bool reads =
      g.isPointwise() && !g.isStrided() && !g.isPadded() && !g.isDilated();
  int64_t bias = g.hasBias ? g.outputChannels() * g.elementBytes : 0;
  int64_t madeInput = wantsInput ? g.inputBytes() : 0;
  int64_t madeWeight = wantsWeight ? g.weightBytes() + bias : 0;
  int64_t made = madeInput + madeWeight;
  bool isGrouped = g.groups != 1;
  // What is not known is no bound.
  if (channelsLast && (g.isVolume || (isGrouped && isTransposed)))
    return {0, false};
  if (g.isVolume && !isTransposed && !g.isDilated())
    return slowVolumeBackward(g, reads, madeInput, madeWeight, copies);
  if ((g.isVolume && !isTransposed) ||
      (isGrouped && (g.isVolume || g.isDilated())))
    return {0, false};
  int64_t image = (isTransposed ? g.groupOutput * g.inputArea()
                                : g.groupInput * g.outputArea()) *
                  g.kernelArea() * g.elementBytes;
  int64_t columns = 0;
  if (isTransposed)
    columns = reads ? 0 : image;
  else if (g.isDilated())
    columns = image + (wantsWeight ? bias : 0);
  else if (wantsWeight && !reads)
    columns = g.batch * image;
  if (!isGrouped)
    return {made + columns + copies.sum(), true};
  // The slices of several images are copied, those of channels-last ones, and
  // those of a gradient in another layout. The gradients of the groups are
  // there until they are joined.
  int64_t slices = 0;
  if (g.batch > 1 || channelsLast)
    slices = (g.inputBytes() + g.outputBytes()) / g.groups;
  else if (copies.gradient)
    slices = g.outputBytes() / g.groups;
  // Of one channel a slice is of either layout. Of several those that a product
  // reads may be copied once more, and of one image some need no copy.
  bool isKnown = !channelsLast || (g.isDepthwise() && g.batch > 1);
  if (!isKnown && !g.isDepthwise())
    slices *= 2;
  return {made + copies.input + copies.weight +
              std::max(slices + columns, made),
          isKnown};
}
