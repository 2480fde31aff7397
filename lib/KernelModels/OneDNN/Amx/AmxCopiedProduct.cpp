//===- AmxCopiedProduct.cpp - How products that copy are cut with AMX -----===//
//
// A first factor in columns is copied to rows; a single row is cut alike, and
// not copied. Source: oneDNN 3.12, cpu/x64/matmul/amx_blocking_heuristics.cpp
// (the micro heuristic) and compute_blocking_heuristic in
// brgemm_matmul_utils.cpp. Blocks are those of the best score; the same scores
// are computed here, with their rounding.
//
//===----------------------------------------------------------------------===//

#include "AmxProduct.h"
#include <algorithm>
#include <cmath>
#include <unordered_set>

using namespace koila;
using namespace koila::onednn;
using namespace koila::onednn::amx;

static constexpr int64_t kColumnBlock = 64;
/// Rows and columns from which on copies are read often enough.
static constexpr int64_t kMany = 256;

namespace {
class Search {
public:
  Search(const AmxProduct &product, int64_t threads, const Caches &caches)
      : product(product), threads(threads), l2(3 * caches.l2Bytes / 4) {}

  AmxBlocking run();

private:
  struct State : AmxBlocking {
    int64_t ofOthers = 1;
    size_t bytes = 0;
    float score = 0;
  };

  void consider(int64_t sumThreads, int64_t rowBlock);
  State makeState(int64_t sumThreads, int64_t columnChunk, int64_t rowBlock,
                  int64_t rowChunk) const;
  void countBytes(State &state, bool copies) const;
  float getBalance(const State &state) const;
  float getScore(const State &state) const;

  const AmxProduct &product;
  int64_t threads;
  /// The part of the second cache that is counted on.
  int64_t l2;
  int64_t columnBlock = 0;
  State best;
};
} // namespace

/// Rows that fill tiles, if the rows are that many times over. Source:
/// get_block_candidate.
static int64_t getRowBlock(int64_t rows) {
  constexpr int64_t kTile = 16, kFewest = 13, kMostTiles = 4, kFewestTiles = 2;
  for (int64_t tile = kTile; tile >= kFewest; --tile)
    for (int64_t tiles = kMostTiles; tiles >= kFewestTiles; --tiles)
      if (rows % (tile * tiles) == 0)
        return tile * tiles;
  return std::min(rows, kMostTiles * kTile);
}

/// Source: calculate_chunk_memory_size.
void Search::countBytes(State &state, bool copies) const {
  int64_t sums = state.sumBlock * state.steps;
  int64_t rows = state.rowBlock * state.rowChunk;
  int64_t columns = state.columnBlock * state.columnChunk;
  state.copiedRow = copies ? pad(state.sumBlock, kSumBlock) : 0;
  constexpr int64_t kAliased = 512;
  if (state.copiedRow >= kAliased && llvm::isPowerOf2_64(state.copiedRow))
    state.copiedRow += kSumBlock;
  bool isCut = product.sums > sums;
  state.needsSums = isCut || product.sums % state.sumBlock > 0;
  state.bytes = kSize * sums * rows +
                kSize * state.copiedRow * state.steps * rows +
                kSize * sums * columns + kSize * state.columnBlock * sums +
                kSize * rows * columns +
                (state.needsSums ? kFloatBytes * rows * columns : 0);
}

/// Source: set_blocking_parameters.
Search::State Search::makeState(int64_t sumThreads, int64_t columnChunk,
                                int64_t rowBlock, int64_t rowChunk) const {
  State state;
  state.sumThreads = sumThreads;
  state.ofOthers = threads / sumThreads;
  state.threads = state.ofOthers * sumThreads;
  state.columnBlock = columnBlock;
  state.columnChunk = columnChunk;
  state.rowBlock = rowBlock;
  state.rowChunk = rowChunk;
  state.sumBlock = pad(product.sums, 2);
  bool isColumn = product.rows > 1;
  if (product.sums >= kSumBlock) {
    int64_t each = divideCeil(product.sums, sumThreads);
    state.sumBlock = std::min(pad(each, 2), kSumBlock);
    int64_t blocks =
        divideCeil(divideCeil(product.sums, state.sumBlock), sumThreads);
    state.steps = blocks;
    countBytes(state, isColumn);
    // Steps that fit the second cache, in parts as equal as may be.
    int64_t least = state.bytes / l2, most = divideCeil(state.bytes, l2);
    if (least > 0 && state.steps > 1) {
      int64_t some = std::max<int64_t>(state.steps / least, 1);
      int64_t fewer = divideCeil(state.steps, most);
      int64_t rest = blocks % some, other = blocks % fewer;
      bool asksOther = rest == 0 || other < rest;
      state.steps = !asksOther || other == 0 ? fewer : some;
    }
    int64_t tail = product.sums % state.sumBlock;
    int64_t together = state.sumBlock * state.steps;
    state.extendsSums =
        !isColumn && product.sums % kSumBlock != 0 && together > kSumBlock;
    if (state.extendsSums) {
      state.sumBlock = std::min(together, product.sums);
      state.steps = 1;
    } else if (tail == 0 && product.sums % together == 0) {
      state.sumBlock = together;
      state.steps = 1;
    } else if (sumThreads == 1 && product.sums == together + tail) {
      state.sumBlock = together;
      state.steps = 2;
    }
  }
  countBytes(state, isColumn || (!state.extendsSums && product.sums % 2 != 0));
  state.score = getScore(state);
  return state;
}

