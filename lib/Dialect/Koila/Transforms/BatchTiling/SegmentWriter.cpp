//===- SegmentWriter.cpp - A backward pass, segment by segment ------------===//
//
// Within a segment an operation whose gradients are operators is differentiated
// by them: it need not run again. What is between those runs again, and
// autograd differentiates it: every value of which several outputs are made is
// a leaf, so that each output has a backward pass of its own, and each
// operation is differentiated once.
//
//===----------------------------------------------------------------------===//

#include "BackwardSplitter.h"
#include "GradientBuilder.h"
#include "Reductions.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/MutableStorage.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

Value BackwardSplitter::takeGradient(Value value, const Segment *segment) {
  auto found = contributions.find(value);
  if (found == contributions.end())
    return {};
  SmallVector<Value> parts = std::move(found->second);
  contributions.erase(found);
  return addGradients(builder, value.getLoc(), parts, [&](Operation *sum) {
    if (segment)
      mark(sum, *segment);
  });
}

void BackwardSplitter::runBackward(ValueRange operands,
                                   const Segment &segment) {
  mark(createBackward(builder, operands), segment);
}

void BackwardSplitter::addWeightGradient(Value weight, Value gradient) {
  if (!isOnPath(weight))
    return;
  if (!isWeight(weight)) {
    contributions[weight].push_back(gradient);
    return;
  }
  Segment segment;
  segment.isWhole = true;
  segment.number = segments++;
  runBackward({weight, gradient}, segment);
}

SmallVector<Operation *>
BackwardSplitter::collectMade(llvm::function_ref<void()> build) {
  Operation *last = backward->getPrevNode();
  build();
  SmallVector<Operation *> made;
  for (Operation *op = last->getNextNode(); op != backward;
       op = op->getNextNode())
    made.push_back(op);
  llvm::append_range(forward, made);
  return made;
}

void BackwardSplitter::writeNorm(BatchNormOp op) {
  Value input = op.getInput(), latest = getLatest(input);
  giveNormGradients(op.getResult(), nullptr);
  Value gradient = takeGradient(op.getResult());
  if (!gradient)
    return;
  std::optional<BatchNormGradient> made;
  collectMade([&] { made.emplace(builder, op, gradient, latest); });
  if (Value weight = op.getWeight())
    addWeightGradient(weight, made->getWeightGradient());
  if (Value bias = op.getBias())
    addWeightGradient(bias, made->getBiasGradient());
  if (!isOnPath(input))
    return;
  collectMade([&] { made->prepareInputGradient(builder); });
  normGradients[input].push_back(*made);
}

/// What `value` is there as since the last segment that read it.
Value BackwardSplitter::getLatest(Value value) const {
  if (Value known = restored.lookupOrNull(value))
    return known;
  return latest.lookupOrDefault(value);
}

/// The gradients of `value` by the normalisations that read it: made where they
/// are taken, of which `writer` is null where that is no segment.
void BackwardSplitter::giveNormGradients(Value value, Writer *writer) {
  auto found = normGradients.find(value);
  if (found == normGradients.end())
    return;
  for (const BatchNormGradient &gradient : found->second) {
    Value input = writer ? getForward(*writer, value) : getLatest(value);
    Value above = gradient.getGradient();
    if (writer && planner)
      if (auto *again = planner->lookupGradient(gradient.getResult()))
        if (outputGradients.contains(again->output))
          above = makeGradientAgain(*writer, *again);
    for (Operation *op : collectMade([&] {
           contributions[value].push_back(
               gradient.buildInputGradient(builder, input, above));
         }))
      if (writer)
        mark(op, writer->segment);
  }
  normGradients.erase(found);
}

//===----------------------------------------------------------------------===//
// The forward pass, again
//===----------------------------------------------------------------------===//

Value BackwardSplitter::getForward(Writer &writer, Value value) {
  if (Value known = writer.made.lookupOrNull(value))
    return known;
  if (Value known = restored.lookupOrNull(value))
    return known;
  const Segment &segment = writer.segment;
  Operation *op = value.getDefiningOp();
  Recompute choice = getChoice(value, segment);
  Value made = value;
  auto own = writer.clones.find(value);
  if (own != writer.clones.end()) {
    // What autograd runs in this segment.
    made = DetachOp::create(builder, value.getLoc(), value.getType(),
                            own->second.lookup(value));
    mark(made.getDefiningOp(), segment);
  } else if (choice != Recompute::Never) {
    IRMapping operands;
    for (Value operand : op->getOperands())
      operands.map(operand, isOnPath(operand)
                                ? getForward(writer, operand)
                                : getLocal(writer, writer.made, operand));
    timeAgain += costs.getTime(op);
    Operation *again = mark(builder.clone(*op, operands), segment);
    again->removeDiscardableAttr(kNormalisesBatchAttr);
    if (auto torchOp = dyn_cast<TorchOperatorInterface>(again))
      torchOp.permitTie(false);
    forward.push_back(again);
    made = again->getResult(cast<OpResult>(value).getResultNumber());
    (choice == Recompute::Once ? restored : latest).map(value, made);
  }
  writer.made.map(value, made);
  return made;
}

