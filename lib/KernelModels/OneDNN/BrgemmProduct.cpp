//===- BrgemmProduct.cpp - Buffers of products of half types --------------===//
//
// Source: oneDNN 3.12, cpu/x64/matmul/brgemm_matmul_utils.cpp:
// init_brgemm_matmul_conf, compute_blocking_heuristic_avx512, init_aux_values
// and init_scratchpad. The second factor is always copied to blocks, and sums
// are always kept in float32, as the result is of a half type. AMX has other
// blocks.
//
//===----------------------------------------------------------------------===//

#include "BrgemmProduct.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace koila;
using namespace koila::onednn;

using llvm::divideCeil;

/// The columns of a block.
static constexpr int64_t kColumnBlock = 64;

namespace {
/// How the product is cut: `blockRows` rows and `columnBlocks` blocks of
/// columns at a time, and the sums over `sumThreads` threads.
struct Blocking {
  int64_t blockRows = 1, columnBlocks = 1, sumThreads = 1;
};

class Search {
public:
  Search(const BrgemmProduct &product, int64_t threads);

  std::optional<Blocking> run() const;
  int64_t getBytes(const Blocking &blocking) const;

private:
  float getImbalance(const Blocking &blocking) const;
  bool isSkipped(const Blocking &blocking, int64_t firstSumThreads) const;

  const BrgemmProduct &product;
  int64_t threads;
  /// Whether the first factor is in columns by its strides, which of a single
  /// row says nothing.
  bool isTagTransposed, copiesFirst;
  int64_t blockColumns, blockSums;
};
} // namespace

/// Bytes of an element in the copies: float16 is computed as float32.
static int64_t getCopySize(const BrgemmProduct &product) {
  return product.isFloat16 ? 4 : 2;
}

Search::Search(const BrgemmProduct &product, int64_t threads)
    : product(product), threads(threads) {
  // Source: matmul_helper_t::transA.
  isTagTransposed = product.sumStride != 1 || product.rows == 1;
  bool isRow =
      product.rows == 1 && (product.sumStride == 1 || product.sums == 1);
  bool isTransposed = isTagTransposed && !isRow;
  // Long rows of a power of two fall on the same lines of a cache. Source:
  // lda_big_pow2.
  constexpr int64_t kManyRows = 1024, kLongRow = 4096;
  bool isAliased = !isTransposed && llvm::isPowerOf2_64(product.sums) &&
                   product.sums >= kLongRow && product.rows >= kManyRows;
  copiesFirst = product.isFloat16 || isTransposed || isAliased;
  blockColumns = std::min(kColumnBlock, product.columns);
  constexpr int64_t kFewSums = 512, kManySums = 1024;
  blockSums = std::min(product.sums,
                       product.sums > kManySums && !isTagTransposed ? kManySums
                                                                    : kFewSums);
}

/// Source: calculate_spatial_disbalance.
static float getDisbalance(uint64_t work, uint64_t parts) {
  uint64_t rest = work % parts;
  uint64_t idle = work < parts ? parts - rest : std::min(parts - rest, rest);
  return static_cast<float>(idle) / parts;
}

/// In the same steps as oneDNN, so that it rounds alike. Source: get_imbalance.
float Search::getImbalance(const Blocking &blocking) const {
  uint64_t perSum = threads / blocking.sumThreads;
  int64_t columnCount = divideCeil(product.columns, blockColumns);
  int64_t chunks = divideCeil(columnCount, blocking.columnBlocks);
  uint64_t work =
      divideCeil(product.rows, blocking.blockRows) *
      divideCeil(product.columns, blockColumns * blocking.columnBlocks) *
      product.batch;
  float ofWork = getDisbalance(work, perSum);
  int64_t more = (blocking.blockRows *
                  int64_t(divideCeil(product.rows, blocking.blockRows))) %
                 product.rows;
  float ofRows = static_cast<float>(more) / product.rows;
  float ofColumns =
      (static_cast<float>(chunks) * blocking.columnBlocks - columnCount) /
      columnCount;
  float ofSums = getDisbalance(product.sums, blocking.sumThreads * blockSums);
  int64_t used = perSum * blocking.sumThreads;
  float ofThreads =
      used != threads ? (static_cast<float>(threads) - used) / threads : 0;
  return (ofWork + ofRows + ofColumns + ofThreads + ofSums) / 5;
}

