//===- TileTable.h - One program, any tile ----------------------*- C++ -*-===//
//
// The tiles of a program can be set once it is written. Which tile each phase
// has then stands at its loops, and what the call takes in the report.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_TILETABLE_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_TILETABLE_H

#include "TilePeaks.h"
#include "koila/Dialect/Koila/Transforms/LoopTiles.h"
#include "llvm/Support/JSON.h"

namespace koila {

/// What a file's tile may be set to, and what the call takes then.
struct TileRow {
  int64_t tile;
  /// Of the phases: those that need less run in larger ones.
  llvm::SmallVector<int64_t> phases;
  /// The peak of the batch that was analysed.
  int64_t peakBytes;
  /// The peak of any batch up to that one.
  int64_t budgetBytes;
};

/// With all phases in the same tiles: the peak at any batch up to that which is
/// analysed, of the program and of each phase.
struct TilePeak {
  int64_t tile, peak;
  llvm::SmallVector<int64_t> phases;
};

/// Phases that do not hold the peak need not run in tiles as small as the one
/// that does: each takes the largest below the batch that is known to keep it
/// within `budget`, and a smaller one where, beside the larger tiles of others,
/// that is too much. `known` is from the largest tile. After `mostTrials` all
/// have the tile that they had. Whether any has grown.
bool growTiles(TiledFunction &tiled, TiledPeaks &peaks,
               llvm::ArrayRef<TilePeak> known, llvm::StringRef symbol,
               int64_t batch, int64_t budget, int mostTrials);

/// A row for each of `known`, from the smallest tile; of the tile that `tiled`
/// has, its phases as they are. With `grows`, phases of others grow as far as
/// that changes no peak.
std::vector<TileRow> tabulateTiles(TiledFunction &tiled, TiledPeaks &peaks,
                                   llvm::ArrayRef<TilePeak> known,
                                   llvm::StringRef symbol, int64_t batch,
                                   bool grows);

/// Writes the tiles of `rows`, which may be none, to the loops.
void markLoops(const TiledFunction &tiled, llvm::ArrayRef<TileRow> rows);

llvm::json::Array toJSON(llvm::ArrayRef<TileRow> rows);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_TILETABLE_H
