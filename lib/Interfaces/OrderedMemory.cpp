//===- OrderedMemory.cpp - Operations on tensors that are written ---------===//

#include "koila/Interfaces/OrderedMemory.h"
#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;

bool koila::isOrderedWrite(Operation *op) {
  return op->hasAttr(KoilaDialect::kWritesAttr);
}

bool koila::isOrdered(Operation *op) {
  return isOrderedWrite(op) || op->hasAttr(KoilaDialect::kReadsAttr);
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

void koila::detail::addDrawEffects(EffectList &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), RandomResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), RandomResource::get());
}
