//===- ConvHeuristics.cpp - Choices inside oneDNN's convolutions ----------===//
//
// How oneDNN 3.12 blocks a convolution, as far as the bytes depend on it. The
// scores are single precision on purpose: ties are decided by their rounding.
//
//===----------------------------------------------------------------------===//

#include "ConvGeometry.h"

#include <cmath>

using namespace koila;
using namespace koila::conv;

//===----------------------------------------------------------------------===//
// gemm
//===----------------------------------------------------------------------===//

namespace {

/// The blocking of gemm_convolution on contiguous images: it scores blocks of
/// output channels and pixels (init_conf in gemm_convolution_utils.cpp).
class GemmBlocking {
public:
  GemmBlocking(const Geometry &g, int64_t l2Bytes)
      : g(g), lanes(g.lanes), cache(l2Bytes / FloatBytes),
        kernel(g.kernelArea()), area(g.outputH * g.outputW),
        pixels(g.batch * g.groups * area), inputStep(g.strideH * g.strideW),
        channelBlock(g.groupInput) {}

  /// The floats unfolded by all threads together.
  int64_t columns() {
    if (!isBlocked())
      return (isThreadedOutside() ? g.threads : 1) * g.groupInput * kernel *
             area;
    for (int64_t split = 1; split <= g.threads; ++split)
      search(split);
    return g.threads * channelBlock * kernel * pixelBlock;
  }

private:
  bool isBlocked() const {
    if (g.isVolume) // One slice of the result at a time.
      return false;
    return pixels >= g.threads * lanes || area < g.batch * g.groups ||
           (g.strideW == 1 && g.groupInput * kernel <= 0.05 * g.groupOutput);
  }

  /// How evenly `work` spreads over the threads.
  float balance(int64_t work) const {
    return (float)work / roundUp(work, g.threads);
  }

  bool isThreadedOutside() const {
    if (area / g.threads >= 512 ||
        (g.outputD == 1 && g.batch == 1 && g.groups <= 2))
      return false;
    int64_t tiles = llvm::divideCeilSigned(area, lanes) *
                    llvm::divideCeilSigned(g.groupOutput, lanes);
    return balance(g.groups * g.batch * g.outputD) / balance(tiles) >= 1.f ||
           area * g.groupInput * g.groupOutput / g.threads < 64 * 1024;
  }

  /// The input channels whose data fit the cache beside a block.
  int64_t fittingChannels(int64_t outputs, int64_t block, int64_t threadOutputs,
                          int64_t threadPixels) const {
    int64_t input = inputStep * block, column = kernel * block;
    int64_t spread =
        (cache - outputs * block) / (input + column + kernel * threadOutputs);
    if (block < threadPixels)
      return spread;
    int64_t channels = cache / (input + column);
    if (outputs < threadOutputs)
      channels = std::min(channels, (cache - outputs * block) /
                                        (column + kernel * outputs));
    return channels < g.groupInput ? spread : channels;
  }

  /// Scores one candidate and keeps the best.
  void consider(int64_t split, int64_t outputs, int64_t block);
  void explore(int64_t split, int64_t outputs, int64_t block);
  void search(int64_t split);

  const Geometry &g;
  int64_t lanes, cache, kernel, area, pixels, inputStep;
  int64_t outputBlock = 1, pixelBlock = 1, channelBlock;
  float best = 0;
};

} // namespace

static int64_t clampTo(int64_t low, int64_t high, int64_t value) {
  return std::max(low, std::min(high, value));
}

