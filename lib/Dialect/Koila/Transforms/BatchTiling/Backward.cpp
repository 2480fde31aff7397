//===- Backward.cpp - Which tiles can run a backward pass -----------------===//
//
// The loss of a training step is made of sums over the samples by what is
// called the head here. Each tile runs the head on its parts of those sums, and
// the backward pass of what comes out.
//
//===----------------------------------------------------------------------===//

#include "PhasePlan.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;

std::string koila::describeLeaf(LeafOp leaf) {
  auto argument = dyn_cast<BlockArgument>(leaf.getSource());
  auto function = leaf->getParentOfType<FunctionOpInterface>();
  auto name = argument && argument.getOwner()->getParentOp() == function
                  ? function.getArgAttrOfType<StringAttr>(
                        argument.getArgNumber(), KoilaDialect::kNameAttr)
                  : StringAttr();
  return name ? "argument '" + name.str() + "'" : "a tensor";
}

DimExpr koila::findLossExtent(const DimAnalysis &dims, Value loss) {
  const std::optional<TensorInfo> &info = dims.lookup(loss).tensor;
  if (info && info->hasRank())
    for (DimExpr dim : *info->dims)
      if (!dim.isConstant(1))
        return dim;
  return {};
}

bool PhasePlan::makesGradient(Operation *op) const {
  return llvm::any_of(op->getResults(),
                      [&](Value result) { return wantsGradient(result); });
}

