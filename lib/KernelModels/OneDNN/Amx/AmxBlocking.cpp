//===- AmxBlocking.cpp - How products are cut with AMX --------------------===//
//
// Source: oneDNN 3.12, cpu/x64/matmul/amx_blocking_heuristics.cpp (the macro
// heuristic, for a first factor in rows), init_aux_values and init_scratchpad
// in brgemm_matmul_utils.cpp. The second factor is copied to blocks of 32
// columns. Blocks are those of which a model of the caches says that they take
// the least time; the same model is computed here, with its rounding.
//
//===----------------------------------------------------------------------===//

#include "AmxProduct.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>
#include <array>
#include <cmath>

using namespace koila;
using namespace koila::onednn;
using namespace koila::onednn::amx;

using llvm::SmallVector;

/// The columns of a block.
static constexpr int64_t kColumnBlock = 32, kTile = 16;
static constexpr int64_t kLine = 64;

//===----------------------------------------------------------------------===//
// Speed of memory
//===----------------------------------------------------------------------===//

/// Bytes in a cycle. Source: bw_map_t.
static constexpr float kL1Hit = 106.41, kL1LoadMiss = 106.41 / 2.28,
                       kL1StoreMiss = 106.41 / 2.85, kLastCache = 6.0;

/// Of main memory, where that many threads read the same.
static float getBandwidth(int sharing) {
  static constexpr std::array<std::pair<int, float>, 6> kPoints{{{1, 2.28f},
                                                                 {2, 0.9f},
                                                                 {4, 2.39f},
                                                                 {8, 2.98f},
                                                                 {16, 3.31f},
                                                                 {32, 4.06f}}};
  float x = sharing;
  const auto *next = std::lower_bound(
      kPoints.begin(), kPoints.end(), sharing,
      [](const auto &point, int value) { return point.first < value; });
  if (next == kPoints.end())
    return kPoints.back().second;
  if (next == kPoints.begin())
    return next->second;
  auto [x0, y0] = *std::prev(next);
  auto [x1, y1] = *next;
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

namespace {
class Search {
public:
  Search(const AmxProduct &product, int64_t threads, const Caches &caches)
      : product(product), l1(5 * caches.l1Bytes / 6),
        l2(3 * caches.l2Bytes / 4) {
    blocking.threads = threads;
  }

  AmxBlocking run();

private:
  struct State : AmxBlocking {
    int64_t ofRows = 0, ofSums = 0, ofColumns = 0, ofBatches = 0;
    /// What is computed at once.
    int64_t rowTile = 0, sumTile = 0, rows = kColumnBlock,
            columns = kColumnBlock;
    bool isHorizontal = false, readsFirstOnce = false;
    float score = 0;
  };
  /// The largest number of blocks of sums and of the other side that fit, and
  /// how well they do.
  struct Best {
    int64_t sums = 0, other = 0;
    float score = 0;
    bool isPossible = true;
  };

  void divide(State &state, int64_t batches, int64_t rows, int64_t sums,
              int64_t columns) const;
  void setTiles(State &state) const;
  bool setSmall(State &state) const;
  void setExtends(State &state) const;
  bool isAcceptable(const State &state) const;
  bool setBlocks(State &state, bool isForced, bool transforms) const;
  int64_t getSumBlock(const State &state, int64_t width) const;
  void chooseBlocks(Best &best, const State &state, int64_t sumBlock,
                    bool isHorizontal, bool transforms, int64_t least) const;
  Best findHorizontal(const State &state, int64_t sumBlock, bool transforms,
                      int64_t least, float score) const;
  Best findVertical(const State &state, int64_t sumBlock, bool isForced) const;
  size_t getUse(const State &state, int64_t chunk, int64_t other,
                int64_t sumBlock, bool isHorizontal, bool transforms) const;
  size_t getUseWithSums(const State &state, int64_t chunk, int64_t other,
                        int64_t sumBlock, bool isHorizontal) const;
  float getRatio(const State &state, int64_t chunk, int64_t other,
                 int64_t sumBlock, bool isHorizontal) const;
  float getScore(const State &state) const;
  bool isBetter(const State &lhs, const State &rhs) const;

  const AmxProduct &product;
  /// The parts of the caches that are counted on.
  int64_t l1, l2;
  State blocking;
};
} // namespace

/// Source: set_core_divs.
void Search::divide(State &state, int64_t batches, int64_t rows, int64_t sums,
                    int64_t columns) const {
  state.batchThreads = batches;
  state.rowThreads = rows;
  state.sumThreads = sums;
  state.columnThreads = columns;
  state.ofRows = divideCeil(product.rows, rows);
  state.ofSums = divideCeil(product.sums, sums);
  state.ofColumns = divideCeil(product.columns, columns);
  state.ofBatches = divideCeil(product.batch, batches);
}

/// Source: determine_tmul_size.
static int64_t getTile(int64_t extent, int64_t full) {
  return divideCeil(extent, divideCeil(extent, full));
}

/// Source: set_tmul_sizes and set_decomposition.
void Search::setTiles(State &state) const {
  state.rowTile = getTile(state.ofRows, kTile);
  state.sumTile = std::min(kSumBlock, product.sums);
  state.rows = std::min(product.rows, 2 * state.rowTile);
  state.columns = std::min(product.columns, 2 * kTile);
}

/// Whether whole tiles take the sums of a block. Source: skip_extendable_k.
static bool isEven(int64_t sums) {
  int64_t steps = divideCeil(sums, kSumBlock), step = sums / steps;
  return sums % steps == 0 && step <= kSumBlock && step % 2 == 0;
}

/// Source: set_common and set_blocking_parameters.
void Search::setExtends(State &state) const {
  int64_t rest = product.sums % state.sumBlock;
  state.extendsSums = product.sums % kSumBlock != 0 && !state.copiesFirst &&
                      !(isEven(state.sumBlock) && (rest == 0 || isEven(rest)));
}

/// Products of which one extent is small. Source: maybe_small_dims_heuristics.
bool Search::setSmall(State &state) const {
  constexpr int64_t kSmall = 32;
  constexpr float kUsed = 0.75;
  if (product.batch != 1)
    return false;
  auto finish = [&] {
    state.sumBlock = product.sums;
    state.sumChunk = 1;
    state.needsSums = false;
    state.copiesFirst = false;
    setExtends(state);
    state.score = 1;
    return true;
  };
  auto isUsed = [&](int64_t threads) {
    return !(threads < kUsed * state.threads);
  };
  if (product.rows <= kSmall && product.isSecondTransposed) {
    state.columns = std::min(product.columns, kColumnBlock);
    state.rows = product.rows;
    int64_t each =
        pad(divideCeil(product.columns, state.threads), state.columns);
    divide(state, 1, 1, 1, divideCeil(product.columns, each));
    if (!isUsed(state.columnThreads))
      return false;
    state.rowBlock = product.rows;
    state.rowChunk = 1;
    state.columnBlock = state.columns;
    state.columnChunk = each / state.columns;
    return product.rows * product.sums <= l2 && finish();
  }
  int64_t each = divideCeil(product.rows, state.threads);
  if (product.sums <= kSumBlock) {
    divide(state, 1, divideCeil(product.rows, each), 1, 1);
    setTiles(state);
    if (!isUsed(state.rowThreads))
      return false;
    state.rowBlock = state.rows;
    state.rowChunk = divideCeil(each, state.rows);
    int64_t chunk = divideCeil(
        product.columns *
            (product.sums + pad(product.sums, kSumBlock) + state.rows),
        l2);
    state.columnBlock = pad(divideCeil(product.columns, chunk), kColumnBlock);
    state.columnChunk = chunk;
    return finish();
  }
  if (product.columns > kSmall)
    return false;
  state.ofRows = each;
  state.rows = getTile(each, 2 * kTile);
  state.columns = 2 * kTile;
  state.sumTile = std::min(kSumBlock, product.sums);
  divide(state, 1, divideCeil(product.rows, pad(each, state.rows)), 1, 1);
  if (!isUsed(state.rowThreads))
    return false;
  state.rowBlock = state.rows;
  state.rowChunk = divideCeil(each, state.rows);
  state.columnBlock = product.columns;
  state.columnChunk = 1;
  return finish();
}

/// Source: divs_are_acceptable.
bool Search::isAcceptable(const State &state) const {
  constexpr int64_t kLeast = 32, kLeastSums = 128, kLeastOfFewSums = 128;
  if (pad(state.ofRows, state.rowTile) < kLeast && state.rowThreads > 1)
    return false;
  if (state.ofSums < kLeastSums && state.sumThreads > 1)
    return false;
  bool hasFewSums = state.sumThreads == 1 && state.ofSums < kLeastSums;
  if (pad(state.ofColumns, kTile) < (hasFewSums ? kLeastOfFewSums : kLeast) &&
      state.columnThreads > 1)
    return false;
  return state.batchThreads <= product.batch;
}

/// The sums that fit the first cache. Source: calc_k_blk.
int64_t Search::getSumBlock(const State &state, int64_t width) const {
  size_t sums = state.rows * state.columns * kFloatBytes;
  size_t results = state.rows * pad(state.columns * kSize, kLine);
  size_t left = l1 - (sums * 2 + results);
  int64_t largest = left / (width * kSize) / state.sumTile;
  int64_t each =
      divideCeil(divideCeil(product.sums, state.sumTile), state.sumThreads);
  int64_t blocks = divideCeil(each, largest);
  return std::min(divideCeil(each, blocks) * state.sumTile, product.sums);
}

/// Source: l2_matrix_usage.
size_t Search::getUse(const State &state, int64_t chunk, int64_t other,
                      int64_t sumBlock, bool isHorizontal,
                      bool transforms) const {
  int64_t width = isHorizontal ? state.rows : state.columns;
  int64_t sums = std::min(sumBlock * chunk, state.ofSums);
  int64_t use = 2 * width * sums * kSize + other * sums * kSize;
  if (transforms)
    use += other * sumBlock * chunk * kSize;
  use += isHorizontal ? 2 * state.rows * pad(other * kSize, kLine)
                      : 2 * pad(state.columns * kSize, kLine) * other;
  return use + 2 * kFloatBytes *
                   (sumBlock == product.sums ? state.rows * state.columns
                                             : width * other);
}

/// Source: l2_matrix_and_c_usage.
size_t Search::getUseWithSums(const State &state, int64_t chunk, int64_t other,
                              int64_t sumBlock, bool isHorizontal) const {
  int64_t each = isHorizontal ? state.ofRows : state.ofColumns;
  int64_t sums = std::min(sumBlock * chunk, state.ofSums);
  return 2 * each * sums * kSize + 2 * other * sums * kSize +
         each * other * kFloatBytes;
}

/// What is computed for each byte that moves. Source: ratio.
float Search::getRatio(const State &state, int64_t chunk, int64_t other,
                       int64_t sumBlock, bool isHorizontal) const {
  int64_t rows = isHorizontal ? state.rows : other;
  int64_t columns = isHorizontal ? other : state.columns;
  int64_t sums = std::min(sumBlock * chunk, state.ofSums);
  bool staysInCache = (getUseWithSums(state, chunk, other, sumBlock,
                                      isHorizontal) < static_cast<size_t>(l2) ||
                       sums == product.sums) &&
                      state.sumThreads == 1;
  int moved = (rows + columns) * sums * kSize +
              (staysInCache ? 0 : rows * columns * kFloatBytes);
  int computed = rows * sums * columns;
  return static_cast<float>(computed) / moved;
}

/// The numbers of blocks that are the same for some number of groups, the
/// largest first. Source: blk_candidates.
static SmallVector<int64_t> getCandidates(int64_t extent, int64_t block) {
  SmallVector<int64_t> candidates;
  int64_t blocks = divideCeil(extent, block), groups = 1;
  while (true) {
    int64_t size = divideCeil(blocks, groups);
    candidates.push_back(size);
    if (size <= 1)
      return candidates;
    // The next number that makes smaller groups.
    groups = divideCeil(blocks, size - 1);
  }
}

/// Whether threads would be left without a part.
static bool leavesIdle(int64_t each, int64_t block, int64_t threads,
                       int64_t extent) {
  return pad(each, block) * (threads - 1) >= extent;
}

/// Of the numbers of blocks that fit, those for which most is computed for each
/// byte; at least `least` of sums.
void Search::chooseBlocks(Best &best, const State &state, int64_t sumBlock,
                          bool isHorizontal, bool transforms,
                          int64_t least) const {
  int64_t extent = isHorizontal ? state.ofColumns : state.ofRows;
  int64_t block = isHorizontal ? state.columns : state.rows;
  auto chunks = getCandidates(state.ofSums, sumBlock);
  for (int64_t other : getCandidates(extent, block))
    for (int64_t chunk : chunks) {
      if (getUse(state, chunk, other * block, sumBlock, isHorizontal,
                 transforms) > static_cast<size_t>(l2))
        continue;
      float ratio =
          getRatio(state, chunk, other * block, sumBlock, isHorizontal);
      if (ratio > best.score && chunk >= least)
        best = {chunk, other, ratio, best.isPossible};
    }
}

/// Rows of tiles one after the other, through blocks of columns. Source:
/// calc_horizontal.
Search::Best Search::findHorizontal(const State &state, int64_t sumBlock,
                                    bool transforms, int64_t least,
                                    float score) const {
  Best best;
  best.score = score;
  if (leavesIdle(state.ofRows, state.rows, state.rowThreads, product.rows) ||
      leavesIdle(state.ofSums, sumBlock, state.sumThreads, product.sums)) {
    best.isPossible = false;
    return best;
  }
  chooseBlocks(best, state, sumBlock, /*isHorizontal=*/true, transforms, least);
  best.isPossible = best.other > 0 &&
                    !leavesIdle(state.ofColumns, best.other * state.columns,
                                state.columnThreads, product.columns) &&
                    !leavesIdle(state.ofSums, best.sums * sumBlock,
                                state.sumThreads, product.sums);
  return best;
}

/// Columns of tiles one after the other. Source: calc_vertical.
Search::Best Search::findVertical(const State &state, int64_t sumBlock,
                                  bool isForced) const {
  Best best;
  best.isPossible = !isForced;
  if (leavesIdle(state.ofColumns, state.columns, state.columnThreads,
                 product.columns) ||
      leavesIdle(state.ofSums, sumBlock, state.sumThreads, product.sums)) {
    best.isPossible = false;
    return best;
  }
  chooseBlocks(best, state, sumBlock, /*isHorizontal=*/false,
               /*transforms=*/false, /*least=*/0);
  if (best.other == 0 ||
      leavesIdle(state.ofRows, best.other * state.rows, state.rowThreads,
                 product.rows) ||
      leavesIdle(state.ofSums, best.sums * sumBlock, state.sumThreads,
                 product.sums))
    best.isPossible = false;
  if (best.other == 0)
    return best;
  int64_t turns = divideCeil(product.sums, sumBlock * best.sums);
  size_t use = 0;
  if (best.isPossible) {
    use = getUseWithSums(state, best.sums, best.other * state.rows, sumBlock,
                         false);
    if (use > static_cast<size_t>(l2))
      use = getUse(state, best.sums, best.other * state.rows, sumBlock, false,
                   false);
  }
  if (turns != 1 && (turns != state.sumThreads ||
                     use * state.sumThreads >= static_cast<size_t>(l2)))
    best.isPossible = false;
  // Results that fall on the same lines of the second cache, which has 2048
  // sets of 16 on all processors with AMX.
  constexpr int64_t kWay = 2048 * kLine, kPage = 4096, kWays = 3 * 16 / 4;
  int64_t stride = product.columns * kSize % kPage;
  if (stride == 0)
    stride = kPage;
  if (kWay % stride == 0 && divideCeil(stride * state.ofRows, kWay) >= kWays)
    best.isPossible = false;
  return best;
}

/// Source: set_blocking_parameters.
bool Search::setBlocks(State &state, bool isForced, bool transforms) const {
  int64_t block = getSumBlock(state, state.rows);
  Best horizontal = findHorizontal(state, block, transforms, 0, 0);
  int64_t verticalBlock = getSumBlock(state, state.columns);
  Best vertical = findVertical(state, verticalBlock, isForced);
  if (!horizontal.isPossible && !vertical.isPossible)
    return false;
  state.isHorizontal =
      !vertical.isPossible ||
      (horizontal.isPossible &&
       (state.ofRows < state.rowTile * 2 ||
        (state.ofColumns >= kTile * 2 && state.ofRows >= state.ofColumns)));
  state.copiesFirst = false;
  if (state.isHorizontal) {
    int64_t first = block * state.rows * kSize;
    int64_t sums = state.columns * state.rows * kFloatBytes;
    int64_t results = state.rows * pad(state.columns * kSize, kLine);
    state.readsFirstOnce = false;
    if (block < product.sums &&
        divideCeil(product.sums, block) * first + 2 * sums + results > l1) {
      horizontal = findHorizontal(state, kSumBlock, transforms,
                                  block / kSumBlock, /*score=*/0);
      block = std::min(kSumBlock * horizontal.sums, product.sums);
      horizontal.sums = 1;
      state.readsFirstOnce = true;
    }
    state.sumBlock = block;
    state.sumChunk = horizontal.sums;
    state.columnBlock =
        std::min(horizontal.other * state.columns, product.columns);
    state.columnChunk = 1;
    state.rowBlock = state.rows;
    state.rowChunk = divideCeil(state.ofRows, state.rowBlock);
    state.copiesFirst = product.sums % kSumBlock != 0 &&
                        state.columnBlock >= state.columns * 3 &&
                        block >= kLine / kSize * 4;
  } else {
    state.sumBlock = verticalBlock;
    state.sumChunk = vertical.sums;
    state.columnBlock = state.columns;
    state.columnChunk = divideCeil(state.ofColumns, state.columnBlock);
    state.rowBlock = std::min(vertical.other * state.rows, product.rows);
    state.rowChunk = 1;
    state.readsFirstOnce = true;
  }
  if (state.columnBlock == 0)
    return false;
  state.needsSums = state.sumThreads != 1 || state.sumBlock != product.sums;
  setExtends(state);
  state.score = getScore(state);
  return true;
}

/// Cycles that the multiplications take at best, for each that all takes.
/// Source: calculate_blocking_scores.
float Search::getScore(const State &state) const {
  size_t first = state.ofRows * state.ofSums * kSize;
  size_t second = state.ofColumns * state.ofSums * kSize;
  size_t results = state.ofRows * state.ofColumns * kSize;
  bool isHorizontal = state.isHorizontal;
  // Of the sides, the one that is cut to strips, and the other.
  int64_t strip = isHorizontal ? state.rows : state.columns;
  int64_t ofStrips = isHorizontal ? state.ofRows : state.ofColumns;
  int64_t ofOther = isHorizontal ? state.ofColumns : state.ofRows;
  int64_t otherBlock = isHorizontal ? state.columnBlock : state.rowBlock;
  int64_t otherTiles = isHorizontal ? state.columns : state.rows;
  size_t written =
      strip * ofOther * (state.sumThreads == 1 ? kSize : kFloatBytes);
  float multiplications = static_cast<size_t>(strip * state.ofSums * ofOther) /
                          (state.rowTile * state.sumTile * kTile);
  float strips = divideCeil(ofStrips, strip);
  float once = isHorizontal ? second : first;
  float reuse = divideCeil(otherBlock, otherTiles);
  float firstShared = isHorizontal ? second : first;
  size_t ownPart = strip * state.ofSums * kSize;
  float firstOwn = ownPart + written;
  float firstSharing = isHorizontal ? state.rowThreads : state.columnThreads;
  float shared = ownPart, own = written;
  float sharing = std::max<int64_t>(1, isHorizontal ? state.columnThreads
                                                    : state.rowThreads);

  float twice = shared * 2;
  float again = shared * (reuse - 1);
  float elements = state.rowBlock * state.columnBlock;
  int64_t lines = state.rowBlock * divideCeil(state.columnBlock, state.columns);
  float writeMiss = lines * pad(state.columns * kSize, kLine);
  float writes = lines * divideCeil(state.columns, 16) * 64;
  float writeHit = writes - writeMiss;
  float readSums = elements * kFloatBytes;
  float sumCycles = kFloatBytes * elements * state.sumChunk /
                    (state.sumBlock == product.sums ? kL1Hit : kL1StoreMiss);
  float resultCycles = writeMiss / kL1StoreMiss + writeHit / kL1Hit +
                       readSums / kL1Hit + sumCycles;
  float l1Cycles =
      twice / kL1LoadMiss + again / kL1Hit + once / kL1LoadMiss + resultCycles;
  float copyFirst =
      isHorizontal ? firstShared / getBandwidth(static_cast<int>(firstSharing))
                   : 0;
  float copyEach =
      isHorizontal ? 0 : shared / getBandwidth(static_cast<int>(sharing));
  float memory, lastCache;
  if (!isHorizontal) {
    memory = own / getBandwidth(1);
    lastCache = own / kLastCache;
  } else {
    memory = shared / getBandwidth(static_cast<int>(sharing)) +
             own / getBandwidth(1);
    lastCache = (own + shared) / kLastCache;
  }
  float tiles = multiplications * static_cast<int>(state.rowTile);
  float each = copyEach + std::max({memory, lastCache, l1Cycles, tiles, 0.0f});
  float firstStrip;
  if (!isHorizontal)
    firstStrip = firstShared / getBandwidth(static_cast<int>(firstSharing)) +
                 firstOwn / getBandwidth(1);
  else if (getUse(state, state.sumChunk, state.columnBlock, state.sumBlock,
                  true, true) < static_cast<size_t>(l2))
    firstStrip = each;
  else
    firstStrip = firstShared / kLastCache;
  float cycles = copyFirst + firstStrip + (strips - 1) * each;
  float reduction = 0;
  size_t ownSums = state.ofRows * state.ofColumns * kFloatBytes;
  if (state.sumThreads != 1) {
    if (ownSums * 2 >= static_cast<size_t>(l2) || product.batch != 1)
      return 0;
    float read = static_cast<size_t>(product.rows * pad(product.columns, 16) *
                                     kFloatBytes * (state.sumThreads - 1)) /
                 (state.rowThreads * state.columnThreads);
    float readCycles =
        read / (first + second + results < static_cast<size_t>(l2)
                    ? getBandwidth(2)
                    : kLastCache);
    float write = static_cast<size_t>(product.rows * product.columns * kSize) /
                  (state.rowThreads * state.columnThreads);
    reduction = readCycles + write / getBandwidth(1) + 25000;
  }
  float work = product.rows * product.sums * product.columns * product.batch;
  float total = (cycles + reduction) * state.ofBatches;
  constexpr int64_t kInCycle = 1024;
  float best = work / static_cast<float>(kInCycle / kSize * blocking.threads);
  return best / total;
}

/// Source: operator>.
bool Search::isBetter(const State &lhs, const State &rhs) const {
  if (lhs.score != rhs.score)
    return lhs.score > rhs.score;
  auto fits = [&](int64_t rows) {
    return rows * product.sums + rows * product.columns < l2;
  };
  if (!lhs.isHorizontal && rhs.isHorizontal)
    return fits(lhs.ofRows) && rhs.readsFirstOnce;
  if (lhs.isHorizontal && !rhs.isHorizontal)
    return !(fits(rhs.ofRows) && lhs.readsFirstOnce);
  return lhs.rowChunk * lhs.columnChunk > rhs.rowChunk * rhs.columnChunk;
}

/// Source: find_best_blocking.
AmxBlocking Search::run() {
  State best = blocking, state = blocking;
  if (setSmall(best))
    return best;
  auto consider = [&](const State &next) {
    if (isBetter(next, best))
      best = next;
  };
  for (int64_t threads = blocking.threads; threads > 0; --threads) {
    state.threads = threads;
    for (int64_t batches = 1; batches <= threads; ++batches) {
      if (threads % batches != 0)
        continue;
      int64_t left = threads / batches;
      for (int64_t rows = 1; rows <= left; ++rows) {
        if (left % rows != 0)
          continue;
        for (int64_t sums = 1; sums <= left / rows; ++sums) {
          if (left / rows % sums != 0)
            continue;
          divide(state, batches, rows, sums, left / rows / sums);
          setTiles(state);
          if (isAcceptable(state) && setBlocks(state, false, false))
            consider(state);
        }
      }
    }
  }
  if (!product.isSecondTransposed && !best.isHorizontal) {
    state.threads = best.batchThreads * best.rowThreads * best.columnThreads *
                    best.sumThreads;
    divide(state, best.batchThreads, best.rowThreads, best.sumThreads,
           best.columnThreads);
    for (bool transforms : {false, true})
      if (setBlocks(state, /*isForced=*/true, transforms))
        consider(state);
  }
  return best;
}

AmxBlocking onednn::findAmxBlocking(const AmxProduct &product, int64_t threads,
                                    const Caches &caches) {
  return Search(product, threads, caches).run();
}
