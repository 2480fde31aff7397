//===- LocalStorage.cpp - Storage that tiles write by themselves ----------===//
//
// A program may fill a tensor that it has made, as the results of a recurrent
// cell, one step after the other. Where all that touches such storage until its
// last write is apart for each sample, each tile makes, writes and reads its
// own: all of that runs in one phase, in order. What reads it later may be
// anywhere.
//
//===----------------------------------------------------------------------===//

#include "PhasePlan.h"

using namespace mlir;
using namespace koila;

/// Whether the marks of `op` are all the effects it has.
static bool hasOnlyMarks(Operation *op) {
  SmallVector<MemoryEffects::EffectInstance> effects;
  auto interface = dyn_cast<MemoryEffectOpInterface>(op);
  if (!interface)
    return false;
  interface.getEffects(effects);
  return llvm::all_of(
      effects, [&](const MemoryEffects::EffectInstance &effect) {
        return !isa<MemoryEffects::Write>(effect.getEffect()) ||
               (isOrderedWrite(op) &&
                effect.getResource() == SideEffects::DefaultResource::get());
      });
}

/// Calls `callback` with each tensor that `op` reads or makes.
static void forEachTensor(Operation *op,
                          llvm::function_ref<void(Value)> callback) {
  for (ValueRange values :
       {ValueRange(op->getOperands()), ValueRange(op->getResults())})
    for (Value value : values)
      if (isa<TensorType>(value.getType()))
        callback(value);
}

bool koila::mayBeView(Operation *op, const DimAnalysis &dims) {
  auto interface = dyn_cast<MemoryRuleInterface>(op);
  if (!interface)
    return true;
  StorageRule rule(op, [&](Value value) {
    ValueInfo info = dims.lookup(value);
    if (info.tensor)
      info.tensor->strides.reset();
    return info;
  });
  interface.describeStorage(rule);
  return llvm::any_of(rule.getResults(), [](const StorageFact &fact) {
    return fact.kind == StorageFact::Kind::Alias;
  });
}

bool PhasePlan::writesShown(Operation *op,
                            llvm::SmallDenseSet<Value> &shown) const {
  auto torchOp = dyn_cast<TorchOperatorInterface>(op);
  if (torchOp && torchOp.isTied() && !isOrderedWrite(op))
    return shown.contains(op->getOperand(0));
  for (Value operand : op->getOperands())
    if (shown.contains(operand))
      for (Value result : op->getResults())
        if (isa<TensorType>(result.getType()) &&
            storage.lookup(result) == storage.lookup(operand))
          shown.insert(result);
  return false;
}

void PhasePlan::dropViewsOfOne(Operation *op) {
  llvm::SmallPtrSet<const Storage *, 4> read, made;
  for (Value operand : op->getOperands())
    read.insert(storage.lookup(operand));
  for (Value result : op->getResults())
    if (const Storage *entry = storage.lookup(result); !read.contains(entry))
      made.insert(entry);
  auto isWritten = [&](const Storage *entry) {
    Operation *last = lastWrites.lookup(entry);
    return entry && last && !last->isBeforeInBlock(op);
  };
  if (made.empty() || !mayBeView(op, dims) ||
      (llvm::none_of(made, isWritten) && llvm::none_of(read, isWritten)))
    return;
  for (const auto &entries : {read, made})
    for (const Storage *entry : entries)
      local.erase(entry);
}

void PhasePlan::findLocalStorage() {
  // What may write to any storage may write to this.
  if (lastUnknownWrite)
    return;
  auto isReturned = [](Value holder) {
    return isa<TupleType>(holder.getType()) &&
           llvm::all_of(holder.getUsers(), [](Operation *user) {
             return user->hasTrait<OpTrait::IsTerminator>();
           });
  };
  for (auto [entry, write] : lastWrites)
    if (entry && entry->allocations.size() == 1 &&
        llvm::all_of(entry->holders, isReturned))
      local.insert(entry);
  function->walk([&](Operation *op) {
    bool isReturn = op->hasTrait<OpTrait::IsTerminator>();
    bool isOutside = op->getParentRegion() == &function.getFunctionBody() &&
                     op->getNumRegions() == 0;
    bool mayTile =
        isOutside && !wholeOps.contains(op) && (isReturn || hasOnlyMarks(op));
    forEachTensor(op, [&](Value value) {
      const Storage *entry = storage.lookup(value);
      const BatchFact &fact = batch.lookup(value);
      Operation *last = lastWrites.lookup(entry);
      bool isLater = isOutside && last && last->isBeforeInBlock(op);
      if (!isLater && (!mayTile || !(fact.isAt() || fact.isInner())))
        local.erase(entry);
    });
    if (!local.empty() && op->getBlock() == &function.getFunctionBody().front())
      dropViewsOfOne(op);
  });
}

SmallVector<const Storage *> PhasePlan::getLocalStorages(Operation *op) const {
  SmallVector<const Storage *> found;
  if (!local.empty())
    forEachTensor(op, [&](Value value) {
      if (const Storage *entry = storage.lookup(value);
          local.contains(entry) && !llvm::is_contained(found, entry))
        found.push_back(entry);
    });
  return found;
}

bool PhasePlan::fillsLocalStorage(Operation &op) const {
  bool isBefore =
      llvm::any_of(getLocalStorages(&op), [&](const Storage *entry) {
        return !lastWrites.lookup(entry)->isBeforeInBlock(&op);
      });
  if (!isBefore)
    return false;
  bool isAlone = true;
  forEachTensor(&op, [&](Value value) {
    const Storage *entry = storage.lookup(value);
    isAlone &= local.contains(entry) || !isWrittenAfter(value, op);
  });
  return isAlone;
}

bool PhasePlan::gatherLocalStorage() {
  llvm::DenseMap<const Storage *, unsigned> latest;
  for (auto [op, phase] : phaseOf)
    for (const Storage *entry : getLocalStorages(op))
      if (fillsLocalStorage(*op))
        latest[entry] = std::max(latest[entry], phase);
  bool isMoved = false;
  for (auto [entry, phase] : latest) {
    unsigned &known = localTimes[entry];
    isMoved |= phase > known;
    known = std::max(known, phase);
  }
  return isMoved;
}

void PhasePlan::placeWithLocalStorage() {
  // A storage that is filled from another behind a barrier waits one round
  // more, and one that is filled from its own samples for ever: what has no
  // place then checkLocalStorage() finds.
  constexpr int kMostRounds = 8;
  placeOperations();
  for (int round = 0; round < kMostRounds && gatherLocalStorage(); ++round)
    placeOperations();
}

void PhasePlan::checkLocalStorage() {
  llvm::DenseMap<const Storage *, SmallVector<Operation *>> all;
  llvm::DenseSet<const Storage *> failed;
  for (Operation &op : function.getFunctionBody().front())
    for (const Storage *entry : getLocalStorages(&op)) {
      all[entry].push_back(&op);
      Operation *last = lastWrites.lookup(entry);
      if (!last->isBeforeInBlock(&op) && !skipped.contains(&op) &&
          !(isInBody(&op) && isInBody(last) &&
            phaseOf.lookup(&op) == phaseOf.lookup(last)))
        failed.insert(entry);
    }
  for (const Storage *entry : failed)
    interleaved.insert_range(all[entry]);
}
