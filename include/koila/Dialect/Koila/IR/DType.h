//===- DType.h - Names of torch's element types -----------------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_DTYPE_H
#define KOILA_DIALECT_KOILA_IR_DTYPE_H

#include "mlir/IR/Types.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace koila {

/// torch's long name, `float32` for `float32`, `float` and `torch.float`;
/// empty if it is none.
llvm::StringRef getCanonicalDType(llvm::StringRef name);
/// The ScalarType code of a dtype by its long name; none if unknown.
std::optional<int64_t> getScalarTypeCode(llvm::StringRef dtype);
/// The element type of a dtype by its long name; null if unknown.
mlir::Type getDTypeElementType(mlir::MLIRContext *context,
                               llvm::StringRef dtype);
/// The long name of an element type; empty if torch has none.
llvm::StringRef getDTypeName(mlir::Type elementType);
/// Whether it is float16 or bfloat16.
bool isHalf(mlir::Type elementType);
/// All long names, for messages: "float32, float64, ...".
std::string listDTypes();

} // namespace koila

#endif // KOILA_DIALECT_KOILA_IR_DTYPE_H
