//===- Differentiation.h - What autograd records of operations --*- C++ -*-===//
//
// What an operation means to autograd, whatever it runs on: whether a gradient
// passes it, and which tensors the gradient depends on. What may be rewritten
// is decided by this alone. How many bytes autograd keeps is asked of a target
// (SavedRule), whose rules ask here which tensors these are.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INTERFACES_DIFFERENTIATION_H
#define KOILA_INTERFACES_DIFFERENTIATION_H

#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <string>

namespace koila {

class SavedRule;

/// What autograd records of one operation.
struct DifferentiationFacts {
  /// Operands and results that the gradient reads.
  llvm::SmallVector<mlir::Value, 3> saved;
  /// Operands that it reads as they were before the operation wrote them.
  llvm::SmallVector<mlir::Value, 1> overwritten;
  /// Whether it reads tensors that the operation makes inside, as a mask that
  /// is drawn: these may follow from any operand.
  bool savesInner = false;
  /// No gradient passes.
  bool isDetached = false;
  /// Why the rest is not known; empty if it is.
  std::string unknown;

  bool isKnown() const { return unknown.empty(); }
  /// Whether the gradient depends on nothing but the one that arrives.
  bool savesNothing() const {
    return isKnown() && saved.empty() && overwritten.empty() && !savesInner;
  }
};

class DifferentiationRule {
public:
  using Wants = llvm::function_ref<bool(mlir::Value)>;
  using ElementTypes = llvm::function_ref<mlir::Type(mlir::Value)>;
  /// `wants` says of a value whether a gradient flows to it, and `types` which
  /// element type it has; null if that is unknown.
  DifferentiationRule(mlir::Operation *op, Wants wants, ElementTypes types)
      : op(op), wants(wants), types(types) {}

  mlir::Operation *getOp() const { return op; }
  /// False for an absent value.
  bool wantsGradient(mlir::Value value) const { return value && wants(value); }
  mlir::Type getElementType(mlir::Value value) const {
    return value ? types(value) : mlir::Type();
  }

  /// An operand or a result; nothing for an absent one.
  void save(mlir::Value value) {
    if (value)
      facts.saved.push_back(value);
  }
  /// As `save`, if a gradient flows to `reason`, which needs it.
  void saveFor(mlir::Value reason, mlir::Value value) {
    if (wantsGradient(reason))
      save(value);
  }
  /// An operand that the operation overwrites.
  void saveOverwritten(mlir::Value operand) {
    facts.overwritten.push_back(operand);
  }
  /// Tensors that the operation makes inside.
  void saveInner() { facts.savesInner = true; }
  void setDetached() { facts.isDetached = true; }
  /// Reasons are joined.
  void setUnknown(const llvm::Twine &why) {
    facts.unknown += (facts.unknown.empty() ? "" : "; ") + why.str();
  }

  const DifferentiationFacts &getFacts() const { return facts; }

private:
  mlir::Operation *op;
  Wants wants;
  ElementTypes types;
  DifferentiationFacts facts;
};

/// What `op` says of itself; unknown if it says nothing.
DifferentiationFacts
getDifferentiation(mlir::Operation *op, DifferentiationRule::Wants wants,
                   DifferentiationRule::ElementTypes types);

/// Saves in `rule` the tensors that its operation says the gradient reads.
/// Kernels may keep a copy instead: one of `copyBytes(value)` bytes, if that is
/// not zero. The bytes of what the operation makes inside are left to the
/// caller.
DifferentiationFacts
saveDifferentiated(SavedRule &rule,
                   llvm::function_ref<int64_t(mlir::Value)> copyBytes = {});

} // namespace koila

#endif // KOILA_INTERFACES_DIFFERENTIATION_H
