//===- HalfConvPointwise.cpp - What brgconv_1x1 of half types holds -------===//
//
// Source: oneDNN 3.12, init_1x1_conf, calc_blocks_1x1 and est_eff_1x1 in
// cpu/x64/jit_brgemm_conv_utils.cpp. The scores are single precision on
// purpose: ties are decided by their rounding.
//
//===----------------------------------------------------------------------===//

#include "../Amx/AmxTiles.h"
#include "../BlockScore.h"
#include "HalfConv.h"

#include <cmath>

using namespace koila;
using namespace koila::conv;
using namespace koila::onednn;

static constexpr int64_t kTile = 16, kLanes = 32;

static int64_t divideCeil(int64_t value, int64_t by) {
  return llvm::divideCeilSigned(value, by);
}

namespace {
class Pointwise {
public:
  Pointwise(const Geometry &g, const HalfKernels &kernels);

  bool choose();
  std::optional<HalfBuffers> makeBuffers() const;

private:
  bool admits() const;
  void tryBlocks(Pointwise &best);
  int64_t findMostPixels() const;
  void cutInputs();
  void estimate();
  void unroll(int64_t m, int64_t &rowBlock, int64_t &rows, int64_t &together);
  float rate() const;

  Geometry g;
  bool hasTiles;
  int64_t pairs, l1Bytes, l2Bytes;
  int64_t inputs;
  /// Whether a kernel reads rows of no whole steps beyond their ends.
  bool extends = false, padsSums = false, byPixels = false;
  bool isUnrolled = false;
  /// Whether pixels of all rows are worked on together, and their copies.
  bool joinsRows = false, copies = false;

  int64_t outputBlock = 0, inputBlock = 0;
  int64_t pixels = 0, pixelBlock = 0;
  int64_t rowsTail = 0;
  int64_t unrolled = 0, rowBlock = 0, rowBlockTail = 0, vectors = 0;
  bool keepsSums = false;
  float score = 0;
};
} // namespace

Pointwise::Pointwise(const Geometry &g, const HalfKernels &kernels)
    : g(g), hasTiles(kernels.hasTiles), pairs(kernels.pairs),
      l1Bytes(g.l1Bytes * 7 / 8), l2Bytes(g.l2Bytes * 3 / 4),
      inputs(g.groupInput) {
  int64_t source = g.inputArea() * HalfBytes,
          weight = g.groupOutput * HalfBytes;
  byPixels = source >= weight;
  if (!hasTiles)
    return;
  int64_t block = std::min(kTile, divideCeil(inputs, pairs)) * pairs;
  extends = inputs > kLanes && inputs % kLanes != 0;
  if (!extends && (inputs % pairs != 0 || inputs > block))
    inputs = roundUp(inputs, block);
  padsSums = inputs > kLanes;
  constexpr int64_t kFewPixels = 400;
  int64_t weights = g.groupOutput * inputs * HalfBytes;
  byPixels = !(0.75f * l2Bytes < weights ||
               (g.batch == 1 && g.outputArea() < kFewPixels));
  isUnrolled =
      !(g.threads > 1 && g.batch == 1 && inputs * g.outputH <= 28 * 1024 &&
        g.groupOutput * g.outputH <= 14 * 1024);
}

/// Source: fast_check_oc_block_1x1.
bool Pointwise::admits() const {
  if (hasTiles)
    return true;
  if (outputBlock == 64)
    return roundUp(g.groupOutput, kTile) % 64 == 0 &&
           g.outputArea() >= 64 * g.strideD * g.strideH * g.strideW;
  if (outputBlock == 48)
    return (float)g.groupOutput / roundUp(g.groupOutput, 48) >= 0.95f;
  return true;
}

/// Source: select_ic_block.
void Pointwise::cutInputs() {
  if (hasTiles) {
    inputBlock = inputs;
    return;
  }
  int64_t guess = outputBlock == 64   ? 6
                  : outputBlock == 48 ? 9
                  : outputBlock == 32 ? 14
                                      : 28;
  if (pixelBlock > 0)
    guess = std::min(pixelBlock, guess);
  int64_t read = joinsRows ? guess : std::min(g.inputW, guess);
  int64_t blocks = divideCeil(inputs, kLanes);
  int64_t each = HalfBytes * (outputBlock + read);
  int64_t most = std::max<int64_t>(
      1, std::min(std::min(5 * kLanes, blocks),
                  (l2Bytes - unrolled * outputBlock * HalfBytes) /
                      (each * kLanes)));
  int64_t count = std::min(most, blocks);
  while (count > 1 && (float)blocks / roundUp(blocks, count) < 0.5f)
    --count;
  inputBlock = std::min(inputs, count * kLanes);
}

