//===- PlanSearch.h - Which way to write a program fits ---------*- C++ -*-===//
//
// A program is written in tiles, and looked at with all of them. A training
// step of which no tile fits is written again, in ways that keep less of the
// forward pass and run more of it twice.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_PLANSEARCH_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_PLANSEARCH_H

#include "TileTable.h"
#include "mlir/IR/Remarks.h"

namespace koila {

/// Of remarks on how the batch of `function` runs in tiles.
mlir::remark::RemarkOpts getTilingRemark(mlir::FunctionOpInterface function);

/// Calls `callback` with each power of two up to `batch` that can be a tile,
/// from the largest, and the peak of `function` with that tile at any batch up
/// to `batch`, of all phases and of each. Fails, after an error, where a peak
/// is not known.
llvm::LogicalResult
forEachTile(mlir::FunctionOpInterface function, TiledFunction &tiled,
            TiledPeaks &peaks, llvm::StringRef symbol, int64_t batch,
            llvm::function_ref<void(int64_t tile, int64_t peak,
                                    llvm::ArrayRef<int64_t> phases)>
                callback);

/// One way to write the program, and what its tiles take.
struct Search {
  Search(mlir::FunctionOpInterface function, TiledFunction found,
         const PeakMemoryOptions &options)
      : tiled(std::move(found)), peaks(function, tiled, options),
        leastTile(tiled.getLeastTile()) {}

  TiledFunction tiled;
  TiledPeaks peaks;
  /// The largest tile within the budget.
  std::optional<int64_t> chosen;
  /// The least peak of any tile, and which has it.
  std::optional<int64_t> least;
  int64_t leastTile;
  /// By tile, from the largest, if all phases have it.
  llvm::SmallVector<TilePeak> ofTiles;
  /// Of a step that runs part of the forward pass again: from so many bytes on
  /// another plan, which may run less of it again, is known to fit.
  std::optional<int64_t> replanBytes;
};

/// Writes `function`, whose batch `symbol` is `batch` samples, in tiles within
/// the budget of `options`, and where no tile fits because of what a step keeps
/// for its backward pass, again with less of that. Where nothing fits, the way
/// that takes least. Null after an error.
std::unique_ptr<Search> searchPlans(mlir::FunctionOpInterface function,
                                    const TilingOptions &options,
                                    llvm::StringRef symbol, int64_t batch);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_PLANSEARCH_H
