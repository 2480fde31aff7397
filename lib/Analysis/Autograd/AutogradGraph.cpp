//===- AutogradGraph.cpp - What autograd keeps alive ----------------------===//
//
// Every operation through which a gradient flows leaves a record (PyTorch's
// Node). It keeps tensors that the gradient needs, and the records of its
// operands; tensors keep the record they come from. So what is saved lives
// until the last tensor that was made of it is gone. Values are tensors of the
// interpreter: a handle ends with the last use of the value, a storage with
// that of its last view.
//
//===----------------------------------------------------------------------===//

#include "../PeakMemory/PeakMemoryImpl.h"
#include "koila/Dialect/Koila/IR/LossOps.h"

using namespace mlir;
using namespace koila;

StringRef koila::getModeName(PeakMemoryMode mode) {
  switch (mode) {
  case PeakMemoryMode::Inference:
    return "inference";
  case PeakMemoryMode::ForwardWithGrad:
    return "forward-with-grad";
  case PeakMemoryMode::Train:
    return "train";
  }
  llvm_unreachable("no other mode");
}

bool PeakMemoryAnalysis::Impl::ownsRecords(Block &block) {
  auto [entry, isNew] = ownRecords.try_emplace(&block, false);
  if (!isNew)
    return entry->second;
  if (!isa<LoopLikeOpInterface>(block.getParentOp()) ||
      !block.mightHaveTerminator())
    return false;
  auto wants = [&](Value value) { return gradients->wants(value); };
  if (llvm::any_of(block.getArguments(), wants) ||
      llvm::any_of(block.getTerminator()->getOperands(), wants))
    return false;
  return entry->second = llvm::all_of(block, [&](Operation &op) {
           // What detaches leaves no record.
           bool isDetached =
               op.getNumResults() > 0 && llvm::none_of(op.getResults(), wants);
           return llvm::all_of(op.getOperands(), [&](Value operand) {
             Operation *maker = operand.getDefiningOp();
             return !wants(operand) || isDetached ||
                    isa_and_nonnull<ParamGetOp, LeafOp>(maker) ||
                    operand.getParentBlock() == &block;
           });
         });
}

/// An operation that leaves no record. It may write a tensor that has one, or
/// hand on its operand, which keeps its own.
void PeakMemoryAnalysis::Impl::checkUnrecorded(Operation &op) {
  if (llvm::any_of(op.getResults(),
                   [&](Value value) { return gradients->wants(value); })) {
    if (!op.getOperand(0).getDefiningOp<ParamGetOp>())
      unmodelled.try_emplace(
          &op, "what autograd keeps of a write that it does not record");
    return;
  }
  auto isOperand = [&](Value result, Value operand) {
    const ValueInfo &made = dims.lookup(result), &given = dims.lookup(operand);
    return gradients->wants(operand) && storage.lookup(result) &&
           storage.lookup(result) == storage.lookup(operand) && made.tensor &&
           given.tensor && made.tensor->dims == given.tensor->dims;
  };
  auto types = [&](Value value) { return dims.lookup(value).getElementType(); };
  auto wants = [&](Value value) { return gradients->wants(value); };
  for (Value result : op.getResults())
    if (llvm::any_of(
            op.getOperands(),
            [&](Value operand) { return isOperand(result, operand); }) &&
        llvm::any_of(
            result.getUsers(),
            [](Operation *user) { return !user->hasAttr(kUnrecordedAttr); }) &&
        !getDifferentiation(&op, wants, types).isDetached)
      unmodelled.try_emplace(
          &op, "whether it hands on its operand, with its gradient");
}