/// Source: estimate_brgemm_ur. In the search kernels are not unrolled.
void Pointwise::unroll(int64_t m, int64_t &rowBlock, int64_t &rows,
                       int64_t &together) {
  int64_t n = std::min(g.groupOutput, outputBlock);
  int64_t k = std::min(inputs, inputBlock);
  if (hasTiles) {
    amx::TileBlocks found = amx::findTiles({m, n, k, 1, false}, g.l1Bytes);
    rowBlock = found.rowBlock;
    rows = found.rowBlock * found.rows;
    int64_t whole = n / kTile;
    together = whole / found.columns != 0
                   ? found.columns
                   : std::max<int64_t>(1, whole % found.columns);
    return;
  }
  constexpr int64_t kRegisters = 32;
  int64_t whole = n / kTile;
  together = std::max<int64_t>(1, whole / 4 != 0 ? 4 : whole % 4);
  int64_t most = (kRegisters - 1 - together) / together;
  rows = most;
  float best = 0;
  for (int64_t block = most; block >= 1; --block) {
    float fit = (float)m / roundUp(m, block);
    float reuse = ((float)together * block) / ((together + block) * most);
    if ((float)HalfBytes * block * k <= (float)g.l1Bytes &&
        fit * reuse > best) {
      best = fit * reuse;
      rows = block;
    }
  }
  rowBlock = rows;
}

void Pointwise::estimate() {
  int64_t m = pixels >= pixelBlock ? pixelBlock : 0;
  rowsTail = pixels % pixelBlock;
  unroll(m > 0 ? m : rowsTail, rowBlock, unrolled, vectors);
  rowBlockTail = 0;
  if (hasTiles && m > 0 && rowsTail > 0) {
    int64_t rows, together;
    unroll(rowsTail, rowBlockTail, rows, together);
  }
}

/// Source: calc_blocks_1x1.
int64_t Pointwise::findMostPixels() const {
  int64_t area = g.outputArea();
  if (!joinsRows) {
    float share =
        std::ceil((float)(g.batch * g.groups *
                          divideCeil(g.groupOutput, outputBlock) * area) /
                  (0.9f * g.threads));
    return std::clamp<int64_t>(
        std::min(std::clamp<int64_t>((int64_t)share, 1, g.outputW), area), 1,
        g.outputW);
  }
  int64_t row = HalfBytes * inputs;
  int64_t byThreads =
      row >= 1024 && row < 4096
          ? std::max(
                std::min<int64_t>(16, area),
                divideCeil(area, divideCeil(g.threads,
                                            g.batch * divideCeil(g.groupOutput,
                                                                 outputBlock))))
          : std::max(divideCeil(2048, outputBlock),
                     divideCeil(g.batch * g.groups * area, g.threads));
  int64_t byLines = 1000000 / g.threads;
  int64_t channels = g.groups * g.groupOutput;
  if (channels * area * HalfBytes % Page == 0) {
    for (int64_t at = channels; byLines * HalfBytes > 400 && at % 2 == 0 &&
                                at * area * HalfBytes >= Page;
         at /= 2)
      byLines /= 2;
    byLines += byLines % 2 ? 0 : 1;
  }
  byLines = std::min(divideCeil(1001, HalfBytes), byLines);
  return std::clamp<int64_t>(std::min({byThreads, area, byLines}), 1, area);
}

void Pointwise::tryBlocks(Pointwise &best) {
  pixels = joinsRows ? g.outputArea() : g.outputW;
  int64_t most = findMostPixels(), previous = 0;
  pixelBlock = -1;
  for (int64_t parts = 1; parts <= pixels; ++parts) {
    int64_t block = divideCeil(pixels, parts);
    if (hasTiles) {
      // Whole blocks of rows that waste the least.
      int64_t widest = std::min(kTile, pixels), width = kTile, rest = kTile;
      int64_t narrowest =
          std::max<int64_t>(1, std::min<int64_t>(11, pixels / 2));
      if (block < narrowest)
        break;
      for (int64_t at = widest; at >= narrowest; --at) {
        int64_t missing = (at - block % at) % at;
        if (missing < rest) {
          rest = missing;
          width = at;
        }
      }
      block = std::min(pixels, block / width * width);
    }
    if (block == previous || block > most)
      continue;
    previous = pixelBlock = block;
    cutInputs();
    estimate();
    keepsSums = inputBlock < inputs;
    score = rate();
    if (score > best.score || best.score == 0)
      best = *this;
  }
}

