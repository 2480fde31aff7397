//===- TilePeaks.h - Peaks of a program at several tiles --------*- C++ -*-===//
//
// The tiles are constants of the program, and which they are changes little of
// what is known of it. So a search for them needs few analyses: one for each
// set of phases that run tiles of a single size, whose loop runs once.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_TILEPEAKS_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_TILEPEAKS_H

#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include <map>

namespace koila {

class TiledPeaks {
public:
  /// Nothing but tiles may change in `function` as long as this lives.
  TiledPeaks(mlir::FunctionOpInterface function, const TiledFunction &tiled,
             const PeakMemoryOptions &options)
      : function(function), tiled(tiled), options(options) {}

  /// At the tiles that there are now; holds until they change.
  const PeakMemoryAnalysis &analyze();
  /// The peak at any batch up to `batch`; `phases`, if there, gets that of each
  /// phase, 0 where it is not known.
  std::optional<int64_t>
  getPeakUpTo(llvm::StringRef symbol, int64_t batch,
              llvm::SmallVectorImpl<int64_t> *phases = nullptr);

private:
  mlir::FunctionOpInterface function;
  const TiledFunction &tiled;
  const PeakMemoryOptions &options;
  /// By whether each phase runs tiles of a single size.
  std::map<std::vector<bool>, std::unique_ptr<PeakMemoryAnalysis>> analyses;
};

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_TILEPEAKS_H
