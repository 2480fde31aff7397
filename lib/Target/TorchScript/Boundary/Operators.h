//===- Operators.h - Operations by ATen schema ------------------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_BOUNDARY_OPERATORS_H
#define KOILA_TARGET_TORCHSCRIPT_BOUNDARY_OPERATORS_H

#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/StringMap.h"
#include <ATen/core/function_schema.h>
#include <memory>

namespace koila::torchscript {

/// An operation with an ATen operator behind it.
struct OperatorInfo {
  mlir::RegisteredOperationName name;
  std::shared_ptr<c10::FunctionSchema> schema;
  /// Null if there is no in-place twin.
  std::shared_ptr<c10::FunctionSchema> inPlaceSchema;
  /// The operation has `operandSegmentSizes`.
  bool hasSegments = false;
  /// The last operand group holds computed arguments.
  bool takesDynamic = false;

  bool isAttribute(llvm::StringRef argument) const;
};

/// The operations of a context by operator. Built from the schemas in the
/// dialect, so that an operator added there is known here.
class OperatorTable {
public:
  explicit OperatorTable(mlir::MLIRContext *context);

  struct Match {
    const OperatorInfo *info = nullptr;
    bool inPlace = false;
    explicit operator bool() const { return info != nullptr; }
  };
  /// By `aten::name.overload`, functional or in place.
  Match lookup(llvm::StringRef qualifiedName) const;
  const OperatorInfo *lookup(mlir::OperationName name) const;
  const std::vector<std::unique_ptr<OperatorInfo>> &getAll() const {
    return operators;
  }

private:
  std::vector<std::unique_ptr<OperatorInfo>> operators;
  llvm::StringMap<Match> byName;
  llvm::StringMap<const OperatorInfo *> byOperation;
};

/// `aten::name.overload`, or `aten::name` for the default overload.
std::string getQualifiedName(const c10::FunctionSchema &schema);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_BOUNDARY_OPERATORS_H
