//===- PhasePlan.cpp - Which operations tile together ---------------------===//

#include "PhasePlan.h"
#include "BackwardSegments.h"
#include "Towers.h"
#include "koila/Analysis/ControlFlow.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/Sequence.h"
#include <algorithm>

using namespace mlir;
using namespace koila;

std::string koila::describePlace(Operation *op) {
  SourcePlace place = getSourcePlace(op->getLoc());
  std::string text;
  if (place.isKnown())
    text += " at " + place.file + ":" + std::to_string(place.line);
  if (!place.module.empty())
    text += " (" + place.module + ")";
  return text;
}

SmallVector<Operation *> koila::collectMakers(
    Operation *last,
    llvm::function_ref<SmallVector<Operation *>(Operation *)> getMakers) {
  llvm::SetVector<Operation *> found;
  SmallVector<Operation *> work{last};
  while (!work.empty())
    if (Operation *op = work.pop_back_val(); found.insert(op))
      llvm::append_range(work, getMakers(op));
  SmallVector<Operation *> ops = found.takeVector();
  llvm::sort(ops, [](Operation *lhs, Operation *rhs) {
    return lhs->isBeforeInBlock(rhs);
  });
  return ops;
}

bool PhasePlan::canMaterialize(DimExpr expr) const {
  bool all = static_cast<bool>(expr);
  if (expr)
    expr.forEachSymbol([&](DimSymbol known) {
      all &= symbolDims.contains(known) ||
             (known.isNamed(symbol) && static_cast<bool>(batchArgument));
    });
  return all;
}

DimExpr PhasePlan::getNumber(Value value) const {
  DimExpr number =
      value.getType().isInteger(64) ? dims.lookup(value).integer : DimExpr();
  return canMaterialize(number) ? number : DimExpr();
}

bool PhasePlan::isTiled(Value value) const {
  return value.getDefiningOp() && tiledSet.contains(value.getDefiningOp());
}

bool PhasePlan::isNumber(Value value) const {
  Operation *op = value.getDefiningOp();
  return op && (numbers.contains(op) || tiledSet.contains(op)) &&
         getNumber(value);
}

bool PhasePlan::isSamples(Value value) const {
  const BatchFact &fact = batch.lookup(value);
  // Also where what counts them runs whole, to keep its order.
  return value.getType().isInteger(64) && fact.isAt() && fact.dim == -1;
}

bool PhasePlan::isRepeated(Value value) const {
  return value.getDefiningOp() && repeated.contains(value.getDefiningOp());
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

LogicalResult PhasePlan::planArguments() {
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
      if (DimSymbol known = dim.getSymbol())
        symbolDims.try_emplace(known, argument, index);
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

//===----------------------------------------------------------------------===//
// When it runs
//===----------------------------------------------------------------------===//

unsigned PhasePlan::getTime(Value value, bool isTiledReader) const {
  Operation *op = value.getDefiningOp();
  if (!op || isNumber(value) || (isTiledReader && isSamples(value)))
    return 0;
  if (auto slot = slotOf.find(op); slot != slotOf.end())
    return slot->second;
  if (combined.contains(op))
    return phaseOf.lookup(op) + 1;
  if (!tiledSet.contains(op))
    return 0;
  if (repeated.contains(op))
    return getTime(op, isTiledReader);
  return phaseOf.lookup(op) + (isTiledReader ? 0 : 1);
}

unsigned PhasePlan::getTime(Operation *op, bool isTiledReader) const {
  // Views of views would be asked for once for each way to get to them.
  auto [known, isNew] = times[isTiledReader].try_emplace(op, 0);
  if (!isNew)
    return known->second;
  unsigned time = 0;
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (!isUnread(inner, operand))
        time = std::max(time, getTime(operand, isTiledReader));
  });
  if (isInBody(op)) {
    if (makesGradient(op))
      time = std::max(time, backwardPhase);
    for (const Storage *entry : getLocalStorages(op))
      time = std::max(time, localTimes.lookup(entry));
  }
  times[isTiledReader][op] = time;
  return time;
}