LogicalResult PhasePlan::findBackward() {
  WalkResult result = function->walk([&](BackwardOp op) -> WalkResult {
    if (op->getParentRegion() != &function.getFunctionBody())
      return op.emitError() << "cannot tile a backward pass that runs inside "
                               "of control flow"
                            << describePlace(op);
    if (backward.backward)
      return op.emitError() << "cannot tile a second backward pass: add the "
                               "losses up and run one"
                            << describePlace(op);
    if (op.getGradient() || op.getCreateGraph() ||
        op.getRetainGraph().value_or(false))
      return op.emitError()
             << "cannot tile a backward pass with a gradient of its own, or "
                "one whose graph is kept"
             << describePlace(op);
    backward.backward = op;
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

LogicalResult PhasePlan::refuseStep(Operation *op, const Twine &reason) const {
  return op->emitError() << "cannot tile the training step over the batch '"
                         << symbol << "': " << reason << describePlace(op);
}

LogicalResult PhasePlan::refuseMeeting(Operation *op) const {
  // What only keeps an order with something else is not the cause.
  const auto *barrier = llvm::find_if(barriers, [&](const auto &entry) {
    return makesGradient(entry.first) && !onlyReadsMutableStorage(*entry.first);
  });
  if (barrier == barriers.end())
    barrier = llvm::find_if(
        barriers, [&](const auto &entry) { return entry.first == op; });
  std::string reason = "'" + getCallee(*op).str() + "' runs on the whole batch";
  if (barrier != barriers.end())
    std::tie(op, reason) = *barrier;
  else if (const BatchFact &fact = batch.lookup(op->getResult(0));
           fact.isMixed())
    reason = fact.reason;
  return refuseStep(op, reason + ", and its gradient flows to the samples");
}

/// Finds what makes `value` of weights and reductions over the batch, and
/// through which a gradient flows: the part of it that is made of reductions is
/// of the head. Fails, after an error, where a gradient would have to flow into
/// tiles in another way.
LogicalResult PhasePlan::collectHead(Value value) {
  SmallVector<Value> work{value};
  SmallVector<Operation *> found;
  while (!work.empty()) {
    Value next = work.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (!op || !wantsGradient(next) || combined.contains(op) ||
        !backward.reached.insert(op).second)
      continue;
    found.push_back(op);
    for (Value operand : getReads(op)) {
      if (wantsGradient(operand) && isTiled(operand))
        return refuseMeeting(op);
      work.push_back(operand);
    }
  }
  llvm::sort(found, [](Operation *lhs, Operation *rhs) {
    return lhs->isBeforeInBlock(rhs);
  });
  for (Operation *op : found)
    if (llvm::any_of(getReads(op),
                     [&](Value operand) { return isOfParts(operand); }))
      backward.head.insert(op);
  return success();
}

/// Whether the gradient of `op`, of the head, is the same for each part.
LogicalResult PhasePlan::checkHead(Operation &op) {
  std::string name = "'" + getCallee(op).str() + "'";
  // In a tile nothing else wants a gradient.
  DifferentiationFacts facts = getDifferentiation(
      &op, [&](Value value) { return isOfParts(value); },
      [&](Value value) { return dims.lookup(value).getElementType(); });
  if (!facts.isKnown() || !isPure(op) || op.getNumRegions() > 0)
    return refuseStep(&op, "what the gradient of " + name +
                               " depends on is not known");
  // Also places, which have no gradient themselves: those of a sort, say.
  auto isMadeOfParts = [&](Value value) {
    Operation *maker = value.getDefiningOp();
    return maker && (backward.head.contains(maker) || isOfParts(value));
  };
  if (facts.savesInner || !facts.overwritten.empty() ||
      llvm::any_of(facts.saved, isMadeOfParts))
    return refuseStep(&op, "the loss is no sum over the samples: the gradient "
                           "of " +
                               name +
                               " depends on the loss of the whole batch");
  return success();
}

/// Whether a tensor inside of `type` can come with a gradient that no analysis
/// sees, nor the guard.
static bool hidesTensors(Type type) {
  if (auto optional = dyn_cast<OptionalType>(type))
    return hidesTensors(optional.getValueType());
  auto holds = [](Type inner) {
    return isa<TensorType>(inner) || hidesTensors(inner);
  };
  if (auto list = dyn_cast<ListType>(type))
    return holds(list.getElementType());
  if (auto dict = dyn_cast<DictType>(type))
    return holds(dict.getValueType());
  if (auto tuple = dyn_cast<TupleType>(type))
    return llvm::any_of(tuple.getTypes(), holds);
  auto other = dyn_cast<TorchType>(type);
  return other && other.getSpelling() != "str" &&
         other.getSpelling() != "Device";
}

LogicalResult PhasePlan::checkWeights() {
  Block &block = function.getFunctionBody().front();
  for (BlockArgument argument : block.getArguments())
    if (hidesTensors(argument.getType()))
      return function.emitError()
             << "cannot tile the training step: argument "
             << argument.getArgNumber()
             << " may hold tensors that require gradients; give them as "
                "arguments of their own";
  WalkResult result = function->walk([&](ParamGetOp op) -> WalkResult {
    Type type = cast<TensorType>(op.getType()).getElementType();
    if (!wantsGradient(op.getResult()) || !isHalf(type))
      return WalkResult::advance();
    return refuseStep(op, "the gradient of '" + op.getParam() +
                              "' would be rounded to its half type with each "
                              "tile; keep trained weights in float32");
  });
  return failure(result.wasInterrupted());
}

LogicalResult PhasePlan::checkTiledGradient(Operation &op) {
  WalkResult result = op.walk([&](Operation *inner) -> WalkResult {
    // How often an index is in the batch, no tile knows.
    if (auto scales = inner->getAttrOfType<BoolAttr>("scale_grad_by_freq");
        scales && scales.getValue())
      return refuseStep(inner, "with scale_grad_by_freq the gradient of a "
                               "sample depends on the indices of all others");
    // Only images have two memory formats to mistake for each other.
    constexpr int64_t kLeastRank = 3;
    auto type = inner->getNumResults() > 0
                    ? dyn_cast<RankedTensorType>(inner->getResult(0).getType())
                    : nullptr;
    backward.needsPairs |= inner->hasTrait<SingleSampleGradientUnreliable>() &&
                           !(type && type.getRank() < kLeastRank);
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

LogicalResult PhasePlan::collectRepeated() {
  SmallVector<Value> work;
  for (Operation *op : tiled)
    if (makesGradient(op))
      llvm::append_range(work, getReads(op));
  llvm::SmallPtrSet<Operation *, 8> seen;
  while (!work.empty()) {
    Value value = work.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (!op || !wantsGradient(value) || isTiled(value) ||
        isa<ParamGetOp, LeafOp>(op) || !seen.insert(op).second)
      continue;
    if (batch.lookupRead(value).isAt() || op->getNumRegions() > 0 ||
        !isMemoryEffectFree(op)) {
      if (llvm::any_of(barriers, [&](const auto &barrier) {
            return barrier.first == op;
          }))
        return refuseMeeting(op);
      return refuseStep(op, "every tile would have to run '" + getCallee(*op) +
                                "' again for its gradient");
    }
    llvm::append_range(work, op->getOperands());
  }
  backward.repeated.assign(seen.begin(), seen.end());
  llvm::sort(backward.repeated, [](Operation *lhs, Operation *rhs) {
    return lhs->isBeforeInBlock(rhs);
  });
  return success();
}

LogicalResult PhasePlan::planBackward() {
  if (!backward.backward)
    return success();
  Value loss = backward.backward->getOperand(0);
  if (!wantsGradient(loss))
    return backward.backward->emitError()
           << "the loss has no gradient: no weight requires one, or it is "
              "detached on the way";
  if (failed(checkWeights()))
    return failure();
  // Of a loss for each sample each tile would differentiate its own.
  if (DimExpr extent = findLossExtent(dims, loss))
    return refuseStep(backward.backward,
                      "the loss has extent " + extent.str() +
                          "; only of one element there is a gradient; name "
                          "a loss of it, for example loss=cross_entropy");
  for (Value returned :
       function.getFunctionBody().front().getTerminator()->getOperands())
    if (wantsGradient(returned))
      return emitError(returned.getLoc())
             << "cannot tile the training step: it returns a tensor with a "
                "gradient; detach it";
  if (failed(collectHead(loss)))
    return failure();
  // What tiles read of the whole batch has to do without gradients.
  for (Operation *op : tiled) {
    if (!makesGradient(op))
      continue;
    if (failed(checkTiledGradient(*op)))
      return failure();
    for (Value read : getReads(op)) {
      if (isTiled(read))
        continue;
      if (failed(collectHead(read)))
        return failure();
      if (isOfParts(read))
        return refuseMeeting(read.getDefiningOp());
    }
  }
  if (failed(collectRepeated()))
    return failure();
  // Everything it depends on runs whole.
  if (!isOfParts(loss)) {
    if (!barriers.empty())
      return refuseBarriers();
    return refuseStep(backward.backward,
                      "the loss does not come of its samples");
  }
  for (Operation *op : backward.head) {
    if (failed(checkHead(*op)))
      return failure();
    for (Value operand : op->getOperands())
      backward.hasRest |= wantsGradient(operand) && !isOfParts(operand);
  }
  return success();
}

unsigned PhasePlan::findBackwardPhase() {
  unsigned phase = 0;
  for (auto [op, time] : phaseOf)
    if (makesGradient(op))
      phase = std::max(phase, time);
  for (Operation *op : backward.head)
    for (Value operand : op->getOperands())
      if (!isOfParts(operand))
        phase = std::max(phase, getTime(operand, /*isTiledReader=*/false));
  return phase;
}

LogicalResult PhasePlan::checkGradients() {
  if (!backward.backward)
    return success();
  // What the head reads has to be there before the tiles.
  for (Operation *op : backward.head)
    for (Value operand : op->getOperands())
      if (!isOfParts(operand) &&
          getTime(operand, /*isTiledReader=*/false) > backwardPhase)
        return refuseStep(op, "'" + getCallee(*op) +
                                  "' needs a number of the whole batch which "
                                  "is made of what the tiles compute");
  for (Operation *op : tiled)
    if (makesGradient(op) && phaseOf.lookup(op) != backwardPhase &&
        !repeated.contains(op))
      return refuseStep(op, "'" + getCallee(*op) +
                                "' needs a number of the whole batch which is "
                                "made of what the tiles compute");
  // What tiles make crosses without its gradient: only what has none reads it.
  for (const TilePhase &phase : phases)
    for (Value input : phase.inputs)
      if (Operation *op = input.getDefiningOp();
          op && wantsGradient(input) && !isTiled(input))
        return refuseStep(op, "'" + getCallee(*op) +
                                  "' runs on the whole batch, and the "
                                  "gradients of all tiles would flow through "
                                  "it");
  return success();
}
