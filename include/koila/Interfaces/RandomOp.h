//===- RandomOp.h - Operations that draw random numbers ------------*- C++
//-*-===//

#ifndef KOILA_INTERFACES_RANDOMOP_H
#define KOILA_INTERFACES_RANDOMOP_H

#include "koila/Interfaces/MutableStorage.h"
#include "koila/Interfaces/Rules.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include "koila/Interfaces/RandomOp.h.inc"

namespace koila {

/// Whether all that `op` does besides its results is to draw random numbers.
bool onlyDraws(mlir::Operation *op);
/// Whether `op` or something in its regions moves the generator on, as far as
/// is known.
bool mayDraw(mlir::Operation *op);

/// Draws if the member `draws()` says so.
template <typename ConcreteOp>
class ConditionalRNGEffects
    : public mlir::OpTrait::TraitBase<ConcreteOp, ConditionalRNGEffects> {
public:
  void getEffects(detail::EffectList &effects) {
    detail::addOrderedEffects(this->getOperation(), effects);
    if (llvm::cast<ConcreteOp>(this->getOperation()).draws())
      detail::addDrawEffects(effects);
  }
  mlir::Speculation::Speculatability getSpeculatability() {
    return isOrdered(this->getOperation()) ||
                   llvm::cast<ConcreteOp>(this->getOperation()).draws()
               ? mlir::Speculation::NotSpeculatable
               : mlir::Speculation::Speculatable;
  }
};

} // namespace koila

#endif // KOILA_INTERFACES_RANDOMOP_H
