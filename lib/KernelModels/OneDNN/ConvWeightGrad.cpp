//===- ConvWeightGrad.cpp - oneDNN's gradient of a weight -----------------===//
//
// Which kernel serves, what it copies and books follow init_conf,
// init_scratchpad and balance of each kernel in oneDNN (src/cpu/x64), asked in
// the order of cpu_convolution_list.cpp; docs/design/Workspaces.md has the
// table.
//
//===----------------------------------------------------------------------===//

#include "ConvWeightGrad.h"
#include "ConvTransposed.h"

#include <limits>

using namespace koila;
using namespace koila::conv;

/// The copies of tensors in blocks of channels; of a group of fewer channels
/// than a block only an ungrouped one pads.
static WeightGradient inBlocks(const Geometry &g, int64_t block,
                               bool channelsLast, bool plain = false) {
  int64_t outputs = roundUp(g.groupOutput, block);
  int64_t inputs = plain ? g.groupInput : roundUp(g.groupInput, block);
  WeightGradient found;
  found.weight = g.groups * inputs * outputs * g.kernelArea() * FloatBytes;
  if (channelsLast)
    return found;
  found.gradient = blocked(g.batch, g.groups * outputs, 1, g.outputArea());
  if (!plain)
    found.source = blocked(g.batch, g.groups * inputs, 1, g.inputArea());
  return found;
}

/// A bias whose channels fill no block.
static int64_t paddedBias(const Geometry &g, int64_t block) {
  if (!g.hasBias || g.groupOutput % block == 0)
    return 0;
  return booked(g.groups * roundUp(g.groupOutput, block) * FloatBytes);
}

/// Sums of the bias of the kernels for AVX-512, of `threads` that share a
/// group.
static int64_t biasSums(const Geometry &g, int64_t threads) {
  constexpr int64_t kOfThread = 3 * 5 * 5 * 16 * 16;
  if (!g.hasBias)
    return 0;
  return reducerScratchpad(threads, 16,
                           g.groups * llvm::divideCeilSigned(g.groupOutput, 16),
                           g.batch, threads * kOfThread);
}

//===----------------------------------------------------------------------===//
// jit_dw: one filter for each channel
//===----------------------------------------------------------------------===//

static bool fitsDepthwise(const Geometry &g) {
  std::array<Axis, 3> axes = getAxes(g);
  const Axis &rows = axes[1], &columns = axes[2];
  auto isPadded = [](const Axis &axis) {
    return axis.padding <= axis.kernel / 2 &&
           axis.weightEndPadding() <= axis.kernel / 2;
  };
  auto isOnStride = [&rows](int64_t padding) {
    return padding <= 1 || padding % rows.stride == 0;
  };
  int64_t before = roundUp(rows.padding, rows.stride) - rows.padding;
  return g.isDepthwise() && !g.isVolume && !g.isDilated() && g.kernelW <= 3 &&
         g.strideW <= g.kernelW && isPadded(rows) && isPadded(columns) &&
         rows.input >= rows.kernel + before && isOnStride(rows.padding) &&
         isOnStride(rows.weightEndPadding());
}

static WeightGradient depthwise(const Geometry &g, bool channelsLast) {
  int64_t channels = roundUp(g.groups, g.lanes);
  WeightGradient found;
  found.weight = channels * g.kernelArea() * FloatBytes;
  int64_t blocks = channels / g.lanes, parts;
  if (channelsLast) {
    parts = findDepthwiseThreads(g);
  } else {
    found.source = blocked(g.batch, channels, 1, g.inputArea());
    found.gradient = blocked(g.batch, channels, 1, g.outputArea());
    parts = std::min(std::max<int64_t>(1, g.threads / blocks), g.batch);
  }
  int64_t biases = channelsLast ? g.groups : channels;
  found.scratchpad = booked((parts - 1) * found.weight);
  if (g.hasBias)
    found.scratchpad += booked((parts - 1) * biases * FloatBytes);
  return found;
}