void PeakMemoryAnalysis::Impl::collectGradients() {
  Block &body = function->getRegion(0).front();
  gradients.emplace(function, dims, storage);
  auto wants = [&](Value value) { return gradients->wants(value); };
  function->walk([&](Operation *op) {
    if (op->hasAttr(kUnrecordedAttr))
      return checkUnrecorded(*op);
    // What only a later write makes wanting is made without a record.
    if (llvm::none_of(op->getResults(), wants) || isa<ParamGetOp, LeafOp>(op) ||
        (op->getNumRegions() == 0 && llvm::none_of(op->getOperands(), wants)))
      return;
    if ((op->getBlock() != &body && !ownsRecords(*op->getBlock())) ||
        op->getNumRegions() > 0)
      unmodelled.try_emplace(
          op, "what autograd keeps of a branch or loop is not modelled");
    else if (isModelledWrite(*op) && !writesUntracked(*op))
      modelledWrites.insert(op);
    else if (isOrderedWrite(op) && !writesUntracked(*op))
      unmodelled.try_emplace(
          op, "what autograd keeps where others see a write is not modelled");
    if (isOrderedWrite(op))
      for (Value result : op->getResults())
        if (const Storage *entry = storage.lookup(result)) {
          if (modelledWrites.contains(op))
            writesOf[entry].push_back(op);
          else
            unmodelledWrites.insert(entry);
        }
    auto entry = std::make_unique<Storage>();
    entry->allocations.push_back(op->getResult(0));
    kept[op] = std::move(entry);
  });
  function->walk([&](LoopLikeOpInterface loop) {
    for (Region *region : loop.getLoopRegions())
      for (Block &block : *region)
        ownsRecords(block);
  });
  function->walk([&](Operation *op) {
    Block &block = *op->getBlock();
    if (&block != &body && !ownsRecords(block))
      return;
    for (Value result : op->getResults()) {
      if (!wants(result))
        continue;
      Operation *last = op;
      forEachUser(result, [&](Operation *user) {
        Operation *ancestor = block.findAncestorOpInBlock(*user);
        if (ancestor && last->isBeforeInBlock(ancestor))
          last = ancestor;
      });
      if (!last->hasTrait<OpTrait::IsTerminator>())
        handles[last].push_back(result);
      noteRewrites(result, *last);
    }
  });
}

/// What was put into the list or tuple that `result` is taken out of; null
/// where that is not known.
static OpOperand *getPutIn(OpResult result) {
  Operation *op = result.getOwner();
  int64_t index = result.getResultNumber();
  if (auto element = dyn_cast<ElementOp>(op)) {
    auto at = dyn_cast<IntegerAttr>(element.getAt());
    if (!at)
      return nullptr;
    index = at.getInt();
  } else if (!isa<UnpackOp>(op)) {
    return nullptr;
  }
  auto made = op->getOperand(0).getDefiningOp<ConstructOp>();
  if (!made || made->getBlock() != op->getBlock() ||
      made.getContainer() == Container::Dict ||
      (made.getContainer() == Container::List && isOrdered(made)))
    return nullptr;
  int64_t size = made->getNumOperands();
  index += index < 0 ? size : 0;
  return index >= 0 && index < size ? &made->getOpOperand(index) : nullptr;
}

Value PeakMemoryAnalysis::Impl::skipContainers(Value value) {
  while (auto result = dyn_cast<OpResult>(value)) {
    OpOperand *element = getPutIn(result);
    if (!element)
      break;
    value = element->get();
  }
  return value;
}

bool PeakMemoryAnalysis::Impl::handsOnElements(Operation &op) const {
  return isa<UnpackOp, ElementOp>(op) &&
         llvm::all_of(op.getResults(), [&](OpResult result) {
           // What is written in place has records of its own.
           const Storage *entry = storage.lookup(result);
           return !gradients->wants(result) ||
                  (isa<TensorType>(result.getType()) && getPutIn(result) &&
                   entry && !writesOf.contains(entry) &&
                   !unmodelledWrites.contains(entry));
         });
}

void PeakMemoryAnalysis::Impl::handOnRecords(Operation &op, Run &run) const {
  for (OpResult result : op.getResults()) {
    // The element may have had its last use before.
    auto list = run.recordOf.find(op.getOperand(0));
    if (!gradients->wants(result) || list == run.recordOf.end())
      continue;
    unsigned index = getPutIn(result)->getOperandNumber();
    for (const Run::Edge &edge : run.records[list->second].edges)
      if (edge.operand == index && edge.record) {
        run.recordOf[result] = *edge.record;
        ++run.records[*edge.record].holders;
      }
  }
}

