//===- ConvContiguous.cpp - Workspace of contiguous convolutions ----------===//
//
// oneDNN convolves contiguous tensors in copies of a layout of its own.
// docs/design/Workspaces.md says the same in prose.
//
//===----------------------------------------------------------------------===//

#include "ConvGeometry.h"

using namespace koila;
using namespace koila::conv;

/// A primitive of oneDNN: its scratchpad, and copies in its layouts, of which
/// that of the result is left. Source: ideep's convolution_forward.
static AllocationTrace::Block compute(AllocationTrace &trace, const Geometry &g,
                                      int64_t scratchpad, int64_t source,
                                      int64_t weight, int64_t result) {
  auto buffers = trace.allocate(g.nested(scratchpad));
  auto input = trace.allocate(source);
  auto filter = trace.allocate(weight);
  auto computed = trace.allocate(result);
  trace.free(filter);
  trace.free(input);
  trace.free(buffers);
  return computed;
}

static Workspace finish(const Geometry &g, AllocationTrace trace, bool exact) {
  return {trace.getPeak() - g.outputBytes(), exact, std::move(trace)};
}

Workspace conv::blockedPeak(const Geometry &g, int64_t scratchpad,
                            int64_t source, int64_t weight, int64_t result,
                            bool exact) {
  AllocationTrace trace;
  auto computed = compute(trace, g, scratchpad, source, weight, result);
  trace.allocate(g.outputBytes());
  trace.free(computed);
  return finish(g, std::move(trace), exact);
}

Workspace conv::inPlacePeak(const Geometry &g, int64_t scratchpad,
                            int64_t weight, bool exact) {
  AllocationTrace trace;
  trace.allocate(g.outputBytes());
  auto buffers = trace.allocate(scratchpad);
  trace.free(trace.allocate(weight));
  trace.free(buffers);
  return finish(g, std::move(trace), exact);
}

Workspace conv::rowsPeak(const Geometry &g, int64_t scratchpad, int64_t weight,
                         bool exact) {
  int64_t output = g.outputBytes();
  AllocationTrace trace;
  auto computed = compute(trace, g, scratchpad, rowsSource(g), weight, output);
  // mkldnn_to_dense copies the result as it lies, then makes it contiguous.
  auto dense = trace.allocate(output);
  if (g.outputChannels() != 1 && g.outputArea() != 1) {
    trace.allocate(output);
    trace.free(dense);
  }
  trace.free(computed);
  return finish(g, std::move(trace), exact);
}

int64_t conv::rowsSource(const Geometry &g) {
  return g.inputChannels() == 1 || g.inputArea() == 1 ? 0 : g.inputBytes();
}

int64_t conv::blocked(int64_t batch, int64_t channels, int64_t block,
                      int64_t area) {
  return batch * roundUp(channels, block) * area * FloatBytes;
}

/// A bias padded to whole vectors; needed where the channels were padded.
static int64_t paddedBias(const Geometry &g, int64_t channels, int64_t block) {
  if (!g.hasBias || channels % block == 0)
    return 0;
  return booked(roundUp(channels, block) * FloatBytes);
}

/// jit_dw: one filter per channel (jit_uni_dw_convolution).
static bool fitsDepthwise(const Geometry &g) {
  int64_t unroll = g.lanes == 16 ? 6 : 4;
  return g.groups > 1 && g.groupInput == 1 && g.groupOutput == 1 &&
         g.kernelMeetsInput() && g.paddingW <= std::min(unroll, g.outputW);
}

static Workspace depthwise(const Geometry &g) {
  return blockedPeak(g, paddedBias(g, g.groups, g.lanes),
                     blocked(g.batch, g.groups, g.lanes, g.inputArea()),
                     blocked(1, g.groups, g.lanes, g.kernelArea()),
                     blocked(g.batch, g.groups, g.lanes, g.outputArea()));
}

/// Strides only if they divide the image: the pixels that are read are copied
/// (rtus_prepare).
bool conv::fitsPointwise(const Geometry &g) {
  return g.groups == 1 && g.isPointwise() && !g.isPadded() &&
         g.outputH * g.strideH == g.inputH &&
         g.outputW * g.strideW == g.inputW && !(g.isVolume && g.isStrided());
}