void GemmBlocking::consider(int64_t split, int64_t outputs, int64_t block) {
  int64_t inside = g.threads / split,
          outside = llvm::divideCeilSigned(g.threads, split);
  int64_t mostOutputs = llvm::divideCeilSigned(g.groupOutput, split);
  int64_t leastOutputs = std::max<int64_t>(1, g.groupOutput / split);
  int64_t mostPixels = llvm::divideCeilSigned(pixels, inside);
  outputs = clampTo(8, mostOutputs, outputs);
  block = clampTo(lanes, mostPixels, block);

  // The shares of the busiest and of the idlest thread.
  int64_t outputsLeft = g.groupOutput % split, threadsLeft = g.threads % split;
  int64_t busiest =
      outputsLeft > threadsLeft
          ? mostOutputs * mostPixels
          : std::max(mostOutputs * llvm::divideCeilSigned(pixels, outside),
                     leastOutputs * mostPixels);
  int64_t idlest =
      threadsLeft > outputsLeft
          ? leastOutputs * std::max<int64_t>(1, pixels / outside)
          : std::min(mostOutputs * std::max<int64_t>(1, pixels / outside),
                     leastOutputs * (pixels / inside));
  float fairness = (float)idlest / busiest;

  outputs = std::min(mostOutputs, outputs);
  int64_t imagePixels = std::min(area, mostPixels);
  block = std::min(imagePixels, block);

  int64_t fitting = fittingChannels(outputs, block, mostOutputs, mostPixels);
  int64_t access = fitting < 1 ? 20 : 1; // Not from the cache.
  fitting = std::max<int64_t>(1, fitting);
  int64_t channels = std::max<int64_t>(
      1, g.groupInput / llvm::divideCeilSigned(g.groupInput, fitting));
  int64_t passes = llvm::divideCeilSigned(g.groupInput, channels);
  int64_t depth = channels * kernel, fullDepth = g.groupInput * kernel;

  // Memory operations: results, image, columns, weights.
  int64_t results = access * mostOutputs * roundUp(mostPixels, lanes) *
                    (channels == g.groupInput ? 1 : 2 * passes - 1);
  int64_t lanedBlock = roundUp(block, lanes);
  int64_t image = g.groupInput * roundUp(mostPixels * inputStep, lanes);
  float tail = (float)lanedBlock / block;
  int64_t unfolding = (int64_t)(access * ((size_t)(kernel * image) * tail +
                                          (size_t)(kernel * image) * tail));
  if (g.strideW != 1)
    unfolding = (int64_t)((float)unfolding * 8);
  int64_t operations = access * kernel * image + unfolding +
                       access * mostOutputs * roundUp(fullDepth, lanes) +
                       results;
  float memory =
      (((float)mostPixels / lanes) * mostOutputs * fullDepth) / operations;

  float outputFit = (float)mostOutputs / roundUp(mostOutputs, outputs);
  float pixelFit = (float)imagePixels / roundUp(imagePixels, block);
  float channelFit = (float)g.groupInput / roundUp(g.groupInput, channels);
  float registerFit = (float)block / roundUp(block, 3 * lanes);
  float share = ((float)block * outputs * depth) /
                ((float)mostOutputs * mostPixels * fullDepth);
  float reuse = (((float)block / lanes) * outputs * depth) /
                (lanedBlock * depth + outputs * roundUp(depth, lanes) +
                 outputs * lanedBlock);
  float score =
      std::pow(std::pow(fairness, 8.f) * outputFit * pixelFit * channelFit *
                   registerFit * memory * std::pow(share, 0.5f) * reuse,
               1.f / 14.5f);
  if (score > best) {
    best = score;
    outputBlock = outputs;
    pixelBlock = block;
    channelBlock = channels;
  }
}

void GemmBlocking::explore(int64_t split, int64_t outputs, int64_t block) {
  int64_t up = roundUp(outputs, 8), down = outputs / 8 * 8;
  consider(split, outputs, block);
  consider(split, down, block / 48 * 48);
  consider(split, up, block / 48 * 48);
  consider(split, up, roundUp(block, lanes));
  consider(split, up, roundUp(block, 48));
}

