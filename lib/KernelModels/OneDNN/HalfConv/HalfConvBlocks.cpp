//===- HalfConvBlocks.cpp - How brg_conv cuts a convolution ---------------===//
//
// Source: oneDNN 3.12, brg_blocking_t in cpu/x64/jit_brgemm_conv_utils.cpp. The
// scores are single precision on purpose: ties are decided by their rounding.
//
//===----------------------------------------------------------------------===//

#include "HalfConvBlocks.h"
#include "../Amx/AmxTiles.h"
#include "../BlockScore.h"

#include "llvm/ADT/SmallVector.h"

#include <cmath>

using namespace koila;
using namespace koila::conv;
using namespace koila::onednn;

static constexpr int64_t kTile = 16;

static int64_t divideCeil(int64_t value, int64_t by) {
  return llvm::divideCeilSigned(value, by);
}
static int64_t saturate(int64_t least, int64_t most, int64_t value) {
  return std::max(least, std::min(most, value));
}

/// The input under `outputs` of a dim. Source: get_inp_size.
static int64_t under(int64_t most, int64_t outputs, int64_t kernel,
                     int64_t stride, int64_t dilation) {
  int64_t step = std::min(kernel, stride);
  return std::min(most, (outputs - 1) * step + dilation * (kernel - 1) + 1);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// Source: fast_check_oc_block.
bool HalfBlocks::admits() const {
  int64_t padded = roundUp(outputs, sumLanes);
  if (outputBlock == 64)
    return padded % 64 == 0 && padded * HalfBytes < 192 * 4;
  if (outputBlock == 48)
    return padded % 48 == 0 && padded * HalfBytes <= 384 * 4 &&
           inputD * inputH * inputW > 81 * strideD * strideH * strideW;
  return true;
}

/// Source: select_ic_block.
void HalfBlocks::cutInputs() {
  constexpr float kLeast = 0.5f;
  int64_t vectorBlocks = divideCeil(inputs, lanes);
  int64_t most = std::min(5 * lanes, vectorBlocks);
  auto fit = [&](int64_t from) {
    for (int64_t count = from; count >= 1; --count)
      if ((float)vectorBlocks / roundUp(vectorBlocks, count) >= kLeast)
        return count;
    return int64_t(1);
  };
  if (hasTiles) {
    int64_t slice = kernelD * kernelH;
    if (slice * inputs * HalfBytes > 8 * 1024) {
      int64_t widest = roundUp(divideCeil(1024, slice * HalfBytes), pairs);
      inputBlock = inputs;
      for (int64_t block = widest; block >= roundUp(lanes / 2, pairs);
           block -= pairs)
        if (inputs % block == 0) {
          inputBlock = block;
          break;
        }
    } else if (inputs * lowerRow() * lowerColumn() <= lanes) {
      inputBlock = roundUp(inputs, pairs);
    } else if (reading == Reading::Copied) {
      inputBlock = fit(most) * lanes;
    } else {
      inputBlock = lanes;
    }
  } else {
    int64_t guess = outputBlock == 64   ? 6
                    : outputBlock == 48 ? 9
                    : outputBlock == 32 ? 14
                                        : 28;
    if (pixelBlock > 0)
      guess = std::min(pixelBlock, guess);
    int64_t read = joinsRows
                       ? guess
                       : under(inputW, guess, kernelBlockW, strideW, dilationW);
    if (kernelBlockW > 1)
      most = saturate(1, most, l1Bytes / (read * HalfBytes * lanes));
    int64_t slice = kernelBlockD * kernelBlockH;
    int64_t each = slice * HalfBytes * (kernelBlockW * outputBlock + read);
    int64_t result = unrolled * outputBlock * HalfBytes;
    most = saturate(1, most, (l2Bytes - result) / (each * lanes));
    int64_t padded = pairs * (padsSums ? sumLanes : 1);
    inputBlock =
        std::min(reading == Reading::Copied ? roundUp(inputs, padded) : inputs,
                 fit(std::min(most, vectorBlocks)) * lanes);
  }
  readBlock = inputBlock;
  if (lowering != Lowering::None) {
    readBlock = inputs;
    inputBlock = std::max(inputBlock, inputs);
  }
  inputBlocks = divideCeil(inputs, inputBlock);
}

/// The padding that kernels pass, which must fit their blocks of rows.
int64_t HalfBlocks::passedRows() const {
  if (reading != Reading::Passed)
    return 0;
  return std::max({beginW, endW, int64_t(0)});
}

/// How many rows at once registers hold, of so many vectors; the last of
/// `count` rows are a block of their own. Source: brgemm_blocking_vmm.
std::optional<int64_t> HalfBlocks::fitRegisters(int64_t count, int64_t n) {
  constexpr int64_t kRegisters = 32;
  for (int64_t together = 4; together > 0; --together) {
    int64_t whole = n / sumLanes;
    vectors = std::max<int64_t>(1, whole / together != 0 ? together
                                                         : whole % together);
    int64_t most = (kRegisters - 1 - vectors) / vectors;
    int64_t tail = count % most;
    if ((tail > 0 ? tail : most) >= passedRows())
      return most;
  }
  return std::nullopt;
}

/// Source: brgemm_blocking.
bool HalfBlocks::unroll() {
  int64_t m = rows > 0 ? rows : rowsTail;
  int64_t n = columns > 0 ? columns : columnsTail;
  int64_t k = sums > 0 ? sums : sumsTail;
  if (hasTiles) {
    amx::TileBlocks found = amx::findTiles({m, n, k, 1, isUnrolled}, cacheL1);
    unrolled = found.rowBlock * found.rows;
    vectors = found.columns;
    if (!isUnrolled) {
      int64_t whole = n / kTile;
      vectors = whole / found.columns != 0
                    ? found.columns
                    : std::max<int64_t>(1, whole % found.columns);
    }
    return true;
  }
  if (passedRows() > 0 && rows > 0 && rowsTail > 0 &&
      !fitRegisters(rowsTail, n))
    return false;
  std::optional<int64_t> most = fitRegisters(m, n);
  if (!most)
    return false;
  unrolled = *most;
  float best = 0;
  int64_t least = std::max<int64_t>(1, passedRows());
  for (int64_t block = *most; block >= least; --block) {
    float fit = (float)m / roundUp(m, block);
    float reuse = ((float)vectors * block) / ((vectors + block) * *most);
    if ((float)HalfBytes * block * k <= (float)cacheL1 && fit * reuse > best) {
      best = fit * reuse;
      unrolled = block;
    }
  }
  return true;
}

/// Whether all kernels have blocks for the padding that they pass, also of the
/// last rows and channels. Source: get_brgemm_ur.
bool HalfBlocks::hasKernels() const {
  HalfBlocks own = *this;
  for (int64_t m : {rows, rowsTail})
    for (int64_t n : {columns, columnsTail})
      if (!hasTiles && m > 0 && n > 0 && !own.fitRegisters(m, n))
        return false;
  return true;
}

/// Source: estimate_brgemm_ur.
bool HalfBlocks::estimate() {
  bool isColumn = outputW == 1;
  int64_t channels = reading == Reading::Copied ? readBlock : groups * inputs;
  rowStride = lowerColumn() * strideW * channels;
  if (isColumn)
    rowStride *= extentW();
  rows = maskedRows = pixels >= pixelBlock ? pixelBlock : 0;
  rowsTail = maskedTail = pixels % pixelBlock;
  skipped = 0;
  if (joinsRows) {
    rowsTail = (outputH * outputW) % pixelBlock;
    int64_t step = lowering == Lowering::Kernel ? 1 : strideH;
    skipped = isColumn ? 0 : ((extentW() - 1) / strideW) * step;
    skipped += (step - 1) * outputW;
    auto grow = [&](int64_t count, int64_t lines, int64_t first) {
      count += skipped * lines;
      if (!masksRows)
        return roundUp(count, kTile);
      int64_t grown = 0, line = blockW + skipped;
      while (grown < count)
        grown += (grown + first) % line < blockW ? kTile : 1;
      return grown;
    };
    int64_t area = outputH * outputW;
    maskedRows = grow(rows, divideCeil(rows, outputW) - 1, 0);
    maskedTail = grow(rowsTail, divideCeil(rowsTail, outputW),
                      area / pixelBlock * pixelBlock % outputW);
  }
  columns = outputs >= outputBlock ? outputBlock : 0;
  columnsTail = outputs % outputBlock;
  if (lowering != Lowering::None) {
    int64_t all = roundUp(lowerColumn() * kernelW * readBlock, pairs);
    if (pairs > 1 && all > lanes)
      all = roundUp(all, lanes);
    sums = inputs >= inputBlock ? all : 0;
    sumsTail = all;
  } else {
    sums = inputs >= inputBlock ? inputBlock : 0;
    int64_t step =
        reading == Reading::Copied && inputBlock % lanes == 0 ? lanes : pairs;
    int64_t rest = inputs % inputBlock;
    sumsTail = reading == Reading::Copied ? roundUp(rest, step) : rest;
  }
  return unroll();
}

/// Source: update_blocks.
void HalfBlocks::cutPixels() {
  outputBlocks = divideCeil(outputs, outputBlock);
  inputBlocks = divideCeil(inputs, inputBlock);
  if (joinsRows) {
    pixels = area();
    pixelBlock = blockW * blockH;
  } else {
    pixels = outputW;
    pixelBlock = blockW;
  }
}

/// The rows and slices that are worked on together. Source: iterate_ker_block.
void HalfBlocks::cutRows() {
  blockD = blockH = 1;
  if (reading != Reading::Copied || lowering == Lowering::Kernel)
    return;
  int64_t row = HalfBytes * (2 * inputBlock * paddedW + outputW * outputBlock);
  int64_t other =
      HalfBytes * kernelD * kernelH * kernelW * inputBlock * outputBlock +
      FloatBytes * 2 * kTile * outputBlock;
  int64_t left =
      std::min(divideCeil(l2Bytes, 2), other > l2Bytes ? 0 : l2Bytes - other);
  if (paddedD * paddedH * row > left) {
    blockD = saturate(1, outputD, left / (paddedH * row));
    blockH = blockD == 1 ? saturate(1, outputH, left / row) : outputH;
  } else {
    blockH = outputH;
  }
  if (hasTiles) {
    bool fits = false;
    int64_t d = blockD, h = blockH;
    int64_t line = HalfBytes * (inputs * paddedW + outputW * outputBlock);
    if (line < l1Bytes) {
      d = saturate(1, outputD, l1Bytes / (paddedH * line));
      if (d == 1)
        h = saturate(1, outputH, l1Bytes / line);
    }
    for (; d > 1; --d) {
      int64_t size = d * h * paddedW;
      if ((float)outputD / roundUp(outputD, d) > 0.9f &&
          (float)size / roundUp(pixels, kTile) > 0.8f) {
        fits = true;
        break;
      }
    }
    if (d == 1)
      for (int64_t some = h; some >= 1; --some)
        if ((float)outputH / roundUp(outputH, some) > 0.9f &&
            some * paddedW > 128) {
          fits = true;
          h = some;
          break;
        }
    if (fits) {
      blockD = d;
      blockH = h;
    }
  }
  int64_t shares = divideCeil(
      threads,
      batch * divideCeil((outputs > 32 ? groups : 1) * outputs, outputBlock));
  int64_t shareD = divideCeil(outputD, shares);
  int64_t shareH = divideCeil(outputH, shares * divideCeil(outputD, shareD));
  blockD = std::min(blockD, shareD);
  blockH = std::min(blockH, shareH);
}

void HalfBlocks::tryKernel(HalfBlocks &best, int64_t slices, int64_t lines,
                           int64_t mostW) {
  kernelBlockD = slices;
  kernelBlockH = lines;
  if (reading == Reading::Plain) {
    kernelBlockW =
        inputs * outputBlock * HalfBytes * kernelW < l2Bytes ? kernelW : 1;
    padBlockD = kernelBlockH >= kernelD ? kernelD : 1;
    padBlockH = kernelBlockW >= kernelH ? kernelH : 1;
    padBlockW = kernelW;
  } else {
    kernelBlockW = padBlockW = kernelW;
    padBlockD = kernelBlockD;
    padBlockH = kernelBlockH;
  }
  pixelBlock = -1;
  cutInputs();
  cutRows();
  pixels = outputW * (joinsRows ? outputH : 1);
  int64_t first = joinsRows ? outputW : std::min(mostW, outputW);
  int64_t previous = 0, all = pixels;
  for (int64_t parts = 1; parts <= all; ++parts) {
    int64_t block = divideCeil(all, parts);
    if (block == previous || block > first || (joinsRows && block != outputW))
      continue;
    previous = blockW = block;
    pixels = all;
    pixelBlock = blockW * (joinsRows ? blockH : 1);
    cutInputs();
    keepsSums = inputBlock < inputs || kernelBlockD != kernelD ||
                kernelBlockH != kernelH || kernelBlockW != kernelW ||
                padBlockD != kernelD || padBlockH != kernelH ||
                padBlockW != kernelW;
    if (reading == Reading::Plain)
      keepsSums = keepsSums || paddedW != inputW;
    if (!estimate())
      continue;
    cutPixels();
    score = rate();
    if (score > best.score || best.score == 0)
      best = *this;
    if (joinsRows)
      break;
  }
}

bool HalfBlocks::choose() {
  HalfBlocks chosen;
  chosen.score = 0;
  chosen.outputBlock = 0;
  int64_t jobs = divideCeil(batch * divideCeil(area(), 4 * kTile) * groups *
                                divideCeil(outputs, 4 * kTile),
                            threads);
  bool isSmall = jobs < 64 || outputs < 256;
  int64_t most = std::min<int64_t>(divideCeil(outputs, sumLanes),
                                   hasTiles && joinsRows && isSmall ? 2 : 4);
  for (int64_t blocks = most; blocks >= 1; --blocks) {
    HalfBlocks current = *this;
    current.outputBlock = blocks * sumLanes;
    current.outputBlocks = divideCeil(outputs, current.outputBlock);
    if (!current.admits())
      continue;
    float share = (float)(batch * groups * current.outputBlocks * area()) /
                  (0.9f * threads);
    int64_t mostW = saturate(1, outputW, (int64_t)std::ceil(share));
    current.pixels = outputW * (joinsRows ? outputH : 1);
    HalfBlocks best = current;
    best.score = 0;
    best.blockW = 0;
    for (int64_t slices : {kernelD, int64_t(1)}) {
      for (int64_t lines : {kernelH, int64_t(1)}) {
        current.tryKernel(best, slices, lines, mostW);
        if (kernelH == 1)
          break;
      }
      if (kernelD == 1)
        break;
    }
    if (best.blockW == 0)
      continue;
    best.cutPixels();
    if (!best.estimate() || !best.hasKernels())
      continue;
    best.score = best.rate();
    if (best.score > chosen.score)
      chosen = best;
  }
  if (chosen.outputBlock == 0)
    return false;
  *this = chosen;
  return true;
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

/// Source: est_eff.
float HalfBlocks::rate() const {
  float columnTiles = (float)vectors;
  int64_t rowTiles = hasTiles ? divideCeil(unrolled, kTile) : unrolled;
  int64_t registers = hasTiles ? 8 : 32;
  float kernel =
      (columnTiles * rowTiles) / ((columnTiles + rowTiles) * registers);
  float fit = (float)pixelBlock / roundUp(pixelBlock, unrolled);
  float reuse =
      unrolled * (2.f - std::min(1.9f, (float)unrolled / pixelBlock)) / 64;
  reuse = (1 + reuse) / 2;

  int64_t partsD = divideCeil(outputD, blockD);
  int64_t partsH = divideCeil(outputH, blockH);
  int64_t parts = divideCeil(pixels, pixelBlock);
  int64_t places = partsD * partsH * parts;
  int64_t work = places * batch * groups * outputBlocks;
  float spread = (float)pixels / roundUp(pixels, pixelBlock);
  float channelFit = (float)outputs / roundUp(outputs, outputBlock);
  int64_t job = divideCeil(work, threads);
  int64_t most = byPixels ? coverGrid(job, outputs, groups, outputBlock, pixels,
                                      pixelBlock)
                          : coverGrid(job, pixels, partsD * partsH, pixelBlock,
                                      outputs, outputBlock);
  int64_t sum = batch * area() * groups * outputs;
  float balance = most == 0 ? 1.f : (float)sum / (most * threads);

  int64_t filter = outputBlock * inputBlock;
  auto columnsUnder = [&](int64_t width, int64_t kernelColumns) {
    return under(inputW, width, kernelColumns, strideW, dilationW);
  };
  auto read = [&](int64_t width, int64_t kernelColumns, int64_t channels) {
    int64_t count = columnsUnder(width, kernelColumns);
    return strideW == 1 && channels >= inputs
               ? roundUp(count * channels, lanes)
               : count * roundUp(channels, lanes);
  };
  std::vector<Loop> loops;
  loops.push_back(
      {{columnsUnder(unrolled, kernelBlockW) * lanes, 1, (float)sumLanes},
       {0},
       {outputBlock}});
  int64_t source = read(unrolled, kernelBlockW, inputBlock);
  loops.push_back({{source, 1, (float)kernelBlockW}, {0}, {filter}});
  loops.push_back({{source}, {0}, {kernelBlockW * filter}});
  int64_t slice = kernelBlockD * kernelBlockH;
  int64_t weights = slice * kernelBlockW * filter;
  loops.push_back({{slice * source},
                   {unrolled * outputBlock},
                   {weights, (float)divideCeil(pixelBlock, unrolled)}});
  int64_t passes = divideCeil(kernelD, kernelBlockD) *
                   divideCeil(kernelH, kernelBlockH) *
                   divideCeil(kernelW, kernelBlockW);
  loops.push_back({{slice * read(pixelBlock, kernelBlockW, inputBlock)},
                   {pixelBlock * outputBlock, (float)passes},
                   {weights}});
  int64_t chunks = inputBlocks;
  int64_t rowsOfKernel = kernelD * kernelH, all = rowsOfKernel * kernelW;
  loops.push_back({{rowsOfKernel * read(pixelBlock, kernelW, inputBlock)},
                   {pixelBlock * outputBlock, (float)chunks},
                   {all * filter}});

  int64_t myBlocks =
      std::min(outputBlocks, divideCeil(job, byPixels ? 1 : places));
  int64_t myVectors =
      divideCeil(std::min(outputs, myBlocks * outputBlock), lanes);
  int64_t inside = byPixels ? groups * outputBlocks : 1;
  int64_t myParts = std::min(parts, divideCeil(job, inside));
  int64_t myPixels = std::min(pixels, myParts * pixelBlock);
  int64_t stripsH = 1, myH = 1, stripsD = 1, myD = 1;
  if (!joinsRows) {
    int64_t insideH = parts * inside;
    stripsH = std::min(partsH, divideCeil(job, insideH));
    myH = std::min(outputH, stripsH * blockH);
    stripsD = std::min(partsD, divideCeil(job, partsH * insideH));
    myD = std::min(outputD, stripsD * blockD);
  }
  source = rowsOfKernel * read(pixelBlock, kernelW, inputs);
  int64_t operations = all * vectors * inputs;
  if (byPixels) {
    loops.push_back({{source, (float)myBlocks},
                     {pixelBlock * outputBlock},
                     {all * outputBlock * inputs}});
    operations = all * myVectors * inputs;
  }
  int64_t channels = lanes * (byPixels ? myVectors : vectors);
  loops.push_back({{source},
                   {pixelBlock * channels},
                   {operations * lanes, (float)myParts}});
  source = rowsOfKernel * read(myPixels, kernelW, inputs);
  loops.push_back({{blockH * source},
                   {myPixels * channels},
                   {operations * lanes, (float)stripsH}});
  loops.push_back({{blockD * myH * source},
                   {myH * myPixels * channels},
                   {operations * lanes, (float)stripsD}});
  if (!byPixels)
    loops.push_back({{myD * myH * source, (float)myBlocks},
                     {outputBlock * myD * myH * myPixels},
                     {all * outputBlock * inputs}});
  int64_t myBatch =
      std::min(batch, divideCeil(job, places * groups * outputBlocks));
  loops.push_back({{myD * myH * source},
                   {myD * myH * myPixels * myVectors * lanes},
                   {all * myVectors * lanes * inputs, (float)myBatch}});
  int64_t reads = myBatch * myD * myH * myPixels * all * inputs;
  int64_t writes = myBatch * myD * myH * myPixels * myVectors;
  operations = all * myVectors * inputs;
  loops.push_back({{reads}, {writes * lanes}, {operations * lanes}});

  float call = 1000.f * job * chunks * divideCeil(kernelD, kernelBlockD) *
               divideCeil(kernelH, kernelBlockH) *
               divideCeil(kernelW, kernelBlockW);
  constexpr float kElement = 40;
  int64_t products = std::max(kernelBlockD * kernelBlockH * kernelBlockW,
                              padBlockD * padBlockH * padBlockW);
  float batchFit = std::min(1.f, l2Bytes / (kElement * products));
  LoopNest nest = {std::move(loops), HalfBytes, l1Bytes, l2Bytes, keepsSums};
  float inputCost = nest.load(&Loop::input, reads);
  float resultCost = nest.load(&Loop::result, writes);
  float weightCost = nest.load(&Loop::weight, operations);
  float cache = (batch * outputD * outputH * pixels * inputs * outputs) /
                (threads * (inputCost + resultCost + weightCost + call));
  return channelFit * kernel * spread * balance * fit * cache * reuse *
         batchFit;
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// Source: add_brg_descriptor in cpu/x64/jit_brgemm_conv.cpp, and
/// set_amx_wsp_per_thread.
int64_t HalfBlocks::tileBytes() const {
  int64_t most = 0;
  for (auto [m, masked] : {std::pair(rows, maskedRows), {rowsTail, maskedTail}})
    for (int64_t n : {columns, columnsTail})
      for (int64_t k : {sums, sumsTail}) {
        if (m == 0 || n == 0 || k == 0)
          continue;
        llvm::SmallVector<bool> wanted;
        if (masksRows) {
          // Lines of wanted rows, and those between them.
          int64_t left = m;
          for (int64_t line = 0; line < blockH; ++line) {
            for (int64_t at = 0; at < blockW + skipped; ++at)
              if (static_cast<int64_t>(wanted.size()) < masked) {
                bool isWanted = left > 0 && at < blockW;
                wanted.push_back(isWanted);
                left -= isWanted;
              }
          }
          wanted.resize(masked, false);
        }
        int64_t products = kernelBlockD * kernelBlockH;
        amx::TileProduct product{masked,          n,          k,
                                 (float)products, isUnrolled, wanted};
        most = std::max(most, amx::findTiles(product, cacheL1).tiles);
      }
  return roundUp(most * amx::kTileBytes + 1, Page);
}
