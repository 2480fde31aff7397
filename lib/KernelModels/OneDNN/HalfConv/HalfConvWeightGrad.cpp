//===- HalfConvWeightGrad.cpp - Gradients of weights of half types --------===//
//
// Source: oneDNN 3.12, init_conf_bwd_w, balance_bwd_w and init_scratchpad_bwd_w
// in cpu/x64/jit_brgemm_conv_utils.cpp.
//
//===----------------------------------------------------------------------===//

#include "../ConvWeightGrad.h"
#include "HalfConv.h"

using namespace koila;
using namespace koila::conv;

static constexpr int64_t kBlock = 16;

static int64_t divideCeil(int64_t value, int64_t by) {
  return llvm::divideCeilSigned(value, by);
}

namespace {
/// The convolution as the kernel sees it, rows padded for tiles, and what the
/// threads share.
struct WeightGradientBlocks {
  const Geometry &g;
  int64_t inputH, inputW, outputH, outputW;
  int64_t endH, endW;
  int64_t row = 0, gradientRow = 0;
  int64_t inputBlocks = 0, outputBlocks = 0;
  int64_t threads = 1, sampleThreads = 1;
  int64_t inputThreads = 1, outputThreads = 1;

  void padRows();
  /// False where oneDNN decides by more than what is known here.
  bool share();
  float cost(int64_t samples, int64_t outputs, int64_t inputs) const;
  int64_t chunks(int64_t blocks) const {
    return divideCeil(blocks, blocks > 1 ? 2 : 1);
  }
  int64_t work() const { return g.batch * (g.isVolume ? g.outputD : outputH); }
  int64_t lines() const;
};
} // namespace

void WeightGradientBlocks::padRows() {
  constexpr int64_t kRound = 32;
  row = roundUp(divideCeil(inputW + g.paddingW + endW, g.strideW), kRound) *
        g.strideW;
  gradientRow = roundUp(outputW, 2);
  if (gradientRow <= kRound)
    return;
  // The fewest blocks.
  int64_t fewest = gradientRow / 2, best = gradientRow;
  for (int64_t width = gradientRow; width <= roundUp(gradientRow, kRound);
       width += 2)
    for (int64_t block = kRound; block > 0; block -= 2)
      if (width % block == 0) {
        if (width / block < fewest) {
          fewest = width / block;
          best = width;
        }
        break;
      }
  gradientRow = best;
}

/// What one thread reads and writes. Source: calc_mem_cost.
float WeightGradientBlocks::cost(int64_t samples, int64_t outputs,
                                 int64_t inputs) const {
  int64_t kernel = g.kernelArea();
  int64_t source = g.batch * g.inputD * inputH * row;
  int64_t gradient = g.batch * g.outputD * outputH * gradientRow;
  int64_t sourceBytes = source * g.groupInput * HalfBytes;
  int64_t gradientBytes = gradient * g.groupOutput * HalfBytes;
  int64_t weightBytes = kernel * g.groupOutput * g.groupInput * FloatBytes;
  float scale = 0.5f * (gradientBytes + sourceBytes) / weightBytes;
  int64_t outputChunks = chunks(outputBlocks),
          inputChunks = chunks(inputBlocks);
  float ratio = (float)outputChunks / inputChunks;
  float sourceFactor = std::max(1.0f / ratio, 1.0f);
  if (scale < 1.0f)
    sourceFactor *= 4.0f;
  float gradientFactor = std::max(ratio, 1.0f);
  float weightFactor = std::max(scale, 1.0f);
  int64_t parts = divideCeil(work(), samples);
  int64_t outputJob = kBlock * (outputBlocks > 1 ? 2 : 1);
  int64_t inputJob = kBlock * (inputBlocks > 1 ? 2 : 1);
  int64_t mySource =
      parts * (source / work()) / g.strideD / g.strideH / g.strideW;
  int64_t myGradient = parts * (gradient / work());
  int64_t myInputs = divideCeil(inputChunks, inputs) * inputJob;
  int64_t myOutputs = divideCeil(outputChunks, outputJob * outputs) * outputJob;
  float read = HalfBytes * sourceFactor * 1 * myInputs * mySource;
  float readGradient = HalfBytes * gradientFactor * 1 * myOutputs * myGradient;
  float written = FloatBytes * weightFactor * 1 * myOutputs * myInputs * kernel;
  return read + readGradient + written;
}

/// Source: balance_bwd_w.
bool WeightGradientBlocks::share() {
  if (g.threads < g.groups) {
    threads = g.threads;
  } else {
    int64_t most = g.threads / g.groups;
    float best = cost(1, 1, 1);
    for (int64_t samples = 1; samples <= std::min(most, work()); ++samples) {
      int64_t left = most / samples;
      for (int64_t outputs = 1; outputs <= std::min(left, chunks(outputBlocks));
           ++outputs) {
        int64_t inputs =
            std::min(left / outputs, inputBlocks / (inputBlocks > 1 ? 2 : 1));
        float found = cost(samples, outputs, inputs);
        if (found <= best) {
          best = found;
          sampleThreads = samples;
          outputThreads = outputs;
          inputThreads = inputs;
        }
      }
    }
    if (sampleThreads > most / 2 && sampleThreads < most)
      sampleThreads = std::min(work(), most);
    threads = sampleThreads * g.groups * outputThreads * inputThreads;
  }
  // Shapes that oneDNN shares in other ways.
  constexpr int64_t kManyThreads = 28, kManyChannels = 2048, kWide = 100;
  bool isCubic = g.threads > 1 && g.groups == 1 && g.batch <= g.threads / 2 &&
                 g.groupOutput >= 64 && g.groupInput >= 64;
  bool isMany = g.groups == 1 &&
                (g.groupOutput > kManyChannels || g.groupInput > kManyChannels);
  return g.threads == 1 ||
         !(g.threads >= kManyThreads || isCubic || isMany || g.kernelW > kWide);
}

