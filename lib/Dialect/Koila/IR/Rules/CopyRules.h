//===- CopyRules.h - Rules of casts, copies, numbers of tensors -*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_COPYRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_COPYRULES_H

#include "OperatorRules.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"

namespace koila::rules {

// Casts and copies. They read the operands and the arguments `dtype`, `copy`
// and `memory_format` of the operation. `copies`: never the operand itself.

llvm::LogicalResult inferCast(ShapeRule &rule, bool copies = false);
void describeCastStorage(StorageRule &rule);
llvm::LogicalResult inferContiguous(ShapeRule &rule, mlir::Value self,
                                    int64_t format);
void describeContiguousStorage(StorageRule &rule, mlir::Value self,
                               int64_t format);
/// The batch stays where it is in the first operand; others give no values.
void keepBatch(BatchRule &rule);

/// Values of `source` written over `self`.
llvm::LogicalResult inferOverwrite(ShapeRule &rule, mlir::Value self,
                                   mlir::Value source);
void inferFillBatch(BatchRule &rule, mlir::Value self);

/// `view`: whether the result for a complex operand is a view of it.
llvm::LogicalResult inferConjugate(ShapeRule &rule, mlir::Value self,
                                   TriBool view);
void describeConjugateStorage(StorageRule &rule, mlir::Value self,
                              TriBool view);

// Numbers read from tensors.

llvm::LogicalResult checkOneElement(const ShapeRule &rule, mlir::Value tensor);
llvm::LogicalResult checkNoDims(const ShapeRule &rule, mlir::Value tensor);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_COPYRULES_H