/// What becomes of `value`, of the forward pass, that `segment` reads.
Recompute BackwardSplitter::getChoice(Value value,
                                      const Segment &segment) const {
  Operation *op = value.getDefiningOp();
  if (!op || (!levels.contains(op) && !isBeside(value)))
    return Recompute::Never;
  if (isNorm(op) || hasGaps(op))
    return Recompute::Always;
  if (segment.isWhole || !batch->lookup(value).isAt())
    return Recompute::Never;
  if (planner)
    return planner->lookup(value);
  return segment.all.contains(op) ? Recompute::Always : Recompute::Never;
}

Value BackwardSplitter::getLeaf(Writer &writer, Value value) {
  bool isTiled = !writer.segment.isWhole;
  // Without the batch it is there before the loops.
  bool isBefore = isTiled && !batch->lookupRead(value).isAt();
  Type type = getElementTypeOrSelf(value.getType());
  Value leaf = writer.leaves.lookup(value);
  if (!leaf) {
    Value source = getForward(writer, value);
    // Tiles add to its gradient, which would be rounded with each.
    if (isBefore && isHalf(type))
      collectMade([&] {
        source = convertElements(builder, value.getLoc(), source,
                                 builder.getF32Type());
      });
    auto op = LeafOp::create(builder, value.getLoc(), source.getType(), source);
    if (!isBefore)
      mark(op, writer.segment);
    leaf = writer.leaves[value] = op.getResult();
  }
  Value made = convertElements(builder, value.getLoc(), leaf, type);
  if (made != leaf)
    mark(made.getDefiningOp(), writer.segment);
  return made;
}

/// Whether the elements that `op` is made of have fewer bytes than those it
/// makes, as a mask of booleans that is scaled: the smaller ones are kept.
bool BackwardSplitter::isSmallerBefore(Operation *op) const {
  auto isApart = [&](Value value) {
    return isa<TensorType>(value.getType()) && batch->lookupRead(value).isAt();
  };
  if (op->getNumResults() != 1 ||
      llvm::count_if(op->getOperands(), isApart) != 1)
    return false;
  const auto &made = dims.lookup(op->getResult(0)).tensor;
  const auto &read =
      dims.lookup(*llvm::find_if(op->getOperands(), isApart)).tensor;
  return made && read && made->hasRank() && made->dims == read->dims &&
         getElementBytes(read->elementType) <
             getElementBytes(made->elementType);
}

/// What stands for `value`, through which no gradient flows: made again where
/// it is made of what the segment makes, or of less.
Value BackwardSplitter::getLocal(Writer &writer, IRMapping &mapping,
                                 Value value) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  if (Value leaf = writer.leaves.lookup(value);
      leaf && leaf.getType() == value.getType())
    return leaf;
  if (isBeside(value))
    return getForward(writer, value);
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumRegions() > 0 || levels.contains(op) ||
      isa<ParamGetOp, LeafOp>(op) || !isMemoryEffectFree(op))
    return value;
  // What mixes samples is that of the whole batch.
  if (!writer.segment.isWhole &&
      llvm::any_of(op->getResults(), [&](Value result) {
        return isa<TensorType>(result.getType()) &&
               !batch->lookup(result).isAt();
      }))
    return value;
  bool isLocal = !writer.segment.isWhole && isSmallerBefore(op);
  IRMapping operands;
  for (Value operand : op->getOperands()) {
    Value local = getLocal(writer, mapping, operand);
    isLocal |= local != operand;
    operands.map(operand, local);
  }
  if (!isLocal)
    return value;
  Operation *made = mark(builder.clone(*op, operands), writer.segment);
  mapping.map(op->getResults(), made->getResults());
  return mapping.lookup(value);
}

/// Runs `ops` again for autograd. What they hand gradients to is in `mapping`,
/// or becomes a leaf.
void BackwardSplitter::cloneRecorded(Writer &writer, ArrayRef<Operation *> ops,
                                     IRMapping &mapping) {
  for (Operation *op : ops) {
    llvm::SmallDenseSet<Value, 4> sources;
    sources.insert_range(getSources(op));
    for (Value read : getReads(op)) {
      if (mapping.contains(read))
        continue;
      if (!sources.contains(read))
        mapping.map(read, getLocal(writer, mapping, read));
      else
        mapping.map(read, isWeight(read) ? read : getLeaf(writer, read));
    }
    timeAgain += costs.getTime(op);
    Operation *made = mark(builder.clone(*op, mapping), writer.segment);
    // Leaves are not written.
    if (auto torchOp = dyn_cast<TorchOperatorInterface>(made);
        torchOp && torchOp.isTied())
      if (Operation *copy = withdrawTie(torchOp))
        mark(copy, writer.segment);
  }
}