unsigned PhasePlan::getSegmentTime(Operation *op) {
  Attribute number = op->getAttr(kSegmentAttr);
  auto [known, isNew] = segmentTimes.try_emplace(number, 0);
  if (!isNew)
    return known->second;
  unsigned time = 0;
  for (Operation *member : segments.lookup(number))
    for (Value read : getReads(member)) {
      Operation *maker = read.getDefiningOp();
      if (maker && maker->getAttr(kSegmentAttr) == number)
        continue;
      if (!isUnread(member, read))
        time = std::max(time, getTime(read, isInBody(member)));
    }
  // Tiles of one segment hold nothing of another.
  if (isInBody(op)) {
    if (lastSegmentTime)
      time = std::max(time, *lastSegmentTime + 1);
    lastSegmentTime = time;
  }
  return segmentTimes[number] = time;
}

/// Only one range of rows can be cut out of a tensor, or put into it: what made
/// the samples are interleaved has to run whole.
void PhasePlan::markInterleaved(Value value) {
  SmallVector<Value> work{value};
  while (!work.empty()) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (!op || interleaved.contains(op))
      continue;
    bool merges = true;
    for (Value operand : op->getOperands())
      if (batch.lookupRead(operand).isInner()) {
        work.push_back(operand);
        merges = false;
      }
    if (merges)
      interleaved.insert(op);
  }
}

/// A view that merges the batch into another dim needs a tensor of its own: the
/// rows of one tile are interleaved in a larger one. Of a contiguous one tiles
/// take copies.
void PhasePlan::checkRows(Operation *op) {
  auto isInner = [&](Value value) {
    const BatchFact &fact = batch.lookupRead(value);
    return fact.isInner() && !fact.isSelected();
  };
  if (!repeated.contains(op) || !makesNoTensor(*op, dims) ||
      llvm::none_of(op->getResults(), isInner) ||
      llvm::any_of(op->getOperands(), isInner))
    return;
  for (Value operand : op->getOperands()) {
    // Numbers come from tensors, too, and have no rows.
    if (!isa<TensorType>(operand.getType()))
      continue;
    Value base = getBase(operand);
    if (isTiled(base) && !crossing.contains(base))
      continue;
    const std::optional<TensorInfo> &info = dims.lookup(base).tensor;
    auto order = info && info->hasRank() ? info->getDenseOrder() : std::nullopt;
    if (order && llvm::is_sorted(*order) && batch.lookupRead(base).isAt())
      packed.insert(base);
    else
      interleaved.insert(op);
  }
}

void PhasePlan::require(Value value, unsigned phase) {
  Operation *op = value.getDefiningOp();
  bool isTensor = isa<TensorType>(value.getType());
  if (!isTiled(value) && isTensor && batch.lookupRead(value).isInner())
    return markInterleaved(value);
  if (!isTiled(value)) {
    if (isTensor && batch.lookupRead(value).isAt())
      phases[phase].inputs.insert(value);
    return;
  }
  // A gradient is there behind the backward pass of its tile.
  if (isSamples(value) || bodies[phase].contains(op) ||
      (isa<LeafGradOp>(op) && !isInSegment(op)))
    return;
  if (phaseOf.lookup(op) < phase && isReturnedWhole(value)) {
    phases[phase].inputs.insert(value);
    crossing.insert(value);
    return;
  }
  if (repeated.contains(op)) {
    bodies[phase].insert(op);
    for (Value operand : op->getOperands())
      require(operand, phase);
    return;
  }
  if (batch.lookup(value).isInner())
    return markInterleaved(value);
  phases[phase].inputs.insert(value);
  phases[phaseOf.lookup(op)].outputs.insert(value);
  crossing.insert(value);
}

/// Whether `value` is a view that is there as a whole, since it is returned,
/// and that can cross.
bool PhasePlan::isReturnedWhole(Value value) const {
  const std::optional<TensorInfo> &info = dims.lookup(value).tensor;
  return isRepeated(value) &&
         phases[phaseOf.lookup(value.getDefiningOp())].outputs.contains(
             value) &&
         batch.lookup(value).isAt() && info && info->hasRank() &&
         info->getDenseOrder();
}

void PhasePlan::requireWhole(Value value) {
  if (!isTiled(value) || isNumber(value))
    return;
  Operation *op = value.getDefiningOp();
  TilePhase &phase = phases[phaseOf.lookup(op)];
  // What a mask selects is selected again, of the whole.
  bool isSelected = batch.lookup(value).isSelected() && isPure(*op);
  if (isSelected || (isRepeated(value) && !isReturnedWhole(value))) {
    if (repeatedWhole.insert(value).second)
      for (Value operand : op->getOperands())
        if (!ignores(value, operand))
          requireWhole(operand);
    return;
  }
  if (batch.lookup(value).isInner())
    return markInterleaved(value);
  phase.outputs.insert(value);
  crossing.insert(value);
}

