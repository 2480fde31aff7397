//===- GradientRecords.cpp - What autograd keeps alive --------------------===//
//
// Every operation through which a gradient flows leaves a record (PyTorch's
// Node). It keeps tensors that the gradient needs, and the records of its
// operands; tensors keep the record they come from. So what is saved lives
// until the last tensor that was made of it is gone. Values are tensors of the
// interpreter: a handle ends with the last use of the value, a storage with
// that of its last view.
//
//===----------------------------------------------------------------------===//

#include "PeakMemoryImpl.h"

using namespace mlir;
using namespace koila;

StringRef koila::getModeName(PeakMemoryMode mode) {
  return mode == PeakMemoryMode::Inference ? "inference" : "forward-with-grad";
}

/// Whether a value can carry a gradient: integers and bools cannot.
static bool isDifferentiable(const ValueInfo &info, Type type) {
  if (!isa<TensorType>(type))
    return !type.isIntOrIndexOrFloat() && !isa<NoneType>(type);
  Type element = info.tensor ? info.tensor->elementType : Type();
  return !element || isa<FloatType, ComplexType>(element);
}

bool PeakMemoryAnalysis::Impl::isDetached(Operation &op) const {
  auto rule = dyn_cast<MemoryRuleInterface>(op);
  if (!rule || llvm::none_of(op.getResultTypes(), llvm::IsaPred<TensorType>))
    return false;
  // Whether a gradient passes does not depend on sizes.
  auto unknown = [](Value) -> std::optional<ConcreteTensor> {
    return std::nullopt;
  };
  auto wants = [&](Value value) { return wanting.contains(value); };
  SavedRule saved(&op, target, unknown, wants);
  rule.describeSaved(saved);
  return saved.isDetached();
}

bool PeakMemoryAnalysis::Impl::markWanting(Operation &op, bool followWrites) {
  bool isNew = false;
  auto mark = [&](Value value) {
    if (isDifferentiable(dims.lookup(value), value.getType()))
      isNew |= wanting.insert(value).second;
  };
  if (auto read = dyn_cast<ParamGetOp>(op)) {
    auto param =
        SymbolTable::lookupNearestSymbolFrom<ParamOp>(&op, read.getParamAttr());
    if (param && param.getRequiresGrad())
      mark(read.getResult());
    return isNew;
  }
  bool wants = llvm::any_of(
      op.getOperands(), [&](Value value) { return wanting.contains(value); });
  // Which branch hands on what is not looked at.
  for (Region &region : op.getRegions())
    for (Block &block : region)
      for (Value operand : block.getTerminator()->getOperands())
        wants |= wanting.contains(operand);
  if (!wants || isDetached(op))
    return isNew;
  llvm::for_each(op.getResults(), mark);
  for (Region &region : op.getRegions())
    llvm::for_each(region.getArguments(), mark);
  // What is written into a tensor flows to all its views.
  if (followWrites && isOrderedWrite(&op) && !writesUntracked(op))
    for (Value result : op.getResults())
      if (const Storage *entry = storage.lookup(result))
        llvm::for_each(entry->values, mark);
  return isNew;
}

void PeakMemoryAnalysis::Impl::collectGradients() {
  Block &body = function->getRegion(0).front();
  if (auto callee = dyn_cast<FunctionOpInterface>(function))
    for (BlockArgument argument : body.getArguments())
      if (callee.getArgAttr(argument.getArgNumber(),
                            KoilaDialect::kRequiresGradAttr))
        wanting.insert(argument);
  auto spread = [&](bool followWrites) {
    bool changed = true;
    while (changed) {
      changed = false;
      function->walk<WalkOrder::PreOrder>([&](Operation *op) {
        changed |= op != function && markWanting(*op, followWrites);
      });
    }
  };
  spread(/*followWrites=*/false);
  llvm::DenseSet<Value> unwritten = wanting;
  spread(/*followWrites=*/true);
  function->walk([&](Operation *op) {
    auto wants = [&](Value value) { return wanting.contains(value); };
    // What only a later write makes wanting is made without a record.
    if (llvm::none_of(op->getResults(), wants) || isa<ParamGetOp>(op) ||
        (op->getNumRegions() == 0 && llvm::none_of(op->getOperands(), wants)))
      return;
    if (op->getBlock() != &body || op->getNumRegions() > 0)
      unmodelled.try_emplace(
          op, "what autograd keeps of a branch or loop is not modelled");
    else if (isOrderedWrite(op) && !writesUntracked(*op) &&
             !isModelledWrite(*op, unwritten))
      unmodelled.try_emplace(
          op, "what autograd keeps where others see a write is not modelled");
    auto entry = std::make_unique<Storage>();
    entry->allocations.push_back(op->getResult(0));
    kept[op] = std::move(entry);
  });
  for (Operation &op : body)
    for (Value result : op.getResults()) {
      if (!wanting.contains(result))
        continue;
      Operation *last = &op;
      forEachUser(result, [&](Operation *user) {
        Operation *ancestor = body.findAncestorOpInBlock(*user);
        if (ancestor && last->isBeforeInBlock(ancestor))
          last = ancestor;
      });
      if (!last->hasTrait<OpTrait::IsTerminator>())
        handles[last].push_back(result);
      noteRewrites(result, *last);
    }
}

void PeakMemoryAnalysis::Impl::addRecord(Operation &op, ArrayRef<Value> saved,
                                         int64_t keptBytes, Run &run) const {
  size_t index = run.records.size();
  Run::Record &record = run.records.emplace_back();
  for (Value value : saved) {
    const Storage *entry = storage.lookup(value);
    if (!entry || entry->external || llvm::is_contained(record.saved, entry))
      continue;
    record.saved.push_back(entry);
    ++run.savedBy[entry];
  }
  if (keptBytes > 0) {
    record.kept = kept.find(&op)->second.get();
    run.live[record.kept] = keptBytes;
    run.liveBytes += keptBytes;
    if (run.detailed && !run.timeline.empty())
      run.spans[record.kept] = {run.timeline.size() - 1, 0, keptBytes, nullptr};
  }
  for (Value operand : op.getOperands()) {
    auto made = run.recordOf.find(operand);
    if (made == run.recordOf.end() || !wanting.contains(operand))
      continue;
    record.operands.push_back(made->second);
    ++run.records[made->second].holders;
  }
  for (Value result : op.getResults())
    if (wanting.contains(result)) {
      run.recordOf[result] = index;
      ++record.holders;
    }
  replaceRecords(op, index, run);
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
    for (const Storage *entry : record.saved)
      if (--run.savedBy[entry] == 0 && run.onlySaved.erase(entry))
        freeStorage(entry, op, run);
    if (record.kept)
      freeStorage(record.kept, op, run);
    dropped.append(record.operands);
  }
}