void BackwardSplitter::writeForward(Writer &writer, Value output) {
  cloneRecorded(writer, findMakers(writer.segment, output),
                writer.clones[output]);
}

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

/// The gradient of `again.value` in the tiles of the segment.
Value BackwardSplitter::makeGradientAgain(Writer &writer,
                                          const GradientAgain &again) {
  const Segment &segment = writer.segment;
  Value source = getForward(writer, again.value);
  auto leaf =
      LeafOp::create(builder, source.getLoc(), source.getType(), source);
  mark(leaf, segment);
  IRMapping mapping;
  mapping.map(again.value, leaf.getResult());
  cloneRecorded(writer, again.ops, mapping);
  runBackward(
      {mapping.lookup(again.output), outputGradients.lookup(again.output)},
      segment);
  auto gradient = LeafGradOp::create(builder, leaf.getLoc(), leaf.getType(),
                                     leaf.getResult());
  mark(gradient, segment);
  return gradient.getResult();
}

/// What has come for `value`, which this segment makes, by its leaf.
void BackwardSplitter::takeLeaf(Writer &writer, Value value) {
  Value leaf = writer.leaves.lookup(value);
  if (!leaf)
    return;
  auto gradient =
      LeafGradOp::create(builder, leaf.getLoc(), leaf.getType(), leaf);
  mark(gradient, writer.segment);
  contributions[value].push_back(gradient.getResult());
  writer.leaves.erase(value);
}

/// The gradients of what `op` reads, by operators.
void BackwardSplitter::writeOperators(Writer &writer, Operation *op) {
  const Segment &segment = writer.segment;
  giveNormGradients(op->getResult(0), &writer);
  Value gradient = takeGradient(op->getResult(0), &segment);
  if (!gradient)
    return;
  SmallVector<Value> sources = getSources(op), operands, gradients;
  SmallVector<bool> wanted;
  auto interface = cast<BackwardOperatorInterface>(op);
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    operands.push_back(!interface.readsOperand(index) ? Value()
                       : isOnPath(operand) || isBeside(operand)
                           ? getForward(writer, operand)
                           : operand);
    wanted.push_back(llvm::is_contained(sources, operand));
  }
  SmallVector<Operation *> made = collectMade([&] {
    gradients = interface.buildGradients(builder, gradient, operands, wanted);
  });
  auto isApart = [&](Value value) { return batch->lookupRead(value).isAt(); };
  // Of what is made of weights the tiles add up.
  llvm::SmallPtrSet<Operation *, 2> sums;
  for (auto [operand, found] : llvm::zip_equal(op->getOperands(), gradients)) {
    if (!found || isApart(operand))
      continue;
    found.getDefiningOp()->setAttr(kGradientSumAttr, builder.getUnitAttr());
    if (!isWeight(operand))
      sums.insert(found.getDefiningOp());
  }
  for (Operation *build : made)
    if (!sums.contains(build))
      mark(build, segment);
  for (auto [operand, found] : llvm::zip_equal(op->getOperands(), gradients)) {
    if (!found)
      continue;
    if (isApart(operand))
      contributions[operand].push_back(found);
    else if (sums.contains(found.getDefiningOp()))
      addWeightGradient(operand, found);
    else
      runBackward({operand, found}, segment);
  }
}

/// The gradients of what `output` is made of, by autograd.
void BackwardSplitter::writeOutput(Writer &writer, Value output) {
  const Segment &segment = writer.segment;
  takeLeaf(writer, output);
  giveNormGradients(output, &writer);
  SmallVector<Value> operands{writer.clones[output].lookup(output)};
  if (Value gradient = takeGradient(output, &segment)) {
    operands.push_back(gradient);
    outputGradients[output] = gradient;
  }
  runBackward(operands, segment);
}

void BackwardSplitter::writeSegment(const Segment &segment) {
  Writer writer{segment, {}, {}, {}};
  for (Value output : segment.outputs)
    writeForward(writer, output);
  for (Operation *op : llvm::reverse(segment.ops)) {
    if (!segment.set.contains(op)) {
      takeLeaf(writer, op->getResult(0));
      writeOperators(writer, op);
      continue;
    }
    for (Value result : llvm::reverse(op->getResults()))
      if (segment.outputs.contains(result))
        writeOutput(writer, result);
  }
  for (auto [value, leaf] : writer.leaves) {
    auto gradient =
        LeafGradOp::create(builder, leaf.getLoc(), leaf.getType(), leaf);
    Type type = getElementTypeOrSelf(value.getType());
    contributions[value].push_back(
        convertElements(builder, value.getLoc(), gradient.getResult(), type));
    if (leaf.getDefiningOp()->hasAttr(kSegmentAttr))
      mark(gradient, segment);
    else
      gradient->setAttr(kAfterSegmentAttr,
                        builder.getI64IntegerAttr(segment.number));
  }
}