/// Whether few parts would not be as many as the threads.
bool Search::isSkipped(const Blocking &blocking,
                       int64_t firstSumThreads) const {
  int64_t work =
      product.batch * divideCeil(product.rows, blocking.blockRows) *
      divideCeil(product.columns, blockColumns * blocking.columnBlocks);
  int64_t perSum = threads / blocking.sumThreads;
  return work < perSum * 3 && work % perSum != 0 && firstSumThreads == 1;
}

/// Source: compute_blocking_heuristic_avx512.
std::optional<Blocking> Search::run() const {
  constexpr int64_t kMostRows = 256, kLeastRows = 32, kLeastOfFewParts = 16;
  int64_t most = std::min(kMostRows, product.rows);
  int64_t least = std::min(kLeastRows, product.rows);
  int64_t columnCount = divideCeil(product.columns, blockColumns);
  int64_t firstSumThreads = 1;
  if (threads > product.batch * columnCount) {
    least = std::min(kLeastOfFewParts, product.rows);
    constexpr int64_t kManySums = 2048, kSumThreads = 4;
    if (product.batch == 1 && isTagTransposed && product.sums >= kManySums &&
        (product.isFloat16 || llvm::isPowerOf2_64(product.sums)))
      firstSumThreads = std::min(threads, kSumThreads);
  }
  constexpr int64_t kMostColumnBlocks = 16;
  Blocking best;
  float leastImbalance = 1;
  auto consider = [&](const Blocking &blocking) {
    float imbalance = getImbalance(blocking);
    if (imbalance >= leastImbalance)
      return false;
    leastImbalance = imbalance;
    best = blocking;
    return true;
  };
  for (int64_t sums = firstSumThreads; sums >= 1; --sums) {
    bool isFound = false;
    for (int64_t columns =
             std::min(copiesFirst ? kMostColumnBlocks : 1, columnCount);
         columns >= 1; --columns)
      for (int64_t rows = most; rows >= least; --rows) {
        Blocking blocking{rows, columns, sums};
        if (!isSkipped(blocking, firstSumThreads))
          isFound |= consider(blocking);
      }
    if (!isFound)
      consider({least, 1, sums});
  }
  return leastImbalance < 1 ? std::optional(best) : std::nullopt;
}

/// Source: init_aux_values and init_scratchpad.
int64_t Search::getBytes(const Blocking &blocking) const {
  constexpr int64_t kAlignment = 128, kLine = 64, kFloatBytes = 4;
  int64_t bytes = 0;
  auto book = [&](int64_t size) { bytes += size + kAlignment; };
  // Pointers to what is multiplied at once.
  constexpr int64_t kElements = 16, kElementBytes = 40;
  book(threads * kElements * kElementBytes);
  int64_t size = getCopySize(product);
  if (copiesFirst) {
    // Source: get_actual_lda.
    constexpr int64_t kAliased = 512;
    int64_t row = llvm::alignTo(blockSums, kLine / size);
    if (row >= kAliased && llvm::isPowerOf2_64(row))
      row += kLine / size;
    book(threads * blocking.blockRows * row * size);
  }
  // Blocks of the second factor are whole lines.
  book(threads * kColumnBlock *
       int64_t(llvm::alignTo(blockSums, kLine / size)) * size);
  // The sums, whole where threads share them.
  int64_t sums = product.rows * product.columns;
  if (blocking.sumThreads == 1)
    sums = blocking.blockRows * blockColumns *
           (blockSums < product.sums ? blocking.columnBlocks : 1);
  book(threads * sums * kFloatBytes);
  return bytes;
}

std::optional<int64_t> onednn::getBrgemmBytes(const BrgemmProduct &product,
                                              int64_t threads) {
  Search search(product, threads);
  auto blocking = search.run();
  return blocking ? std::optional(search.getBytes(*blocking)) : std::nullopt;
}
