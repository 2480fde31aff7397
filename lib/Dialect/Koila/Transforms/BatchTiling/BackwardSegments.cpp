//===- BackwardSegments.cpp - A backward pass in segments -----------------===//
//
// Reverse mode over the operations on the way to the loss, cut where samples
// are mixed. An operation has a level, the number of cuts before it; those of
// one level that are apart for each sample are one segment, which tiles can
// run, and those that mix samples are another, which runs whole.
//
// Within a segment an operation whose gradients are operators is differentiated
// by them: it need not run again. What is between those runs again, and
// autograd differentiates it: every value of which several outputs are made is
// a leaf, so that each output has a backward pass of its own, and each
// operation is differentiated once.
//
//===----------------------------------------------------------------------===//

#include "BackwardSegments.h"
#include "BatchNormStatistics.h"
#include "PhasePlan.h"
#include "RecomputePlan.h"
#include "Reductions.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/BackwardOperator.h"
#include "koila/Interfaces/MutableStorage.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"
#include <map>

using namespace mlir;
using namespace koila;

void koila::removeSegmentMarks(FunctionOpInterface function) {
  function->walk([](Operation *op) {
    for (StringRef name : {kSegmentAttr, kWholeSegmentAttr, kAfterSegmentAttr,
                           kNormalisesBatchAttr, kStepAttr})
      op->removeDiscardableAttr(name);
  });
}

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

namespace {
class BackwardSplitter {
public:
  BackwardSplitter(FunctionOpInterface function, StringRef symbol,
                   std::optional<RecomputeBudget> budget)
      : function(function), symbol(symbol), budget(budget), dims(function),
        storage(function, dims), gradients(function, dims, storage),
        costs(dims, symbol, budget ? budget->batch : kUnknownBatch,
              budget ? *budget->costs : CostTable::getShipped()),
        builder(function.getContext()) {}

  FailureOr<RecomputeFigures> run();

private:
  /// Part of the forward pass that is differentiated at once.
  struct Segment {
    SmallVector<Operation *> ops;
    llvm::SmallPtrSet<Operation *, 16> all;
    /// Those that autograd differentiates.
    llvm::SmallPtrSet<Operation *, 16> set;
    /// Values that are read elsewhere, or of which several of these are made,
    /// in order; see the head of this file.
    llvm::SetVector<Value> outputs;
    bool isWhole = false;
    int64_t number = 0;
  };
  /// A segment while it is written.
  struct Writer {
    const Segment &segment;
    /// Leaves of what the segment reads or cuts.
    llvm::MapVector<Value, Value> leaves;
    /// What stands for values of the forward pass, for each output.
    llvm::DenseMap<Value, IRMapping> clones;
    /// Values of the forward pass without records.
    IRMapping made;
  };

