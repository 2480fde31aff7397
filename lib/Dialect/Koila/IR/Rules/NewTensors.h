//===- NewTensors.h - Rules shared by factories and copies ------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_NEWTENSORS_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_NEWTENSORS_H

#include "koila/Dialect/Koila/IR/MemoryFormat.h"
#include "koila/Interfaces/Rules.h"

namespace koila::rules {

/// Sets the strides of a new tensor. On entry `info` is what Preserve
/// preserves.
llvm::LogicalResult setStrides(const ShapeRule &rule, TensorInfo &info,
                               MemoryFormat format);
/// A new tensor of the shape and element type of `self`; in place `self`.
llvm::LogicalResult inferCopyOf(ShapeRule &rule, mlir::Value self,
                                MemoryFormat format);
/// Refuses a negative extent.
llvm::LogicalResult checkExtents(const ShapeRule &rule,
                                 llvm::ArrayRef<DimExpr> dims);
/// Refuses a `from` that cannot broadcast to the extents of `to`.
llvm::LogicalResult checkExpands(const ShapeRule &rule, mlir::Value from,
                                 mlir::Value to);

/// The element type that the argument `dtype` names; `otherwise` for None.
/// Null for types that koila has not.
mlir::Type getDtype(mlir::Operation *op, mlir::Type otherwise);
/// As above, also of a computed argument, such as `x.dtype`.
mlir::Type getDtype(const ShapeRule &rule, mlir::Type otherwise);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_NEWTENSORS_H