//===----------------------------------------------------------------------===//
// jit_1x1
//===----------------------------------------------------------------------===//

/// Of longer rows the divisors are not looked for.
static constexpr int64_t kWidestRow = 1 << 16;

/// The divisor of `value` from `least` to `most` that wastes least; the largest
/// or the smallest of several. Source: best_divider.
static int64_t divide(int64_t value, int64_t least, int64_t most,
                      bool wantsLargest) {
  most = std::max<int64_t>(1, std::min(most, value));
  least = std::max<int64_t>(1, std::min(least, most));
  int64_t best = most;
  float leastLoss = std::numeric_limits<float>::max();
  for (int64_t chunk = most; chunk >= least; --chunk) {
    int64_t padded = roundUp(value, chunk);
    float loss = (float)(padded - value) / (float)padded;
    if (wantsLargest ? loss >= leastLoss : loss > leastLoss)
      continue;
    leastLoss = loss;
    best = chunk;
  }
  return best;
}

static Shares sharePointwise(const Geometry &g) {
  if (g.threads == 1 || g.outputW > kWidestRow)
    return {};
  int64_t pixels = g.outputArea();
  int64_t together = divide(pixels, 7, 16, true);
  if (pixels % together)
    together = divide(g.outputW, 4, g.outputW, false);
  if (together > 256)
    together = 1;
  int64_t inputs = llvm::divideCeilSigned(g.groupInput, 16);
  int64_t outputs = llvm::divideCeilSigned(g.groupOutput, 16);
  int64_t parts = g.batch * llvm::divideCeilSigned(pixels, together);
  auto memory = [=](const Shares &shares) {
    constexpr int64_t kWeight = 12, kBlock = 16;
    int64_t part =
        llvm::divideCeilSigned(parts, shares.samples) * kBlock * together;
    int64_t reads = llvm::divideCeilSigned(inputs, shares.inputs);
    int64_t writes = llvm::divideCeilSigned(outputs, shares.outputs);
    return part * (reads + writes) + kWeight * reads * writes * kBlock * kBlock;
  };
  Shares shares = findShares(g.threads, {parts, outputs, inputs, memory, {}});
  if (shares.samples > g.threads / 2 && shares.samples < g.threads)
    shares.samples = std::min(g.batch, g.threads);
  return shares;
}

static WeightGradient pointwise(const Geometry &g, bool channelsLast) {
  WeightGradient found = inBlocks(g, 16, channelsLast);
  Shares shares = sharePointwise(g);
  if (g.threads > 1 && g.outputW > kWidestRow) {
    shares = {g.threads, 1, 1};
    found.exact = false;
  }
  // There oneDNN 3.12 writes past its scratchpad, so that nothing is measured.
  if (g.threads > 1 && channelsLast && g.isStrided() && g.groupInput % 16 != 0)
    found.exact = false;
  found.scratchpad =
      paddedBias(g, 16) + booked((shares.samples - 1) * found.weight);
  if (shares.samples > 1)
    found.scratchpad += barriers(1);
  found.scratchpad += biasSums(g, shares.all());
  if (!g.isStrided())
    return found;
  int64_t inputs = llvm::divideCeilSigned(g.groupInput, 16);
  int64_t channels =
      channelsLast ? g.groupInput : 16 * divide(inputs, 5, inputs, false);
  found.scratchpad +=
      booked(shares.all() * channels * g.outputArea() * FloatBytes);
  return found;
}

//===----------------------------------------------------------------------===//
// jit:avx512_core
//===----------------------------------------------------------------------===//

/// Few channels are read from the image itself.
static bool isPlain(const Geometry &g, bool channelsLast) {
  return g.groups == 1 &&
         (channelsLast ? g.groupInput < 16 : g.groupInput <= 3);
}

