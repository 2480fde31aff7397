//===- ConvWorkspace.cpp - Hidden bytes of a CPU convolution --------------===//
//
// Which implementation serves a float32 convolution, and which buffers it
// allocates. docs/Workspaces.md says the same in prose.
//
//===----------------------------------------------------------------------===//

#include "koila/Analysis/ConvWorkspace.h"
#include "ConvGeometry.h"

#include <algorithm>
#include <cassert>
#include <optional>

using namespace koila;
using namespace koila::conv;

//===----------------------------------------------------------------------===//
// PyTorch's own kernels
//===----------------------------------------------------------------------===//

/// Whether PyTorch hands the convolution to oneDNN (ConvParams::use_mkldnn).
static bool usesOneDnn(const Geometry &g) {
  // A plain pointwise convolution of a small batch on one thread is a matrix
  // product already.
  if (!g.isStrided() && !g.isDilated() && g.batch < 16 && g.kernelH == 1 &&
      g.kernelW == 1 && g.threads <= 1)
    return false;
  // A single small image is left to im2col unless its kernel is large.
  return g.groups > 1 || (g.kernelH > 3 && g.kernelW > 3) || g.batch > 1 ||
         g.batch * g.inputChannels() * g.inputArea() > 20480;
}

/// im2col and a matrix product, group after group, joined by a concatenation.
/// `copies` are the bytes spent on making the tensors channels-last.
static Workspace slowConvolution(const Geometry &g, bool channelsLast,
                                 int64_t copies) {
  int64_t columns =
      g.groupInput * g.kernelArea() * g.outputArea() * g.elementBytes;
  // slow_conv_dilated2d unfolds one image at a time, after its output;
  // slow_conv2d unfolds the batch before it allocates the output; a pointwise
  // kernel reads the input as it is.
  bool reads = g.isPointwise() && !g.isStrided() && !g.isPadded() &&
               !g.isDilated();
  int64_t unfolded = reads           ? 0
                     : g.isDilated() ? columns
                                     : g.batch * columns;
  if (g.groups == 1)
    return {copies + unfolded, true};
  // A group's channels are contiguous in one image only; else they are copied.
  bool slices = g.batch > 1 || channelsLast;
  int64_t groupInput = slices ? g.inputBytes() / g.groups : 0;
  int64_t output = g.outputBytes();
  return {copies + std::max(groupInput + unfolded, output), true};
}

//===----------------------------------------------------------------------===//
// oneDNN, contiguous tensors
//===----------------------------------------------------------------------===//

/// The buffers of one oneDNN convolution on contiguous tensors, all alive
/// while it runs. `result` is then copied to the contiguous output, the others
/// being freed.
static Workspace blockedPeak(const Geometry &g, int64_t scratchpad,
                             int64_t source, int64_t weight, int64_t result,
                             bool exact = true) {
  int64_t running = scratchpad + source + weight + result;
  int64_t output = g.outputBytes();
  return {std::max(running, result + output) - output, exact};
}

/// The bytes of a copy whose channels are padded to a multiple of `block`.
static int64_t blocked(int64_t batch, int64_t channels, int64_t block,
                       int64_t area) {
  return batch * roundUp(channels, block) * area * FloatBytes;
}

/// A scratchpad entry: 128 bytes extra for its alignment.
static int64_t booked(int64_t bytes) { return bytes ? bytes + 128 : 0; }

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

/// jit_1x1: no padding; strides only if they divide the image evenly, by
/// copying the pixels that are read (rtus_prepare).
static bool fitsPointwise(const Geometry &g) {
  return g.groups == 1 && g.isPointwise() && !g.isPadded() &&
         g.outputH * g.strideH == g.inputH && g.outputW * g.strideW == g.inputW;
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
  // More columns than fifteen times the tensors, or 1 GiB, are refused; the
  // reference implementation follows, in channels-last copies.
  int64_t tensors = g.inputBytes() + g.weightBytes() + output;
  if (columns.bytes > std::min<int64_t>(1 << 30, 15 * g.threads * tensors))
    return {std::max(found.bytes, g.inputBytes() + 2 * output), false};
  return found;
}

