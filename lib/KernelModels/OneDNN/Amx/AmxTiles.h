//===- AmxTiles.h - Tiles of one kernel with AMX ----------------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_AMX_AMXTILES_H
#define KOILA_KERNELMODELS_ONEDNN_AMX_AMXTILES_H

#include "llvm/ADT/ArrayRef.h"
#include <cstdint>

namespace koila::onednn::amx {

inline constexpr int64_t kTileBytes = 1024;

/// What a kernel multiplies: `rows` by `columns` of sums over `sums` terms of
/// two bytes, times `products` of them, which matters for the first cache.
struct TileProduct {
  int64_t rows, columns, sums;
  float products = 1;
  /// Whether the kernel is unrolled.
  bool isUnrolled = true;
  /// The rows that are wanted, if not all.
  llvm::ArrayRef<bool> wanted = {};
};

/// Its blocks of `rowBlock` rows and sixteen columns, so many at once.
struct TileBlocks {
  int64_t rowBlock, rows, columns;
  /// The tiles of sums.
  int64_t tiles;
};

TileBlocks findTiles(const TileProduct &product, int64_t l1Bytes);

} // namespace koila::onednn::amx

#endif // KOILA_KERNELMODELS_ONEDNN_AMX_AMXTILES_H
