//===- ReductionOps.h - Reductions ------------------------------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_REDUCTIONOPS_H
#define KOILA_DIALECT_KOILA_IR_REDUCTIONOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"

namespace koila::rules {

/// In the words of the schema, without overload: `sum`.
llvm::StringRef getOperatorName(mlir::Operation *op);

/// The parts' type of a complex type.
mlir::Type getRealType(mlir::Type type);

/// For each dim whether it is reduced; none if one is out of range or given
/// twice.
std::optional<llvm::SmallVector<bool>>
getReducedDims(mlir::Operation *op, int64_t rank, bool emptyIsAll = true);

/// What a variance takes off the number of elements; none if only the run
/// decides.
std::optional<double> getCorrection(mlir::Operation *op);

} // namespace koila::rules

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ReductionOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_REDUCTIONOPS_H
