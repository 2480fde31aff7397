//===- BackwardParts.cpp - A backward pass of one tile in parts -----------===//
//
// The gradients are those of the whole pass: by the chain rule the gradient of
// what crosses from one part to the next is all that a part needs of those
// behind it, and weights add up what comes of each. See docs/design.
//
//===----------------------------------------------------------------------===//

#include "BackwardParts.h"
#include "GradientBuilder.h"
#include "PhasePlan.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/BackwardOperator.h"
#include "koila/Interfaces/MutableStorage.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include <numeric>

using namespace mlir;
using namespace koila;

/// What `op` reads and hands its gradient to. A view has it for what it is a
/// view of alone: expand_as() reads another tensor for its sizes.
static SmallVector<Value> getSources(Operation *op, const DimAnalysis &dims,
                                     const RequiresGradAnalysis &gradients) {
  SmallVector<Value> viewed;
  bool isView = false;
  if (auto interface = dyn_cast<MemoryRuleInterface>(op)) {
    StorageRule rule(op, [&](Value value) { return dims.lookup(value); });
    interface.describeStorage(rule);
    isView = !rule.getResults().empty();
    for (const StorageFact &fact : rule.getResults()) {
      isView &= fact.kind == StorageFact::Kind::Alias && fact.exact;
      viewed.push_back(fact.operand);
    }
  }
  return llvm::filter_to_vector(getReads(op), [&](Value read) {
    return gradients.wants(read) &&
           (!isView || llvm::is_contained(viewed, read));
  });
}

