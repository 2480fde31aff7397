//===- Types.h - TorchScript types as MLIR types ----------------*- C++ -*-===//
//
// For programs that have LibTorch.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TARGET_TORCHSCRIPT_TYPES_H
#define KOILA_TARGET_TORCHSCRIPT_TYPES_H

#include "mlir/IR/BuiltinTypes.h"
#include <ATen/core/jit_type.h>
#include <optional>
#include <string>

namespace koila::torchscript {

/// `tensor<*x!koila.any>`.
mlir::Type getUnknownTensorType(mlir::MLIRContext *context);

/// Of a tuple with names of its own, which is more than its fields.
enum class NamedTuples { Opaque, Fields };

/// Never fails: a type without MLIR counterpart becomes `!koila.torch<...>`.
mlir::Type convertType(const c10::TypePtr &type, mlir::MLIRContext *context,
                       NamedTuples named = NamedTuples::Opaque);

/// As annotations of TorchScript write it, without what LibTorch adds to the
/// names of classes when a module is loaded twice.
std::string getTypeName(const c10::TypePtr &type);

/// The TorchScript type of an MLIR type; null if its spelling names something
/// that only its archive knows.
c10::TypePtr convertType(mlir::Type type);

/// `tensor<2x3xf32>` of a tensor; the element type is `!koila.any` if MLIR
/// has none for it.
mlir::RankedTensorType getTensorType(const at::Tensor &tensor,
                                     mlir::MLIRContext *context);
mlir::RankedTensorType getTensorType(llvm::ArrayRef<int64_t> sizes,
                                     at::ScalarType scalarType,
                                     mlir::MLIRContext *context);

/// PyTorch's code of an element type.
std::optional<int64_t> getScalarTypeCode(mlir::Type elementType);

/// Whether a value of the type can be or contain a tensor.
bool mayHoldTensor(const c10::TypePtr &type);
/// As mayHoldTensor, or a list or dict of anything: what two names can be of.
bool isShared(const c10::TypePtr &type);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_TYPES_H
