//===- CopySlices.cpp - Records of what is written in place ---------------===//
//
// A write into a view becomes the record of the tensor that is viewed, and of
// all its views: PyTorch's CopySlices, which holds the record there was.
// Source: rebase_history in autograd/variable.cpp.
//
//===----------------------------------------------------------------------===//

#include "../PeakMemory/PeakMemoryImpl.h"

using namespace mlir;
using namespace koila;

static bool isTied(Operation *op) {
  auto torchOp = dyn_cast_or_null<TorchOperatorInterface>(op);
  return torchOp && torchOp.isTied();
}

/// Whether autograd saves nothing of it, whatever wants a gradient.
static bool savesNothing(Operation &op, const DimAnalysis &dims) {
  auto all = [](Value) { return true; };
  return getDifferentiation(
             &op, all,
             [&](Value value) { return dims.lookup(value).getElementType(); })
      .savesNothing();
}

bool PeakMemoryAnalysis::Impl::isModelledWrite(Operation &op) {
  const Storage *entry =
      op.getNumResults() == 1 ? storage.lookup(op.getResult(0)) : nullptr;
  if (!entry || entry->external || !isTied(&op))
    return false;
  auto isHere = [&](Value value) { return storage.lookup(value) == entry; };
  auto isBefore = [&](Operation *other) {
    return other && other->getBlock() == op.getBlock() &&
           other->isBeforeInBlock(&op);
  };
  bool brings = llvm::any_of(op.getOperands(), [&](Value value) {
    return !isHere(value) && gradients->wants(value);
  });
  for (Value value : entry->values) {
    Operation *maker = value.getDefiningOp();
    if (!maker || maker->getBlock() != op.getBlock())
      return false;
    if (!isBefore(maker) || gradients->wantsUnwritten(value))
      continue;
    // Before a gradient comes with the write, nothing is recorded of a reader;
    // what is saved of a product, say, depends on what wanted it before.
    if (!brings || !savesNothing(op, dims))
      return false;
    bool isRead = false;
    forEachUser(value, [&](Operation *user) {
      isRead |= isBefore(user) && (isOrderedWrite(user) ||
                                   !llvm::all_of(user->getResults(), isHere));
    });
    if (isRead)
      return false;
  }
  writesOf[entry].push_back(&op);
  return true;
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

void PeakMemoryAnalysis::Impl::replaceRecords(Operation &op, size_t index,
                                              Run &run) const {
  auto found = rewrites.find(&op);
  if (found == rewrites.end())
    return;
  for (Value value : found->second) {
    auto [made, isNew] = run.recordOf.try_emplace(value, index);
    if (!isNew) {
      // The new record holds the one there was.
      run.records[index].operands.push_back(made->second);
      made->second = index;
    }
    ++run.records[index].holders;
  }
}