void PeakMemoryAnalysis::Impl::addRecord(Operation &op, const SavedRule &rule,
                                         Run &run) const {
  auto wants = [&](Value value) { return wantsNow(value, run); };
  for (Value operand : op.getOperands())
    if (wants(operand))
      updateRecord(operand, run);
  auto torchOp = dyn_cast<TorchOperatorInterface>(op);
  bool isTied = torchOp && torchOp.isTied();
  bool isWrite = modelledWrites.contains(&op);
  Value base = isWrite ? getBase(op.getOperand(0), run) : Value();
  size_t number = run.records.size();
  Run::Record &record = run.records.emplace_back();
  record.op = &op;
  record.isViewed = rule.isViewed();
  int64_t keptBytes = rule.getKept();
  for (Value value : rule.getSaved()) {
    const Storage *entry = storage.lookup(value);
    if (!entry || entry->external || llvm::is_contained(record.saved, entry))
      continue;
    record.saved.push_back(entry);
    ++run.savedBy[entry];
  }
  if (keptBytes > 0) {
    record.kept = kept.find(&op)->second.get();
    for (const Impl *known = this; known; known = known->general)
      known->ofSaved.insert(record.kept);
    run.live[record.kept] += keptBytes;
    run.liveBytes += keptBytes;
    if (run.log)
      run.log->keep(record.kept, keptBytes);
    if (run.detailed && !run.timeline.empty())
      run.spans[record.kept] = {run.timeline.size() - 1, 0, keptBytes, nullptr};
  }
  auto hold = [&](size_t other) {
    record.operands.push_back(other);
    ++run.records[other].holders;
  };
  auto latest = run.latest.find(base);
  bool hasBase = latest != run.latest.end();
  // What is written in place stays a view.
  if (hasBase)
    record.isViewed |= run.records[latest->second].isViewed;
  if (isWrite && (record.isViewed || getObject(op.getOperand(0), run) != base))
    record.kind = Run::Record::Kind::CopySlices;
  for (auto [index, operand] : llvm::enumerate(op.getOperands())) {
    if (!wants(operand))
      continue;
    Value made = skipContainers(operand);
    if (made.getDefiningOp<LeafOp>()) {
      holdLeaf(record, storage.lookup(made), run);
      SmallVector<size_t, 1> &to = run.recordsTo[made];
      llvm::erase_if(
          to, [&](size_t other) { return run.records[other].holders == 0; });
      to.push_back(number);
    }
    auto known = run.recordOf.find(operand);
    std::optional<size_t> from;
    if (known != run.recordOf.end()) {
      hold(*(from = known->second));
      if (index == 0 && isTied && !isWrite)
        record.isViewed |= run.records[*from].isViewed;
    }
    if (index == 0 && hasBase) {
      hold(latest->second);
      record.edges.push_back({0, base, latest->second});
    } else {
      record.edges.push_back({static_cast<unsigned>(index), made, from});
    }
  }
  for (Value result : op.getResults())
    if (gradients->wants(result)) {
      run.recordOf[result] = number;
      ++record.holders;
      run.latest[result] = number;
    }
  if (isWrite)
    replaceRecords(op, number, run);
}

// PyTorch's AccumulateGrad is a node of the graph, and has the leaf.
void PeakMemoryAnalysis::Impl::holdLeaf(Run::Record &record,
                                        const Storage *entry, Run &run) const {
  if (!entry || entry->external || llvm::is_contained(record.leaves, entry))
    return;
  record.leaves.push_back(entry);
  ++run.savedBy[entry];
}

void PeakMemoryAnalysis::Impl::forgetRecords(Operation &op, Run &run) const {
  for (Value result : op.getResults()) {
    run.latest.erase(result);
    run.outdated.erase(result);
  }
}

void PeakMemoryAnalysis::Impl::letGo(ArrayRef<const Storage *> storages,
                                     Operation &op, Run &run) const {
  for (const Storage *entry : storages)
    if (--run.savedBy[entry] == 0 && run.onlySaved.erase(entry))
      freeStorage(entry, op, run);
}

void PeakMemoryAnalysis::Impl::release(Run::Record &record, Operation &op,
                                       Run &run) const {
  // An in-place operation saves a copy of what it overwrites before the rest,
  // and its node drops that first.
  auto torchOp = dyn_cast<TorchOperatorInterface>(*record.op);
  bool isFirst = torchOp && torchOp.isTied();
  const Storage *kept = std::exchange(record.kept, nullptr);
  if (kept && isFirst)
    freeStorage(kept, op, run);
  letGo(std::exchange(record.saved, {}), op, run);
  if (kept && !isFirst)
    freeStorage(kept, op, run);
}

void PeakMemoryAnalysis::Impl::dropHandle(Value value, Operation &op,
                                          Run &run) const {
  auto made = run.recordOf.find(value);
  if (made == run.recordOf.end())
    return;
  SmallVector<size_t> dropped{made->second};
  run.recordOf.erase(made);
  while (!dropped.empty()) {
    Run::Record &record = run.records[dropped.pop_back_val()];
    if (--record.holders > 0)
      continue;
    release(record, op, run);
    letGo(std::exchange(record.leaves, {}), op, run);
    dropped.append(record.operands);
  }
}