/// Whether `ops` read storage to which others of their block write something
/// with a gradient: autograd differentiates those, too, but what is written to
/// a view is no operand of what reads the storage later.
static bool readsWhatOthersWrite(ArrayRef<Operation *> ops,
                                 const RequiresGradAnalysis &gradients) {
  auto contains = [](Operation *op, llvm::function_ref<bool(Operation *)> is) {
    return op
        ->walk([&](Operation *inner) {
          return is(inner) ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  };
  if (llvm::none_of(ops,
                    [&](Operation *op) { return contains(op, isOrdered); }))
    return false;
  llvm::SmallPtrSet<Operation *, 32> own(ops.begin(), ops.end());
  return llvm::any_of(*ops.front()->getBlock(), [&](Operation &op) {
    return !own.contains(&op) && contains(&op, [&](Operation *inner) {
      return isOrderedWrite(inner) &&
             llvm::any_of(inner->getOperands(),
                          [&](Value value) { return gradients.wants(value); });
    });
  });
}

/// What `backward` differentiates of its own block, in order: everything
/// between leaves, weights and its operand. Nothing where uses do not tell.
static SmallVector<Operation *>
findDifferentiated(BackwardOp backward, const DimAnalysis &dims,
                   const RequiresGradAnalysis &gradients) {
  auto isInside = [&](Operation *op) {
    return op && op->getBlock() == backward->getBlock() &&
           !isa<ParamGetOp, LeafOp>(op);
  };
  Operation *last = backward.getSelf().getDefiningOp();
  if (!isInside(last) || !gradients.wants(backward.getSelf()))
    return {};
  SmallVector<Operation *> ops = collectMakers(last, [&](Operation *op) {
    SmallVector<Operation *> makers;
    for (Value source : getSources(op, dims, gradients))
      if (isInside(source.getDefiningOp()))
        makers.push_back(source.getDefiningOp());
    return makers;
  });
  if (readsWhatOthersWrite(ops, gradients))
    return {};
  return ops;
}

/// Those of `ops`, in order, that are made of weights alone: each part makes
/// them again.
static llvm::SmallPtrSet<Operation *, 8>
findOfWeights(ArrayRef<Operation *> ops) {
  llvm::SmallPtrSet<Operation *, 8> found;
  for (Operation *op : ops)
    if (isMemoryEffectFree(op) && llvm::all_of(getReads(op), [&](Value read) {
          Operation *maker = read.getDefiningOp();
          return !isa<TensorType>(read.getType()) || found.contains(maker) ||
                 isa_and_nonnull<ParamGetOp>(maker);
        }))
      found.insert(op);
  return found;
}

static bool hasBackwardOperator(Operation *op, const DimAnalysis &dims) {
  auto interface = dyn_cast<BackwardOperatorInterface>(op);
  return interface && isMemoryEffectFree(op) &&
         interface.hasBackwardOperator(
             [&](Value value) { return dims.lookup(value); });
}

/// Those of `ops`, one part, at its end that operators differentiate: no other
/// operation of the part hands them a gradient, and so none of them runs again
/// but views that these operators read.
static llvm::SmallPtrSet<Operation *, 4>
findByOperators(ArrayRef<Operation *> ops, const DimAnalysis &dims,
                const RequiresGradAnalysis &gradients) {
  llvm::SmallPtrSet<Operation *, 4> found;
  llvm::DenseSet<Value> recorded, readAgain;
  for (Operation *op : llvm::reverse(ops)) {
    if (!hasBackwardOperator(op, dims) || recorded.contains(op->getResult(0)) ||
        (readAgain.contains(op->getResult(0)) && !makesNoTensor(*op, dims))) {
      recorded.insert_range(getSources(op, dims, gradients));
      continue;
    }
    found.insert(op);
    auto interface = cast<BackwardOperatorInterface>(op);
    bool isAgain = readAgain.contains(op->getResult(0));
    for (OpOperand &operand : op->getOpOperands())
      if (isAgain || interface.readsOperand(operand.getOperandNumber()))
        readAgain.insert(operand.get());
  }
  return found;
}

//===----------------------------------------------------------------------===//
// Where it is cut
//===----------------------------------------------------------------------===//

namespace {
/// A backward pass before it is rewritten.
class Chain {
public:
  Chain(BackwardOp backward, const DimAnalysis &dims,
        const RequiresGradAnalysis &gradients, const CostEstimate &costs)
      : ops(findDifferentiated(backward, dims, gradients)), dims(dims),
        gradients(gradients), costs(costs) {
    auto ofWeights = findOfWeights(ops);
    llvm::erase_if(ops, [&](Operation *op) { return ofWeights.contains(op); });
    measure();
  }

  /// What autograd keeps, about, in bytes.
  double getSavedBytes() const { return total; }
  double getTime() const { return sum(times); }
  /// Cuts it such that each part keeps at most `most` bytes, if it can. Returns
  /// the number of parts, and adds the time of all but the last to `again`.
  int64_t cut(double most, double &again);

private:
  static double sum(ArrayRef<double> numbers) {
    return std::accumulate(numbers.begin(), numbers.end(), 0.);
  }
  void measure();
  /// Ends of further parts among the first `end` operations, which run again
  /// anyway, in order: where operators differentiate what comes before, and the
  /// bytes that cross are better spent so than on a longer last part.
  SmallVector<size_t> findFurtherEnds(size_t end) const;
  /// What holds the elements of `value`, which may be a view.
  Value findRoot(Value value) const;

  SmallVector<Operation *> ops;
  const DimAnalysis &dims;
  const RequiresGradAnalysis &gradients;
  const CostEstimate &costs;
  /// Of each operation: what autograd keeps for it that it kept for none
  /// before, and its time.
  SmallVector<double> saved, times;
  /// Of each operation: what crosses from it and those before to those behind,
  /// in bytes; and how much of that is no tensor, and cannot be kept.
  SmallVector<double> crossing;
  SmallVector<int64_t> lists;
  /// Of each operation, whether operators differentiate it.
  SmallVector<bool> hasOperators;
  /// How many operations can run twice.
  size_t repeatable = 0;
  double total = 0;
};
} // namespace

Value Chain::findRoot(Value value) const {
  while (Operation *op = value.getDefiningOp()) {
    if (isa<ParamGetOp, LeafOp>(op) || op->getNumOperands() == 0 ||
        !makesNoTensor(*op, dims))
      break;
    value = op->getOperand(0);
  }
  return value;
}

void Chain::measure() {
  llvm::DenseMap<Operation *, size_t> places;
  for (auto [place, op] : llvm::enumerate(ops))
    places[op] = place;
  saved.assign(ops.size(), 0);
  SmallVector<double> change(ops.size() + 1, 0);
  SmallVector<int64_t> changeOfLists(ops.size() + 1, 0);
  llvm::DenseSet<Value> known;
  llvm::MapVector<Value, size_t> lastRead;
  auto wants = [&](Value value) { return gradients.wants(value); };
  for (auto [place, op] : llvm::enumerate(ops)) {
    times.push_back(costs.getTime(op));
    hasOperators.push_back(hasBackwardOperator(op, dims));
    DifferentiationFacts facts =
        getDifferentiation(op, wants, [&](Value value) {
          return dims.lookup(value).getElementType();
        });
    if (!facts.isKnown() || facts.savesInner || op->getNumRegions() > 0)
      for (Value result : op->getResults())
        saved[place] += costs.getBytes(result);
    for (Value value : facts.saved) {
      Value root = findRoot(value);
      if (!root.getDefiningOp<ParamGetOp>() && known.insert(root).second)
        saved[place] += costs.getBytes(root);
    }
    for (Value read : getReads(op))
      if (auto maker = places.find(read.getDefiningOp());
          maker != places.end()) {
        // A view keeps what it is a view of.
        Value kept = isa<TensorType>(read.getType()) ? findRoot(read) : read;
        lastRead[kept] = std::max(lastRead.lookup(kept), place);
      }
    if (place == repeatable && isMemoryEffectFree(op))
      ++repeatable;
  }
  for (auto [value, last] : lastRead) {
    auto maker = places.find(value.getDefiningOp());
    if (maker == places.end())
      continue;
    double bytes = costs.getBytes(value);
    change[maker->second] += bytes;
    change[last] -= bytes;
    bool isList = !isa<TensorType>(value.getType());
    changeOfLists[maker->second] += isList;
    changeOfLists[last] -= isList;
  }
  double bytes = 0;
  int64_t count = 0;
  for (size_t place = 0; place < ops.size(); ++place) {
    crossing.push_back(bytes += change[place]);
    lists.push_back(count += changeOfLists[place]);
  }
  total = sum(saved);
}

SmallVector<size_t> Chain::findFurtherEnds(size_t end) const {
  SmallVector<size_t> ends;
  double time = sum(times), gain = 0;
  for (size_t place = 1; place <= end; ++place) {
    gain = hasOperators[place - 1] ? gain + times[place - 1] : 0;
    bool isWorth = gain * total > 2 * crossing[place - 1] * time;
    // Of neighbours the last.
    if (isWorth && lists[place - 1] == 0 && place <= repeatable &&
        !(place < end && hasOperators[place]))
      ends.push_back(place);
  }
  return ends;
}

int64_t Chain::cut(double most, double &again) {
  // The last part runs once: it is the largest that may be.
  SmallVector<size_t> ends;
  size_t end = ops.size();
  while (end > 0) {
    std::optional<size_t> best;
    double bytes = 0, bytesAtBest = 0;
    for (size_t place = end; place-- > 1;) {
      bytes += saved[place];
      if (bytes > most && best)
        break;
      // Where least crosses, and what crosses is less than what is saved; of
      // the same where more is saved. Small parts are for where nothing else is
      // left.
      double crosses = crossing[place - 1];
      if (place > repeatable || crosses > bytes / 2 || lists[place - 1] > 0)
        continue;
      if (!best || bytes <= most / 2 || crosses < crossing[*best - 1] ||
          (crosses == crossing[*best - 1] && bytes > bytesAtBest)) {
        best = place;
        bytesAtBest = bytes;
      }
    }
    // All that is left is one part.
    double left = sum(ArrayRef(saved).take_front(end));
    if (!best || left <= most)
      break;
    ends.push_back(*best);
    end = *best;
  }
  if (ends.empty())
    return 1;
  llvm::append_range(ends, findFurtherEnds(ends.front()));
  llvm::sort(ends);
  ends.erase(llvm::unique(ends), ends.end());
  Builder builder(ops.front()->getContext());
  size_t place = 0;
  for (auto [part, last] : llvm::enumerate(ends)) {
    auto byOperators = findByOperators(ArrayRef(ops).slice(place, last - place),
                                       dims, gradients);
    for (; place < last; ++place) {
      ops[place]->setAttr(kPartAttr, builder.getI64IntegerAttr(part));
      if (!byOperators.contains(ops[place]))
        again += times[place];
    }
  }
  return static_cast<int64_t>(ends.size()) + 1;
}

RecomputeFigures koila::markParts(FunctionOpInterface function,
                                  const DimAnalysis &dims,
                                  const RequiresGradAnalysis &gradients,
                                  const CostEstimate &costs, double share) {
  std::vector<Chain> chains;
  function->walk(
      [&](BackwardOp op) { chains.emplace_back(op, dims, gradients, costs); });
  RecomputeFigures figures;
  double most = 0, again = 0, time = 0;
  for (const Chain &chain : chains) {
    most = std::max(most, share * chain.getSavedBytes());
    time += chain.getTime();
  }
  for (Chain &chain : chains)
    figures.parts = std::max(figures.parts, chain.cut(most, again));
  figures.share = again / std::max(time, 1.);
  return figures;
}

//===----------------------------------------------------------------------===//
// The rewrite
//===----------------------------------------------------------------------===//

namespace {
class PassSplitter {
public:
  PassSplitter(BackwardOp backward, const DimAnalysis &dims,
               const RequiresGradAnalysis &gradients)
      : backward(backward), dims(dims), gradients(gradients),
        builder(backward) {}

  /// Whether it could be.
  bool run();

private:
  /// Part of the forward pass.
  struct Part {
    SmallVector<Operation *> ops;
    /// Those that operators differentiate, at the end.
    llvm::SmallPtrSet<Operation *, 4> byOperators;
    /// Values that later parts or these operators read, or of which several of
    /// these are made: each has a backward pass of its own, and is a leaf for
    /// its readers.
    llvm::SetVector<Value> outputs;
  };
  /// Leaves of what a part reads of those before it, or of its own outputs.
  using Leaves = llvm::MapVector<Value, Value>;
  /// A part as it runs again.
  struct Clones {
    /// What stands for its values, for each output.
    llvm::DenseMap<Value, IRMapping> outputs;
    /// What is made of weights, and values without a record.
    IRMapping ofWeights, forward;
  };

  bool collect();
  bool findOutputs(int64_t number);
  int64_t getPart(Operation *op) const { return parts.lookup(op); }
  bool isEarly(Operation *op) const {
    auto found = parts.find(op);
    return found != parts.end() && found->second >= 0 && found->second < last;
  }
  void runForwardWithoutRecords();
  Value getLeaf(Leaves &leaves, Value value);
  Value getRead(Leaves &leaves, IRMapping &mapping, int64_t number, Value read);
  void takeLeaf(Leaves &leaves, Value value);
  Value takeGradient(Value value);
  Value getRecorded(Clones &clones, int64_t number, Value value);
  Value getForward(Clones &clones, int64_t number, Value value);
  void writeOperators(Operation *op, int64_t number, Clones &clones);
  void writePart(int64_t number);

  BackwardOp backward;
  const DimAnalysis &dims;
  const RequiresGradAnalysis &gradients;
  OpBuilder builder;
  int64_t last = 0;
  /// Of what is differentiated; kOfWeights for what is made of weights alone,
  /// which each part makes again.
  llvm::DenseMap<Operation *, int64_t> parts;
  static constexpr int64_t kOfWeights = -1;
  SmallVector<Operation *> ops;
  llvm::DenseMap<Operation *, SmallVector<Value>> sources;
  SmallVector<Part> members;
  llvm::DenseMap<Value, SmallVector<Value>> contributions;
};
} // namespace

/// Whether all of it can be run so.
bool PassSplitter::collect() {
  ops = findDifferentiated(backward, dims, gradients);
  for (Operation *op : ops)
    sources[op] = getSources(op, dims, gradients);
  for (Operation *op : ops)
    if (auto part = op->getAttrOfType<IntegerAttr>(kPartAttr))
      last = std::max(last, part.getInt() + 1);
  if (last == 0)
    return false;
  llvm::SmallPtrSet<Operation *, 32> all(ops.begin(), ops.end());
  auto ofWeights = findOfWeights(ops);
  members.resize(last);
  for (Operation *op : ops) {
    auto part = op->getAttrOfType<IntegerAttr>(kPartAttr);
    int64_t number = part                     ? part.getInt()
                     : ofWeights.contains(op) ? kOfWeights
                                              : last;
    int64_t latest = kOfWeights;
    for (Value read : getReads(op))
      if (Operation *maker = read.getDefiningOp();
          gradients.wants(read) && all.contains(maker))
        latest = std::max(latest, getPart(maker));
    // A leaf is not written.
    if (latest > number || (number < last && !isMemoryEffectFree(op)) ||
        isOrderedWrite(op))
      return false;
    parts[op] = number;
    if (number >= 0 && number < last)
      members[number].ops.push_back(op);
  }
  for (int64_t number = 0; number < last; ++number) {
    Part &part = members[number];
    part.byOperators = findByOperators(part.ops, dims, gradients);
    if (!findOutputs(number))
      return false;
  }
  return true;
}

bool PassSplitter::findOutputs(int64_t number) {
  Part &part = members[number];
  // Which outputs are made of a value.
  llvm::DenseMap<Value, llvm::SmallSetVector<Value, 2>> reached;
  SmallVector<Value> found;
  for (Operation *op : llvm::reverse(part.ops)) {
    if (part.byOperators.contains(op))
      continue;
    llvm::SmallSetVector<Value, 2> all;
    for (Value value : op->getResults()) {
      if (!gradients.wants(value))
        continue;
      bool isTensor = isa<TensorType>(value.getType());
      bool isRead = llvm::any_of(value.getUsers(), [&](Operation *user) {
        Operation *outer = op->getBlock()->findAncestorOpInBlock(*user);
        auto known = parts.find(outer);
        return known != parts.end() &&
               (known->second > number || part.byOperators.contains(outer)) &&
               llvm::is_contained(sources.find(outer)->second, value);
      });
      if (isRead && !isTensor)
        return false;
      llvm::SmallSetVector<Value, 2> &of = reached[value];
      if (isRead || (isTensor && of.size() > 1)) {
        found.push_back(value);
        of.clear();
        of.insert(value);
      }
      all.insert_range(of);
    }
    for (Value read : sources.find(op)->second)
      reached[read].insert_range(all);
  }
  part.outputs.insert_range(llvm::reverse(found));
  return true;
}

/// Lets the forward pass of all but the last part read everything detached.
void PassSplitter::runForwardWithoutRecords() {
  llvm::DenseMap<Value, Value> detached;
  auto detach = [&](Value value) {
    Value &known = detached[value];
    if (known)
      return known;
    OpBuilder::InsertionGuard guard(builder);
    Block *block = backward->getBlock();
    if (value.getParentBlock() == block)
      builder.setInsertionPointAfterValue(value);
    else
      builder.setInsertionPointToStart(block);
    return known = DetachOp::create(builder, value.getLoc(), value.getType(),
                                    value);
  };
  for (const Part &part : members)
    for (Operation *op : part.ops)
      op->walk([&](Operation *inner) {
        for (OpOperand &operand : inner->getOpOperands()) {
          Value value = operand.get();
          if (gradients.wants(value) && isa<TensorType>(value.getType()) &&
              !op->isAncestor(value.getParentRegion()->getParentOp()) &&
              !isEarly(value.getDefiningOp()))
            operand.set(detach(value));
        }
      });
}

Value PassSplitter::getLeaf(Leaves &leaves, Value value) {
  Value &leaf = leaves[value];
  if (!leaf)
    leaf = LeafOp::create(builder, value.getLoc(), value.getType(), value);
  return leaf;
}

/// What stands for `read` in the forward pass of part `number`.
Value PassSplitter::getRead(Leaves &leaves, IRMapping &mapping, int64_t number,
                            Value read) {
  Operation *maker = read.getDefiningOp();
  auto part = parts.find(maker);
  if (part == parts.end() || !gradients.wants(read))
    return read;
  if (part->second != kOfWeights)
    return getLeaf(leaves, read);
  for (Value operand : getReads(maker))
    if (!mapping.contains(operand))
      mapping.map(operand, getRead(leaves, mapping, number, operand));
  builder.clone(*maker, mapping);
  return mapping.lookup(read);
}

/// Adds what has come to the leaf of `value`.
void PassSplitter::takeLeaf(Leaves &leaves, Value value) {
  Value leaf = leaves.lookup(value);
  if (!leaf)
    return;
  auto gradient =
      LeafGradOp::create(builder, leaf.getLoc(), leaf.getType(), leaf);
  contributions[value].push_back(gradient.getResult());
  leaves.erase(value);
}

/// The sum of what has come for `value`; null if nothing has.
Value PassSplitter::takeGradient(Value value) {
  auto found = contributions.find(value);
  if (found == contributions.end())
    return {};
  SmallVector<Value> parts = std::move(found->second);
  contributions.erase(found);
  return addGradients(builder, value.getLoc(), parts);
}

/// What stands for `value` in part `number`, with its record where it is an
/// output of the part or made of weights.
Value PassSplitter::getRecorded(Clones &clones, int64_t number, Value value) {
  if (auto clone = clones.outputs.find(value); clone != clones.outputs.end())
    return clone->second.lookup(value);
  Leaves leaves;
  auto part = parts.find(value.getDefiningOp());
  bool isOfWeights = part != parts.end() && part->second == kOfWeights;
  return isOfWeights ? getRead(leaves, clones.ofWeights, number, value) : value;
}

/// The same without a record; views at the end of the part are made again.
Value PassSplitter::getForward(Clones &clones, int64_t number, Value value) {
  if (!gradients.wants(value))
    return value;
  if (Value known = clones.forward.lookupOrNull(value))
    return known;
  Operation *op = value.getDefiningOp();
  Value made;
  if (members[number].byOperators.contains(op)) {
    IRMapping operands;
    for (Value operand : op->getOperands())
      operands.map(operand, getForward(clones, number, operand));
    made = builder.clone(*op, operands)->getResult(0);
  } else {
    Value recorded = getRecorded(clones, number, value);
    made =
        DetachOp::create(builder, value.getLoc(), recorded.getType(), recorded);
  }
  clones.forward.map(value, made);
  return made;
}

/// The gradients of what `op`, of part `number`, reads, by operators.
void PassSplitter::writeOperators(Operation *op, int64_t number,
                                  Clones &clones) {
  Value gradient = takeGradient(op->getResult(0));
  if (!gradient)
    return;
  auto interface = cast<BackwardOperatorInterface>(op);
  ArrayRef<Value> handed = sources.find(op)->second;
  SmallVector<Value> operands;
  SmallVector<bool> wanted;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    operands.push_back(interface.readsOperand(index)
                           ? getForward(clones, number, operand)
                           : Value());
    wanted.push_back(llvm::is_contained(handed, operand));
  }
  SmallVector<Value> found =
      interface.buildGradients(builder, gradient, operands, wanted);
  for (auto [operand, part] : llvm::zip_equal(op->getOperands(), found)) {
    if (!part)
      continue;
    if (auto maker = parts.find(operand.getDefiningOp());
        maker != parts.end() && maker->second != kOfWeights)
      contributions[operand].push_back(part);
    else
      createBackward(builder, {getRecorded(clones, number, operand), part});
  }
}

void PassSplitter::writePart(int64_t number) {
  Part &part = members[number];
  Leaves leaves;
  Clones clones;
  for (Value output : part.outputs) {
    SmallVector<Operation *> needed =
        collectMakers(output.getDefiningOp(), [&](Operation *op) {
          SmallVector<Operation *> makers;
          for (Value read : sources.find(op)->second)
            if (auto maker = parts.find(read.getDefiningOp());
                maker != parts.end() && maker->second == number &&
                !part.outputs.contains(read))
              makers.push_back(maker->first);
          return makers;
        });
    IRMapping &mapping = clones.outputs[output];
    llvm::SmallDenseSet<Value, 16> ofGradient;
    for (Operation *op : needed)
      ofGradient.insert_range(sources.find(op)->second);
    for (Operation *op : needed) {
      for (Value read : getReads(op))
        if (!mapping.contains(read) && ofGradient.contains(read))
          mapping.map(read, getRead(leaves, mapping, number, read));
      Operation *made = builder.clone(*op, mapping);
      // Leaves are not written.
      if (auto torchOp = dyn_cast<TorchOperatorInterface>(made);
          torchOp && torchOp.isTied())
        withdrawTie(torchOp);
    }
  }
  for (Operation *op : llvm::reverse(part.ops)) {
    if (part.byOperators.contains(op)) {
      writeOperators(op, number, clones);
      continue;
    }
    for (Value output : llvm::reverse(op->getResults())) {
      if (!part.outputs.contains(output))
        continue;
      takeLeaf(leaves, output);
      if (Value gradient = takeGradient(output))
        createBackward(builder,
                       {clones.outputs[output].lookup(output), gradient});
    }
  }
  for (Value value : llvm::to_vector(llvm::make_first_range(leaves)))
    takeLeaf(leaves, value);
}

bool PassSplitter::run() {
  if (!collect())
    return false;
  // A tensor that is read behind the backward pass would keep the leaves.
  for (Operation *op : ops)
    for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
      if (isa<DetachOp>(user) && user->getBlock() == op->getBlock() &&
          backward->isBeforeInBlock(user))
        user->moveAfter(op);
  // The last part reads leaves.
  Leaves leaves;
  llvm::SmallDenseSet<Value, 16> ofGradient;
  for (Operation *op : ops)
    if (getPart(op) == last)
      ofGradient.insert_range(sources.find(op)->second);
  for (Operation *op : ops) {
    if (getPart(op) != last)
      continue;
    op->walk([&](Operation *inner) {
      for (OpOperand &operand : inner->getOpOperands())
        if (Value value = operand.get();
            ofGradient.contains(value) && isEarly(value.getDefiningOp())) {
          builder.setInsertionPointAfterValue(value);
          operand.set(getLeaf(leaves, value));
        }
    });
  }
  builder.setInsertionPointAfter(backward);
  for (Value value : llvm::to_vector(llvm::make_first_range(leaves)))
    takeLeaf(leaves, value);
  for (int64_t number = last - 1; number >= 0; --number)
    writePart(number);
  // They are made of it as it was.
  runForwardWithoutRecords();
  return true;
}

bool koila::splitParts(FunctionOpInterface function) {
  bool isAny = false;
  DimAnalysis dims(function);
  if (dims.isValid()) {
    StorageAnalysis storage(function, dims);
    RequiresGradAnalysis gradients(function, dims, storage);
    SmallVector<BackwardOp> found;
    llvm::DenseSet<Operation *> known;
    function->walk([&](BackwardOp backward) {
      // What two passes differentiate has to record.
      SmallVector<Operation *> ops =
          findDifferentiated(backward, dims, gradients);
      if (!llvm::all_of(ops, [&](Operation *op) {
            return !op->hasAttr(kPartAttr) || known.insert(op).second;
          }))
        for (Operation *op : ops)
          op->removeDiscardableAttr(kPartAttr);
      found.push_back(backward);
    });
    for (BackwardOp op : found)
      isAny |= PassSplitter(op, dims, gradients).run();
  }
  function->walk([](Operation *op) { op->removeDiscardableAttr(kPartAttr); });
  return isAny;
}
