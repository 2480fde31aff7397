//===- TilePlan.cpp - Which operations tile together ----------------------===//

#include "TilePlan.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Interfaces/Draws.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/Sequence.h"
#include <algorithm>

using namespace mlir;
using namespace koila;

/// Runs after everything that tiles: the return, or a container for it.
static bool isLast(Operation *op) {
  return op->hasTrait<OpTrait::IsTerminator>() ||
         (isa<ConstructOp>(op) && llvm::all_of(op->getUsers(), isLast));
}

std::string koila::describePlace(Operation *op) {
  SourcePlace place = getSourcePlace(op->getLoc());
  std::string text;
  if (place.isKnown())
    text += " at " + place.file + ":" + std::to_string(place.line);
  if (!place.module.empty())
    text += " (" + place.module + ")";
  return text;
}

bool TilePlan::canMaterialize(DimExpr expr) const {
  bool all = static_cast<bool>(expr);
  if (expr)
    expr.forEachSymbol([&](StringRef name) {
      all &= symbolDims.contains(name) ||
             (name == symbol && static_cast<bool>(batchArgument));
    });
  return all;
}

DimExpr TilePlan::getNumber(Value value) const {
  DimExpr number =
      value.getType().isInteger(64) ? dims.lookup(value).integer : DimExpr();
  return canMaterialize(number) ? number : DimExpr();
}

bool TilePlan::isTiled(Value value) const {
  return value.getDefiningOp() && tiledSet.contains(value.getDefiningOp());
}

bool TilePlan::isNumber(Value value) const {
  Operation *op = value.getDefiningOp();
  return op && (numbers.contains(op) || tiledSet.contains(op)) &&
         getNumber(value);
}

bool TilePlan::isSamples(Value value) const {
  const BatchFact &fact = batch.lookup(value);
  return isTiled(value) && value.getType().isInteger(64) && fact.isAt() &&
         fact.dim == -1;
}

bool TilePlan::isRepeated(Value value) const {
  return value.getDefiningOp() && repeated.contains(value.getDefiningOp());
}

//===----------------------------------------------------------------------===//
// What each operation is
//===----------------------------------------------------------------------===//

LogicalResult TilePlan::planArguments() {
  for (BlockArgument argument : function.getFunctionBody().getArguments()) {
    const ValueInfo &info = dims.lookup(argument);
    const BatchFact &fact = batch.lookup(argument);
    if (fact.isMixed())
      return function.emitError()
             << "cannot tile the batch '" << symbol << "': " << fact.reason;
    if (!info.tensor || !info.tensor->hasRank())
      continue;
    if (fact.isAt() && llvm::any_of(*info.tensor->dims, [](DimExpr dim) {
          return dim.isConstant(0);
        }))
      return function.emitError()
             << "cannot tile the batch: argument " << argument.getArgNumber()
             << " is always empty";
    for (auto [index, dim] : llvm::enumerate(*info.tensor->dims))
      dim.forEachSymbol([&](StringRef name) {
        if (dim.getMultipleOf(name) == 1)
          symbolDims.try_emplace(name, argument, index);
      });
    if (fact.isAt() && (!batchArgument || fact.factor < batchFactor)) {
      batchArgument = argument;
      batchDim = fact.dim;
      batchFactor = fact.factor;
    }
  }
  if (!batchArgument)
    return function.emitError()
           << "cannot tile the batch: no argument has a dim that is a "
           << "multiple of '" << symbol
           << "'; give one by --input, for example 'x=float32[" << symbol
           << ",3,224,224]'";
  return success();
}

StringRef koila::getCallee(Operation &op) {
  auto opaque = dyn_cast<TorchOpaqueOp>(op);
  return opaque ? opaque.getCallee() : op.getName().getStringRef();
}

/// Whether the results of `op` are views of operands, or no tensors at all.
static bool makesNoTensor(Operation &op, const DimAnalysis &dims) {
  auto isTensor = [](Type type) { return isa<TensorType>(type); };
  if (llvm::none_of(op.getResultTypes(), isTensor))
    return true;
  auto interface = dyn_cast<MemoryRuleInterface>(op);
  if (!interface)
    return false;
  StorageRule rule(&op, [&](Value value) { return dims.lookup(value); });
  interface.describeStorage(rule);
  return llvm::all_of(rule.getResults(), [](const StorageFact &fact) {
    return fact.kind == StorageFact::Kind::Alias && fact.exact;
  });
}

void TilePlan::addBarrier(Operation &op) {
  if (!isMemoryEffectFree(&op)) {
    StringRef what = onlyDraws(&op)
                         ? "' draws random numbers for the whole batch"
                         : "' has effects whose order tiling would change";
    barriers.push_back({&op, ("'" + getCallee(op) + what).str()});
    return;
  }
  if (op.getNumRegions() > 0) {
    barriers.push_back({&op, "control flow inside a tile is not supported yet"});
    return;
  }
  for (Value result : op.getResults()) {
    const BatchFact &fact = batch.lookup(result);
    // Of what follows from a barrier, the barrier is the reason.
    if (fact.isMixed() && (!fact.origin || fact.origin == &op)) {
      barriers.push_back({&op, fact.reason});
      return;
    }
  }
}