static bool fitsDirect(const Geometry &g, bool channelsLast) {
  constexpr int64_t kWidest = 14, kUnrolled = 28;
  std::array<Axis, 3> axes = getAxes(g);
  const Axis &planes = axes[0], &rows = axes[1], &columns = axes[2];
  for (const Axis &axis : axes)
    if (axis.dilation != 1 && axis.stride != 1 && &axis != &columns)
      return false;
  auto mostPadding = [](const Axis &axis) {
    return std::max(axis.padding, axis.weightEndPadding());
  };
  bool reads = rows.dilation == 1 || rows.extent() <= rows.input;
  bool pads =
      mostPadding(columns) < std::min(columns.extent(), kUnrolled + 1) &&
      mostPadding(rows) <= rows.extent() / 2 &&
      mostPadding(planes) < planes.extent() &&
      (!planes.padding || planes.kernel < planes.input + planes.padding);
  bool blocks =
      channelsLast ||
      (g.groups == 1 ? g.groupInput <= 3 || g.groupInput >= 16
                     : g.groupInput % 16 == 0 && g.groupOutput % 16 == 0);
  return reads && pads && blocks && planes.dilation == 1 &&
         g.kernelW <= kWidest;
}

static Shares shareDirect(const Geometry &g, bool channelsLast) {
  constexpr int64_t kLeastRows = 9, kBlock = 16;
  if (g.threads < g.groups)
    return {};
  // Rows are split as samples are.
  bool splitsRows = g.dilationH == 1 && !g.isVolume && g.outputH > kLeastRows &&
                    !channelsLast;
  int64_t inputBlock =
      g.groups == 1 && g.groupInput < 16 ? g.groupInput : kBlock;
  int64_t inputs = llvm::divideCeilSigned(g.groupInput, inputBlock);
  int64_t outputs = llvm::divideCeilSigned(g.groupOutput, kBlock);
  int64_t inputRows = splitsRows ? g.inputH : 1;
  int64_t outputRows = splitsRows ? g.outputH : 1;
  int64_t inputRest = g.inputArea() / inputRows;
  int64_t outputRest = g.outputArea() / outputRows;
  auto memory = [&](const Shares &shares) {
    constexpr int64_t kWeight = 8;
    int64_t reads = llvm::divideCeilSigned(inputs, shares.inputs) * inputBlock;
    int64_t writes = llvm::divideCeilSigned(outputs, shares.outputs) * kBlock;
    return llvm::divideCeilSigned(g.batch * inputRows, shares.samples) * reads *
               inputRest / g.strideD / g.strideH / g.strideW +
           llvm::divideCeilSigned(g.batch * outputRows, shares.samples) *
               writes * outputRest +
           kWeight * reads * writes * g.kernelArea();
  };
  auto compute = [&](const Shares &shares) {
    return llvm::divideCeilSigned(g.batch * outputRows, shares.samples) *
           llvm::divideCeilSigned(outputs, shares.outputs) *
           llvm::divideCeilSigned(inputs, shares.inputs);
  };
  int64_t parts =
      g.batch * g.outputD * std::max<int64_t>(1, outputRows / kLeastRows);
  Shares shares = findShares(g.threads / g.groups,
                             {parts, outputs, inputs, memory, compute});
  if (shares.samples > g.threads / 2 && shares.samples < g.threads)
    shares.samples = std::min(parts, g.threads);
  return shares;
}

static WeightGradient direct(const Geometry &g, bool channelsLast) {
  WeightGradient found =
      inBlocks(g, 16, channelsLast, isPlain(g, channelsLast));
  Shares shares = shareDirect(g, channelsLast);
  int64_t groups = std::min(g.threads, g.groups), parts = shares.samples;
  int64_t bias = g.groups * roundUp(g.groupOutput, 16) * FloatBytes;
  found.scratchpad = paddedBias(g, 16) + biasSums(g, groups * shares.all());
  if (parts > 1)
    found.scratchpad +=
        booked((parts - 1) * (found.weight + bias)) + barriers(1);
  return found;
}

