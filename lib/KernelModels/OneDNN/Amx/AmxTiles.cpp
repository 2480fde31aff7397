//===- AmxTiles.cpp - Tiles of one kernel with AMX ------------------------===//
//
// Source: oneDNN 3.12, brgemm_blocking_tmm in cpu/x64/brgemm/brgemm_utils.cpp.
//
//===----------------------------------------------------------------------===//

#include "AmxTiles.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <limits>

using namespace koila;
using namespace koila::onednn::amx;

static constexpr int64_t kTile = 16, kSize = 2;

static int64_t divideCeil(int64_t extent, int64_t block) {
  return llvm::divideCeilSigned(extent, block);
}

namespace {
/// One side of a kernel: blocks of `block`, `together` of them at once.
struct Side {
  int64_t extent, block = kTile, count = 0, tail = 0, together = 1;

  int64_t getTiles() const {
    return count <= together ? count : together + (tail != 0);
  }
};

class Kernel {
public:
  Kernel(const TileProduct &product, int64_t l1Bytes)
      : row{product.rows}, column{product.columns}, product(product),
        l1Bytes(l1Bytes) {}

  TileBlocks find();

private:
  void countRows(int64_t block);
  bool fitWanted();
  void cutColumns();
  bool cutTwoByTwo();
  bool cutInto(int64_t blocks);
  void refine();
  void set(int64_t rowBlock, int64_t rows, int64_t columns);

  Side row, column;
  const TileProduct &product;
  int64_t l1Bytes;
  bool isRowTail = false;
};
} // namespace

/// Source: find_bdb_bd_mask. Rows that are not wanted are passed between
/// blocks.
void Kernel::countRows(int64_t block) {
  row.block = block;
  row.count = row.tail = 0;
  if (product.wanted.empty()) {
    row.count = divideCeil(row.extent, block);
    row.tail = row.extent % block;
    return;
  }
  for (int64_t at = 0; at < row.extent;) {
    if (!product.wanted[at]) {
      ++at;
      continue;
    }
    at += block;
    if (at > row.extent)
      row.tail = row.extent - at + block;
    if (at <= row.extent || product.isUnrolled)
      ++row.count;
  }
}

/// The fewest whole blocks. Source: find_bd_block_for_bd_mask.
bool Kernel::fitWanted() {
  if (product.wanted.empty())
    return false;
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t best = std::min(kTile, row.extent);
  for (int64_t block = best; block > 0; --block) {
    countRows(block);
    if (row.count < least && row.tail == 0) {
      least = row.count;
      best = block;
    }
  }
  row.block = best;
  row.tail = 0;
  row.count = least;
  return true;
}

void Kernel::set(int64_t rowBlock, int64_t rows, int64_t columns) {
  if (rowBlock > 0) {
    countRows(rowBlock);
    isRowTail = row.tail != 0;
  }
  column.block = kTile;
  column.count = divideCeil(column.extent, kTile);
  column.tail = column.extent % kTile;
  row.together = rows;
  column.together = columns;
  if (product.isUnrolled)
    return;
  if (row.tail != 0 && row.together > 1)
    --row.together;
  if (column.tail != 0 && column.together > 1)
    --column.together;
}

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
  if (!fitWanted()) {
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
  }
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
  if (!fitWanted()) {
    countRows(kTile);
    isRowTail = true;
  }
  row.together = blocks;
  cutColumns();
  return true;
}

/// Other shapes for some extents, and for blocks that are not full.
void Kernel::refine() {
  int64_t rows = row.extent, columns = column.extent;
  int64_t bytes = static_cast<int64_t>(product.sums * kSize * product.products);
  bool isMasked = !product.wanted.empty();
  bool hasRowTail = row.block <= 12 || rows % row.block != 0 || isMasked;
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
  int64_t paddedRows = llvm::alignTo(rows, kTile);
  int64_t paddedColumns = llvm::alignTo(columns, kTile);
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

TileBlocks Kernel::find() {
  column.count = column.extent / kTile;
  column.tail = column.extent % kTile;
  if (!cutTwoByTwo() && !cutInto(3) && !cutInto(2))
    cutTwoByTwo();
  set(row.block, row.together, column.together);
  if (product.isUnrolled)
    refine();
  return {row.block, row.together, column.together,
          row.getTiles() * column.getTiles()};
}

TileBlocks koila::onednn::amx::findTiles(const TileProduct &product,
                                         int64_t l1Bytes) {
  return Kernel(product, l1Bytes).find();
}