LogicalResult TilePlan::classify(Operation &op) {
  if (isa<AssumeOp>(op) || op.hasTrait<OpTrait::IsTerminator>()) {
    skipped.insert(&op);
    return success();
  }
  if (isa<ConstructOp>(op) && llvm::all_of(op.getUsers(), isLast)) {
    skipped.insert(&op);
    containers.push_back(&op);
    return success();
  }
  if (failed(checkDraws(op)))
    return failure();
  if (isStorageOfDraws(op)) {
    whole.push_back(&op);
    return success();
  }
  auto isMixed = [&](Value result) { return batch.lookup(result).isMixed(); };
  bool batched = llvm::any_of(op.getResults(), [&](Value result) {
    return !batch.lookup(result).isFree();
  });
  // The size of another dim is known before the tensor is there.
  bool reads = llvm::any_of(op.getOperands(),
                            [&](Value operand) { return isTiled(operand); });
  if (reads && !batched && isMemoryEffectFree(&op) && op.getNumRegions() == 0 &&
      llvm::all_of(op.getResults(),
                   [&](Value result) { return !!getNumber(result); })) {
    skipped.insert(&op);
    numbers.insert(&op);
    return success();
  }
  bool isFree = isMemoryEffectFree(&op) || mayDrawInTiles(op);
  if (isFree && op.getNumRegions() == 0 && batched &&
      llvm::none_of(op.getResults(), isMixed)) {
    tiled.push_back(&op);
    tiledSet.insert(&op);
    if (makesNoTensor(op, dims))
      repeated.insert(&op);
    return success();
  }
  // What reads no batch cuts nothing.
  op.walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      batched |= !batch.lookup(operand).isFree();
  });
  if (batched && !drawsEarly(op))
    addBarrier(op);
  whole.push_back(&op);
  return success();
}

//===----------------------------------------------------------------------===//
// When it runs
//===----------------------------------------------------------------------===//

unsigned TilePlan::getTime(Value value, bool isTiledReader) const {
  Operation *op = value.getDefiningOp();
  if (!op || isNumber(value) || (isTiledReader && isSamples(value)))
    return 0;
  if (auto slot = slotOf.find(op); slot != slotOf.end())
    return slot->second;
  if (!tiledSet.contains(op))
    return 0;
  if (repeated.contains(op))
    return getTime(op, isTiledReader);
  return phaseOf.lookup(op) + (isTiledReader ? 0 : 1);
}

unsigned TilePlan::getTime(Operation *op, bool isTiledReader) const {
  // Views of views would be asked for once for each way to get to them.
  auto [known, isNew] = times[isTiledReader].try_emplace(op, 0);
  if (!isNew)
    return known->second;
  unsigned time = 0;
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      time = std::max(time, getTime(operand, isTiledReader));
  });
  times[isTiledReader][op] = time;
  return time;
}

void TilePlan::require(Value value, unsigned phase) {
  Operation *op = value.getDefiningOp();
  bool isTensor = isa<TensorType>(value.getType());
  if (!isTiled(value)) {
    if (isTensor && batch.lookupRead(value).isAt())
      phases[phase].inputs.insert(value);
    return;
  }
  if (isSamples(value) || bodies[phase].contains(op))
    return;
  if (repeated.contains(op)) {
    bodies[phase].insert(op);
    for (Value operand : op->getOperands())
      require(operand, phase);
    return;
  }
  phases[phase].inputs.insert(value);
  phases[phaseOf.lookup(op)].outputs.insert(value);
  crossing.insert(value);
}

void TilePlan::requireWhole(Value value) {
  if (!isTiled(value) || isNumber(value))
    return;
  if (isRepeated(value)) {
    if (repeatedWhole.insert(value.getDefiningOp()).second)
      for (Value operand : value.getDefiningOp()->getOperands())
        requireWhole(operand);
    return;
  }
  phases[phaseOf.lookup(value.getDefiningOp())].outputs.insert(value);
  crossing.insert(value);
}

