//===- HalfConvStrided.cpp - What brgconv_strided of half types holds -----===//
//
// Source: oneDNN 3.12, brg_blocking_t, init_jcp, init_conf and init_scratchpad
// in cpu/x64/jit_brgemm_conv_bwd_utils.cpp. The scores are single precision on
// purpose: ties are decided by their rounding.
//
//===----------------------------------------------------------------------===//

#include "../Amx/AmxTiles.h"
#include "../BlockScore.h"
#include "../ConvTransposed.h"
#include "HalfConv.h"

#include <cmath>

using namespace koila;
using namespace koila::conv;

static int64_t divideCeil(int64_t value, int64_t by) {
  return llvm::divideCeilSigned(value, by);
}

static constexpr int64_t kTile = 16;

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

namespace {
class Strided {
public:
  Strided(const Geometry &g, const HalfKernels &kernels);

  bool choose();
  /// With other blocks of the same channels, the most of which pointwise
  /// kernels are given, whose scores are others.
  int64_t countBytes() const;
  int64_t getWeight() const {
    return g.groups * roundUp(g.groupOutput, channels) * copied *
           g.kernelArea() * HalfBytes;
  }
  HalfBuffers boundPointwise();

private:
  void cutRows();
  void tryKernel(Strided &best, int64_t slices, int64_t lines, int64_t most);
  void unroll();
  float rate() const;
  bool divides(int64_t columns) const {
    return columns % g.strideW == 0 && (isUneven || g.outputW % columns == 0);
  }
  int64_t width() const {
    return isUneven ? roundUp(g.outputW, g.strideW) : g.outputW;
  }

  Geometry g;
  HalfKernels kernels;
  bool isUneven, copies, byPixels;
  int64_t paddedD, paddedH, paddedW;
  /// Channels of a group, those in copies padded.
  int64_t copied;

  int64_t channels = 0, channelBlocks = 0;
  int64_t blockD = 1, blockH = 1, blockW = 0, kernelD = 1, kernelH = 1;
  int64_t unrolled = 0;
  float score = 0;
};
} // namespace

Strided::Strided(const Geometry &g, const HalfKernels &kernels)
    : g(g), kernels(kernels), isUneven(g.outputW % g.strideW != 0),
      copies(kernels.hasTiles || isUneven) {
  std::array<Axis, 3> axes = getAxes(g);
  paddedD = axes[0].padded();
  paddedH = axes[1].padded();
  paddedW = axes[2].padded();
  int64_t step =
      kernels.pairs * (kernels.hasTiles && g.groupInput > 32 ? kTile : 1);
  copied = roundUp(g.groupInput, step);
  byPixels = copies || g.inputArea() >= g.groupOutput * g.kernelArea();
}

/// Source: iterate_ker_block.
void Strided::cutRows() {
  int64_t row = HalfBytes * (2 * g.groupInput * paddedW + g.outputW * channels);
  int64_t other = HalfBytes * g.kernelArea() * g.groupInput * channels +
                  FloatBytes * 2 * kTile * channels;
  int64_t left = std::min(divideCeil(g.l2Bytes, 2),
                          other > g.l2Bytes ? 0 : g.l2Bytes - other);
  blockD = 1;
  blockH = g.outputH;
  if (paddedD * paddedH * row > left) {
    blockD = std::clamp<int64_t>(left / (paddedH * row), 1, g.outputD);
    if (blockD == 1)
      blockH = std::clamp<int64_t>(left / row, 1, g.outputH);
  }
  if (kernels.hasTiles) {
    bool fits = false;
    int64_t d = blockD, h = blockH;
    int64_t line = HalfBytes * (g.groupInput * paddedW + g.outputW * channels);
    if (line < g.l1Bytes) {
      d = std::clamp<int64_t>(g.l1Bytes / (paddedH * line), 1, g.outputD);
      if (d == 1)
        h = std::clamp<int64_t>(g.l1Bytes / line, 1, g.outputH);
    }
    for (; d > 1 && !fits; --d)
      if ((float)g.outputD / roundUp(g.outputD, d) > 0.9f &&
          (float)(d * h * paddedW) / roundUp(width(), kTile) > 0.8f) {
        fits = true;
        break;
      }
    if (d == 1)
      for (; h > 1; --h)
        if ((float)g.outputH / roundUp(g.outputH, h) > 0.9f &&
            h * paddedW > 128) {
          fits = true;
          break;
        }
    if (fits) {
      blockD = d;
      blockH = h;
    }
  }
  shareRows(g, channels, blockD, blockH);
}

