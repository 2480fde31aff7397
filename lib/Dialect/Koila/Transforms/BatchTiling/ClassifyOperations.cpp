//===- ClassifyOperations.cpp - What each operation is to a tiling --------===//
//
// Whether it runs in tiles, adds up over them, runs whole, or not at all.
//
//===----------------------------------------------------------------------===//

#include "BackwardSegments.h"
#include "PhasePlan.h"
#include "Reductions.h"
#include "koila/Analysis/HostResults.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/KernelWork.h"
#include "koila/Interfaces/RandomOp.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace koila;

/// Runs after everything that tiles: the return, or a container for it.
static bool isLast(Operation *op) {
  return op->hasTrait<OpTrait::IsTerminator>() ||
         (isa<ConstructOp>(op) && llvm::all_of(op->getUsers(), isLast));
}

StringRef koila::getCallee(Operation &op) {
  auto opaque = dyn_cast<TorchOpaqueOp>(op);
  return opaque ? opaque.getCallee() : op.getName().getStringRef();
}

bool koila::makesNoTensor(Operation &op, const DimAnalysis &dims) {
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

/// Whether `op` may write to any storage, beyond what its marks say.
static bool writesAnything(Operation *op) {
  SmallVector<MemoryEffects::EffectInstance> effects;
  if (auto interface = dyn_cast<MemoryEffectOpInterface>(op))
    interface.getEffects(effects);
  return llvm::any_of(
      effects, [&](const MemoryEffects::EffectInstance &effect) {
        bool isMark =
            isOrderedWrite(op) &&
            effect.getResource() == SideEffects::DefaultResource::get();
        return isa<MemoryEffects::Write>(effect.getEffect()) && !isMark &&
               !effect.getValue() &&
               effect.getResource() != RandomResource::get() &&
               effect.getResource() != GradientResource::get() &&
               effect.getResource() != AssumptionResource::get() &&
               effect.getResource() != LifetimeResource::get();
      });
}

void PhasePlan::collectWrites() {
  collectParamUses();
  function->walk([&](Operation *op) {
    // Nested ones count where the whole of what they stand in does.
    Operation *outer =
        function.getFunctionBody().front().findAncestorOpInBlock(*op);
    if (!outer)
      return;
    if (writesAnything(op))
      lastUnknownWrite = outer;
    auto note = [&](Value written) {
      const Storage *entry = storage.lookup(written);
      lastWrites[entry && !entry->external ? entry : nullptr] = outer;
    };
    if (isOrderedWrite(op))
      note(op->getOperand(0));
    if (!mayUpdateInTiles(*op))
      for (OpOperand *updated : getUpdates(op))
        note(updated->get());
  });
}

/// What comes after `op` and may write to the storage of `value`, a tensor;
/// null if nothing does.
Operation *PhasePlan::findWriteAfter(Value value, Operation &op) const {
  const Storage *entry = storage.lookup(value);
  Operation *known =
      lastWrites.lookup(entry && !entry->external ? entry : nullptr);
  for (Operation *write : {known, lastUnknownWrite})
    if (write && !write->isBeforeInBlock(&op))
      return write;
  return nullptr;
}

/// Whether something after `op` may write to the storage of `value`.
bool PhasePlan::isWrittenAfter(Value value, Operation &op) const {
  return isa<TensorType>(value.getType()) ? findWriteAfter(value, op) != nullptr
                                          : isMutable(value.getType());
}

/// Whether `op` has no effect but that it reads storage which is written before
/// and never after it: that is an order among operations that run whole.
bool PhasePlan::readsBeforeNoWrite(Operation &op) const {
  if (!isOrdered(&op) || isOrderedWrite(&op) || op.getNumRegions() > 0 ||
      (lastUnknownWrite && !lastUnknownWrite->isBeforeInBlock(&op)))
    return false;
  SmallVector<MemoryEffects::EffectInstance> effects;
  if (auto interface = dyn_cast<MemoryEffectOpInterface>(op))
    interface.getEffects(effects);
  // Reading, and making a tensor that is another one than its equals. (A leaf
  // has the gradient of the backward passes behind it alone.)
  if (effects.empty() ||
      llvm::any_of(effects, [](const MemoryEffects::EffectInstance &effect) {
        return isa<MemoryEffects::Write>(effect.getEffect()) ||
               effect.getResource() == GradientResource::get();
      }))
    return false;
  auto isOver = [&](Value value) { return !isWrittenAfter(value, op); };
  return llvm::all_of(op.getOperands(), isOver) &&
         llvm::all_of(op.getResults(), isOver);
}

bool PhasePlan::isPure(Operation &op) const {
  return isMemoryEffectFree(&op) || readsBeforeNoWrite(op);
}

/// Whether `value` is a tensor with the batch, and its other extents are known
/// before it is there.
bool PhasePlan::isSizedByBatch(Value value) const {
  const std::optional<TensorInfo> &info = dims.lookup(value).tensor;
  const BatchFact &fact = batch.lookup(value);
  if (!info || !info->hasRank() || !fact.isAt() ||
      !isa<RankedTensorType>(value.getType()))
    return false;
  return llvm::all_of(llvm::enumerate(*info->dims), [&](auto dim) {
    return static_cast<int64_t>(dim.index()) == fact.dim ||
           canMaterialize(dim.value());
  });
}

SmallVector<Value> koila::getReads(Operation *op) {
  SetVector<Value> reads;
  reads.insert_range(op->getOperands());
  getUsedValuesDefinedAbove(op->getRegions(), reads);
  return reads.takeVector();
}

/// Why tiles cannot each run the control flow of `op`, without effects; empty
/// if they can: what decides it is the same for all tiles, and samples stay
/// apart in all of it.
std::string PhasePlan::findReasonInside(Operation &op) const {
  if (!isa<RegionBranchOpInterface>(op))
    return ("the regions of '" + op.getName().getStringRef() +
            "' are no control flow")
        .str();
  // What is written anywhere would need an order with the loops.
  Operation &first = op.getBlock()->front();
  std::string reason;
  auto check = [&](Value value, const BatchFact &fact) {
    bool isTensor = isa<TensorType>(value.getType());
    if (!reason.empty())
      return;
    if (fact.isMixed())
      reason = fact.reason;
    else if (!fact.isFree() && !(fact.isAt() && (isTensor || fact.dim < 0)))
      reason = "the batch is interleaved inside of control flow";
    else if (isWrittenAfter(value, first))
      reason = "control flow reads storage that is mutated in place";
  };
  for (Value value : getReads(&op))
    check(value, batch.lookupRead(value));
  op.walk<WalkOrder::PreOrder>([&](Operation *inner) {
    for (Region &region : inner->getRegions())
      for (Value argument : region.getArguments())
        check(argument, batch.lookup(argument));
    for (Value result : inner->getResults())
      check(result, batch.lookup(result));
    if (inner->getNumRegions() == 0 &&
        !inner->hasTrait<OpTrait::IsTerminator>())
      return;
    for (Value operand : inner->getOperands())
      if (reason.empty() && !isa<TensorType>(operand.getType()) &&
          !batch.lookupRead(operand).isFree())
        reason = "the number of samples decides this control flow; a tile has "
                 "another one";
  });
  for (Value result : op.getResults()) {
    if (!result.use_empty() && !isSizedByBatch(result) && reason.empty())
      reason = "a result of this control flow is no tensor with the batch, or "
               "its extents are not known before it";
  }
  return reason;
}

bool PhasePlan::ignores(Value value, Value operand) const {
  return batch.lookup(value).isFree() && isTiled(operand) &&
         isSizedByBatch(operand);
}

bool PhasePlan::isUnread(Operation *op, Value value) const {
  return isTiled(value) && isSizedByBatch(value) && isOrdered(op) &&
         !isOrderedWrite(op) && op->getNumRegions() == 0 &&
         llvm::all_of(op->getResults(), [&](Value result) {
           return isa<TensorType>(result.getType()) &&
                  batch.lookup(result).isFree();
         });
}

bool koila::onlyReadsMutableStorage(Operation &op) {
  return isOrdered(&op) && !isOrderedWrite(&op) && !isa<TorchOpaqueOp>(op) &&
         !accessesModuleState(&op) && !onlyDraws(&op) &&
         getUpdates(&op).empty();
}

static std::string describeEffect(Operation &op) {
  if (onlyDraws(&op))
    return "draws random numbers for the whole batch";
  if (onlyReadsMutableStorage(op))
    return "reads storage that is mutated in place";
  if (isOrderedWrite(&op) && !isa<TorchOpaqueOp>(op))
    return "writes in place, for the whole batch, what others see";
  // Running statistics, for one.
  auto isOfModule = [](Value value) {
    return !!value.getDefiningOp<ParamGetOp>();
  };
  SmallVector<Value> written;
  if (isOrderedWrite(&op))
    llvm::append_range(written, op.getOperands());
  for (OpOperand *updated : getUpdates(&op))
    written.push_back(updated->get());
  if (llvm::any_of(written, isOfModule)) {
    std::string why =
        "updates tensors of the module from the whole batch, as layers do in "
        "training mode; after eval() it would use the ones that are there";
    if (isa<BatchStatisticsInterface>(op))
      why += ", in a training step batchnorm=exact takes those of the batch, "
             "and batchnorm=per-tile lets each tile be normalised by itself, "
             "which gives other results";
    return why;
  }
  return "has effects whose order tiling would change";
}

void PhasePlan::addBarrier(Operation &op) {
  if (!isPure(op)) {
    // Of control flow, what is inside is the reason, and writes before reads.
    Operation *cause = &op;
    op.walk([&](Operation *inner) {
      if (inner->getNumRegions() == 0 && !isMemoryEffectFree(inner) &&
          (cause == &op || (onlyReadsMutableStorage(*cause) &&
                            !onlyReadsMutableStorage(*inner))))
        cause = inner;
    });
    barriers.push_back(
        {&op, ("'" + getCallee(*cause) + "' " + describeEffect(*cause) +
               (cause == &op ? "" : ", inside of this control flow"))
                  .str()});
    return;
  }
  if (op.getNumRegions() > 0) {
    barriers.push_back({&op, findReasonInside(op)});
    return;
  }
  // Numbers that are counted, and weights that they are multiplied by, cut
  // nothing.
  if (!segments.empty() && llvm::none_of(op.getOperands(), [&](Value operand) {
        return isa<TensorType>(operand.getType()) &&
               !batch.lookupRead(operand).isFree();
      }))
    return;
  for (Value result : op.getResults()) {
    const BatchFact &fact = batch.lookup(result);
    // Of what follows from a barrier, the barrier is the reason.
    if (fact.isMixed() && (!fact.origin || fact.origin == &op)) {
      barriers.push_back({&op, fact.reason});
      return;
    }
  }
}

SmallVector<BatchFact, 1> PhasePlan::askRule(BatchRuleInterface op) const {
  BatchRule rule(
      op, [&](Value value) { return batch.lookupRead(value); },
      [&](Value value) { return dims.lookup(value); });
  op.inferBatch(rule);
  SmallVector<BatchFact, 1> facts = rule.takeResults();
  if (op->hasAttr(kGradientSumAttr))
    for (BatchFact &fact : facts)
      if (fact.combine == Combine::Sum)
        fact.combine = Combine::GradientSum;
  return facts;
}

Value PhasePlan::getBase(Value value) const {
  while (isRepeated(value))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

bool PhasePlan::readsTiles(Operation &op) const {
  llvm::SmallSetVector<Value, 4> reads(op.operand_begin(), op.operand_end());
  for (size_t next = 0; next < reads.size(); ++next) {
    Value read = reads[next];
    // A view may be of several, as of tensors that are broadcast.
    if (isRepeated(read))
      reads.insert_range(read.getDefiningOp()->getOperands());
    else if (isTiled(read) && isa<TensorType>(read.getType()))
      return true;
  }
  return false;
}

/// A reduction over the batch of what tiles make; what is there as a whole is
/// reduced as a whole.
Combine PhasePlan::findCombine(Operation &op) const {
  auto interface = dyn_cast<BatchRuleInterface>(op);
  SmallVector<Value> results = getCombinedResults(&op);
  if (!interface || !readsTiles(op) || results.empty())
    return Combine::None;
  const SmallVector<BatchFact, 1> facts = askRule(interface);
  auto getFact = [&](Value result) -> const BatchFact & {
    return facts[cast<OpResult>(result).getResultNumber()];
  };
  Combine combine = getFact(results.front()).combine;
  bool isReadInTiles = llvm::none_of(op.getOperands(), [&](Value operand) {
    return batch.lookupRead(operand).isMixed();
  });
  // What is divided by the number of elements.
  const ValueInfo &self = dims.lookup(op.getOperand(0));
  bool isCounted = Combiner(&op, combine).runsInTiles() ||
                   (self.tensor && self.tensor->hasRank() &&
                    llvm::all_of(*self.tensor->dims, [&](DimExpr dim) {
                      return canMaterialize(dim);
                    }));
  auto isCombined = [&](Value result) {
    const ValueInfo &info = dims.lookup(result);
    bool isSized = info.tensor && info.tensor->hasRank() &&
                   llvm::all_of(*info.tensor->dims, [&](DimExpr dim) {
                     return !dim.dependsOn(symbol) && canMaterialize(dim);
                   });
    // What a step with segments adds up has no other way to run in tiles.
    Type element = getElementTypeOrSelf(result.getType());
    if (!segments.empty() && element.isF64())
      element = Float32Type::get(op.getContext());
    return getFact(result).isMixed() && getFact(result).combine == combine &&
           isSized &&
           (makesGradient(&op)
                ? canAddLosses(combine, getElementTypeOrSelf(result.getType()))
                : canCombine(combine, element));
  };
  return isReadInTiles && isCounted && givesResults(combine, &op) &&
                 llvm::all_of(results, isCombined)
             ? combine
             : Combine::None;
}

LogicalResult PhasePlan::classify(Operation &op) {
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
  if (isInSegment(&op))
    return classifySegment(op);
  // What segments read without the batch.
  if (!segments.empty() && isa<LeafOp, LeafGradOp>(op)) {
    whole.push_back(&op);
    return success();
  }
  if (backward.backward) {
    if (auto leaf = dyn_cast<LeafOp>(op))
      return classifyLeaf(leaf);
    if (auto gradient = dyn_cast<LeafGradOp>(op))
      return classifyGradient(gradient);
  }
  if (isStorageOfDraws(op) || &op == backward.backward) {
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
  bool isAsked = isMemoryEffectFree(&op) || onlyReadsMutableStorage(op);
  if (reads && !batched && isAsked && op.getNumRegions() == 0 &&
      llvm::all_of(op.getResults(),
                   [&](Value result) { return !!getNumber(result); })) {
    skipped.insert(&op);
    numbers.insert(&op);
    return success();
  }
  // Of what is there as a whole, so is the detached tensor.
  if (isa<DetachOp>(op) && isPure(op) && !isTiled(op.getOperand(0))) {
    whole.push_back(&op);
    return success();
  }
  // A view without marks shows what is written later, too.
  bool isView = makesNoTensor(op, dims);
  bool fillsLocal = fillsLocalStorage(op);
  bool isShown =
      isView && !fillsLocal && llvm::any_of(op.getResults(), [&](Value result) {
        return isa<TensorType>(result.getType()) && isWrittenAfter(result, op);
      });
  bool isMovable = op.getNumRegions() > 0
                       ? isMemoryEffectFree(&op) && findReasonInside(op).empty()
                       : isPure(op) || fillsLocal || mayDrawInTiles(op) ||
                             mayUpdateInTiles(op);
  // A tensor that each tile would make again.
  bool isSplit = !isView && llvm::any_of(op.getResults(), [&](Value result) {
    return isa<TensorType>(result.getType()) && batch.lookup(result).isFree() &&
           !result.use_empty();
  });
  bool isApart = isMovable && batched && !isShown &&
                 llvm::none_of(op.getResults(), isMixed);
  if (isApart && !isSplit) {
    tiled.push_back(&op);
    tiledSet.insert(&op);
    // What counts within a tile means nothing outside of it.
    bool isCounted = llvm::all_of(op.getResults(), [](Value result) {
      return indexing::isReadAsOffsets(result) ||
             indexing::isReadAsRows(result);
    });
    // What a mask selects is no range of rows, which could cross, nor is what
    // interleaves the samples; where no gradient flows each phase selects
    // again, and interleaves again what is there as a whole.
    bool isCheap = !isa<KernelWorkInterface>(op) && !readsTiles(op);
    bool cannotCross = llvm::any_of(op.getResults(), [&](Value result) {
      const BatchFact &fact = batch.lookup(result);
      return fact.isSelected() || (fact.isInner() && isCheap);
    });
    // Each phase takes the rows of an argument to the device anew: there it
    // would be kept as a whole.
    auto upload = dyn_cast<ToCopyOp>(op);
    bool isUpload =
        upload && upload.getDevice() && isa<BlockArgument>(upload.getSelf()) &&
        function->hasAttr(kHostResultsAttr) && isMemoryEffectFree(&op) &&
        !makesGradient(&op) && !isWrittenAfter(upload.getResult(), op);
    if ((isView && !fillsLocal) || isCounted || isUpload ||
        (cannotCross && isMemoryEffectFree(&op) && !makesGradient(&op)))
      repeated.insert(&op);
    return success();
  }
  if (isMovable && op.getNumRegions() == 0)
    if (Combine combine = findCombine(op); combine != Combine::None) {
      tiled.push_back(&op);
      combined[&op] = combine;
      return success();
    }
  // What reads no batch cuts nothing.
  op.walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      batched |= !batch.lookup(operand).isFree() && !isUnread(inner, operand);
  });
  if (isApart)
    barriers.push_back({&op, "has both batched and batch-independent results"});
  else if (batched && !drawsEarly(op))
    addBarrier(op);
  whole.push_back(&op);
  return success();
}

bool PhasePlan::isInSegment(Operation *op) { return op->hasAttr(kSegmentAttr); }

/// Whether each tile adds the results of `op`, sums over its samples, to the
/// gradients of weights.
bool PhasePlan::accumulatesInTiles(Operation &op) const {
  auto isAccumulated = [&](OpOperand &use) {
    auto add = dyn_cast<BackwardOp>(use.getOwner());
    return add && use.get() == add.getGradient() &&
           add.getSelf().getDefiningOp<ParamGetOp>() &&
           add->getAttr(kSegmentAttr) == op.getAttr(kSegmentAttr);
  };
  auto interface = dyn_cast<BatchRuleInterface>(op);
  if (!interface)
    return false;
  SmallVector<BatchFact, 1> facts = askRule(interface);
  return llvm::all_of(op.getResults(), [&](OpResult result) {
    const BatchFact &fact = facts[result.getResultNumber()];
    return result.use_empty() ||
           (fact.isMixed() && fact.combine == Combine::GradientSum &&
            llvm::all_of(result.getUses(), isAccumulated));
  });
}

LogicalResult PhasePlan::classifySegment(Operation &op) {
  if (op.hasAttr(kWholeSegmentAttr)) {
    whole.push_back(&op);
    return success();
  }
  for (Value result : op.getResults())
    if (const BatchFact &fact = batch.lookup(result);
        isa<TensorType>(result.getType()) && !result.use_empty() &&
        !fact.isAt() && !fact.isFree() && !accumulatesInTiles(op))
      return refuseStep(&op, "'" + getCallee(op).str() +
                                 "' is not apart for each sample");
  if (op.getNumRegions() > 0)
    if (std::string reason = findReasonInside(op); !reason.empty())
      return refuseStep(&op, reason);
  if (makesGradient(&op) && failed(checkTiledGradient(op)))
    return failure();
  tiled.push_back(&op);
  tiledSet.insert(&op);
  return success();
}

LogicalResult PhasePlan::classifyLeaf(LeafOp op) {
  const BatchFact &fact = batch.lookup(op.getResult());
  std::string name = describeLeaf(op);
  if (Operation *write = findWriteAfter(op.getResult(), *op);
      write && isOrdered(op))
    return refuseStep(write, name + " requires a gradient, and '" +
                                 getCallee(*write) + "' " +
                                 describeEffect(*write));
  // All tiles add to its gradient.
  if (fact.isFree()) {
    Type type = getElementTypeOrSelf(op.getType());
    if (isHalf(type))
      return refuseStep(op, "the gradient of " + name +
                                ", which has no batch, would be rounded to its "
                                "half type with each tile; give it in float32");
    whole.push_back(op);
    return success();
  }
  if (!fact.isAt())
    return refuseStep(op, "the batch is interleaved in " + name +
                              ", which requires a gradient");
  tiled.push_back(op);
  tiledSet.insert(op);
  return success();
}

LogicalResult PhasePlan::classifyGradient(LeafGradOp op) {
  if (!backward.backward->isBeforeInBlock(op))
    return refuseStep(op, "the gradient of " + describeLeaf(op.getLeafOp()) +
                              " is read before the backward pass");
  if (!isTiled(op.getLeaf())) {
    whole.push_back(op);
    return success();
  }
  if (!llvm::all_of(op->getUsers(), isLast))
    return refuseStep(op, "the gradient of " + describeLeaf(op.getLeafOp()) +
                              ", which tiles make, is read in the step; "
                              "return it alone");
  tiledSet.insert(op);
  backward.gradients.push_back(op);
  return success();
}

LogicalResult PhasePlan::refuseBarriers() const {
  // What only has to keep the order is not the cause, nor what counts.
  auto isCause = [&](const auto &barrier) {
    return !onlyReadsMutableStorage(*barrier.first) &&
           llvm::any_of(barrier.first->getOperandTypes(),
                        [](Type type) { return isa<TensorType>(type); });
  };
  auto *found = llvm::find_if(barriers, isCause);
  auto &[op, reason] = found == barriers.end() ? barriers.front() : *found;
  return op->emitError() << "cannot tile the batch '" << symbol
                         << "': " << reason << describePlace(op);
}