/// Source: get_thread_balance_scores.
float Search::getBalance(const State &state) const {
  int64_t rows = state.rowBlock * state.rowChunk;
  int64_t columns = state.columnBlock * state.columnChunk;
  int64_t rowChunks = divideCeil(product.rows, rows);
  int64_t columnChunks = divideCeil(product.columns, columns);
  float score = product.batch * (static_cast<float>(product.rows) / rows) *
                (static_cast<float>(product.columns) / columns) /
                pad(product.batch * rowChunks * columnChunks, state.ofOthers) *
                state.ofOthers;
  float ofSums = 1;
  if (state.sumThreads > 1) {
    int64_t sums = state.sumBlock * state.steps;
    constexpr float kPenalty = 0.8f;
    ofSums = kPenalty * (static_cast<float>(product.sums) / sums) /
             pad(divideCeil(product.sums, sums), state.sumThreads) *
             state.sumThreads;
  }
  return score * ofSums / threads;
}

/// Source: calculate_blocking_scores.
float Search::getScore(const State &state) const {
  float count = std::min<int64_t>(threads, 100);
  float ofBalance = (count - 1.0f) / count, ofCache = 1.0f / count;
  float away = std::fabs(static_cast<float>(l2) - state.bytes) /
               std::max<size_t>(l2, state.bytes);
  auto getReuse = [](int64_t chunk, int64_t extent) {
    return std::min(static_cast<float>(chunk) / std::min(extent, kMany), 1.0f);
  };
  float reuse =
      0.5f * (getReuse(state.rowBlock * state.rowChunk, product.rows) +
              getReuse(state.columnBlock * state.columnChunk, product.columns));
  float score = ofCache * (1.0f - away) + 1.0f * reuse;
  if (ofBalance > 0.0f)
    score += ofBalance * getBalance(state);
  return score / (1.0f + ofBalance + ofCache);
}

/// Source: find_best_blocking.
void Search::consider(int64_t sumThreads, int64_t rowBlock) {
  constexpr int64_t kSumsOfThread = 1024, kTile = 16, kMostRows = 64;
  int64_t parts = divideCeil(product.sums, kSumsOfThread);
  int64_t mostSumThreads =
      product.batch == 1
          ? std::min(std::clamp<int64_t>(threads / 8, 1, 7), parts)
          : 1;
  int64_t ofOthers = threads / sumThreads;
  int64_t rowBlocks = divideCeil(product.rows, rowBlock);
  int64_t columnBlocks = divideCeil(product.columns, columnBlock);
  int64_t work =
      product.batch * rowBlocks * columnBlocks * std::min(parts, sumThreads);
  bool isLow = static_cast<float>(work) < 1.5f * threads;
  int64_t leastRows =
      isLow && rowBlock > 32 ? divideCeil(rowBlock, 2) : rowBlock;
  int64_t rowChunks = std::min<int64_t>(4, rowBlocks);
  int64_t columnChunks =
      std::min<int64_t>(work > 16 * threads ? 6 : 4, columnBlocks);
  // oneDNN goes through them in this order, and of equal scores the first
  // counts.
  std::unordered_set<int> candidates;
  for (int64_t rows = rowBlock; rows >= leastRows;
       rows = rows > 1 ? divideCeil(rows, 2) : rows - 1)
    candidates.insert(rows);
  if (product.rows > kTile)
    for (int64_t rows =
             std::min<int64_t>(llvm::alignDown(product.rows, kTile), kMostRows);
         rows >= pad(leastRows, kTile); rows -= kTile)
      candidates.insert(rows);
  // Source: disable_skip_config.
  bool isSpecial = product.rows == 4 &&
                   ((product.columns == 4096 && product.sums == 4096) ||
                    (product.columns == 11008 && product.sums == 4096) ||
                    (product.columns == 4096 && product.sums == 11008));
  bool isFound = false;
  for (int rows : candidates)
    for (int64_t columns = columnChunks; columns >= 1; --columns)
      for (int64_t chunk = rowChunks; chunk >= 1; --chunk) {
        int64_t amount = product.batch *
                         divideCeil(product.rows, rows * chunk) *
                         divideCeil(product.columns, columnBlock * columns);
        if (amount < ofOthers * 3 && amount % ofOthers != 0 &&
            mostSumThreads == 1 && !isSpecial)
          continue;
        State state = makeState(sumThreads, columns, rows, chunk);
        if (state.score > best.score) {
          best = state;
          isFound = true;
        }
      }
  if (isFound)
    return;
  State state = makeState(sumThreads, 1, leastRows, 1);
  if (state.score > best.score)
    best = state;
}

AmxBlocking Search::run() {
  constexpr int64_t kSumsOfThread = 1024;
  columnBlock = std::min(kColumnBlock, product.columns);
  int64_t rowBlock = getRowBlock(product.rows);
  int64_t most = product.batch == 1
                     ? std::min(std::clamp<int64_t>(threads / 8, 1, 7),
                                divideCeil(product.sums, kSumsOfThread))
                     : 1;
  for (int64_t sumThreads = 1; sumThreads <= most; ++sumThreads)
    consider(sumThreads, rowBlock);
  return best;
}

AmxBlocking onednn::findCopiedAmxBlocking(const AmxProduct &product,
                                          int64_t threads,
                                          const Caches &caches) {
  return Search(product, threads, caches).run();
}