void GemmBlocking::search(int64_t split) {
  int64_t mostOutputs = llvm::divideCeilSigned(g.groupOutput, split);
  int64_t mostPixels = llvm::divideCeilSigned(pixels, g.threads / split);
  consider(split, mostOutputs, mostPixels);
  if (outputBlock == mostOutputs && pixelBlock == mostPixels &&
      channelBlock == g.groupInput)
    return;
  // All input channels; then as many as fit; then all output channels.
  int64_t perPixel = inputStep + kernel, perChannel = kernel * mostOutputs;
  int64_t channels = g.groupInput;
  auto pixelsBeside = [&](int64_t outputs) {
    return (cache - perChannel * channels) / (perPixel * channels + outputs);
  };
  int64_t outputs = clampTo(
      8, mostOutputs,
      (cache - perPixel * channels * lanes - perChannel * channels) / lanes);
  explore(split, outputs, clampTo(lanes, mostPixels, pixelsBeside(outputs)));

  int64_t fitting =
      std::max<int64_t>(1, cache / (2 * 8 * perPixel + 2 * perChannel));
  if (fitting < g.groupInput) {
    channels = g.groupInput / std::max<int64_t>(1, g.groupInput / fitting);
    int64_t block = std::max<int64_t>(1, (cache - 2 * perChannel * channels) /
                                             (2 * channels * perPixel));
    outputs = cache / 2 / block;
    if (outputs > mostOutputs) {
      outputs = mostOutputs;
      block = clampTo(lanes, mostPixels, pixelsBeside(outputs));
    } else if (block > mostPixels) {
      block = mostPixels;
      outputs = clampTo(
          8, mostOutputs,
          (cache - perPixel * channels * block - perChannel * channels) /
              block);
    }
    explore(split, outputs, block);
  }

  channels = g.groupInput;
  explore(split, mostOutputs,
          std::max(lanes, pixelsBeside(mostOutputs) / lanes * lanes));
}

Workspace conv::gemmColumns(const Geometry &g) {
  if (g.isPointwise() && !g.isStrided() && !g.isPadded())
    return {0, true}; // The image is its own columns.
  int64_t least = INT64_MAX, most = 0;
  forEachSize(g.l2Bytes, L2Sizes, [&](int64_t size) {
    int64_t columns = GemmBlocking(g, size).columns();
    least = std::min(least, columns);
    most = std::max(most, columns);
  });
  return {most * FloatBytes + 128, least == most};
}

//===----------------------------------------------------------------------===//
// Direct convolution
//===----------------------------------------------------------------------===//

namespace {

/// How jit:avx512_core unrolls the output width (init_conf of
/// jit_avx512_common_conv_kernel.cpp): `columns` by `blocks` of channels.
struct DirectUnroll {
  DirectUnroll(const Geometry &g, int64_t block, int64_t l1, int64_t l2);

  int64_t columns, blocks = 1;

private:
  /// How evenly the rows spread over the threads.
  float balance(int64_t blocks, int64_t strip) const {
    int64_t work = g.batch * g.outputH *
                   llvm::divideCeilSigned(outputBlocks, blocks) *
                   llvm::divideCeilSigned(g.outputW, strip);
    return (float)g.outputW / roundUp(g.outputW, strip) * (float)work /
           roundUp(work, g.threads);
  }
  int64_t strip(int64_t blocks, int64_t columns, int64_t l2) const;

  const Geometry &g;
  int64_t outputLanes, inputLanes, outputBlocks;
  bool first;
};

} // namespace

/// The columns a thread works on at a time.
int64_t DirectUnroll::strip(int64_t blocks, int64_t columns, int64_t l2) const {
  if (first)
    return g.outputW;
  int64_t outputs = outputLanes * blocks;
  int64_t weight = outputs * inputLanes * g.kernelArea();
  int64_t fitting = (l2 * 7 / 8 / FloatBytes - 2 * weight) /
                    (2 * columns * (outputs + inputLanes * g.kernelH));
  int64_t best = columns * std::max<int64_t>(2, fitting);
  float score = balance(blocks, best);
  for (int64_t parts = llvm::divideCeilSigned(g.outputW, best),
               most = llvm::divideCeilSigned(g.outputW, 2 * columns);
       parts <= most; ++parts) {
    int64_t strip = std::min(
        roundUp(llvm::divideCeilSigned(g.outputW, parts), columns), g.outputW);
    if (strip < outputs && score > 0.9f)
      break;
    if (llvm::divideCeilSigned(g.outputW, strip) != parts)
      continue;
    float now = balance(blocks, strip);
    if (strip >= 2 * columns && now > score) {
      best = strip;
      score = now;
    }
    if (score > 0.98f)
      break;
  }
  return std::min(g.outputW, std::max(2 * columns, best));
}