bool Pointwise::choose() {
  joinsRows = g.strideD == 1 && g.strideH == 1 && g.inputW % g.strideW == 0;
  copies = inputs != g.groupInput || (!joinsRows && hasTiles);
  joinsRows |= copies;
  Pointwise chosen = *this;
  int64_t most = std::min<int64_t>(divideCeil(g.groupOutput, kTile), 4);
  for (int64_t blocks = most; blocks >= 1; --blocks) {
    Pointwise current = *this;
    current.outputBlock = blocks * kTile;
    if (!current.admits())
      continue;
    Pointwise best = current;
    current.tryBlocks(best);
    if (best.pixelBlock <= 0)
      continue;
    best.estimate();
    best.score = best.rate();
    if (best.score > chosen.score)
      chosen = best;
  }
  if (chosen.outputBlock == 0)
    return false;
  *this = chosen;
  return true;
}

/// Source: est_eff_1x1.
float Pointwise::rate() const {
  int64_t outputs = g.groupOutput;
  int64_t m = pixels >= pixelBlock ? pixelBlock : 0;
  float kernel;
  if (hasTiles) {
    auto average = [](int64_t extent, int64_t block, bool isAverage) {
      int64_t count = extent / block;
      int64_t pair = std::min<int64_t>(2, count);
      int64_t pairs = count / pair, rest = count % pair;
      if (!isAverage)
        return (float)pair;
      return ((float)pairs * pair + rest) / divideCeil(count, pair);
    };
    float columnTiles = average(outputBlock, kTile, true);
    float rowTiles = average(pixelBlock, rowBlock, false);
    int64_t full = rowBlock > 0 ? std::max(m, rowsTail) / rowBlock : 0;
    int64_t tail = rowBlockTail > 0 ? rowsTail / rowBlockTail : 0;
    auto isOne = [&](int64_t in, int64_t out) {
      return inputs == in && outputs == out;
    };
    // Shapes for which the quotient stays whole.
    bool isWhole = isOne(1024, 2048) || isOne(1024, 512) || isOne(256, 1024) ||
                   isOne(512, 1024) || isOne(512, 2048);
    int64_t tiles = divideCeil(m + rowsTail, 16);
    float waste =
        isWhole ? (float)(tiles / (full + tail)) : (float)tiles / (full + tail);
    kernel = waste * (columnTiles * rowTiles) / (columnTiles + rowTiles);
  } else {
    kernel = ((float)vectors * unrolled) / ((unrolled + vectors) * 32);
  }
  float fit = (float)pixelBlock / roundUp(pixelBlock, unrolled);
  float reuse = unrolled *
                (2.f - std::min(1.9f, (float)unrolled / (float)pixelBlock)) /
                64;
  reuse = (1 + reuse) / 2;
  int64_t parts = divideCeil(pixels, pixelBlock);
  int64_t outputBlocks = divideCeil(outputs, outputBlock);
  int64_t places = joinsRows ? parts : g.outputD * g.outputH * parts;
  int64_t work = g.batch * g.groups * outputBlocks * places;
  float spread = (float)pixels / roundUp(pixels, pixelBlock);
  float channelFit = (float)outputs / roundUp(outputs, outputBlock);
  int64_t job = divideCeil(work, g.threads);

  int64_t myBlocks =
      std::min(outputBlocks, divideCeil(job, byPixels ? 1 : places));
  int64_t myVectors =
      divideCeil(std::min(outputs, myBlocks * outputBlock), kLanes);
  int64_t inside = byPixels ? g.groups * outputBlocks : 1;
  int64_t myParts = std::min(parts, divideCeil(job, inside));
  int64_t myPixels = std::min(pixels, myParts * pixelBlock);
  int64_t myH = 1, myD = 1;
  if (!joinsRows) {
    int64_t insideH = parts * inside;
    myH = std::min(g.outputH, divideCeil(job, insideH));
    myD = std::min(g.outputD, divideCeil(job, g.outputH * insideH));
  }
  int64_t rowsOfAll = joinsRows ? 1 : g.outputD * g.outputH;
  int64_t most =
      byPixels
          ? coverGrid(job, outputs, g.groups, outputBlock, pixels, pixelBlock)
          : coverGrid(job, pixels, rowsOfAll, pixelBlock, outputs, outputBlock);
  int64_t sum = g.batch * g.outputArea() * g.groups * outputs;
  float balance = most == 0 ? 1 : (float)sum / (most * g.threads);

  auto pad = [](int64_t channels) { return roundUp(channels, kLanes); };
  int64_t filter = outputBlock * inputBlock;
  LoopNest nest = {{}, HalfBytes, l1Bytes, l2Bytes, keepsSums};
  auto &loops = nest.loops;
  loops.push_back({{unrolled * kLanes, 1, (float)kTile}, {0}, {outputBlock}});
  int64_t strips = divideCeil(pixelBlock, unrolled);
  int64_t average = (pixels / pixelBlock * strips +
                     divideCeil(pixels % pixelBlock, unrolled)) /
                    parts;
  loops.push_back({{unrolled * pad(inputBlock)},
                   {unrolled * outputBlock},
                   {filter, (float)(hasTiles ? average : strips)}});
  int64_t chunks = divideCeil(inputs, inputBlock);
  loops.push_back({{pixelBlock * inputBlock},
                   {pixelBlock * outputBlock, (float)chunks},
                   {filter}});
  int64_t operations = vectors * inputs;
  if (byPixels) {
    loops.push_back({{pixelBlock * pad(inputs), (float)myBlocks},
                     {pixelBlock * outputBlock},
                     {outputBlock * inputs}});
    operations = myVectors * inputs;
  }
  int64_t channels = kLanes * (byPixels ? myVectors : vectors);
  loops.push_back({{pixelBlock * inputBlock},
                   {pixelBlock * channels},
                   {operations * kLanes, (float)myParts}});
  if (!joinsRows) {
    loops.push_back({{myPixels * pad(inputBlock)},
                     {myPixels * channels},
                     {operations * kLanes, (float)myH}});
    loops.push_back({{myH * myPixels * pad(inputBlock)},
                     {myH * myPixels * channels},
                     {operations * kLanes, (float)myD}});
  }
  if (!byPixels)
    loops.push_back({{myD * myH * pad(myPixels * inputBlock), (float)myBlocks},
                     {outputBlock * myD * myH * myPixels},
                     {outputBlock * inputs}});
  int64_t myBatch =
      std::min(g.batch, divideCeil(job, places * g.groups * outputBlocks));
  int64_t area = myD * myH * myPixels;
  loops.push_back({{area * pad(inputBlock)},
                   {myVectors * kLanes * area},
                   {myVectors * inputs * kLanes, (float)myBatch}});
  int64_t reads = myBatch * area * inputBlock;
  int64_t writes = myBatch * myVectors * area;
  operations = myVectors * inputs;
  loops.push_back({{reads}, {writes * kLanes}, {operations * kLanes}});
  float call = 1000.f * job * chunks;
  float inputCost = nest.load(&Loop::input, reads);
  float resultCost = nest.load(&Loop::result, writes);
  float weightCost = nest.load(&Loop::weight, operations);
  float cache = (g.batch * rowsOfAll * pixels * inputs * outputs) /
                (g.threads * (inputCost + resultCost + weightCost + call));
  return channelFit * kernel * spread * balance * fit * cache * reuse;
}