//===----------------------------------------------------------------------===//
// jit:avx2
//===----------------------------------------------------------------------===//

static bool fitsNarrow(const Geometry &g, bool channelsLast) {
  constexpr int64_t kWidest = 13;
  // Three channels of one pixel count as channels-last ones.
  if (g.groupInput == 3 && g.inputArea() == 1 && !channelsLast)
    return false;
  // The weight's layout asks for three channels in all, the kernel for three in
  // a group.
  if (g.groups > 1 && (g.groupInput == 3 || g.inputChannels() == 3))
    return false;
  for (const Axis &axis : getAxes(g))
    if (axis.dilation != 1 || axis.padding >= axis.kernel ||
        axis.weightEndPadding() >= axis.kernel)
      return false;
  bool blocks = g.groups == 1 || channelsLast ||
                (g.groupInput % 8 == 0 && g.groupOutput % 8 == 0);
  return blocks && g.paddingD == 0 && g.kernelW <= kWidest &&
         g.kernelH <= g.inputH && g.kernelD <= g.inputD;
}

static WeightGradient narrow(const Geometry &g, bool channelsLast) {
  constexpr int64_t kBuffer = 1 << 21;
  bool plain = g.groupInput == 3;
  WeightGradient found = inBlocks(g, 8, channelsLast, plain);
  int64_t block = plain ? 3 : 8;
  int64_t outputs = llvm::divideCeilSigned(g.groupOutput, 8);
  int64_t inputs = llvm::divideCeilSigned(g.groupInput, block);
  found.scratchpad = paddedBias(g, 8) +
                     reducerScratchpad(g.threads, g.kernelArea() * block * 8,
                                       g.groups * inputs * outputs,
                                       g.batch * g.outputD, kBuffer);
  if (g.hasBias)
    found.scratchpad +=
        reducerScratchpad(g.threads, 8, g.groups * outputs, g.batch, kBuffer);
  return found;
}

//===----------------------------------------------------------------------===//
// jit_1x1 with AVX2
//===----------------------------------------------------------------------===//

/// Halves or thirds `blocks` until there are at most `most`.
static int64_t cutBlocks(int64_t blocks, int64_t most) {
  while (blocks > most && (blocks % 2 == 0 || blocks % 3 == 0))
    blocks /= blocks % 2 == 0 ? 2 : 3;
  return blocks;
}

/// Source: init_conf in jit_avx2_1x1_conv_kernel_f32.cpp and init_balancers in
/// jit_avx2_1x1_convolution.hpp.
static WeightGradient narrowPointwise(const Geometry &g, bool channelsLast) {
  constexpr int64_t kBlock = 8, kJobs = 8, kSmallImage = 1024;
  WeightGradient found = inBlocks(g, kBlock, channelsLast);
  int64_t outputs = llvm::divideCeilSigned(g.groupOutput, kBlock);
  int64_t inputs = llvm::divideCeilSigned(g.groupInput, kBlock);
  // The image once strides have passed over what is not read.
  bool cutsOutputs = !channelsLast || g.groupOutput % kBlock == 0;
  bool cutsInputs = !channelsLast || (g.groupInput % kBlock == 0 &&
                                      g.outputArea() <= kSmallImage);
  int64_t outputsHere = cutsOutputs ? cutBlocks(outputs, 32) : outputs;
  int64_t inputsHere =
      cutsInputs ? cutBlocks(inputs, channelsLast ? 17 : 9) : inputs;
  int64_t job = outputsHere * inputsHere * kBlock * kBlock;
  int64_t most = g.threads * job * kJobs;
  found.scratchpad =
      paddedBias(g, kBlock) +
      planeReducerScratchpad(g.threads, job,
                             outputs / outputsHere * (inputs / inputsHere),
                             g.batch * g.outputArea(), most);
  if (g.hasBias)
    found.scratchpad +=
        reducerScratchpad(g.threads, kBlock, outputs, g.batch, most);
  // There oneDNN 3.12 writes past its scratchpad, so that nothing is measured.
  if (channelsLast && g.isStrided() && g.groupInput % kBlock != 0)
    found.exact = false;
  // The pixels that a stride reads, of each thread.
  int64_t channels = channelsLast ? g.groupInput : inputsHere * kBlock;
  if (g.isStrided())
    found.scratchpad +=
        booked(g.threads * channels * g.outputArea() * FloatBytes);
  return found;
}