static Workspace pointwise(const Geometry &g) {
  int64_t inputChannels = roundUp(g.groupInput, g.lanes);
  int64_t outputChannels = roundUp(g.groupOutput, g.lanes);
  int64_t scratchpad = paddedBias(g, g.groupOutput, g.lanes);
  bool exact = true;
  if (g.isStrided()) {
    // Each thread keeps the strided pixels of one image.
    scratchpad +=
        booked(g.threads * inputChannels * g.outputArea() * FloatBytes);
    // A tiny problem is given to fewer threads.
    exact = !(g.batch < g.threads && outputChannels / g.lanes < g.threads &&
              g.batch * g.outputArea() * inputChannels * FloatBytes < 8192);
  }
  return blockedPeak(
      g, scratchpad, blocked(g.batch, g.groupInput, g.lanes, g.inputArea()),
      inputChannels * outputChannels * FloatBytes,
      blocked(g.batch, g.groupOutput, g.lanes, g.outputArea()), exact);
}

int64_t conv::directBlock(const Geometry &g) {
  if (g.groups == 1)
    return 16;
  for (int64_t block : {16, 8, 4})
    if (g.groupInput % block == 0 && g.groupOutput % block == 0)
      return block;
  return 0;
}

/// jit:avx512_core and jit:avx2, in blocks of `block` channels. If `plain`,
/// the few input channels are read from the contiguous image itself.
static Workspace direct(const Geometry &g, int64_t block, bool plain) {
  int64_t groupInput = plain ? g.groupInput : roundUp(g.groupInput, block);
  int64_t weight = g.groups * groupInput * roundUp(g.groupOutput, block) *
                   g.kernelArea() * FloatBytes;
  int64_t source =
      plain ? 0 : blocked(g.batch, g.inputChannels(), block, g.inputArea());
  return blockedPeak(
      g, paddedBias(g, g.groupOutput, block), source, weight,
      blocked(g.batch, g.outputChannels(), block, g.outputArea()));
}

/// Whether jit:avx2 serves the convolution. Behind avx512 that is for grouped
/// convolutions of less than eight channels, and kernels too wide for its code.
static bool fitsAvx2(const Geometry &g) {
  bool blocks = g.groupOutput % 8 == 0 &&
                (g.inputChannels() < 8 || g.groupInput % 8 == 0);
  return (g.groups == 1 || blocks) && g.kernelMeetsInput() &&
         g.paddingW <= std::min<int64_t>(3, g.outputW) &&
         (g.kernelW <= 7 || !g.isPadded() || !g.isStrided());
}

/// gemm: contiguous buffers, and unfolded columns for each thread.
static Workspace gemm(const Geometry &g) {
  Workspace columns = gemmColumns(g);
  int64_t output = g.outputBytes();
  // The copy of the result covers columns that are smaller than it.
  Workspace found = blockedPeak(g, columns.bytes, 0, 0, output,
                                columns.exact || columns.bytes <= output);
  // The reference implementation works in channels-last copies.
  if (columns.bytes > g.mostUnfolded())
    return {std::max(found.bytes, g.inputBytes() + 2 * output), false};
  return found;
}

Workspace conv::contiguousOneDnn(const Geometry &g) {
  if (g.lanes == 16 && isInnerProduct(g))
    return blockedPeak(g, innerProductScratchpad(g), g.inputBytes(),
                       g.weightBytes(), g.outputBytes(), false);
  // brdgmm_dw takes volumes of any layout, and makes rows of channels of them.
  if (g.isVolume && g.isDepthwise() && !g.isDilated())
    return rowsPeak(g, 0, blocked(1, g.groups, g.lanes, g.kernelArea()));
  if (!g.isVolume && fitsDepthwise(g))
    return depthwise(g);
  if (fitsPointwise(g))
    return pointwise(g);
  int64_t block = directBlock(g);
  if (g.lanes == 16 && block && g.kernelMeetsInput()) {
    bool plain = g.groups == 1 && g.groupInput < 16;
    TriBool fits = fitsDirectUnroll(g, block);
    if (fits == TriBool::Yes)
      return direct(g, block, plain);
    if (fits == TriBool::Unknown)
      return {std::max(direct(g, block, plain).bytes, gemm(g).bytes), false};
  }
  if (fitsAvx2(g))
    return direct(g, 8, g.inputChannels() < 8);
  return gemm(g);
}
