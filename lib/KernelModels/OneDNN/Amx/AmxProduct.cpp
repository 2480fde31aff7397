//===- AmxProduct.cpp - What products hold with AMX -----------------------===//
//
// Source: oneDNN 3.12, cpu/x64/matmul/brgemm_matmul_utils.cpp (init_aux_values,
// init_scratchpad, is_small_shapes), and get_wsp_buffer_size in
// brgemm/brgemm_types.hpp.
//
//===----------------------------------------------------------------------===//

#include "AmxProduct.h"
#include "AmxTiles.h"
#include <algorithm>

using namespace koila;
using namespace koila::onednn;
using namespace koila::onednn::amx;

/// The columns of a block.
static constexpr int64_t kColumnBlock = 32;
/// The columns of a block where the first factor is not in rows.
static constexpr int64_t kCopiedColumnBlock = 64;

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

/// What a thread has for tiles: those of sums, one for the rest of rows, and a
/// copy of rows.
static int64_t getTileBytes(const AmxProduct &product,
                            const AmxBlocking &blocking, int64_t l1Bytes) {
  int64_t rest = product.sums % blocking.sumBlock;
  bool extends = blocking.extendsSums;
  int64_t tail = 0;
  if (product.sums > blocking.sumBlock)
    tail = extends || blocking.copiesFirst ? rest : pad(rest, 2);
  int64_t bytes = 0;
  for (int64_t rows : {blocking.rowBlock, product.rows % blocking.rowBlock})
    for (int64_t columns :
         {blocking.columnBlock, product.columns % blocking.columnBlock})
      for (int64_t sums : {blocking.sumBlock, tail}) {
        if (rows == 0 || columns == 0 || sums == 0)
          continue;
        int64_t own =
            findTiles({rows, columns, sums}, l1Bytes).tiles * kTileBytes;
        if (extends &&
            (sums % 2 != 0 || (sums > kSumBlock && sums % kSumBlock != 0)))
          own += kTileBytes;
        if (blocking.copiesFirst)
          own += rows * pad(sums, kSumBlock) * kSize;
        bytes = std::max(bytes, own);
      }
  return bytes;
}

std::optional<int64_t> onednn::getAmxBytes(const AmxProduct &product,
                                           int64_t threads,
                                           const Caches &caches) {
  // How the second cache is divided into sets is that of these processors.
  constexpr int64_t kL1Bytes = 48 << 10, kL2Bytes = 2 << 20;
  constexpr int64_t kMostThreads = 256, kMostWork = int64_t(1) << 52;
  int64_t work = product.batch;
  for (int64_t extent : {product.rows, product.sums, product.columns})
    if (llvm::MulOverflow(work, extent, work) || work > kMostWork)
      return std::nullopt;
  if (caches.l1Bytes != kL1Bytes || caches.l2Bytes != kL2Bytes ||
      threads > kMostThreads)
    return std::nullopt;
  // A single column of sums may be taken for rows.
  if (product.sums == 1)
    return std::nullopt;
  // That of a single row is 'ba'. Source: matmul_helper_t::transA.
  bool isInRows = product.sumStride == 1 && product.rows > 1;
  AmxBlocking blocking = isInRows
                             ? findAmxBlocking(product, threads, caches)
                             : findCopiedAmxBlocking(product, threads, caches);
  if (blocking.rowBlock == 0 || blocking.columnBlock == 0 ||
      blocking.sumBlock == 0)
    return std::nullopt;
  // Of few sums the kernels without AMX are faster.
  constexpr int64_t kMostOfSmall = 126;
  bool copies = blocking.copiedRow > 0;
  int64_t row = copies              ? blocking.copiedRow
                : product.rows == 1 ? product.sums
                                    : product.rowStride;
  if (blocking.rowBlock * row * kSize <= kMostOfSmall)
    return getBrgemmBytes(product, threads);
  constexpr int64_t kAlignment = 128, kPointerBytes = 16 * 40;
  int64_t bytes = 0;
  auto book = [&](int64_t each) {
    bytes += blocking.threads * each + kAlignment;
  };
  book(kPointerBytes * blocking.steps);
  if (copies)
    book(kSize * blocking.rowBlock * blocking.rowChunk * blocking.copiedRow *
         blocking.steps);
  int64_t columns =
      pad(blocking.columnBlock, isInRows ? kColumnBlock : kCopiedColumnBlock);
  book(kSize * columns * pad(blocking.sumBlock, kSumBlock) * blocking.sumChunk *
       blocking.steps);
  if (blocking.needsSums && blocking.sumThreads > 1) {
    book(product.rows * product.columns * kFloatBytes);
  } else if (blocking.needsSums) {
    int64_t sums = pad(blocking.columnBlock,
                       std::min(kColumnBlock, blocking.columnBlock)) *
                   blocking.rowBlock * kFloatBytes;
    if (blocking.sumBlock * blocking.sumChunk * blocking.steps < product.sums)
      sums *= blocking.rowChunk * blocking.columnChunk;
    book(sums);
  }
  book(getTileBytes(product, blocking, caches.l1Bytes));
  return bytes;
}