  LogicalResult collect();
  LogicalResult refuse(Operation *op, const Twine &reason) const {
    return op->emitError() << "cannot run the backward pass over the batch '"
                           << symbol << "' in segments: " << reason
                           << describePlace(op);
  }
  bool isNorm(Operation *op) const {
    return op && op->hasAttr(kNormalisesBatchAttr);
  }
  /// Whether `op` gives views of samples that loops cannot hand on, as parts of
  /// channels: what they are of is kept.
  bool hasGaps(Operation *op) const {
    return op && makesNoTensor(*op, dims) &&
           llvm::any_of(op->getResults(), [&](Value result) {
             const std::optional<TensorInfo> &info = dims.lookup(result).tensor;
             return info && batch->lookup(result).isAt() &&
                    !info->getDenseOrder();
           });
  }
  /// Whether operators give the gradients of `op`, on the path.
  bool hasOperators(Operation *op) const {
    auto interface = dyn_cast<BackwardOperatorInterface>(op);
    return interface && !whole.contains(op) && !isNorm(op) &&
           interface.hasBackwardOperator();
  }
  /// Whether a gradient flows from the loss to `value`.
  bool isOnPath(Value value) const { return path.contains(value); }
  /// What `op`, on the path, reads and hands its gradient to.
  SmallVector<Value> getSources(Operation *op) const;
  unsigned getLevel(Value value, bool isWholeReader) const;
  /// Whether the number or the tensor is known without the forward pass.
  bool isWeight(Value value) const {
    return isa_and_nonnull<ParamGetOp>(value.getDefiningOp());
  }
  void writeSegment(const Segment &segment);
  void writeNorm(BatchNormOp op);
  /// By level: what tiles run, what runs whole, and normalisations.
  using Level = std::array<SmallVector<Operation *>, 3>;
  LogicalResult findSegments();
  std::vector<SmallVector<Operation *>>
  splitApart(ArrayRef<Operation *> ops) const;
  LogicalResult findOutputs(Segment &segment);
  Value getLeaf(Writer &writer, Value value);
  Value getLocal(Writer &writer, IRMapping &mapping, Value value);
  void writeForward(Writer &writer, Value output);
  SmallVector<Operation *> findMakers(const Segment &segment,
                                      Value output) const;
  void cloneRecorded(Writer &writer, ArrayRef<Operation *> ops,
                     IRMapping &mapping);
  std::vector<GradientAgain> findGradientsAgain(const Segment &segment) const;
  Value makeGradientAgain(Writer &writer, const GradientAgain &again);
  /// The sum of what has come for `value`, as part of `segment` if there is
  /// one; null if nothing has come.
  Value takeGradient(Value value, const Segment *segment = nullptr);
  void runBackward(ValueRange operands, const Segment &segment);
  /// Adds `gradient` to that of a value without batch, which is a weight or
  /// made of some.
  void addWeightGradient(Value weight, Value gradient);
  /// What `build` makes, which records nothing.
  SmallVector<Operation *> collectMade(llvm::function_ref<void()> build);
  /// `value` in the tiles of the segment, without a record.
  Value getForward(Writer &writer, Value value);
  Recompute getChoice(Value value, const Segment &segment) const;
  Value getLatest(Value value) const;
  void giveNormGradients(Value value, Writer *writer);
  void takeLeaf(Writer &writer, Value value);
  SmallVector<SegmentReads> describeSegments() const;
  void planRecomputation(RecomputeFigures &figures);
  /// Of the time of the forward pass, what has been written to run again.
  double getShareAgain() const;
  void writeOperators(Writer &writer, Operation *op);
  void writeOutput(Writer &writer, Value output);
  Operation *mark(Operation *op, const Segment &segment) const {
    op->setAttr(kSegmentAttr, builder.getI64IntegerAttr(segment.number));
    op->setAttr(kStepAttr, builder.getI64IntegerAttr(step));
    if (segment.isWhole)
      op->setAttr(kWholeSegmentAttr, builder.getUnitAttr());
    return op;
  }
  /// Makes values of the forward pass again for the next level.
  void runTwice();
  /// Returns the gradients that leaves of the program ask for.
  LogicalResult giveLeafGradients();
  /// Lets the forward pass read weights and arguments without their gradients.
  void detachForward();

  FunctionOpInterface function;
  StringRef symbol;
  std::optional<RecomputeBudget> budget;
  DimAnalysis dims;
  StorageAnalysis storage;
  RequiresGradAnalysis gradients;
  /// Of shares of times, which hardly depend on the batch.
  static constexpr int64_t kUnknownBatch = 64;
  CostEstimate costs;
  double timeAgain = 0;
  /// Of what is written now.
  int64_t step = 0;
  std::optional<BatchAnalysis> batch;
  mutable OpBuilder builder;
  BackwardOp backward;
  llvm::DenseSet<Value> path;
  /// Operations on the path, in order.
  SmallVector<Operation *> onPath;
  llvm::DenseMap<Operation *, unsigned> levels;
  llvm::DenseSet<Operation *> whole;
  llvm::DenseMap<Value, SmallVector<Value>> contributions;
  SmallVector<LeafGradOp> leafGrads;
  /// From the last on: a segment, or normalisations.
  std::vector<std::pair<Segment, SmallVector<Operation *>>> plan;
  /// Operations that record nothing.
  SmallVector<Operation *> forward;
  int64_t segments = 0;
  /// Null without a budget.
  std::unique_ptr<RecomputePlanner> planner;
  /// What one segment has made again for those after it, too.
  IRMapping restored;
  /// What the last segment has made again for itself.
  IRMapping latest;
  /// By what is normalised.
  llvm::DenseMap<Value, SmallVector<BatchNormGradient, 1>> normGradients;
  /// Of what segments have differentiated.
  llvm::DenseMap<Value, Value> outputGradients;
};
} // namespace

