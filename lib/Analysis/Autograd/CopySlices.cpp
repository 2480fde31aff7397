//===- CopySlices.cpp - Records of what is written in place ---------------===//
//
// A write into a view becomes the record of the tensor that is viewed:
// PyTorch's CopySlices, which holds the record there was. Views of it, the
// written one, too, come of it by as_strided from then on: a record that they
// get when something reads them. Before the first write that brings a gradient,
// nothing is recorded. Sources: rebase_history and VariableHooks::grad_fn in
// autograd/variable.cpp.
//
//===----------------------------------------------------------------------===//

#include "../PeakMemory/PeakMemoryImpl.h"
#include "koila/Interfaces/BackwardRule.h"

using namespace mlir;
using namespace koila;

static bool isTied(Operation *op) {
  auto torchOp = dyn_cast_or_null<TorchOperatorInterface>(op);
  return torchOp && torchOp.isTied();
}

bool PeakMemoryAnalysis::Impl::isModelledWrite(Operation &op) const {
  const Storage *entry =
      op.getNumResults() == 1 ? storage.lookup(op.getResult(0)) : nullptr;
  if (!entry || entry->external || !isTied(&op))
    return false;
  return llvm::all_of(entry->values, [&](Value value) {
    Operation *maker = value.getDefiningOp();
    return maker && maker->getBlock() == op.getBlock() &&
           maker->getNumRegions() == 0 &&
           !gradients->findDetached(value, *entry);
  });
}

bool PeakMemoryAnalysis::Impl::writesView(Operation &op) const {
  if (!isTied(&op))
    return false;
  Value written = op.getOperand(0);
  while (isTied(written.getDefiningOp()))
    written = written.getDefiningOp()->getOperand(0);
  Operation *maker = written.getDefiningOp();
  auto born = maker ? births.find(maker) : births.end();
  return born == births.end() ||
         llvm::none_of(llvm::make_second_range(born->second),
                       [&](OpResult made) { return made == written; });
}

void PeakMemoryAnalysis::Impl::noteRewrites(Value value, Operation &last) {
  const Storage *entry = storage.lookup(value);
  Operation *maker = value.getDefiningOp();
  if (!entry || !maker)
    return;
  for (Operation *write : writesOf.lookup(entry))
    if (maker->isBeforeInBlock(write) && write->isBeforeInBlock(&last))
      rewrites[write].push_back(value);
}

bool PeakMemoryAnalysis::Impl::wantsNow(Value value, Run &run) const {
  if (!gradients->wants(value) || gradients->wantsUnwritten(value) ||
      !isa<TensorType>(value.getType()))
    return gradients->wants(value);
  return unmodelledWrites.contains(storage.lookup(value)) ||
         run.recordOf.contains(value);
}

bool PeakMemoryAnalysis::Impl::isRecordedNow(Operation &op, Run &run) const {
  if (!kept.contains(&op))
    return false;
  auto wants = [&](Value value) { return wantsNow(value, run); };
  auto isSure = [&](Value value) {
    return gradients->wantsUnwritten(value) ||
           unmodelledWrites.contains(storage.lookup(value)) ||
           !isa<TensorType>(value.getType());
  };
  return llvm::any_of(op.getResults(), isSure) ||
         (llvm::any_of(op.getOperands(), wants) &&
          !gradients->isDetached(op, wants));
}

//===----------------------------------------------------------------------===//
// Tensors and views
//===----------------------------------------------------------------------===//

bool PeakMemoryAnalysis::Impl::returnsOperand(Operation &op, Run &run) const {
  if (op.getNumResults() != 1 || op.getNumOperands() == 0 ||
      storage.lookup(op.getResult(0)) != storage.lookup(op.getOperand(0)))
    return false;
  // What only says more of a value is no operator.
  if (!isa<TorchOperatorInterface>(op))
    return true;
  auto from = getConcrete(op.getOperand(0), run);
  SmallVector<std::optional<ConcreteTensor>> arrives{
      getConcrete(op.getResult(0), run)};
  if (!isa<MemoryRuleInterface>(op) || !from || !arrives.front() ||
      from->dims != arrives.front()->dims)
    return false;
  auto lookup = [&](Value value) { return getConcrete(value, run); };
  BackwardRule rule(&op, target, lookup, [](Value) { return true; }, arrives);
  models->describeBackward(rule);
  return rule.isIdentity();
}

Value PeakMemoryAnalysis::Impl::getObject(Value value, Run &run) const {
  while (Operation *maker = value.getDefiningOp()) {
    if (!isTied(maker) && !returnsOperand(*maker, run))
      break;
    value = maker->getOperand(0);
  }
  return value;
}

Value PeakMemoryAnalysis::Impl::getBase(Value value, Run &run) const {
  const Storage *entry = storage.lookup(value);
  value = getObject(value, run);
  while (Operation *maker = value.getDefiningOp()) {
    if (maker->getNumOperands() == 0 ||
        storage.lookup(maker->getOperand(0)) != entry)
      break;
    value = getObject(maker->getOperand(0), run);
  }
  return value;
}

//===----------------------------------------------------------------------===//
// Records
//===----------------------------------------------------------------------===//

void PeakMemoryAnalysis::Impl::updateRecord(Value value, Run &run) const {
  if (run.outdated.empty())
    return;
  Value object = getObject(value, run);
  auto found = run.outdated.find(object);
  auto made = run.recordOf.find(value);
  if (found == run.outdated.end() || made == run.recordOf.end())
    return;
  auto &[write, record] = found->second;
  if (!record) {
    record = run.records.size();
    Run::Record &view = run.records.emplace_back();
    view.kind = Run::Record::Kind::AsStrided;
    view.view = object;
    Value base = getBase(object, run);
    // What is hidden has no operation that gives the view.
    view.op = object == base ? run.records[write].op : object.getDefiningOp();
    view.edges.push_back({0, base, write});
    view.operands.push_back(write);
    ++run.records[write].holders;
  }
  if (made->second == *record)
    return;
  --run.records[made->second].holders;
  made->second = *record;
  ++run.records[*record].holders;
}

void PeakMemoryAnalysis::Impl::replaceRecords(Operation &op, size_t index,
                                              Run &run) const {
  Value base = getBase(op.getOperand(0), run);
  bool isViewed = run.records[index].isViewed;
  auto follow = [&](Value value) {
    Value object = getObject(value, run);
    if (object == base && !isViewed)
      run.outdated.erase(object);
    else
      run.outdated[object] = {index, std::nullopt};
  };
  if (auto found = rewrites.find(&op); found != rewrites.end())
    for (Value value : found->second) {
      auto [made, isNew] = run.recordOf.try_emplace(value, index);
      if (!isNew) {
        // The new record holds the one there was.
        run.records[index].operands.push_back(made->second);
        made->second = index;
      }
      ++run.records[index].holders;
      follow(value);
    }
  run.latest[base] = index;
  for (Value result : op.getResults()) {
    follow(result);
    // PyTorch does not wait until something reads it.
    updateRecord(result, run);
  }
}