/// What nobody reads is not planned, nor what is asked for its size alone: no
/// tile would have to make it, and none must carry it for another phase.
void PhasePlan::dropNeedless() {
  llvm::SmallPtrSet<Operation *, 16> needed;
  for (Operation &op : llvm::reverse(function.getFunctionBody().front())) {
    if (!needed.contains(&op) && wouldOpBeTriviallyDead(&op)) {
      needless.insert(&op);
      continue;
    }
    if (numbers.contains(&op))
      continue;
    for (Value read : getReads(&op))
      if (Operation *maker = read.getDefiningOp();
          maker && !isNumber(read) && !isUnread(&op, read) &&
          !(isInBody(&op) && isSamples(read)))
        needed.insert(maker);
  }
  auto isGone = [&](Operation *op) { return needless.contains(op); };
  llvm::erase_if(tiled, isGone);
  llvm::erase_if(backward.gradients, isGone);
  llvm::erase_if(whole, isGone);
  llvm::erase_if(barriers,
                 [&](const auto &barrier) { return isGone(barrier.first); });
  for (Operation *op : needless) {
    skipped.insert(op);
    combined.erase(op);
  }
}

/// Calls `callback` for each operation that reads `value`, through views, until
/// it returns false.
void PhasePlan::forEachReader(
    Value value, llvm::function_ref<bool(Operation *)> callback) const {
  Block *block = value.getParentBlock();
  SmallVector<Value> work{value};
  llvm::SmallPtrSet<Operation *, 8> seen;
  while (!work.empty())
    for (Operation *inner : work.pop_back_val().getUsers()) {
      Operation *user = block->findAncestorOpInBlock(*inner);
      if (!user || numbers.contains(user) || needless.contains(user) ||
          !seen.insert(user).second)
        continue;
      if (repeated.contains(user))
        llvm::append_range(work, user->getResults());
      else if (!callback(user))
        return;
    }
}

/// About how large `value` is, to compare it with others.
int64_t PhasePlan::estimateBytes(Value value) const {
  constexpr int64_t kExtent = 64;
  const std::optional<TensorInfo> &info = dims.lookup(value).tensor;
  if (!info)
    return 0;
  double bytes = getElementBytes(info->elementType);
  if (info->hasRank())
    for (DimExpr dim : *info->dims) {
      auto extent = dim ? dim.evaluate([](DimSymbol) -> std::optional<int64_t> {
        return kExtent;
      })
                        : std::nullopt;
      bytes *= extent.value_or(kExtent);
    }
  return static_cast<int64_t>(std::min(bytes, 1e15));
}

/// The bytes of `value` if it would be kept whole until `phase` only because
/// `op` reads it there.
int64_t PhasePlan::estimateKept(Value value, Operation *op,
                                unsigned phase) const {
  // Rows of samples that are interleaved cannot cross.
  constexpr int64_t kNever = int64_t(1) << 60;
  while (isRepeated(value) && !batch.lookupRead(value).isInner())
    value = value.getDefiningOp()->getOperand(0);
  if (batch.lookupRead(value).isInner())
    return kNever;
  if (!isa<TensorType>(value.getType()) || !value.getDefiningOp() ||
      value.getDefiningOp<ParamGetOp>())
    return 0;
  // Readers that come last are the first to be asked, and have been moved: of a
  // value with many, few are.
  bool isThere = false;
  forEachReader(value, [&](Operation *reader) {
    isThere =
        reader != op && (skipped.contains(reader) ||
                         (isInBody(reader) ? phaseOf.lookup(reader) >= phase
                                           : slotOf.lookup(reader) > phase));
    return !isThere;
  });
  return isThere ? 0 : estimateBytes(value);
}

void PhasePlan::sink() {
  for (Operation *op : llvm::reverse(tiled)) {
    if (repeated.contains(op) || combined.contains(op) || !isPure(*op) ||
        makesGradient(op) || isInSegment(op))
      continue;
    std::optional<unsigned> first;
    int64_t saved = 0;
    bool isFixed = false;
    auto consider = [&](unsigned phase) {
      first = std::min(first.value_or(phase), phase);
    };
    for (Value result : op->getResults()) {
      isFixed |= batch.lookup(result).isInner();
      bool isWhole = false;
      forEachReader(result, [&](Operation *reader) {
        isFixed |= skipped.contains(reader);
        bool isTile = isInBody(reader);
        isWhole |= !isTile;
        // What runs whole stands before the loops of its slot.
        unsigned time = (isTile ? phaseOf : slotOf).lookup(reader);
        consider(isTile || time == 0 ? time : time - 1);
        return !isFixed;
      });
      // Whole operations want it as a whole anyway.
      if (!isWhole)
        saved += estimateBytes(result);
    }
    if (isFixed || !first || *first <= phaseOf.lookup(op))
      continue;
    int64_t kept = 0;
    for (Value read : getReads(op))
      kept += estimateKept(read, op, *first);
    if (kept <= saved)
      phaseOf[op] = *first;
  }
}

