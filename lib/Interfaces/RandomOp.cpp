//===- RandomOp.cpp - Operations that draw random numbers
//--------------------===//

#include "koila/Interfaces/RandomOp.h"
#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;

#include "koila/Interfaces/RandomOp.cpp.inc"

static bool isOfGenerator(const MemoryEffects::EffectInstance &effect) {
  return effect.getResource() == RandomResource::get();
}

bool koila::onlyDraws(Operation *op) {
  auto interface = dyn_cast<MemoryEffectOpInterface>(op);
  if (!interface)
    return false;
  SmallVector<MemoryEffects::EffectInstance> effects;
  interface.getEffects(effects);
  return !effects.empty() && llvm::all_of(effects, isOfGenerator);
}

bool koila::mayDraw(Operation *op) {
  bool draws = false;
  op->walk([&](MemoryEffectOpInterface inner) {
    SmallVector<MemoryEffects::EffectInstance> effects;
    inner.getEffects(effects);
    draws |= llvm::any_of(effects, isOfGenerator);
  });
  return draws;
}
