//===- BackwardSegments.cpp - A backward pass in segments -----------------===//
//
// Reverse mode over the operations on the way to the loss, cut where samples
// are mixed. An operation has a level, the number of cuts before it; those of
// one level that are apart for each sample are one segment, which tiles can
// run, and those that mix samples are another, which runs whole.
//
//===----------------------------------------------------------------------===//

#include "BackwardSplitter.h"
#include "Towers.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/MutableStorage.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include <map>

using namespace mlir;
using namespace koila;

void koila::removeSegmentMarks(FunctionOpInterface function) {
  function->walk([](Operation *op) {
    for (StringRef name : {kSegmentAttr, kWholeSegmentAttr, kAfterSegmentAttr,
                           kGradientSumAttr, kNormalisesBatchAttr, kStepAttr})
      op->removeDiscardableAttr(name);
  });
}

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

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
  separateTowers();
  collectBeside();
  return success();
}

/// Finds what is beside the path, is made of nothing on it, and makes what is.
/// A segment reads that as it does values with a gradient: kept, or made again.
/// (What is made of values on the path is made again where they are.)
void BackwardSplitter::collectBeside() {
  Block &block = function.getFunctionBody().front();
  auto isApart = [&](Value value) { return batch->lookup(value).isAt(); };
  Levels found;
  llvm::DenseSet<Operation *> mixing, ofPath;
  auto isOfPath = [&](Value value) {
    return ofPath.contains(value.getDefiningOp()) ||
           (isOnPath(value) && !isWeight(value));
  };
  for (Operation &op : block) {
    if (levels.contains(&op) || op.getNumRegions() > 0 ||
        isa<ParamGetOp, LeafOp>(op) || !isMemoryEffectFree(&op))
      continue;
    if (llvm::any_of(op.getOperands(), isOfPath)) {
      ofPath.insert(&op);
      continue;
    }
    bool isAt =
        op.getNumResults() > 0 && llvm::all_of(op.getResults(), isApart);
    auto comesFromMixing = [&](Value value) {
      return mixing.contains(value.getDefiningOp());
    };
    if (!isAt && (llvm::any_of(op.getOperands(), isApart) ||
                  llvm::any_of(op.getOperands(), comesFromMixing)))
      mixing.insert(&op);
    unsigned level = 0;
    for (Value operand : op.getOperands())
      if (auto *maker = found.find(operand.getDefiningOp());
          maker != found.end())
        level = std::max(level, maker->second +
                                    (isAt && comesFromMixing(operand) ? 1 : 0));
    // (A normalisation reads statistics, which mix samples.)
    found[&op] = level;
  }
  for (auto [op, level] : llvm::reverse(found)) {
    // What is made of fewer bytes a segment makes anyway.
    bool isNeeded = llvm::any_of(op->getUsers(), [&](Operation *user) {
      return levels.contains(user) || beside.contains(user);
    });
    if (isNeeded && !isSmallerBefore(op) &&
        llvm::all_of(op->getResults(), isApart))
      beside[op] = level;
  }
}

/// Gives towers levels of their own, so that no segment has parts of two, and
/// those of one are differentiated before those of another.
void BackwardSplitter::separateTowers() {
  // What is made of weights alone is there for all of them.
  Levels found;
  auto getMakers = [&](Operation *op) {
    SmallVector<Operation *> makers;
    for (Value source : getSources(op))
      if (Operation *maker = source.getDefiningOp(); found.contains(maker))
        makers.push_back(maker);
    return makers;
  };
  for (Operation *op : onPath)
    if (!whole.contains(op) || !getMakers(op).empty())
      found[op] = levels.lookup(op);
  for (auto [op, level] :
       orderTowers(found, getMakers, [](Operation *) { return false; }))
    levels[op] = level;
}

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

/// Gradients of what is normalised that come from one output of `segment`
/// alone, by differentiating operations which read nothing else with a
/// gradient.
std::vector<GradientAgain>
BackwardSplitter::findGradientsAgain(const Segment &segment) const {
  if (segment.isWhole)
    return {};
  std::vector<GradientAgain> found;
  // Of several results of one operation each has a part of the gradient.
  llvm::MapVector<Value, SmallVector<Operation *>> makers;
  llvm::DenseMap<Operation *, unsigned> shares;
  for (Value output : segment.outputs) {
    makers[output] = findMakers(segment, output);
    for (Operation *op : makers[output])
      ++shares[op];
  }
  for (auto &[output, ops] : makers) {
    if (llvm::any_of(ops, [&](Operation *op) { return shares[op] > 1; }))
      continue;
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
        if ((!maker || !segment.set.contains(maker)) &&
            isReadAgain(segment, op, source))
          reads.values.insert(source);
        if (!maker || !segment.all.contains(maker))
          reads.made.push_back(source);
      }
      for (Value read : getReads(op))
        if (isBeside(read) && isReadAgain(segment, op, read))
          reads.values.insert(read);
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

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

void BackwardSplitter::planRecomputation(RecomputeFigures &figures) {
  SmallVector<SegmentReads> reads = describeSegments();
  auto isApart = [&](Value value) { return batch->lookup(value).isAt(); };
  llvm::DenseMap<Operation *, unsigned> all = levels;
  all.insert(beside.begin(), beside.end());
  planner = std::make_unique<RecomputePlanner>(
      dims, symbol, budget->batch, *budget->costs, std::move(all),
      std::move(reads),
      [&](Operation *op) { return isNorm(op) || hasGaps(op); }, isApart);
  planner->plan(budget->bytes, budget->beside);
  figures.wholeBytesAt =
      planner->simulate(std::vector<int64_t>(planner->countSteps(), 0)).bytesAt;
}

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

void BackwardSplitter::runTwice() {
  if (!planner)
    return;
  SmallVector<Operation *> ops;
  for (Operation &op : function.getFunctionBody().front())
    if (levels.contains(&op) || beside.contains(&op))
      ops.push_back(&op);
  auto getLevelOf = [&](Operation *op) -> std::optional<unsigned> {
    for (const auto *known : {&levels, &beside})
      if (auto found = known->find(op); found != known->end())
        return found->second;
    return std::nullopt;
  };
  for (Operation *op : ops) {
    if (op->getNumResults() != 1 || !planner->runsTwice(op->getResult(0)))
      continue;
    // Whoever reads it last runs in later loops, and so will the copy.
    Operation *again = nullptr;
    for (OpOperand &use : llvm::make_early_inc_range(op->getUses())) {
      std::optional<unsigned> level = getLevelOf(use.getOwner());
      if (!level || *level <= *getLevelOf(op))
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
  llvm::SmallDenseSet<Value, 4> given;
  for (LeafGradOp read : leafGrads) {
    giveNormGradients(read.getLeaf(), nullptr);
    Value gradient = takeGradient(read.getLeaf());
    if (!gradient)
      return refuse(read, "nothing gives a gradient to " +
                              describeLeaf(read.getLeafOp()));
    // Several may ask for the same.
    contributions[read.getLeaf()].push_back(gradient);
    // Whoever has one of a sum may write to it.
    if (!given.insert(gradient).second)
      gradient = CloneTensorOp::create(builder, read.getLoc(),
                                       gradient.getType(), gradient,
                                       /*memory_format=*/nullptr);
    read.getResult().replaceAllUsesWith(gradient);
    read.erase();
  }
  return success();
}

double BackwardSplitter::getShareAgain() {
  double time = 0;
  for (Operation &op : function.getFunctionBody().front())
    if (levels.contains(&op) || beside.contains(&op))
      time += costs.getTime(&op);
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
