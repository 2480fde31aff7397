//===- LoopTiles.h - The tile of a program can be set -----------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_LOOPTILES_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_LOOPTILES_H

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace koila {

/// On the outermost loop of a phase, in the function's own block: its tile for
/// each that the program may be set to, by its power of two; all larger ones it
/// takes as they are. An array of powers of two.
inline constexpr llvm::StringLiteral kTilesAttr = "koila.tiles";

/// The tiles of one loop with that attribute.
struct LoopTiles {
  llvm::ArrayRef<int64_t> table;
  /// That it has now, and the least that it can have.
  int64_t tile, least;

  /// That it has where the program is set to `common`, a power of two.
  int64_t lookup(int64_t common) const;
};

/// None if `loop` has no such attribute, or is no loop as tiling makes them.
std::optional<LoopTiles> getLoopTiles(mlir::Operation *loop);

/// The largest tile that a tiled function may be set to: the largest that its
/// loops know, or that which it has. None if no batch was known when it was
/// tiled, so that nothing was planned.
std::optional<int64_t> getLargestTile(mlir::FunctionOpInterface function);

/// Sets the loops of a tiled function, whose `koila.tiled` says so, to the
/// tiles that they have for `tile`, a power of two. Fails, without an error,
/// where the program is not as tiling has made it.
llvm::LogicalResult setLoopTiles(mlir::FunctionOpInterface function,
                                 int64_t tile);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_LOOPTILES_H
