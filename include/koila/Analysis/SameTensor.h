//===- SameTensor.h - Whether two values are one tensor ---------*- C++ -*-===//

#ifndef KOILA_ANALYSIS_SAMETENSOR_H
#define KOILA_ANALYSIS_SAMETENSOR_H

#include "koila/Interfaces/Rules.h"
#include "mlir/IR/Block.h"

namespace koila {
class TorchOpaqueOp;

/// Whether `op` asks `a is b` (false) or `a is not b` (true); none if neither.
std::optional<bool> isNegatedIdentity(TorchOpaqueOp op);

/// The tensors that `a is b` or `a is not b` compares; none for other
/// operators. Of numbers and texts identity is a matter of their values.
std::optional<std::pair<mlir::Value, mlir::Value>>
getComparedTensors(TorchOpaqueOp op);

/// Whether `lhs` and `rhs` are one tensor object, as `a is b` asks; each may be
/// None as well. Looks through branches: `isLive` says which blocks a call may
/// get to, `shapes` what is known of values.
///
/// Two tensors are different for certain where their storages are: a view of
/// `x` is never a tensor that `x` has no part in. Of arguments and weights
/// nobody knows, since a caller may give one tensor twice.
TriBool proveIdentical(mlir::Value lhs, mlir::Value rhs,
                       llvm::function_ref<bool(mlir::Block *)> isLive,
                       ShapeRule::Lookup shapes);

} // namespace koila

#endif // KOILA_ANALYSIS_SAMETENSOR_H