/// The lines of the gradient whose copies are made at once.
int64_t WeightGradientBlocks::lines() const {
  int64_t rowBytes =
      HalfBytes * row * kBlock * divideCeil(inputBlocks, inputThreads) * 2;
  int64_t gradientBytes = HalfBytes * gradientRow * kBlock *
                          divideCeil(outputBlocks, outputThreads) * 2;
  // A part of the second cache, of which init_jcp takes three quarters.
  float cache = 0.8f * (unsigned)(g.l2Bytes * 3 / 4);
  float left =
      std::max(0.f, cache - g.kernelH * rowBytes) / (rowBytes + gradientBytes);
  int64_t limit = (int64_t)std::max(1.f, left);
  limit = divideCeil(outputH, divideCeil(outputH, limit));
  return std::clamp<int64_t>(limit, 1, outputH);
}

/// Whether the kernel is for the shape.
static bool serves(const Geometry &g, int64_t endD, int64_t endH,
                   int64_t endW) {
  auto isBoth = [](int64_t dilation, int64_t stride) {
    return dilation != 1 && stride != 1;
  };
  if (isBoth(g.dilationD, g.strideD) || isBoth(g.dilationH, g.strideH) ||
      isBoth(g.dilationW, g.strideW) ||
      (g.dilationH != 1 && g.extentH() > g.inputH) ||
      (g.dilationD != 1 && (g.paddingD != 0 || endD != 0)))
    return false;
  return g.paddingW < g.extentW() && endW < g.extentW() &&
         g.paddingH <= g.extentH() / 2 && endH <= g.extentH() / 2 &&
         g.paddingD < g.extentD() && endD < g.extentD();
}

std::optional<WeightGradient>
conv::findHalfWeightGradient(const Geometry &g, const HalfKernels &kernels,
                             bool channelsLast) {
  if (!kernels.hasTiles || g.isDepthwise())
    return std::nullopt;
  auto end = [](int64_t output, int64_t stride, int64_t extent, int64_t input,
                int64_t padding) {
    return (output - 1) * stride + extent - input - padding;
  };
  int64_t endD = end(g.outputD, g.strideD, g.extentD(), g.inputD, g.paddingD);
  int64_t endH = end(g.outputH, g.strideH, g.extentH(), g.inputH, g.paddingH);
  int64_t endW = end(g.outputW, g.strideW, g.extentW(), g.inputW, g.paddingW);
  if (!serves(g, endD, endH, endW))
    return std::nullopt;
  WeightGradientBlocks b{g,         g.inputH, g.inputW, g.outputH,
                         g.outputW, endH,     endW};
  b.inputBlocks = divideCeil(g.groupInput, kBlock);
  b.outputBlocks = divideCeil(g.groupOutput, kBlock);
  // A narrow image is read as one row.
  constexpr int64_t kNarrow = 28;
  int64_t products = g.outputD * g.outputH;
  if (g.kernelH == 1 && g.kernelW == 1 && g.strideH == 1 && g.strideW == 1 &&
      g.paddingH == 0 && endH == 0 && g.paddingW == 0 && endW == 0 &&
      g.inputW <= kNarrow) {
    b.inputW *= b.inputH;
    b.outputW *= b.outputH;
    b.inputH = b.outputH = 1;
    products = g.outputD;
  }
  b.padRows();
  bool isKnown = b.share();
  if (!isKnown) {
    // The most of any share.
    b.threads = b.sampleThreads = g.threads;
    b.inputThreads = b.outputThreads = 1;
  }
  int64_t lines = isKnown ? b.lines() : b.outputH;
  int64_t reach = std::min(
      b.inputH, (lines - 1) * std::min(g.kernelH, g.strideH) + g.extentH());
  int64_t inputLines = std::min(b.inputH, g.strideH * reach);
  WeightGradient found;
  found.exact = isKnown;
  if (!channelsLast) {
    found.source = rowsSource(g);
    found.gradient =
        g.outputChannels() == 1 || g.outputArea() == 1 ? 0 : g.outputBytes();
  }
  int64_t outputs = g.groups * b.outputBlocks * kBlock;
  found.weight =
      outputs * roundUp(g.groupInput, 32) * g.kernelArea() * HalfBytes;
  constexpr int64_t kRound = 32, kElement = 40;
  int64_t input = b.sampleThreads * b.inputBlocks * g.groups * b.row * kBlock *
                      inputLines * g.inputD +
                  roundUp(std::max(g.paddingW, endW + 1), kRound);
  int64_t gradient =
      b.sampleThreads * outputs * b.gradientRow * lines * g.outputD +
      b.row * kBlock;
  int64_t sums = outputs * b.inputBlocks * kBlock * g.kernelArea() +
                 (g.hasBias ? outputs : 0);
  int64_t list =
      divideCeil(roundUp(products * kElement, Page), kElement) * kElement;
  found.scratchpad = booked(input * HalfBytes) + booked(gradient * HalfBytes) +
                     booked(b.sampleThreads * sums * FloatBytes) + barriers(1) +
                     booked(64) + bookedPage(b.threads * list) +
                     bookedPage(b.threads * 2 * Page);
  if (b.outputThreads > 1)
    found.scratchpad += barriers(b.threads / b.outputThreads);
  if (b.inputThreads > 1)
    found.scratchpad += barriers(b.threads / b.inputThreads);
  if (!isKnown)
    found.scratchpad += 2 * barriers(g.threads);
  if (!isScratchpadTaken(g, found.scratchpad, found.weight))
    return std::nullopt;
  return found;
}
