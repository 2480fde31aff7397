//===- ElementwiseRules.h - Rules of elementwise operators ------*- C++ -*-===//
//
// They follow from the description of the operator (Elementwise.h).
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_ELEMENTWISERULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_ELEMENTWISERULES_H

#include "OperatorRules.h"
#include "koila/Dialect/Koila/IR/Elementwise.h"

namespace koila::rules {

/// bool, integer, floating point, complex: 0 to 3.
int getCategory(mlir::Type type);

/// The extents of operands that broadcast; none if a rank is unknown.
llvm::FailureOr<std::optional<llvm::SmallVector<DimExpr>>>
broadcastDims(ShapeRule &rule, llvm::ArrayRef<TensorInfo> operands);
/// Refuses what does not fit the tensor that an in-place form writes.
llvm::LogicalResult
checkWrittenDims(ShapeRule &rule, const TensorInfo &written,
                 const std::optional<llvm::SmallVector<DimExpr>> &dims);
/// Refuses element types of the categories in `refused`; null is accepted.
llvm::LogicalResult checkCategory(ShapeRule &rule, mlir::Type type,
                                  llvm::StringRef refused);

// Shape rules.
llvm::LogicalResult inferElementwise(ShapeRule &rule, const Elementwise &kind);
llvm::LogicalResult inferElementwise(ShapeRule &rule,
                                     llvm::ArrayRef<mlir::Value> tensors,
                                     const Elementwise &kind);
llvm::LogicalResult inferGlu(ShapeRule &rule, mlir::Value self, int64_t dim);
llvm::LogicalResult inferPrelu(ShapeRule &rule, mlir::Value self,
                               mlir::Value weight);
/// `value` is null for a number.
llvm::LogicalResult inferMaskedFill(ShapeRule &rule, mlir::Value self,
                                    mlir::Value mask, mlir::Value value);
llvm::LogicalResult inferAddcdiv(ShapeRule &rule);
llvm::LogicalResult inferPowTensorScalar(ShapeRule &rule);

// Batch rules.
/// The batch in tensors that broadcast; a number that depends on the number
/// of samples is another one in a tile.
void inferElementwiseBatch(BatchRule &rule);
void inferGluBatch(BatchRule &rule, mlir::Value self, int64_t dim);
void inferPreluBatch(BatchRule &rule, mlir::Value self, mlir::Value weight);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_ELEMENTWISERULES_H
