//===- MutableStorage.h - Operations on tensors that are written -*- C++
//-*-===//
//
// Tensors are values, and an in-place operator is a functional one with a tie,
// as long as nothing can see the difference. Where something can (a write
// through a view that is read later, a write to an argument or a buffer), the
// tensors of that storage are references, and two marks keep everything that
// touches it in order:
//
//   koila.reads   reads such storage, or makes a tensor that is written later
//   koila.writes  writes the storage of its first operand, and returns it
//
// The marks give memory effects, so that upstream passes neither merge, move
// nor drop such operations.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INTERFACES_MUTABLESTORAGE_H
#define KOILA_INTERFACES_MUTABLESTORAGE_H

#include "mlir/IR/Operation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace koila {

/// Whether the operation touches storage that is written elsewhere.
bool isOrdered(mlir::Operation *op);
/// Whether the operation writes its first operand in place; an order, not a
/// permission.
bool isOrderedWrite(mlir::Operation *op);

/// Operands whose tensors the operation writes beside making its results, by
/// its memory effects: running statistics, for one.
llvm::SmallVector<mlir::OpOperand *> getUpdates(mlir::Operation *op);

/// Whether values of `type` are lists, dicts or objects, whose contents may be
/// others by the time that an ordered operation reads them.
bool isMutable(mlir::Type type);

namespace detail {
using EffectList = llvm::SmallVectorImpl<
    mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>>;
void addOrderedEffects(mlir::Operation *op, EffectList &effects);
void addDrawEffects(EffectList &effects);
void addUpdateEffects(llvm::ArrayRef<mlir::OpOperand *> updated,
                      EffectList &effects);
} // namespace detail

/// No effects but those of the marks.
template <typename ConcreteOp>
class MutableStorageEffects
    : public mlir::OpTrait::TraitBase<ConcreteOp, MutableStorageEffects> {
public:
  void getEffects(detail::EffectList &effects) {
    detail::addOrderedEffects(this->getOperation(), effects);
  }
  mlir::Speculation::Speculatability getSpeculatability() {
    return isOrdered(this->getOperation()) ? mlir::Speculation::NotSpeculatable
                                           : mlir::Speculation::Speculatable;
  }
};

/// Draws random numbers, besides.
template <typename ConcreteOp>
class RNGEffects : public mlir::OpTrait::TraitBase<ConcreteOp, RNGEffects> {
public:
  void getEffects(detail::EffectList &effects) {
    detail::addOrderedEffects(this->getOperation(), effects);
    detail::addDrawEffects(effects);
  }
  mlir::Speculation::Speculatability getSpeculatability() {
    return mlir::Speculation::NotSpeculatable;
  }
};

/// Reads and writes the operands of `getUpdated()`, besides.
template <typename ConcreteOp>
class OperandUpdateEffects
    : public mlir::OpTrait::TraitBase<ConcreteOp, OperandUpdateEffects> {
public:
  void getEffects(detail::EffectList &effects) {
    auto op = llvm::cast<ConcreteOp>(this->getOperation());
    detail::addOrderedEffects(op, effects);
    detail::addUpdateEffects(op.getUpdated(), effects);
  }
  mlir::Speculation::Speculatability getSpeculatability() {
    auto op = llvm::cast<ConcreteOp>(this->getOperation());
    return isOrdered(op) || !op.getUpdated().empty()
               ? mlir::Speculation::NotSpeculatable
               : mlir::Speculation::Speculatable;
  }
};

} // namespace koila

#endif // KOILA_INTERFACES_MUTABLESTORAGE_H
