//===- TypePromotion.h - Common element types of operands -------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_TYPEPROMOTION_H
#define KOILA_DIALECT_KOILA_IR_TYPEPROMOTION_H

#include "koila/Interfaces/Rules.h"

namespace koila::rules {

/// PyTorch's element type for a ScalarType code; null for unknown codes.
mlir::Type getTypeForScalarTypeCode(mlir::MLIRContext *context, int64_t code);

/// PyTorch's ScalarType code of an element type; none if it has no such type.
std::optional<int64_t> getScalarTypeCode(mlir::Type type);

/// The common element type of two tensors, as torch.promote_types with
/// 0-dim tensors giving way. Null if either is unknown.
mlir::Type promoteTypes(const TensorInfo &lhs, const TensorInfo &rhs);

/// The same, from element types and whether each has dims.
mlir::Type promoteTypes(mlir::Type lhs, bool lhsHasDims, mlir::Type rhs,
                        bool rhsHasDims);

/// Whether a tensor of PyTorch can have this element type.
bool isTorchType(mlir::Type type);

/// The type in which operands meet; null if it is not known. `numbers` are
/// types of Python numbers, null where unknown.
mlir::Type getCommonType(llvm::ArrayRef<TensorInfo> operands,
                         llvm::ArrayRef<mlir::Type> numbers);

} // namespace koila::rules

#endif // KOILA_DIALECT_KOILA_IR_TYPEPROMOTION_H
