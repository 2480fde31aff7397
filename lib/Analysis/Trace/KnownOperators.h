//===- KnownOperators.h - Operations from arguments -------------*- C++ -*-===//

#ifndef KOILA_ANALYSIS_TRACE_KNOWNOPERATORS_H
#define KOILA_ANALYSIS_TRACE_KNOWNOPERATORS_H

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringMap.h"

namespace koila {

/// An argument of an operator: a literal, a value, or the elements of a list.
struct OperatorArgument {
  mlir::Attribute literal;
  /// Null for an element that is None.
  llvm::SmallVector<mlir::Value, 4> values;
};

/// The dialect's operations by operator. Import carries `torch.cat(parts)`
/// opaquely where it does not see what is in `parts`; a trace does.
class KnownOperators {
public:
  explicit KnownOperators(mlir::MLIRContext *context);

  /// The operation for `callee`, for example `aten::cat`, with tensors of
  /// unknown shapes as results; null if there is none that describes the
  /// operator with these arguments.
  mlir::Operation *create(mlir::OpBuilder &builder, mlir::Location loc,
                          llvm::StringRef callee,
                          llvm::ArrayRef<OperatorArgument> arguments,
                          mlir::TypeRange results) const;

private:
  llvm::StringMap<mlir::RegisteredOperationName> names;
};

} // namespace koila

#endif // KOILA_ANALYSIS_TRACE_KNOWNOPERATORS_H