static Workspace contiguousOneDnn(const Geometry &g) {
  if (g.lanes == 16 && isInnerProduct(g))
    return blockedPeak(g, innerProductScratchpad(g), g.inputBytes(),
                       g.weightBytes(), g.outputBytes(), false);
  if (fitsDepthwise(g))
    return depthwise(g);
  if (fitsPointwise(g))
    return pointwise(g);
  int64_t block = directBlock(g);
  if (g.lanes == 16 && block && g.kernelMeetsInput()) {
    bool plain = g.groups == 1 && g.groupInput < 16;
    Answer fits = fitsDirectUnroll(g, block);
    if (fits == Answer::Yes)
      return direct(g, block, plain);
    if (fits == Answer::Unknown)
      return {std::max(direct(g, block, plain).bytes, gemm(g).bytes), false};
  }
  if (fitsAvx2(g))
    return direct(g, 8, g.inputChannels() < 8);
  return gemm(g);
}

/// Three dimensions: the kernels whose buffers are those of two dimensions.
static std::optional<Workspace> contiguousVolume(const Geometry &g) {
  if (g.lanes != 16 || g.groups != 1 || isInnerProduct(g) ||
      (g.isPointwise() && g.isStrided()))
    return std::nullopt;
  if (g.isPointwise() && !g.isPadded())
    return pointwise(g);
  constexpr int64_t kBlock = 16;
  if (!g.kernelMeetsInput() || fitsDirectUnroll(g, kBlock) != Answer::Yes)
    return std::nullopt;
  return direct(g, kBlock, g.groupInput < kBlock);
}

//===----------------------------------------------------------------------===//
// Entry
//===----------------------------------------------------------------------===//

/// Brings a convolution of one to three dimensions into Geometry.
static Geometry makeGeometry(const ConvolutionShape &shape,
                             const CpuTarget &target) {
  // PyTorch inserts a height of one into a one-dimensional convolution. The
  // axes are height and width; of three dimensions the depth is axis -1.
  int64_t rank = static_cast<int64_t>(shape.input.size()) - 2;
  auto at = [rank](const std::vector<int64_t> &values, size_t offset,
                   int64_t axis, int64_t inserted) {
    int64_t place = axis + rank - 2;
    if (place < 0)
      return inserted;
    // A single value stands for all axes.
    return values.size() == offset + 1 ? values.back()
                                       : values[offset + place];
  };
  Geometry g;
  g.batch = shape.input[0];
  g.groups = shape.groups;
  g.groupInput = shape.weight[1];
  g.groupOutput = shape.weight[0] / shape.groups;
  g.inputH = at(shape.input, 2, 0, 1);
  g.inputW = at(shape.input, 2, 1, 1);
  g.kernelH = at(shape.weight, 2, 0, 1);
  g.kernelW = at(shape.weight, 2, 1, 1);
  g.strideH = at(shape.stride, 0, 0, 1);
  g.strideW = at(shape.stride, 0, 1, 1);
  g.paddingH = at(shape.padding, 0, 0, 0);
  g.paddingW = at(shape.padding, 0, 1, 0);
  g.dilationH = at(shape.dilation, 0, 0, 1);
  g.dilationW = at(shape.dilation, 0, 1, 1);
  if (rank == 3) {
    g.inputD = at(shape.input, 2, -1, 1);
    g.kernelD = at(shape.weight, 2, -1, 1);
    g.strideD = at(shape.stride, 0, -1, 1);
    g.paddingD = at(shape.padding, 0, -1, 0);
    g.dilationD = at(shape.dilation, 0, -1, 1);
    g.outputD = (g.inputD + 2 * g.paddingD - g.extentD()) / g.strideD + 1;
  }
  g.outputH = (g.inputH + 2 * g.paddingH - g.extentH()) / g.strideH + 1;
  g.outputW = (g.inputW + 2 * g.paddingW - g.extentW()) / g.strideW + 1;
  g.hasBias = shape.hasBias;
  g.threads = std::max<int64_t>(1, target.threads);
  g.lanes = target.isa.starts_with("avx512") ? 16 : 8;
  g.l1Bytes = target.l1Bytes;
  g.l2Bytes = target.l2Bytes;
  g.elementBytes = shape.elementBytes;
  return g;
}