/// Source: estimate_brgemm_ur.
void Strided::unroll() {
  int64_t m = divideCeil(blockW, g.strideW);
  int64_t n = g.groupOutput >= channels ? channels : g.groupOutput;
  int64_t k = copies && g.groupInput >= copied ? copied : g.groupInput;
  if (kernels.hasTiles) {
    onednn::amx::TileBlocks found =
        onednn::amx::findTiles({m, n, k, 1, false}, g.l1Bytes);
    unrolled = found.rowBlock * found.rows;
    return;
  }
  constexpr int64_t kRegisters = 32;
  int64_t whole = n / kTile;
  int64_t vectors = std::max<int64_t>(1, whole / 4 != 0 ? 4 : whole % 4);
  int64_t most = (kRegisters - 1 - vectors) / vectors;
  unrolled = most;
  float best = 0;
  for (int64_t block = most; block >= 1; --block) {
    float fit = (float)m / roundUp(m, block);
    float reuse = ((float)vectors * block) / ((vectors + block) * most);
    if ((float)HalfBytes * block * k <= (float)g.l1Bytes &&
        fit * reuse > best) {
      best = fit * reuse;
      unrolled = block;
    }
  }
}

void Strided::tryKernel(Strided &best, int64_t slices, int64_t lines,
                        int64_t most) {
  kernelD = slices;
  kernelH = lines;
  cutRows();
  int64_t previous = 0;
  for (int64_t parts = 1; parts <= width(); ++parts) {
    int64_t block = divideCeil(width(), parts);
    if (block == previous || block > most || !divides(block))
      continue;
    previous = blockW = block;
    unroll();
    score = rate();
    if (score > best.score || best.score == 0)
      best = *this;
  }
}

bool Strided::choose() {
  Strided chosen = *this;
  int64_t vectors = std::min<int64_t>(divideCeil(g.groupOutput, kTile), 4);
  for (int64_t vector = vectors; vector > 0; --vector) {
    Strided current = *this;
    current.channels = vector * kTile;
    current.channelBlocks = divideCeil(g.groupOutput, current.channels);
    if (!admits(g, kernels, current.channels))
      continue;
    float share =
        (float)(g.batch * g.groups * current.channelBlocks * g.outputArea()) /
        (0.9f * g.threads);
    int64_t most = std::min(
        std::clamp<int64_t>((int64_t)std::ceil(share), 1, width()), g.outputW);
    if (isUneven)
      most = roundUp(most, g.strideW);
    Strided best = current;
    for (int64_t slices : {g.kernelD, g.strideD}) {
      for (int64_t lines : {g.kernelH, g.strideH}) {
        current.tryKernel(best, slices, lines, most);
        if (g.kernelH == 1)
          break;
      }
      if (g.kernelD == 1)
        break;
    }
    if (best.blockW > 0 && best.score > chosen.score)
      chosen = best;
  }
  if (chosen.channels == 0)
    return false;
  *this = chosen;
  return true;
}

