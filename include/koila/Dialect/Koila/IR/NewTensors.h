//===- NewTensors.h - Rules shared by factories and copies ------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_NEWTENSORS_H
#define KOILA_DIALECT_KOILA_IR_NEWTENSORS_H

#include "koila/Interfaces/Rules.h"

namespace koila::rules {

/// c10/core/MemoryFormat.h.
enum class MemoryFormat : int64_t {
  Contiguous = 0,
  Preserve = 1,
  ChannelsLast = 2,
  ChannelsLast3d = 3
};

/// The argument `memory_format`; Preserve for None or if there is none.
MemoryFormat getMemoryFormat(mlir::Operation *op);
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

/// Whether the arguments `layout` and `pin_memory` ask for nothing special.
bool isPlain(mlir::Operation *op);
/// The element type that the argument `dtype` names; `otherwise` for None.
/// Null for types that koila has not.
mlir::Type getDtype(mlir::Operation *op, mlir::Type otherwise);
/// As above, also of a computed argument, such as `x.dtype`.
mlir::Type getDtype(const ShapeRule &rule, mlir::Type otherwise);

} // namespace koila::rules

#endif // KOILA_DIALECT_KOILA_IR_NEWTENSORS_H