/// More than any implementation was seen to take: every tensor copied into
/// blocks of sixteen channels, twice, and all images unfolded.
static int64_t upperBound(const ConvolutionShape &shape, int64_t threads) {
  int64_t batch = shape.input[0], area = 1, outputArea = 1, kernel = 1;
  for (size_t axis = 0, rank = shape.input.size() - 2; axis < rank; ++axis) {
    auto at = [axis](const std::vector<int64_t> &values) {
      return values[std::min(axis, values.size() - 1)];
    };
    int64_t in = shape.input[axis + 2], k = shape.weight[axis + 2];
    area *= in;
    kernel *= k;
    int64_t reach =
        in + 2 * at(shape.padding) - at(shape.dilation) * (k - 1) - 1;
    outputArea *= reach / at(shape.stride) + 1;
  }
  int64_t groups = shape.groups, groupInput = roundUp(shape.weight[1], 16),
          groupOutput = roundUp(shape.weight[0] / groups, 16),
          outputChannels = roundUp(shape.weight[0], 16);
  int64_t input = batch * roundUp(shape.input[1], 16) * area;
  int64_t output = batch * outputChannels * outputArea;
  int64_t weight = roundUp(groups, 16) * groupInput * groupOutput * kernel;
  int64_t columns =
      std::max(threads, batch) * shape.input[1] * kernel * outputArea;
  int64_t elements = 2 * (input + output + weight) + columns + outputChannels;
  return elements * shape.elementBytes + 4096;
}

Workspace koila::convolutionWorkspace(const ConvolutionShape &shape,
                                      const CpuTarget &target) {
  assert(shape.input.size() == shape.weight.size() && shape.input.size() > 2);
  int64_t threads = std::max<int64_t>(1, target.threads);
  for (int64_t extent : shape.input)
    if (extent == 0) // ConvBackend::Empty and MkldnnEmpty compute nothing.
      return {0, true};
  const std::string &isa = target.isa;
  bool avx2 = isa.starts_with("avx2"), avx512 = isa.starts_with("avx512_core");
  bool isVolume = shape.input.size() > 4;
  bool isDouble = shape.elementBytes == 2 * FloatBytes;
  bool isFloat = shape.elementBytes == FloatBytes && (avx2 || avx512);
  if (shape.input.size() > 5 || !(isFloat || isDouble) ||
      (isVolume && shape.groups > 1))
    return {upperBound(shape, threads), false};

  Geometry g = makeGeometry(shape, target);
  if (g.outputD <= 0 || g.outputH <= 0 || g.outputW <= 0 || g.groupOutput <= 0)
    return {0, false}; // The call throws.
  bool channelsLast = shape.inputChannelsLast || shape.weightChannelsLast;
  int64_t copies = channelsLast ? channelsLastCopies(g, shape.inputChannelsLast,
                                                     shape.weightChannelsLast)
                                : 0;
  // These could be measured. Later ones take the same path with float32: their
  // own kernels want lower precision (init_jcp in jit_brgemm_conv_utils.cpp).
  bool measured = isa == "avx512_core" || isa == "avx512_core_vnni" ||
                  isa == "avx512_core_bf16" || isa == "avx2";
  Workspace found;
  if (isDouble || !usesOneDnn(g))
    return slowConvolution(g, channelsLast, copies);
  if (isVolume) {
    auto volume = contiguousVolume(g);
    if (!volume || g.isBeyondInt32())
      return {upperBound(shape, threads), false};
    return {volume->bytes, measured};
  }
  if (g.isBeyondInt32()) // The jit kernels step aside.
    return {upperBound(shape, threads), false};
  if (!channelsLast)
    found = contiguousOneDnn(g);
  else if (avx512)
    found = channelsLastOneDnn(g);
  else
    return {upperBound(shape, threads), false};
  return {copies + found.bytes, found.exact && measured};
}