SmallVector<Value> BackwardSplitter::getSources(Operation *op) const {
  SmallVector<Value> sources;
  if (auto norm = dyn_cast<BatchNormOp>(op); norm && isNorm(op)) {
    for (Value value : {norm.getInput(), norm.getWeight(), norm.getBias()})
      if (value && gradients.wants(value))
        sources.push_back(value);
    return sources;
  }
  for (Value value : getReads(op))
    if (gradients.wants(value))
      sources.push_back(value);
  return sources;
}

unsigned BackwardSplitter::getLevel(Value value, bool isWholeReader) const {
  Operation *maker = value.getDefiningOp();
  auto found = levels.find(maker);
  if (found == levels.end())
    return 0;
  // What reads a normalised tensor normalises it again.
  bool isWholeMaker = whole.contains(maker);
  return found->second + (isWholeMaker != isWholeReader ? 1 : 0);
}

LogicalResult BackwardSplitter::collect() {
  if (!dims.isValid())
    return failure();
  WalkResult result = function->walk([&](BackwardOp op) -> WalkResult {
    if (backward || op->getParentRegion() != &function.getFunctionBody() ||
        op.getGradient() || op.getCreateGraph() ||
        op.getRetainGraph().value_or(false))
      return refuse(op, "it is not the one backward pass of a loss");
    backward = op;
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  Value loss = backward.getSelf();
  if (!gradients.wants(loss))
    return refuse(backward, "the loss has no gradient");
  if (DimExpr extent = findLossExtent(dims, loss))
    return refuse(backward, "the loss has extent " + extent.str() +
                                "; only of one element there is a gradient");
  Operation *returned = function.getFunctionBody().front().getTerminator();
  if (llvm::any_of(returned->getOperands(),
                   [&](Value value) { return gradients.wants(value); }))
    return refuse(returned, "it returns a tensor with a gradient; detach it");
  path.insert(loss);
  for (Operation &op : llvm::reverse(function.getFunctionBody().front())) {
    if (llvm::none_of(op.getResults(),
                      [&](Value value) { return isOnPath(value); }))
      continue;
    if (isa<ParamGetOp, LeafOp>(op))
      continue;
    if (onlyReadsMutableStorage(op))
      return refuse(&op, "'" + getCallee(op).str() +
                             "' reads storage that is written in place, which "
                             "would be written twice; write a new tensor, as "
                             "by mul() in the place of mul_()");
    if (!isMemoryEffectFree(&op))
      return refuse(&op, "'" + getCallee(op).str() +
                             "' has effects, and would run twice");
    onPath.push_back(&op);
    SmallVector<Value> sources = getSources(&op);
    path.insert_range(sources);
  }
  std::reverse(onPath.begin(), onPath.end());
  for (BlockArgument argument : function.getFunctionBody().getArguments())
    if (isOnPath(argument))
      return refuse(backward, "argument " + Twine(argument.getArgNumber()) +
                                  " requires a gradient, which no leaf takes");
  function->walk([&](LeafGradOp read) { leafGrads.push_back(read); });
  // What interleaves the batch runs whole, also beside the path, and rows begin
  // anew behind it.
  BatchAnalysis::Operations interleaved;
  for (size_t known = 1; known != interleaved.size();) {
    known = interleaved.size();
    batch.emplace(function, dims, symbol, BatchAnalysis::Barriers::Cut,
                  interleaved);
    auto isInner = [&](Value value) { return batch->lookup(value).isInner(); };
    for (Operation &op : function.getFunctionBody().front())
      if (llvm::any_of(op.getResults(), isInner) &&
          llvm::none_of(op.getOperands(), isInner))
        interleaved.insert(&op);
  }
  for (Operation *op : interleaved)
    op->setAttr(kWholeSegmentAttr, builder.getUnitAttr());
  for (Operation *op : onPath) {
    bool isApart = true;
    for (Value value : op->getResults()) {
      const BatchFact &fact = batch->lookup(value);
      isApart &= !isa<TensorType>(value.getType()) || fact.isAt();
    }
    if (!isNorm(op) && !isApart)
      whole.insert(op);
    if (isNorm(op) && !isApart)
      return refuse(op, "the batch of '" + getCallee(*op).str() +
                            "' is not in one dim");
    unsigned level = isNorm(op) ? 1 : 0;
    for (Value source : getSources(op))
      level = std::max(level, getLevel(source, whole.contains(op)) +
                                  (isNorm(op) ? 1 : 0));
    levels[op] = level;
  }
  return success();
}

Value BackwardSplitter::takeGradient(Value value, const Segment *segment) {
  auto found = contributions.find(value);
  if (found == contributions.end())
    return {};
  SmallVector<Value> parts = std::move(found->second);
  contributions.erase(found);
  Value sum = parts.front();
  for (Value part : llvm::drop_begin(parts)) {
    sum = AddTensorOp::create(builder, value.getLoc(), sum.getType(), sum, part,
                              builder.getI64IntegerAttr(1), /*tied=*/false,
                              ValueRange());
    if (segment)
      mark(sum.getDefiningOp(), *segment);
  }
  return sum;
}

void BackwardSplitter::runBackward(ValueRange operands,
                                   const Segment &segment) {
  OperationState state(operands.front().getLoc(),
                       BackwardOp::getOperationName());
  state.addOperands(operands);
  state.addAttribute("create_graph", builder.getBoolAttr(false));
  mark(builder.create(state), segment);
}

//===----------------------------------------------------------------------===//
// Batch normalisation
//===----------------------------------------------------------------------===//

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
// Segments
//===----------------------------------------------------------------------===//

LogicalResult BackwardSplitter::findOutputs(Segment &segment) {
  llvm::DenseMap<Value, llvm::SmallSetVector<Value, 2>> reached;
  SmallVector<Value> found;
  auto isRead = [&](Value value) {
    if (value == backward.getSelf())
      return true;
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      Operation *outer =
          function.getFunctionBody().front().findAncestorOpInBlock(*user);
      return levels.contains(outer) && !segment.set.contains(outer) &&
             llvm::is_contained(getSources(outer), value);
    });
  };
  for (Operation *op : llvm::reverse(segment.ops)) {
    if (!segment.set.contains(op))
      continue;
    llvm::SmallSetVector<Value, 2> all;
    for (Value value : op->getResults()) {
      if (!isOnPath(value))
        continue;
      llvm::SmallSetVector<Value, 2> &of = reached[value];
      bool isTensor = isa<TensorType>(value.getType());
      if (!isTensor && isRead(value))
        return refuse(op, "'" + getCallee(*op).str() +
                              "' gives a list or tuple that others read");
      // Several are made of it, or it is read elsewhere: a leaf for them. Of a
      // list its tensors are.
      if (isRead(value) || (isTensor && of.size() > 1)) {
        found.push_back(value);
        of.clear();
        of.insert(value);
      }
      all.insert_range(of);
    }
    for (Value source : getSources(op)) {
      llvm::SmallSetVector<Value, 2> &of = reached[source];
      of.insert_range(all);
    }
  }
  segment.outputs.insert_range(llvm::reverse(found));
  return success();
}