//===----------------------------------------------------------------------===//
// gemm
//===----------------------------------------------------------------------===//

/// Columns of a plane of one image for each thread, and sums of the weight,
/// which oneDNN counts in bytes as if they were elements.
static WeightGradient gemm(const Geometry &g, bool channelsLast) {
  bool reads =
      g.isPointwise() && !g.isStrided() && g.inputArea() == g.outputArea();
  int64_t image = g.groupInput * g.kernelArea() * FloatBytes;
  int64_t columns = reads ? 0 : image * g.outputH * g.outputW;
  int64_t turned = channelsLast ? g.groupInput * g.inputArea() * FloatBytes : 0;
  int64_t sums = FloatBytes * g.weightBytes();
  int64_t most = g.mostUnfolded();
  int64_t least =
      channelsLast ? columns + turned + g.weightBytes() : sums + 16 * image;
  bool isOuter = g.threads * least < most &&
                 g.outputH * g.outputW / g.threads < 256 &&
                 (g.batch != 1 || g.groups > 2);
  int64_t threads = isOuter ? g.threads : 1;
  WeightGradient found;
  found.weight = g.weightBytes();
  found.scratchpad = booked(threads * columns) + booked(threads * sums) +
                     booked(threads * turned);
  // Past that the columns are made in parts, or another kernel serves. What
  // lies both ways is copied once more (jit_uni_ncsp).
  bool isBoth =
      channelsLast && (g.inputChannels() == 1 || g.outputChannels() == 1 ||
                       g.inputArea() == 1 || g.outputArea() == 1);
  found.exact = found.scratchpad <= most && !isBoth;
  if (isBoth)
    found.scratchpad +=
        g.inputBytes() + g.outputBytes() + g.weightBytes() + 3 * 4096;
  return found;
}

//===----------------------------------------------------------------------===//
// Choice
//===----------------------------------------------------------------------===//

/// Another kernel than `found` may serve, on copies in blocks.
static WeightGradient boundUnknown(const Geometry &g, WeightGradient found) {
  WeightGradient blocks = inBlocks(g, 16, /*channelsLast=*/false);
  found.source = std::max(found.source, blocks.source);
  found.gradient = std::max(found.gradient, blocks.gradient);
  found.weight = std::max(found.weight, blocks.weight);
  found.scratchpad +=
      (g.threads - 1) * found.weight + innerProductScratchpad(g);
  found.exact = false;
  return found;
}

WeightGradient conv::weightGradient(const Geometry &g, bool channelsLast) {
  bool isWide = g.lanes == 16;
  // ip_convolution.cpp is asked first.
  if (isWide && isInnerProduct(g))
    return boundUnknown(g, gemm(g, channelsLast));
  if (fitsDepthwise(g))
    return depthwise(g, channelsLast);
  if (fitsPointwise(g))
    return isWide ? pointwise(g, channelsLast)
                  : narrowPointwise(g, channelsLast);
  if (isWide && fitsDirect(g, channelsLast))
    return direct(g, channelsLast);
  WeightGradient found = fitsNarrow(g, channelsLast) ? narrow(g, channelsLast)
                                                     : gemm(g, channelsLast);
  // A kernel as wide as the image has a variant of its own.
  if (isWide && g.kernelW > 14 && g.kernelW == g.inputW && g.outputW == 1)
    return boundUnknown(g, found);
  return found;
}
