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
/// opaquely where it does not see what is in `parts`; a trace does. So it does
/// a dropout between recurrent layers, of which an operation does not say that
/// it draws: of shapes and memory, for which there are traces, it says all.
class KnownOperators {
public:
  explicit KnownOperators(mlir::MLIRContext *context);

  /// The operation for `callee`, for example `aten::cat`, with tensors of
  /// unknown shapes as results; null if there is none with these arguments.
  mlir::Operation *create(mlir::OpBuilder &builder, mlir::Location loc,
                          llvm::StringRef callee,
                          llvm::ArrayRef<OperatorArgument> arguments,
                          mlir::TypeRange results) const;

  /// The operation for what `callee`, an operator with `out=`, computes.
  mlir::Operation *createWithoutOut(mlir::OpBuilder &builder,
                                    mlir::Location loc, llvm::StringRef callee,
                                    llvm::ArrayRef<OperatorArgument> arguments,
                                    mlir::TypeRange results) const;

  /// Whether there is an operation for `callee` with some arguments.
  bool contains(llvm::StringRef callee) const { return names.contains(callee); }

  /// Whether `callee` is an operator with `out=`.
  static bool takesOut(llvm::StringRef callee) {
    return callee.ends_with(".out") || callee.ends_with("_out");
  }

private:
  mlir::Operation *create(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::RegisteredOperationName name,
                          llvm::ArrayRef<OperatorArgument> arguments,
                          mlir::TypeRange results) const;

  llvm::StringMap<mlir::RegisteredOperationName> names;
  /// By what is before the dot.
  llvm::StringMap<llvm::SmallVector<mlir::RegisteredOperationName, 2>>
      overloads;
};

} // namespace koila

#endif // KOILA_ANALYSIS_TRACE_KNOWNOPERATORS_H