/// Groups of `ops` that share no value with a gradient but weights, as two
/// towers that meet in the loss; the one that ends last is the first. Tiles of
/// one hold nothing of another.
std::vector<SmallVector<Operation *>>
BackwardSplitter::splitApart(ArrayRef<Operation *> ops) const {
  llvm::EquivalenceClasses<Operation *> groups;
  llvm::DenseMap<Value, Operation *> readers;
  for (Operation *op : ops) {
    groups.insert(op);
    for (Value source : getSources(op)) {
      if (isWeight(source))
        continue;
      auto [reader, isNew] = readers.try_emplace(source, op);
      if (!isNew)
        groups.unionSets(op, reader->second);
    }
  }
  for (Operation *op : ops)
    for (Value result : op->getResults())
      if (Operation *reader = readers.lookup(result))
        groups.unionSets(op, reader);
  llvm::MapVector<Operation *, SmallVector<Operation *>> found;
  for (Operation *op : llvm::reverse(ops))
    found[groups.getLeaderValue(op)].push_back(op);
  std::vector<SmallVector<Operation *>> parts;
  for (auto &[leader, members] : found) {
    std::reverse(members.begin(), members.end());
    parts.push_back(std::move(members));
  }
  return parts;
}

LogicalResult BackwardSplitter::findSegments() {
  std::map<unsigned, Level> order;
  for (Operation *op : onPath)
    order[levels.lookup(op)][isNorm(op)           ? 2
                             : whole.contains(op) ? 1
                                                  : 0]
        .push_back(op);
  for (auto &[level, kinds] : llvm::reverse(order)) {
    for (bool isWhole : {false, true}) {
      // What mixes samples runs on the whole batch anyway.
      std::vector<SmallVector<Operation *>> parts =
          isWhole ? std::vector{kinds[isWhole]} : splitApart(kinds[isWhole]);
      for (SmallVector<Operation *> &ops : parts) {
        if (ops.empty())
          continue;
        Segment segment;
        segment.ops = std::move(ops);
        segment.all.insert_range(segment.ops);
        for (Operation *op : segment.ops)
          if (!hasOperators(op))
            segment.set.insert(op);
        segment.isWhole = isWhole;
        segment.number = segments++;
        if (failed(findOutputs(segment)))
          return failure();
        plan.push_back({std::move(segment), {}});
      }
    }
    if (!kinds[2].empty())
      plan.push_back({Segment(), kinds[2]});
  }
  return success();
}

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
  if (!op || !levels.contains(op))
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
  Value &leaf = writer.leaves[value];
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
    leaf = op.getResult();
  }
  Value made = convertElements(builder, value.getLoc(), leaf, type);
  if (made != leaf)
    mark(made.getDefiningOp(), writer.segment);
  return made;
}

