//===- IndexOps.h - Indexing, joining, padding, embedding -------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_INDEXOPS_H
#define KOILA_DIALECT_KOILA_IR_INDEXOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/Layout.h"

namespace koila::indexing {

/// The mask of a read by one mask alone: the rows where it is true, so that all
/// reads by one and the same mask have equally many. Null of other operations.
mlir::Value getSelectingMask(mlir::Operation *op);

/// Whether embedding_bag alone reads `value`, as the beginnings of bags.
bool isReadAsOffsets(mlir::Value value);
/// Whether `value` counts from zero on and is an index alone, as in
/// `x[arange(len(x)), y]`.
bool isReadAsRows(mlir::Value value);

} // namespace koila::indexing

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/IndexOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_INDEXOPS_H