/// The first phase of what tiles, and for what runs whole the phase before
/// whose loops it stands.
void PhasePlan::placeOperations() {
  unsigned effects = 0;
  for (auto &known : times)
    known.clear();
  phaseOf.clear();
  slotOf.clear();
  segmentTimes.clear();
  lastSegmentTime.reset();
  for (Operation &op : function.getFunctionBody().front()) {
    if (skipped.contains(&op))
      continue;
    unsigned time =
        isInSegment(&op) ? getSegmentTime(&op) : getTime(&op, isInBody(&op));
    if (Attribute segment = op.getAttr(kAfterSegmentAttr))
      time = std::max(time, segmentTimes.lookup(segment) + 1);
    time = std::max(time, towerTimes.lookup(&op));
    // Effects keep their order, and what reads comes after what was written.
    bool isWhole = !tiledSet.contains(&op);
    if (readsBeforeNoWrite(op) || (isWhole && !isMemoryEffectFree(&op)))
      time = std::max(effects, time);
    if (isWhole && !isPure(op))
      effects = time;
    // What waits for an effect is waited for by the rest of its segment.
    if (isWhole && isInSegment(&op))
      segmentTimes[op.getAttr(kSegmentAttr)] = time;
    (isInBody(&op) ? phaseOf : slotOf)[&op] = time;
  }
}

SmallVector<Operation *> PhasePlan::getMakers(Operation *op) const {
  SmallVector<Operation *> makers, work{op};
  llvm::SmallPtrSet<Operation *, 8> seen;
  while (!work.empty())
    for (Value read : getReads(work.pop_back_val())) {
      Operation *maker = read.getDefiningOp();
      if (maker && !isNumber(read) && seen.insert(maker).second)
        (repeated.contains(maker) ? work : makers).push_back(maker);
    }
  return makers;
}

bool PhasePlan::separateTowers() {
  // Tiles that differentiate are all in one phase.
  if (backward.backward)
    return false;
  auto isOnPath = [](Operation *op) { return op->hasAttr(kStepAttr); };
  Levels levels;
  llvm::DenseSet<Operation *> behind;
  for (Operation &op : function.getFunctionBody().front()) {
    if (skipped.contains(&op) || repeated.contains(&op))
      continue;
    auto isBehind = [&](Operation *maker) { return behind.contains(maker); };
    if (isInSegment(&op) || op.hasAttr(kAfterSegmentAttr) ||
        llvm::any_of(getMakers(&op), isBehind))
      behind.insert(&op);
    else if (isInBody(&op) || slotOf.lookup(&op) > 0)
      levels[&op] = (isInBody(&op) ? phaseOf : slotOf).lookup(&op);
  }
  // What the backward pass keeps of the forward pass is there from then on, and
  // waits for what it keeps nothing of. Towers of it share what gradients flow
  // through: the order of its levels is that of BackwardSegments.cpp.
  auto getShared = [&](Operation *op) {
    SmallVector<Operation *> makers = getMakers(op);
    if (isOnPath(op))
      llvm::erase_if(makers,
                     [&](Operation *maker) { return !isOnPath(maker); });
    return makers;
  };
  bool isMoved = false;
  for (auto [op, time] : orderTowers(levels, getShared, isOnPath)) {
    isMoved |= time != levels.lookup(op);
    towerTimes[op] = time;
  }
  return isMoved;
}