LogicalResult TilePlan::schedule() {
  unsigned count = 0, effects = 0;
  Block &block = function.getFunctionBody().front();
  for (Operation &op : block) {
    if (skipped.contains(&op))
      continue;
    unsigned time = getTime(&op, tiledSet.contains(&op));
    // Effects keep their order.
    if (!isMemoryEffectFree(&op) && !tiledSet.contains(&op))
      time = effects = std::max(effects, time);
    (tiledSet.contains(&op) ? phaseOf : slotOf)[&op] = time;
    if (tiledSet.contains(&op))
      count = std::max(count, time + 1);
  }
  phases.resize(count);
  bodies.resize(count);
  for (Operation *op : tiled)
    if (!repeated.contains(op))
      bodies[phaseOf.lookup(op)].insert(op);
  // The return reads what it gets from the phase that it stands in.
  auto requireLast = [&](Operation *op) {
    for (Value operand : op->getOperands())
      if (isTiled(operand) && isa<TensorType>(operand.getType())) {
        unsigned phase = phaseOf.lookup(operand.getDefiningOp());
        require(operand, phase);
        phases[phase].outputs.insert(operand);
      }
  };
  llvm::for_each(containers, requireLast);
  requireLast(block.getTerminator());
  for (Operation *op : whole)
    op->walk([&](Operation *inner) {
      llvm::for_each(inner->getOperands(),
                     [&](Value operand) { requireWhole(operand); });
    });
  for (Operation *op : tiled)
    if (!repeated.contains(op))
      for (Value operand : op->getOperands())
        require(operand, phaseOf.lookup(op));
  for (auto [phase, members] : llvm::zip_equal(phases, bodies)) {
    phase.body.assign(members.begin(), members.end());
    llvm::sort(phase.body, [](Operation *lhs, Operation *rhs) {
      return lhs->isBeforeInBlock(rhs);
    });
  }
  for (Operation *op : whole) {
    unsigned slot = slotOf.lookup(op);
    (slot < count ? phases[slot].whole : rest).push_back(op);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// What crosses
//===----------------------------------------------------------------------===//

std::optional<SmallVector<int64_t>> koila::findOrder(const TensorInfo &info) {
  if (!info.strides)
    return std::nullopt;
  SmallVector<int64_t> left =
      llvm::to_vector(llvm::reverse(llvm::seq<int64_t>(0, info.getRank())));
  SmallVector<int64_t> order;
  // From the innermost: the dim that steps over all that are inside of it. The
  // stride of a dim of one does not matter.
  DimExpr step;
  while (!left.empty()) {
    auto *next = llvm::find_if(left, [&](int64_t dim) {
      DimExpr stride = (*info.strides)[dim];
      return info.dim(dim).isConstant(1) ||
             (step ? stride && proveEqual(stride, step) == Proof::Yes
                   : stride && stride.isConstant(1));
    });
    if (next == left.end())
      return std::nullopt;
    DimExpr extent = info.dim(*next);
    step = step ? step * extent : extent;
    order.push_back(*next);
    left.erase(next);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

LogicalResult TilePlan::checkOutput(Value value, bool crosses) {
  Operation *op = value.getDefiningOp();
  const ValueInfo &info = dims.lookup(value);
  auto refuse = [&](const Twine &reason) {
    return op->emitError() << "cannot tile the batch: " << reason
                           << describePlace(op);
  };
  if (!info.tensor || !info.tensor->hasRank() || !info.tensor->elementType)
    return refuse("the shape of this result is not known");
  for (DimExpr dim : *info.tensor->dims)
    if (dim.isConstant(0))
      return refuse("this result is always empty");
  for (auto [index, dim] : llvm::enumerate(*info.tensor->dims))
    if (static_cast<int64_t>(index) != batch.lookup(value).dim &&
        !canMaterialize(dim))
      return refuse("extent " + dim.str() +
                    " of this result is not known before it is computed");
  // Whoever reads it may go by its strides.
  if (!crosses)
    return success();
  auto order = findOrder(*info.tensor);
  if (!order)
    return refuse("this result is kept whole between loops, and its strides "
                  "are not known there");
  if (!llvm::is_sorted(*order))
    orders[value] = *order;
  return success();
}

LogicalResult TilePlan::checkOutputs() {
  for (const TilePhase &phase : phases)
    for (Value output : phase.outputs)
      if (failed(checkOutput(output, crossing.contains(output))))
        return failure();
  Operation *terminator = function.getFunctionBody().front().getTerminator();
  auto check = [&](Operation *op) -> LogicalResult {
    for (Value operand : op->getOperands())
      if (!isa<TensorType>(operand.getType()) &&
          operand.getType().isIntOrIndexOrFloat() && isTiled(operand) &&
          !isNumber(operand))
        return op->emitError()
               << "cannot tile the batch '" << symbol
               << "': the program returns a number that follows the batch"
               << describePlace(op);
    return success();
  };
  for (Operation *op : containers)
    if (failed(check(op)))
      return failure();
  return check(terminator);
}

LogicalResult TilePlan::compute() {
  Region &region = function.getFunctionBody();
  if (!region.hasOneBlock())
    return function.emitError() << "cannot tile a function with several blocks";
  if (!dims.isValid() || failed(planArguments()))
    return failure();
  for (Operation &op : region.front())
    if (failed(classify(op)))
      return failure();
  if (failed(schedule()))
    return failure();
  // Views alone are no work.
  bool works = llvm::any_of(
      tiled, [&](Operation *op) { return !repeated.contains(op); });
  if (!works && !barriers.empty()) {
    auto &[op, reason] = barriers.front();
    return op->emitError() << "cannot tile the batch '" << symbol
                           << "': " << reason << describePlace(op);
  }
  return checkOutputs();
}
