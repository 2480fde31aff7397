//===- AmxProduct.cpp - What products hold with AMX -----------------------===//
//
// Source: oneDNN 3.12, cpu/x64/matmul/brgemm_matmul_utils.cpp (init_aux_values,
// init_scratchpad, is_small_shapes), brgemm/brgemm_utils.cpp
// (brgemm_blocking_tmm), and get_wsp_buffer_size in brgemm/brgemm_types.hpp.
//
//===----------------------------------------------------------------------===//

#include "AmxProduct.h"
#include "llvm/ADT/ArrayRef.h"
#include <algorithm>

using namespace koila;
using namespace koila::onednn;
using namespace koila::onednn::amx;

/// The columns of a block.
static constexpr int64_t kColumnBlock = 32;
/// The columns of a block where the first factor is not in rows.
static constexpr int64_t kCopiedColumnBlock = 64;
static constexpr int64_t kTile = 16, kTileBytes = 1024;

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

namespace {
/// One side of a kernel: blocks of `block`, `together` of them at once.
struct Side {
  int64_t extent, block = kTile, count = 0, tail = 0, together = 1;

  void setBlock(int64_t next) {
    block = next;
    count = divideCeil(extent, block);
    tail = extent % block;
  }
  int64_t getTiles() const {
    return count <= together ? count : together + (tail != 0);
  }
};

/// The tiles of sums of a kernel of `rows` by `columns`.
class Kernel {
public:
  Kernel(int64_t rows, int64_t columns, int64_t sums, int64_t l1Bytes)
      : row{rows}, column{columns}, sums(sums), l1Bytes(l1Bytes) {}

  int64_t countTiles();

private:
  void cutColumns();
  bool cutTwoByTwo();
  bool cutInto(int64_t blocks);
  void refine();
  void set(int64_t rowBlock, int64_t rows, int64_t columns) {
    if (rowBlock > 0) {
      row.setBlock(rowBlock);
      isRowTail = row.tail != 0;
    }
    column.setBlock(kTile);
    row.together = rows;
    column.together = columns;
  }

  Side row, column;
  int64_t sums, l1Bytes;
  bool isRowTail = false;
};
} // namespace

/// Source: set_decomposition_by_ld.
void Kernel::cutColumns() {
  bool isWhole = column.count > 0 && column.tail == 0;
  if (row.together == 1 && isWhole)
    column.together = column.count % 3 == 0 ? 3 : column.count % 2 == 0 ? 2 : 1;
  else
    column.together =
        isWhole && column.count % 2 == 0 && row.together < 3 ? 2 : 1;
  if (column.together == 1 && !isRowTail && column.tail == 0)
    row.together = std::clamp<int64_t>(row.count, 1, 3);
}

/// Source: try_2x2_decomposition.
bool Kernel::cutTwoByTwo() {
  row.block = kTile;
  while (row.extent % row.block != 0)
    --row.block;
  if (row.block == 1) {
    row.block = std::min(kTile, row.extent);
    row.tail = row.extent % kTile;
    for (int64_t block = kTile; block >= 1; --block) {
      int64_t tail = row.extent % block;
      if (tail > row.tail || tail == 0) {
        row.block = block;
        row.tail = tail;
        if (tail == 0)
          break;
      }
    }
  }
  row.count = row.extent / row.block;
  row.tail = row.extent % row.block;
  row.together = row.count >= 2 ? 2 : 1;
  isRowTail = false;
  cutColumns();
  return column.together != 1 && row.together != 1 && row.block >= 8;
}

/// Source: try_3x1_decomposition.
bool Kernel::cutInto(int64_t blocks) {
  isRowTail = false;
  if (row.extent <= (blocks - 1) * kTile || row.extent >= blocks * kTile ||
      column.tail != 0)
    return false;
  row.setBlock(kTile);
  isRowTail = true;
  row.together = blocks;
  cutColumns();
  return true;
}

/// Other shapes for some extents, and for blocks that are not full. Source:
/// brgemm_blocking_tmm.
void Kernel::refine() {
  int64_t rows = row.extent, columns = column.extent, bytes = sums * kSize;
  bool hasRowTail = row.block <= 12 || rows % row.block != 0;
  bool hasColumnTail = columns % kTile != 0;
  if (!hasRowTail && !hasColumnTail) {
    int64_t least = (l1Bytes - 4 * 1024) / (6 * 16);
    bool fitsFive = least <= bytes && bytes < (l1Bytes - 5 * 1024) / (5 * 16);
    bool fitsFour = least <= bytes && bytes < (l1Bytes - 4 * 1024) / (4 * 16);
    if (columns % 80 == 0 && fitsFive && rows > 32)
      set(0, 1, 5);
    else if (columns % 64 == 0 && fitsFour && rows > 32)
      set(0, 1, 4);
    else if (rows % 80 == 0 && fitsFive && columns > 32)
      set(0, 5, 1);
    else if (rows % 64 == 0 && fitsFour && columns > 32)
      set(kTile, 4, 1);
  }
  bool isColumnWeak = column.tail > 0;
  bool isRowWeak = row.block < 8 || row.tail > 0;
  bool ofColumns = hasColumnTail && !hasRowTail;
  bool ofRows = hasRowTail && !hasColumnTail;
  int64_t paddedRows = pad(rows, kTile), paddedColumns = pad(columns, kTile);
  if (ofColumns && isColumnWeak && paddedColumns == 64) {
    set(0, 1, 4);
  } else if (ofColumns && isColumnWeak && paddedColumns == 48) {
    set(0, 1, 3);
  } else if (ofColumns && isColumnWeak && paddedColumns == 32) {
    set(0, 2, 2);
  } else if (rows <= kTile) {
    set(rows, 1, 1);
    int64_t most = !hasColumnTail ? 5 : column.count > 4 ? 3 : 4;
    column.together = std::min(most, divideCeil(columns, kTile));
  } else if (ofRows && isRowWeak && rows > 64) {
    set(kTile, 1, 2);
  } else if (ofRows && isRowWeak && paddedRows == 64) {
    set(kTile, 4, 1);
  } else if (ofRows && isRowWeak && paddedRows == 48) {
    set(kTile, 3, 1);
  } else if (ofRows && isRowWeak && paddedRows == 32 && columns % 32 == 0) {
    set(kTile, 2, 2);
  } else if (columns <= kTile) {
    set(kTile, 1, 1);
    int64_t most = row.tail == 0 ? 5 : row.count > 4 ? 3 : 4;
    row.together = std::min(most, divideCeil(rows, kTile));
  } else if (hasRowTail && hasColumnTail && paddedRows == 32 &&
             paddedColumns == 32 && (isColumnWeak || isRowWeak)) {
    set(kTile, 2, 2);
  }
}

int64_t Kernel::countTiles() {
  column.count = column.extent / kTile;
  column.tail = column.extent % kTile;
  if (!cutTwoByTwo() && !cutInto(3) && !cutInto(2))
    cutTwoByTwo();
  set(row.block, row.together, column.together);
  refine();
  return row.getTiles() * column.getTiles();
}

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
            Kernel(rows, columns, sums, l1Bytes).countTiles() * kTileBytes;
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
