//===- OperatorRules.h - Rules shared by operator families ------*- C++ -*-===//
//
// The bodies of rules, as free functions that the operations of a family call.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_OPERATORRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_OPERATORRULES_H

#include "Derivatives.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"
#include "koila/Interfaces/Rules.h"
#include "mlir/IR/ValueRange.h"

namespace koila::rules {

// Shape rules.
llvm::LogicalResult inferBinary(ShapeRule &rule, mlir::Value self,
                                mlir::Value other);
llvm::LogicalResult inferSoftmax(ShapeRule &rule, mlir::Value self, int64_t dim,
                                 std::optional<int64_t> dtype);
llvm::LogicalResult inferFlatten(ShapeRule &rule, mlir::Value self,
                                 int64_t start, int64_t end);

// Batch rules.
/// The batch in one or more operands that broadcast against each other.
void inferBroadcastBatch(BatchRule &rule, llvm::ArrayRef<mlir::Value> operands);
/// An operator over trailing dims: the batch stays in dim 0 of tensors with
/// more than `trailing` dims.
void inferTrailingBatch(BatchRule &rule, mlir::Value self, int64_t trailing);
/// An operator along `dim`: a batch there means that samples are mixed.
void inferAlongDimBatch(BatchRule &rule, mlir::Value self, int64_t dim,
                        llvm::StringRef what);

// Memory rules.
/// Storage of its own, or that of the first operand where the tie is resolved.
void describeNewStorage(StorageRule &rule);
/// Storage of its own for each result that `mask` names; the others are no
/// tensors.
void describeMaskedStorage(StorageRule &rule, llvm::ArrayRef<bool> mask);
/// A number as a tensor, which is none if it is only read as a number again.
void describeNumberStorage(StorageRule &rule);
/// Alias if the input is contiguous, a copy where it is known not to be.
void describeReshapeStorage(StorageRule &rule, mlir::Value self);

/// Counts from the end for negative dims; none if out of range.
std::optional<int64_t> normalizeDim(int64_t dim, int64_t rank);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_OPERATORRULES_H
