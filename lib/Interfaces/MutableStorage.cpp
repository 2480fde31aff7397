//===- MutableStorage.cpp - Operations on tensors that are written
//---------===//

#include "koila/Interfaces/MutableStorage.h"
#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;

bool koila::isOrderedWrite(Operation *op) {
  return op->hasAttr(KoilaDialect::kWritesAttr);
}

bool koila::isOrdered(Operation *op) {
  return isOrderedWrite(op) || op->hasAttr(KoilaDialect::kReadsAttr);
}

SmallVector<OpOperand *> koila::getUpdates(Operation *op) {
  SmallVector<MemoryEffects::EffectInstance> effects;
  if (auto interface = dyn_cast<MemoryEffectOpInterface>(op))
    interface.getEffects(effects);
  SmallVector<OpOperand *> updates;
  for (const MemoryEffects::EffectInstance &effect : effects)
    if (auto *operand = effect.getEffectValue<OpOperand *>();
        operand && isa<MemoryEffects::Write>(effect.getEffect()))
      updates.push_back(operand);
  return updates;
}

bool koila::isMutable(Type type) {
  if (auto optional = dyn_cast<OptionalType>(type))
    return isMutable(optional.getValueType());
  if (auto torch = dyn_cast<TorchType>(type))
    return torch.getSpelling().contains('.');
  return isa<koila::ListType, DictType>(type);
}

void koila::detail::addOrderedEffects(Operation *op, EffectList &effects) {
  if (!isOrdered(op))
    return;
  effects.emplace_back(MemoryEffects::Read::get());
  if (isOrderedWrite(op))
    effects.emplace_back(MemoryEffects::Write::get());
  // A tensor that is written later is not the same as an equal one.
  for (OpResult result : op->getResults())
    if (!result.getType().isIntOrIndexOrFloat())
      effects.emplace_back(MemoryEffects::Allocate::get(), result);
}

void koila::detail::addUpdateEffects(ArrayRef<OpOperand *> updated,
                                     EffectList &effects) {
  for (OpOperand *operand : updated) {
    effects.emplace_back(MemoryEffects::Read::get(), operand);
    effects.emplace_back(MemoryEffects::Write::get(), operand);
  }
}

void koila::detail::addDrawEffects(EffectList &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), RandomResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), RandomResource::get());
}