LogicalResult PhasePlan::schedule() {
  Block &block = function.getFunctionBody().front();
  placeWithLocalStorage();
  if (separateTowers())
    placeWithLocalStorage();
  if (backward.backward) {
    backwardPhase = findBackwardPhase();
    placeWithLocalStorage();
  }
  unsigned count = 0;
  for (auto [op, phase] : phaseOf)
    count = std::max(count, phase + 1);
  sink();
  phases.resize(count);
  bodies.resize(count);
  for (Operation *op : tiled)
    if (!repeated.contains(op))
      bodies[phaseOf.lookup(op)].insert(op);
  // The return reads what it gets from the phase that it stands in.
  auto requireLast = [&](Operation *op) {
    for (Value operand : op->getOperands())
      if (isTiled(operand) && isa<TensorType>(operand.getType())) {
        // A view of what the batch is not in, among views of what it is in.
        if (isRepeated(operand) && batch.lookup(operand).isFree()) {
          requireWhole(operand);
          continue;
        }
        unsigned phase = phaseOf.lookup(operand.getDefiningOp());
        require(operand, phase);
        if (batch.lookup(operand).isInner())
          markInterleaved(operand);
        phases[phase].outputs.insert(operand);
      }
  };
  llvm::for_each(containers, requireLast);
  requireLast(block.getTerminator());
  for (Operation *op : whole)
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (!isUnread(inner, operand))
          requireWhole(operand);
    });
  for (Operation *op : tiled)
    if (!repeated.contains(op))
      for (Value value : getReads(op))
        require(value, phaseOf.lookup(op));
  llvm::for_each(tiled, [&](Operation *op) { checkRows(op); });
  for (auto [phase, members] : llvm::zip_equal(phases, bodies)) {
    phase.body.assign(members.begin(), members.end());
    llvm::sort(phase.body, [](Operation *lhs, Operation *rhs) {
      return lhs->isBeforeInBlock(rhs);
    });
    llvm::copy_if(phase.body, std::back_inserter(phase.combined),
                  [&](Operation *op) { return combined.contains(op); });
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

LogicalResult PhasePlan::checkOutput(Value value, bool crosses) {
  Operation *op = value.getDefiningOp();
  const ValueInfo &info = dims.lookup(value);
  auto refuse = [&](const Twine &reason) {
    return op->emitError() << "cannot tile the batch: " << reason
                           << describePlace(op);
  };
  if (!info.tensor || !info.tensor->hasRank() || !info.tensor->elementType)
    return refuse("the shape of this result is not known");
  // An argument that is returned as it came.
  if (!isa<RankedTensorType>(value.getType()))
    return refuse("this result is computed by nothing, so that there is "
                  "nothing to do in tiles");
  for (DimExpr dim : *info.tensor->dims)
    if (dim.isConstant(0))
      return refuse("this result is always empty");
  for (auto [index, dim] : llvm::enumerate(*info.tensor->dims))
    if (static_cast<int64_t>(index) != batch.lookup(value).dim &&
        !canMaterialize(dim))
      return refuse("the extent of dim " + Twine(index) +
                    " of this result is not known before it is computed");
  // Whoever reads it may go by its strides.
  if (!crosses)
    return success();
  auto order = info.tensor->getDenseOrder();
  if (!order)
    return refuse("this result is kept whole between loops, and its strides "
                  "are not known there");
  if (!llvm::is_sorted(*order))
    orders[value] = *order;
  return success();
}

LogicalResult PhasePlan::checkOutputs() {
  for (const TilePhase &phase : phases)
    for (Value input : phase.inputs)
      if (!isa<RankedTensorType>(input.getType()))
        return emitError(input.getLoc())
               << "cannot tile the batch: control flow reads a tensor whose "
                  "shape is not written into the program";
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

LogicalResult PhasePlan::compute() {
  Region &region = function.getFunctionBody();
  if (Operation *branching = findSeveralBlocks(function))
    return branching->emitError()
           << "cannot tile a "
           << (branching == function ? "function" : "region")
           << " with several blocks";
  if (!dims.isValid() || failed(planArguments()))
    return failure();
  collectWrites();
  findLocalStorage();
  for (Operation &op : region.front())
    if (Attribute number = op.getAttr(kSegmentAttr))
      segments[number].push_back(&op);
  if (failed(segments.empty() ? findBackward() : checkWeights()))
    return failure();
  for (Operation &op : region.front())
    if (failed(classify(op)))
      return failure();
  dropNeedless();
  if (failed(planBackward()) || failed(schedule()))
    return failure();
  checkLocalStorage();
  if (!interleaved.empty())
    return success();
  if (failed(checkGradients()))
    return failure();
  // Views alone are no work.
  bool works = llvm::any_of(
      tiled, [&](Operation *op) { return !repeated.contains(op); });
  if (!works && !barriers.empty())
    return refuseBarriers();
  return checkOutputs();
}