/// None where the scratchpad would be too large. Source: init_scratchpad and
/// pick_tags.
std::optional<HalfBuffers> Pointwise::makeBuffers() const {
  constexpr int64_t kList = 103 * 40, kLine = 64;
  auto book = [&](int64_t bytes) { return bookedPage(g.threads * bytes); };
  int64_t bytes = book(kList);
  if (copies)
    bytes += book(roundUp(inputs * g.outputArea(), kLine) * HalfBytes) +
             book(roundUp(divideCeil(inputs, inputBlock) *
                              divideCeil(g.outputArea(), pixelBlock),
                          kLine));
  int64_t m = pixels >= pixelBlock ? pixelBlock : 0;
  if (keepsSums)
    bytes += book(outputBlock * m * FloatBytes);
  int64_t outputBlocks = divideCeil(g.groupOutput, outputBlock);
  if (hasTiles) {
    int64_t most = 0;
    for (int64_t rows : {m, rowsTail})
      for (int64_t columns :
           {g.groupOutput >= outputBlock ? outputBlock : int64_t(0),
            g.groupOutput % outputBlock}) {
        if (rows == 0 || columns == 0)
          continue;
        int64_t tiles =
            amx::findTiles({rows, columns, inputs, 1, isUnrolled}, g.l1Bytes)
                .tiles;
        most = std::max(most, tiles + extends);
      }
    bytes += book(roundUp(most * amx::kTileBytes + 1, Page));
  }
  int64_t step = pairs * (padsSums ? kTile : 1);
  int64_t weight = g.groups * outputBlocks * outputBlock *
                   roundUp(g.groupInput, step) * HalfBytes;
  if (copies && !isScratchpadTaken(g, bytes, weight))
    return std::nullopt;
  return HalfBuffers{weight, bytes, true};
}

std::optional<HalfBuffers> conv::findHalfPointwise(const Geometry &g,
                                                   const HalfKernels &kernels) {
  Pointwise found(g, kernels);
  if (!found.choose())
    return std::nullopt;
  return found.makeBuffers();
}