DirectUnroll::DirectUnroll(const Geometry &g, int64_t block, int64_t l1,
                           int64_t l2)
    : g(g), outputLanes(block), first(g.groups == 1 && g.groupInput < 16) {
  inputLanes = first ? g.groupInput : block;
  outputBlocks = llvm::divideCeilSigned(g.groupOutput, block);
  int64_t inputs = roundUp(g.groupInput, inputLanes);
  int64_t outputs = outputBlocks * block, width = g.outputW;
  bool small = FloatBytes * (llvm::divideCeilSigned(g.inputW, g.strideW) *
                                 inputLanes * g.kernelH +
                             2 * width * block +
                             2 * g.kernelArea() * inputLanes * block) <
               l1;
  bool narrow = g.kernelW == 3 && width <= 28 && small &&
                !(width == 13 && inputs >= 192) &&
                !(width == 28 && inputs >= 512);
  // A kernel as wide as the image, slid down a tall one.
  bool tall = g.groups == 1 && g.batch == 1 && !g.isStrided() && width == 1 &&
              g.inputW == g.kernelW && outputBlocks > 1 && !g.paddingW &&
              g.dilationW == 1 && g.outputH >= 60 && g.kernelH >= 3;
  bool embeds = !tall && (g.kernelW > 3 || (!g.isStrided() && narrow) ||
                          (g.isStrided() && g.batch <= 16 &&
                           (outputs <= 192 || g.outputH <= 10) && narrow) ||
                          (g.batch == 1 && (width <= 28 || first ||
                                            (width <= 147 && outputs <= 96))));
  if (embeds) {
    columns = std::min<int64_t>(width, 28);
    if (small && width <= 8 && g.kernelH <= 3 && g.kernelW <= 3 &&
        outputBlocks % 2 == 0 && !first && g.batch != 1) {
      blocks = 2;
      columns = std::min<int64_t>(width, 10);
    }
    return;
  }
  float best = 0;
  for (int64_t count = std::min<int64_t>(outputBlocks, 5); count > 0; --count) {
    if (outputBlocks % count)
      continue;
    if (tall) {
      blocks = count;
      break;
    }
    float score =
        balance(count, strip(count, std::min(width, 31 / (count + 1)), l2));
    if (score > 1.05f * best) {
      blocks = count;
      best = score;
    }
  }
  columns = std::min(width, 31 / (blocks + 1));
}

TriBool conv::fitsDirectUnroll(const Geometry &g, int64_t block) {
  bool fits = false, fails = false;
  forEachCache(g, [&](int64_t l1, int64_t l2) {
    bool padded = DirectUnroll(g, block, l1, l2).columns < g.paddingW;
    (padded ? fails : fits) = true;
  });
  if (fails)
    return fits ? TriBool::Unknown : TriBool::No;
  // Wide kernels, which alone make much code, unroll 28 columns of one block.
  int64_t columns = std::min<int64_t>(g.outputW, 28);
  int64_t lanes = g.groups == 1 && g.groupInput < 16 ? g.groupInput : block;
  int64_t end = (g.outputW / columns * columns - 1) * g.strideW + g.extentW() -
                (g.inputW + g.paddingW);
  int64_t variants = 1 + (g.paddingW > 0) + (end > 0);
  return variants * g.kernelW * lanes * columns * 15 <= 256 * 1024
             ? TriBool::Yes
             : TriBool::No;
}
