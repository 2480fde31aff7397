//===- Reductions.h - Results that tiles add up to --------------*- C++ -*-===//
//
// A reduction over the batch runs in the tiles, and what they give is combined
// into tensors that the loops carry, as the rule of the operation says.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_REDUCTIONS_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_REDUCTIONS_H

#include "koila/Interfaces/Rules.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace koila {

/// Whether tiles can be combined in elements of `type`. Not in half types,
/// where a sum of sums rounds more than the sum, nor in float64, for which
/// there is no wider type to add in: where parts cancel, their order shows.
bool canCombine(Combine combine, mlir::Type type);
/// `tensor` in elements of `type`: itself if it has them.
mlir::Value convertElements(mlir::OpBuilder &builder, mlir::Location loc,
                            mlir::Value tensor, mlir::Type type);
/// The same for parts of a loss, which each tile differentiates: also in
/// float64, since it could not run whole instead.
bool canAddLosses(Combine combine, mlir::Type type);
/// Whether tiles give all results of `op` that are tensors, if they are
/// combined so.
bool givesResults(Combine combine, mlir::Operation *op);
/// The results of `op` that tiles combine: those of known rank; what a mask
/// leaves out has none.
llvm::SmallVector<mlir::Value> getCombinedResults(mlir::Operation *op);

/// The samples of one tile, as index values.
struct TileRange {
  mlir::Value start, size;
  /// Rows of the reduced dim per sample.
  int64_t factor;
};

/// How the tiles of one reduction over the batch are combined, in tensors that
/// the loops carry.
class Combiner {
public:
  Combiner(mlir::Operation *op, Combine combine) : op(op), combine(combine) {}

  unsigned getNumCarried() const;
  /// The result that carried tensor `index` has the shape of.
  mlir::Value getShaped(unsigned index) const;
  /// float64 for float32, so that the rounding of many small parts does not add
  /// up.
  mlir::Type getCarriedType(unsigned index) const;
  /// `buffer` with what carried tensor `index` starts from.
  mlir::Value start(mlir::OpBuilder &builder, unsigned index,
                    mlir::Value buffer) const;
  /// Whether the reduction itself runs in the tiles; else its operand is
  /// enough.
  bool runsInTiles() const;
  /// The carried tensors after a tile; `mapping` has its values.
  llvm::SmallVector<mlir::Value> add(mlir::OpBuilder &builder,
                                     mlir::ValueRange carried,
                                     const mlir::IRMapping &mapping,
                                     const TileRange &tile) const;
  /// Those that are combined, for all `samples`, which are `count` elements for
  /// each element of the result (both indices).
  llvm::SmallVector<mlir::Value> finish(mlir::OpBuilder &builder,
                                        mlir::ValueRange carried,
                                        mlir::Value samples,
                                        mlir::Value count) const;

private:
  bool hasPlaces() const;
  bool isMoment() const;
  mlir::Value addPart(mlir::OpBuilder &builder, mlir::Value sum,
                      mlir::Value part, mlir::Value size) const;
  llvm::SmallVector<mlir::Value> addPlaces(mlir::OpBuilder &builder,
                                           mlir::ValueRange carried,
                                           mlir::ValueRange parts,
                                           const TileRange &tile) const;
  llvm::SmallVector<mlir::Value> addMoments(mlir::OpBuilder &builder,
                                            mlir::ValueRange carried,
                                            mlir::Value self,
                                            const TileRange &tile) const;
  /// Of the mean and the variance of this tile.
  llvm::SmallVector<mlir::Value> addStatistics(mlir::OpBuilder &builder,
                                               mlir::ValueRange carried,
                                               mlir::Value partMean,
                                               mlir::Value partVariance,
                                               const TileRange &tile) const;
  /// `result` in the tensor that the loops carry.
  mlir::Value keep(mlir::OpBuilder &builder, mlir::Value carried,
                   mlir::Value result) const;

  mlir::Operation *op;
  Combine combine;
};

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_REDUCTIONS_H