/// What stands for `value`, through which no gradient flows: made again where
/// it is made of what the segment makes.
Value BackwardSplitter::getLocal(Writer &writer, IRMapping &mapping,
                                 Value value) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  if (Value leaf = writer.leaves.lookup(value);
      leaf && leaf.getType() == value.getType())
    return leaf;
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
  bool isLocal = false;
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

/// What `output` is made of within `segment`, up to leaves.
SmallVector<Operation *> BackwardSplitter::findMakers(const Segment &segment,
                                                      Value output) const {
  return collectMakers(output.getDefiningOp(), [&](Operation *op) {
    SmallVector<Operation *> makers;
    for (Value source : getSources(op))
      if (Operation *maker = source.getDefiningOp();
          !segment.outputs.contains(source) && maker &&
          segment.set.contains(maker))
        makers.push_back(maker);
    return makers;
  });
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

/// Gradients of what is normalised that come from one output of `segment`
/// alone, by differentiating operations which read nothing else with a
/// gradient.
std::vector<GradientAgain>
BackwardSplitter::findGradientsAgain(const Segment &segment) const {
  if (segment.isWhole)
    return {};
  std::vector<GradientAgain> found;
  for (Value output : segment.outputs) {
    SmallVector<Operation *> ops = findMakers(segment, output);
    llvm::SmallPtrSet<Operation *, 8> all(ops.begin(), ops.end());
    llvm::SmallSetVector<Value, 2> sources;
    for (Operation *op : ops)
      for (Value source : getSources(op))
        if (!all.contains(source.getDefiningOp()) ||
            segment.outputs.contains(source))
          sources.insert(source);
    if (sources.size() != 1)
      continue;
    Value value = sources.front();
    // Whoever else reads it, in any segment, has a part of its gradient.
    bool isAlone = llvm::all_of(value.getUsers(), [&](Operation *user) {
      Operation *outer = value.getParentBlock()->findAncestorOpInBlock(*user);
      return all.contains(outer) || !levels.contains(outer) ||
             !llvm::is_contained(getSources(outer), value);
    });
    if (isAlone && isNorm(value.getDefiningOp()) && batch->lookup(value).isAt())
      found.push_back({value, output, std::move(ops)});
  }
  return found;
}

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
  for (Value operand : op->getOperands()) {
    operands.push_back(isOnPath(operand) ? getForward(writer, operand)
                                         : operand);
    wanted.push_back(llvm::is_contained(sources, operand));
  }
  SmallVector<Operation *> made = collectMade([&] {
    gradients = cast<BackwardOperatorInterface>(op).buildGradients(
        builder, gradient, operands, wanted);
  });
  auto isApart = [&](Value value) { return batch->lookupRead(value).isAt(); };
  // Of what is made of weights the tiles add up.
  llvm::SmallPtrSet<Operation *, 2> sums;
  for (auto [operand, found] : llvm::zip_equal(op->getOperands(), gradients))
    if (found && !isApart(operand) && !isWeight(operand))
      sums.insert(found.getDefiningOp());
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

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

void BackwardSplitter::detachForward() {
  llvm::SmallPtrSet<Operation *, 32> ops(forward.begin(), forward.end());
  auto isForward = [&](OpOperand &use) {
    Operation *outer = function.getFunctionBody().front().findAncestorOpInBlock(
        *use.getOwner());
    return ops.contains(outer);
  };
  auto detach = [&](Value value) {
    if (!gradients.wants(value) || llvm::none_of(value.getUses(), isForward))
      return;
    builder.setInsertionPointAfterValue(value);
    auto made =
        DetachOp::create(builder, value.getLoc(), value.getType(), value);
    value.replaceUsesWithIf(made.getResult(), [&](OpOperand &use) {
      return isForward(use) && !isa<DetachOp>(use.getOwner());
    });
  };
  for (BlockArgument argument : function.getFunctionBody().getArguments())
    detach(argument);
  for (Operation *op : forward)
    if (isa<ParamGetOp>(op))
      detach(op->getResult(0));
}

/// What each segment reads of the forward pass, from the last on.
SmallVector<SegmentReads> BackwardSplitter::describeSegments() const {
  SmallVector<SegmentReads> found;
  for (const auto &[segment, norms] : plan) {
    if (segment.ops.empty())
      continue;
    SegmentReads &reads = found.emplace_back();
    reads.ops = segment.ops;
    for (Operation *op : segment.ops) {
      for (Value source : getSources(op)) {
        Operation *maker = source.getDefiningOp();
        if (!maker || !segment.set.contains(maker))
          reads.values.insert(source);
        if (!maker || !segment.all.contains(maker))
          reads.made.push_back(source);
      }
      llvm::append_range(reads.taken, op->getResults());
      // The gradient of what is normalised is made where it is taken.
      for (Value result : op->getResults())
        for (Operation *user : result.getUsers())
          if (auto norm = dyn_cast<BatchNormOp>(user);
              norm && isNorm(norm) && norm.getInput() == result) {
            reads.taken.push_back(norm.getResult());
            reads.values.insert(result);
          }
    }
    reads.again = findGradientsAgain(segment);
  }
  return found;
}

void BackwardSplitter::planRecomputation(RecomputeFigures &figures) {
  SmallVector<SegmentReads> reads = describeSegments();
  auto isApart = [&](Value value) { return batch->lookup(value).isAt(); };
  planner = std::make_unique<RecomputePlanner>(
      dims, symbol, budget->batch, *budget->costs, levels, std::move(reads),
      [&](Operation *op) { return isNorm(op) || hasGaps(op); }, isApart);
  planner->plan(budget->bytes, budget->beside);
  figures.wholeBytesAt =
      planner->simulate(std::vector<int64_t>(planner->countSteps(), 0)).bytesAt;
}

void BackwardSplitter::runTwice() {
  if (!planner)
    return;
  for (Operation *op : onPath) {
    if (op->getNumResults() != 1 || !planner->runsTwice(op->getResult(0)))
      continue;
    // Whoever reads it last runs in later loops, and so will the copy.
    Operation *again = nullptr;
    for (OpOperand &use : llvm::make_early_inc_range(op->getUses())) {
      Operation *user = use.getOwner();
      auto level = levels.find(user);
      if (level == levels.end() || level->second <= levels.lookup(op))
        continue;
      if (!again) {
        builder.setInsertionPointAfter(op);
        again = builder.clone(*op);
        forward.push_back(again);
        timeAgain += costs.getTime(op);
      }
      use.set(again->getResult(0));
    }
  }
}

LogicalResult BackwardSplitter::giveLeafGradients() {
  for (LeafGradOp read : leafGrads) {
    giveNormGradients(read.getLeaf(), nullptr);
    Value gradient = takeGradient(read.getLeaf());
    if (!gradient)
      return refuse(read, "nothing gives a gradient to " +
                              describeLeaf(read.getLeafOp()));
    // Several may ask for the same.
    contributions[read.getLeaf()].push_back(gradient);
    read.getResult().replaceAllUsesWith(gradient);
    read.erase();
  }
  return success();
}

double BackwardSplitter::getShareAgain() const {
  double time = 0;
  for (Operation *op : onPath)
    time += costs.getTime(op);
  return timeAgain / std::max(time, 1.);
}

FailureOr<RecomputeFigures> BackwardSplitter::run() {
  if (failed(collect()) || failed(findSegments()))
    return failure();
  RecomputeFigures figures;
  if (budget)
    planRecomputation(figures);
  for (Operation &op : function.getFunctionBody().front()) {
    if (!isa<BackwardOp, LeafGradOp>(op))
      forward.push_back(&op);
  }
  builder.setInsertionPoint(backward);
  // Also of the forward pass: rows begin anew behind these.
  for (Operation *op : whole)
    op->setAttr(kWholeSegmentAttr, builder.getUnitAttr());
  for (Operation *op : onPath)
    op->setAttr(kStepAttr, builder.getI64IntegerAttr(levels.lookup(op)));
  for (unsigned level : llvm::make_second_range(levels))
    step = std::max<int64_t>(step, level + 1);
  for (auto &[segment, norms] : plan) {
    if (!segment.ops.empty()) {
      writeSegment(segment);
      ++step;
    }
    for (Operation *op : llvm::reverse(norms))
      writeNorm(cast<BatchNormOp>(op));
  }
  if (failed(giveLeafGradients()))
    return failure();
  backward.erase();
  runTwice();
  detachForward();
  for (Operation *op : forward) {
    // What segments read again is not written.
    auto torchOp = dyn_cast<TorchOperatorInterface>(op);
    if (torchOp && torchOp.isTied() && !isOrderedWrite(op) &&
        !op->getOperand(0).hasOneUse())
      torchOp.permitTie(false);
    // Its gradient is that of the leaves of the segments.
    if (isa<LeafOp>(op)) {
      builder.setInsertionPoint(op);
      op->getResult(0).replaceAllUsesWith(
          DetachOp::create(builder, op->getLoc(), op->getResult(0).getType(),
                           op->getOperand(0)));
      op->erase();
    }
  }
  figures.segments = segments;
  figures.share = getShareAgain();
  return figures;
}

FailureOr<RecomputeFigures>
koila::splitBackward(FunctionOpInterface function, StringRef batchSymbol,
                     std::optional<RecomputeBudget> budget) {
  return BackwardSplitter(function, batchSymbol, budget).run();
}