/// Source: est_eff.
float Strided::rate() const {
  constexpr int64_t kLanes = 32, kRegisters = 32;
  int64_t vectors = channels / kTile;
  int64_t partsD = divideCeil(g.outputD, blockD);
  int64_t partsH = divideCeil(g.outputH, blockH);
  int64_t partsW = divideCeil(g.outputW, blockW);
  int64_t places = partsD * partsH * partsW;
  int64_t work = g.batch * g.groups * channelBlocks * places;
  int64_t job = divideCeil(work, g.threads);
  float kernel =
      ((float)vectors * unrolled) / ((unrolled + vectors) * kRegisters);
  float fit = (float)blockW / roundUp(blockW, unrolled);
  float reuse =
      unrolled * (2.f - std::min(1.9f, (float)unrolled / blockW)) / 64;
  reuse = (1 + reuse) / 2;
  float spread = (float)width() / roundUp(width(), blockW);
  float channelFit = (float)g.groupOutput / roundUp(g.groupOutput, channels);

  int64_t block = copies ? copied : g.groupInput;
  auto under = [&](int64_t columns, int64_t kernelColumns) {
    return std::min(g.inputW,
                    (columns - 1) * std::min(kernelColumns, g.strideW) +
                        kernelColumns);
  };
  auto read = [&](int64_t columns, int64_t kernelColumns, int64_t inputs) {
    int64_t count = under(columns, kernelColumns);
    return g.strideW == 1 && inputs >= g.groupInput
               ? roundUp(count * inputs, kLanes)
               : count * roundUp(inputs, kLanes);
  };
  LoopNest nest = {{}, HalfBytes, g.l1Bytes, g.l2Bytes, /*keepsSums=*/true,
                   3,  15};
  auto &loops = nest.loops;
  int64_t filter = channels * block, kernelW = g.kernelW;
  int64_t all = g.kernelArea(), slice = kernelD * kernelH;
  loops.push_back(
      {{under(unrolled, kernelW) * kLanes, 1, (float)kTile}, {0}, {channels}});
  int64_t source = read(unrolled, kernelW, block);
  loops.push_back({{source, 1, (float)kernelW}, {0}, {filter}});
  loops.push_back({{source}, {0}, {kernelW * filter}});
  int64_t weights = slice * kernelW * filter;
  loops.push_back({{slice * source},
                   {unrolled * channels},
                   {weights, (float)divideCeil(blockW, unrolled)}});
  int64_t passes =
      divideCeil(g.kernelD, kernelD) * divideCeil(g.kernelH, kernelH);
  loops.push_back({{slice * read(blockW, kernelW, block)},
                   {blockW * channels, (float)passes},
                   {weights}});
  int64_t rows = g.kernelD * g.kernelH;
  loops.push_back({{rows * read(blockW, kernelW, block)},
                   {blockW * channels},
                   {all * filter}});
  int64_t inside = byPixels ? g.groups * channelBlocks : 1;
  int64_t myBlocks =
      std::min(channelBlocks, divideCeil(job, byPixels ? 1 : places));
  int64_t myVectors =
      divideCeil(std::min(g.groupOutput, myBlocks * channels), kLanes);
  int64_t stripsW = std::min(partsW, divideCeil(job, inside));
  int64_t myW = std::min(width(), stripsW * blockW);
  int64_t stripsH = std::min(partsH, divideCeil(job, partsW * inside));
  int64_t myH = std::min(g.outputH, stripsH * blockH);
  int64_t stripsD = std::min(partsD, divideCeil(job, partsH * partsW * inside));
  int64_t myD = std::min(g.outputD, stripsD * blockD);
  source = rows * read(blockW, kernelW, g.groupInput);
  int64_t operations = all * vectors * g.groupInput;
  if (byPixels) {
    loops.push_back({{source, (float)myBlocks},
                     {blockW * channels},
                     {all * channels * g.groupInput}});
    operations = all * myVectors * g.groupInput;
  }
  int64_t lanes = kLanes * (byPixels ? myVectors : vectors);
  loops.push_back(
      {{source}, {blockW * lanes}, {operations * kLanes, (float)stripsW}});
  source = rows * read(myW, kernelW, g.groupInput);
  loops.push_back({{blockH * source},
                   {myW * lanes},
                   {operations * kLanes, (float)stripsH}});
  loops.push_back({{blockD * myH * source},
                   {myH * myW * lanes},
                   {operations * kLanes, (float)stripsD}});
  if (!byPixels)
    loops.push_back({{myD * myH * source, (float)myBlocks},
                     {channels * myD * myH * myW},
                     {all * channels * g.groupInput}});
  int64_t myBatch =
      std::min(g.batch, divideCeil(job, places * g.groups * channelBlocks));
  int64_t area = myD * myH * myW;
  loops.push_back({{myD * myH * source},
                   {area * myVectors * kLanes},
                   {all * myVectors * kLanes * g.groupInput, (float)myBatch}});
  int64_t reads = myBatch * area * all * g.groupInput;
  int64_t writes = myBatch * area * myVectors;
  operations = all * myVectors * g.groupInput;
  loops.push_back({{reads}, {writes * kLanes}, {operations * kLanes}});
  float inputCost = nest.load(&Loop::input, reads);
  float resultCost = nest.load(&Loop::result, writes);
  float weightCost = nest.load(&Loop::weight, operations);
  int64_t call = job * passes;
  float cache = (g.batch * g.outputD * g.outputH * width() * g.groupInput *
                 g.groupOutput) /
                (g.threads * (inputCost + resultCost + weightCost + call));
  StridedWork blocks = {width(), blockW, channels, channelBlocks, byPixels};
  return channelFit * kernel * spread * blocks.balance(g, work, job) * fit *
         cache * reuse;
}

