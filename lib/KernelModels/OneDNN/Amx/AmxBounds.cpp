//===- AmxBounds.cpp - At most what products hold with AMX ----------------===//
//
// Source: oneDNN 3.12, cpu/x64/matmul/amx_blocking_heuristics.cpp (the macro
// heuristic for a first factor in rows, the micro heuristic for one in
// columns), init_aux_values and init_scratchpad in brgemm_matmul_utils.cpp, and
// get_wsp_buffer_size in brgemm/brgemm_types.hpp. Which blocks are taken
// follows from scores of the caches; here are the largest that either can take.
//
//===----------------------------------------------------------------------===//

#include "AmxProduct.h"
#include <algorithm>

using namespace koila;
using namespace koila::onednn;
using namespace koila::onednn::amx;

static constexpr int64_t kAlignment = 128, kTileBytes = 1024;

namespace {
/// What each thread holds, but for pointers and sums.
struct Buffers {
  int64_t first = 0, second = 0, tiles = 0;
  /// Steps whose pointers are handed over at once.
  int64_t steps = 1;
  /// Of all threads.
  int64_t sums = 0;

  int64_t getBytes(int64_t threads) const {
    constexpr int64_t kElements = 16, kElementBytes = 40;
    int64_t each = steps * kElements * kElementBytes + first + second + tiles;
    return threads * each + sums + 5 * kAlignment;
  }
};
} // namespace

/// Sums of all rows and columns where threads share them, each its own.
static int64_t getSharedSums(const AmxProduct &product, int64_t threads) {
  return threads * product.rows * product.columns * kFloatBytes;
}

/// The first factor is read as it is. Sources:
/// maybe_small_dims_heuristics and set_blocking_parameters.
static Buffers getMacroBuffers(const AmxProduct &product, int64_t threads,
                               const Caches &caches) {
  constexpr int64_t kBlock = 32, kSumTiles = 6, kRowTiles = 1;
  Buffers buffers;
  int64_t sums = pad(product.sums, kSumBlock);
  int64_t columns = pad(product.columns, kBlock);
  // The sums are cut into equal blocks that fit the first cache, each in whole
  // steps: less than a step more for each. Source: calc_k_blk.
  int64_t fitting = 1;
  if (caches.l1Bytes > 0) {
    constexpr int64_t kOfSums = kBlock * kBlock * (2 * kFloatBytes + kSize);
    int64_t left = 5 * caches.l1Bytes / 6 - kOfSums;
    fitting = std::max<int64_t>(1, left / (kBlock * kSize) / kSumBlock);
  }
  int64_t cuts = divideCeil(divideCeil(product.sums, kSumBlock), fitting);
  buffers.second = kSize * columns * (sums + (cuts - 1) * kSumBlock);
  // Larger factors are cut to three quarters of the second cache. A part of the
  // sums may be padded to twice as many. Source: l2_matrix_usage.
  if (caches.l2Bytes > 0 && product.columns > kBlock &&
      product.sums > kSumBlock)
    buffers.second =
        std::min(buffers.second,
                 std::max(2 * (3 * caches.l2Bytes / 4), kSize * kBlock * sums));
  // Tiles of sums, one for rows of odd length, and a copy of rows that are no
  // whole steps.
  buffers.tiles = (kSumTiles + kRowTiles) * kTileBytes;
  constexpr int64_t kCopiedColumns = 3 * kBlock, kCopiedSums = 4 * kSumBlock;
  if (product.sums % kSumBlock != 0 && product.columns >= kCopiedColumns &&
      product.sums >= kCopiedSums)
    buffers.tiles += kSize * std::min(product.rows, kBlock) * sums;
  // Partial sums of blocks. Without batches threads share rows and columns,
  // which are cut into blocks: the more on one side, the fewer on the other.
  auto count = [&](int64_t ofRows, int64_t ofColumns) {
    return kFloatBytes * (product.rows + ofRows * kBlock) *
           (product.columns + ofColumns * kBlock);
  };
  if (cuts > 1)
    buffers.sums = product.batch == 1
                       ? std::max(count(threads, 1), count(1, threads))
                       : threads * count(1, 1);
  // Threads share sums only of 128 or more for each. Source:
  // divs_are_acceptable.
  constexpr int64_t kSharedSums = 128;
  if (threads > 1 && product.batch == 1 && product.sums >= kSharedSums)
    buffers.sums = std::max(buffers.sums, getSharedSums(product, threads));
  return buffers;
}

/// The first factor is copied. Source: set_blocking_parameters of the micro
/// heuristic.
static Buffers getMicroBuffers(const AmxProduct &product, int64_t threads) {
  constexpr int64_t kColumnBlock = 64, kMostRows = 4 * 64, kSumTiles = 6;
  constexpr int64_t kMostColumnBlocks = 6, kLine = 32;
  Buffers buffers;
  int64_t rows = std::min(kMostRows, 2 * product.rows);
  int64_t sums = pad(product.sums, kSumBlock);
  // With a rest, all whole steps and as much again for it.
  if (product.sums % kSumBlock != 0)
    sums *= 2;
  buffers.steps = std::max<int64_t>(2, divideCeil(product.sums, kSumBlock));
  // A row of a power of two is a line longer.
  buffers.first = kSize * rows * (sums + 2 * kLine);
  buffers.second = kSize * kColumnBlock * sums;
  buffers.tiles = (kSumTiles + 1) * kTileBytes;
  int64_t columnBlocks =
      std::min(kMostColumnBlocks, divideCeil(product.columns, kColumnBlock));
  buffers.sums = threads * kFloatBytes * rows * columnBlocks * kColumnBlock;
  constexpr int64_t kSharedThreads = 16, kSharedSums = 1024;
  if (threads >= kSharedThreads && product.batch == 1 &&
      product.sums > kSharedSums)
    buffers.sums = std::max(buffers.sums, getSharedSums(product, threads));
  return buffers;
}

int64_t onednn::boundAmxBytes(const AmxProduct &product, int64_t threads,
                              const Caches &caches) {
  // The strides of single rows and sums do not tell rows from columns.
  bool isInRows =
      product.sumStride == 1 && product.rows > 1 && product.sums > 1;
  bool isInColumns =
      product.sumStride != 1 && product.rows > 1 && product.sums > 1;
  int64_t bytes = 0;
  if (!isInColumns)
    bytes = getMacroBuffers(product, threads, caches).getBytes(threads);
  if (!isInRows)
    bytes =
        std::max(bytes, getMicroBuffers(product, threads).getBytes(threads));
  // Of few sums the kernels without AMX are faster. Source: is_small_shapes.
  return std::max(bytes, getBrgemmBytes(product, threads).value_or(0));
}
