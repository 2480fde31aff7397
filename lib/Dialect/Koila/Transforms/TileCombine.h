//===- TileCombine.h - Results that tiles add up to -------------*- C++ -*-===//
//
// A reduction over the batch runs in the tiles, and what they give is combined
// into a tensor that the loops carry, as the rule of the operation says.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_TRANSFORMS_TILECOMBINE_H
#define KOILA_LIB_DIALECT_KOILA_TRANSFORMS_TILECOMBINE_H

#include "koila/Interfaces/Rules.h"
#include "mlir/IR/Builders.h"

namespace koila {

/// Whether tiles can be combined in elements of `type`. Not in half types,
/// where a sum of sums rounds more than the sum, nor in float64, for which
/// there is no wider type to add in: where parts cancel, their order shows.
bool canCombine(Combine combine, mlir::Type type);

/// What the loops carry for results of `type`: float64 for float32, so that the
/// rounding of many small parts does not add up.
mlir::Type getCarriedType(Combine combine, mlir::Type type);
/// `buffer` with the value that combining starts from.
mlir::Value startCombining(mlir::OpBuilder &builder, mlir::Location loc,
                           Combine combine, mlir::Value buffer);
/// `sum` with `part`, which a tile of `size` samples (an index) gave.
mlir::Value addPart(mlir::OpBuilder &builder, mlir::Location loc,
                    Combine combine, mlir::Value sum, mlir::Value part,
                    mlir::Value size);
/// What all `samples` (an index) give, in elements of `type`.
mlir::Value finishCombining(mlir::OpBuilder &builder, mlir::Location loc,
                            Combine combine, mlir::Value sum,
                            mlir::Value samples, mlir::Type type);

} // namespace koila

#endif // KOILA_LIB_DIALECT_KOILA_TRANSFORMS_TILECOMBINE_H