/// Source: init_scratchpad.
int64_t Strided::countBytes() const {
  auto book = [&](int64_t bytes) { return bookedPage(g.threads * bytes); };
  constexpr int64_t kElement = 40;
  int64_t products = kernelD * kernelH * g.kernelW;
  int64_t list =
      divideCeil(roundUp(products * kElement, Page), kElement) * kElement;
  int64_t image =
      paddedD * paddedH * paddedW * g.groups * (copies ? copied : g.groupInput);
  int64_t places = divideCeil(g.outputD, blockD) *
                   divideCeil(g.outputH, blockH) *
                   divideCeil(g.outputW, blockW) * g.groups;
  int64_t bytes = book(list) + book(roundUp(image, Page) * HalfBytes) +
                  book(roundUp(places, Page)) +
                  book(channels * divideCeil(blockW, g.strideW) * FloatBytes);
  if (isUneven)
    bytes += book(roundUp(blockW * g.strideW * g.groups * g.groupOutput, Page) *
                  HalfBytes);
  if (kernels.hasTiles)
    bytes += book(2 * Page);
  return bytes;
}

HalfBuffers Strided::boundPointwise() {
  HalfBuffers found = {0, 0, true};
  int64_t leastBytes = 0, leastWeight = 0;
  int64_t vectors = std::min<int64_t>(divideCeil(g.groupOutput, kTile), 4);
  for (int64_t vector = vectors; vector > 0; --vector) {
    channels = vector * kTile;
    if (!admits(g, kernels, channels))
      continue;
    for (int64_t parts = 1; parts <= width(); ++parts) {
      blockW = divideCeil(width(), parts);
      if (!divides(blockW))
        continue;
      for (int64_t height : {int64_t(1), g.outputH}) {
        blockD = height == 1 ? 1 : g.outputD;
        blockH = height;
        int64_t bytes = countBytes(), weight = getWeight();
        bool isFirst = found.scratchpad == 0;
        leastBytes = isFirst ? bytes : std::min(leastBytes, bytes);
        leastWeight = isFirst ? weight : std::min(leastWeight, weight);
        found.scratchpad = std::max(found.scratchpad, bytes);
        found.weight = std::max(found.weight, weight);
      }
    }
  }
  found.exact = leastBytes == found.scratchpad && leastWeight == found.weight;
  return found;
}

std::optional<HalfBuffers> conv::findHalfStrided(const Geometry &g,
                                                 const HalfKernels &kernels) {
  if (!serves(g, kernels))
    return std::nullopt;
  Strided strided(g, kernels);
  if (g.isPointwise() && !g.isPadded()) {
    HalfBuffers found = strided.boundPointwise();
    if (found.scratchpad == 0)
      return std::nullopt;
    return found;
  }
  if (!strided.choose())
    return std::nullopt;
  return HalfBuffers{strided.getWeight(), strided.countBytes(), true};
}
