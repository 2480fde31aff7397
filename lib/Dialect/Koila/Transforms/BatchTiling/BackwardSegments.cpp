//===- BackwardSegments.cpp - A backward pass in segments -----------------===//
//
// Reverse mode over the operations on the way to the loss, cut where samples
// are mixed. An operation has a level, the number of cuts before it; those of
// one level that are apart for each sample are one segment, which tiles can
// run, and those that mix samples are another, which runs whole. Within a
// segment every value of which several outputs are made is a leaf, so that each
// output has a backward pass of its own, and each operation is differentiated
// once.
//
// The gradient of a batch normalisation needs two means over the batch, and is
// apart for each sample beyond them. Source: S. Ioffe, C. Szegedy, Batch
// Normalization, 2015, section 3.
//
//===----------------------------------------------------------------------===//

#include "BackwardSegments.h"
#include "PhasePlan.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "koila/Dialect/Koila/IR/PointwiseOps.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/MutableStorage.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/Sequence.h"
#include <map>

using namespace mlir;
using namespace koila;

bool koila::runsInSegments(FunctionOpInterface function) {
  return function
      ->walk([](Operation *op) {
        return op->hasAttr(kSegmentAttr) ? WalkResult::interrupt()
                                         : WalkResult::advance();
      })
      .wasInterrupted();
}

void koila::removeSegmentMarks(FunctionOpInterface function) {
  function->walk([](Operation *op) {
    for (StringRef name : {kSegmentAttr, kWholeSegmentAttr, kAfterSegmentAttr,
                           kNormalisesBatchAttr})
      op->removeDiscardableAttr(name);
  });
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

namespace {
/// Makes operators by their attributes.
struct Maker {
  OpBuilder &builder;
  Location loc;

  template <typename OpT>
  Value make(ValueRange operands, Type type,
             ArrayRef<std::pair<StringRef, Attribute>> attributes = {}) const {
    OperationState state(loc, OpT::getOperationName());
    state.addOperands(operands);
    state.addTypes(type);
    for (auto [name, attribute] : attributes)
      state.addAttribute(name, attribute);
    return builder.create(state)->getResult(0);
  }
  Value multiply(Value lhs, Value rhs, Type type) const {
    return make<MulTensorOp>({lhs, rhs}, type);
  }
  Value multiply(Value lhs, double number) const {
    return make<MulScalarOp>(lhs, lhs.getType(),
                             {{"other", builder.getF64FloatAttr(number)}});
  }
  /// By a number that the program computes.
  Value multiply(Value lhs, Value number) const {
    return make<MulScalarOp>({lhs, number}, lhs.getType(),
                             {{"other", DynamicAttr::get(loc.getContext())}});
  }
  Value divide(Value lhs, Value number) const {
    return make<DivScalarOp>({lhs, number}, lhs.getType(),
                             {{"other", DynamicAttr::get(loc.getContext())}});
  }
};

/// One batch normalisation by statistics of the batch.
struct BatchNorm {
  explicit BatchNorm(BatchNormOp op)
      : op(op), type(cast<RankedTensorType>(op.getInput().getType())) {}

  /// The dims over which statistics are taken: all but the channels.
  DenseI64ArrayAttr getDims(Builder &builder) const {
    SmallVector<int64_t> dims{0};
    llvm::append_range(dims, llvm::seq<int64_t>(2, type.getRank()));
    return builder.getDenseI64ArrayAttr(dims);
  }
  /// Of one number for each channel.
  RankedTensorType getChannelType() const {
    return RankedTensorType::get({type.getDimSize(1)}, type.getElementType());
  }
  Value getMean(const Maker &maker, Value tensor) const {
    return MeanDimOp::create(maker.builder, maker.loc, getChannelType(), tensor,
                             getDims(maker.builder),
                             maker.builder.getBoolAttr(false), nullptr);
  }
  /// How many elements a statistic is of, an integer of the program.
  Value count(const Maker &maker) const {
    Value product;
    for (int64_t dim : getDims(maker.builder).asArrayRef()) {
      Value extent = SizeIntOp::create(
          maker.builder, maker.loc, maker.builder.getI64Type(), op.getInput(),
          maker.builder.getI64IntegerAttr(dim));
      product = product ? arith::MulIOp::create(maker.builder, maker.loc,
                                                product, extent)
                              .getResult()
                        : extent;
    }
    return product;
  }

  mutable BatchNormOp op;
  RankedTensorType type;
};
} // namespace

/// Source: batch_norm_cpu_update_stats_template in
/// aten/src/ATen/native/Normalization.cpp.
static void updateStatistic(const Maker &maker, Value statistic, Value found,
                            const APFloat &momentum) {
  maker.make<LerpScalarOp>(
      {statistic, found}, statistic.getType(),
      {{"weight", maker.builder.getF64FloatAttr(momentum.convertToDouble())},
       {"tied", maker.builder.getUnitAttr()},
       {KoilaDialect::kWritesAttr, maker.builder.getUnitAttr()}});
}

static void decompose(BatchNormOp op) {
  OpBuilder builder(op);
  Maker maker{builder, op.getLoc()};
  BatchNorm norm(op);
  Value mean = norm.getMean(maker, op.getInput());
  Value variance = VarCorrectionOp::create(
      builder, op.getLoc(), norm.getChannelType(), op.getInput(),
      norm.getDims(builder), builder.getI64IntegerAttr(0),
      builder.getBoolAttr(false));
  if (Value running = op.getRunningMean())
    updateStatistic(maker, running, mean, op.getMomentum());
  if (Value running = op.getRunningVar()) {
    Value count = norm.count(maker);
    Value others = arith::SubIOp::create(
        builder, op.getLoc(), count,
        arith::ConstantIntOp::create(builder, op.getLoc(), 1, 64));
    Value unbiased = maker.divide(maker.multiply(variance, count), others);
    updateStatistic(maker, running, unbiased, op.getMomentum());
  }
  op.getRunningMeanMutable().assign(mean);
  op.getRunningVarMutable().assign(variance);
  op.setTraining(false);
  op->setAttr(kNormalisesBatchAttr, builder.getUnitAttr());
  op->removeDiscardableAttr(KoilaDialect::kReadsAttr);
}

/// Whether all is of one type that sums are exact enough in. Half types mix
/// with float32: their statistics are wider than they are.
static bool isDecomposed(BatchNormOp op, FunctionOpInterface function) {
  auto type = dyn_cast<RankedTensorType>(op.getInput().getType());
  bool isAlone = op.getTraining() && type && type.getRank() >= 2 &&
                 op->getParentRegion() == &function.getFunctionBody() &&
                 !op->hasAttr(KoilaDialect::kPerTileAttr);
  return isAlone &&
         (type.getElementType().isF32() || type.getElementType().isF64()) &&
         llvm::all_of(op->getOperands(), [&](Value operand) {
           return getElementTypeOrSelf(operand.getType()) ==
                  type.getElementType();
         });
}

bool koila::decomposeBatchNorms(FunctionOpInterface function) {
  SmallVector<BatchNormOp> norms;
  function->walk([&](BatchNormOp op) {
    if (isDecomposed(op, function))
      norms.push_back(op);
  });
  if (norms.empty())
    return false;
  releaseReaders(function);
  llvm::for_each(norms, decompose);
  return true;
}

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

namespace {
class BackwardSplitter {
public:
  BackwardSplitter(FunctionOpInterface function, StringRef symbol)
      : function(function), symbol(symbol), dims(function),
        storage(function, dims), gradients(function, dims, storage),
        builder(function.getContext()) {}

  LogicalResult run();

private:
  /// Part of the forward pass that is differentiated at once.
  struct Segment {
    SmallVector<Operation *> ops;
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
  LogicalResult findOutputs(Segment &segment);
  Value getLeaf(Writer &writer, Value value);
  Value getLocal(Writer &writer, IRMapping &mapping, Value value);
  void writeForward(Writer &writer, Value output);
  /// The sum of what has come for `value`, as part of `segment` if there is
  /// one; null if nothing has come.
  Value takeGradient(Value value, const Segment *segment = nullptr);
  void runBackward(ValueRange operands, const Segment &segment);
  /// Adds `gradient` to that of a value without batch, which is a weight or
  /// made of some.
  void addWeightGradient(Value weight, Value gradient);
  Value readNorm(Value value);
  Operation *mark(Operation *op, const Segment &segment) const {
    op->setAttr(kSegmentAttr, builder.getI64IntegerAttr(segment.number));
    if (segment.isWhole)
      op->setAttr(kWholeSegmentAttr, builder.getUnitAttr());
    return op;
  }
  /// Lets the forward pass read weights and arguments without their gradients.
  void detachForward();

  FunctionOpInterface function;
  StringRef symbol;
  DimAnalysis dims;
  StorageAnalysis storage;
  RequiresGradAnalysis gradients;
  std::optional<BatchAnalysis> batch;
  mutable OpBuilder builder;
  BackwardOp backward;
  llvm::DenseSet<Value> path;
  /// Operations on the path, in order.
  SmallVector<Operation *> onPath;
  llvm::DenseMap<Operation *, unsigned> levels;
  llvm::DenseSet<Operation *> whole;
  llvm::DenseMap<Value, SmallVector<Value>> contributions;
  /// From the last on: a segment, or normalisations.
  std::vector<std::pair<Segment, SmallVector<Operation *>>> plan;
  /// Operations that record nothing.
  SmallVector<Operation *> forward;
  int64_t segments = 0;
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
  path.insert(loss);
  for (Operation &op : llvm::reverse(function.getFunctionBody().front())) {
    if (llvm::none_of(op.getResults(),
                      [&](Value value) { return isOnPath(value); }))
      continue;
    if (isa<ParamGetOp, LeafOp>(op))
      continue;
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
  WalkResult reads = function->walk([&](LeafGradOp read) -> WalkResult {
    return refuse(read, describeLeaf(read.getLeafOp()) +
                            " requires a gradient (@grad), which segments do "
                            "not return yet");
  });
  if (reads.wasInterrupted())
    return failure();
  // What interleaves the batch runs whole, and rows begin anew behind it.
  BatchAnalysis::Operations interleaved;
  for (size_t known = 1; known != interleaved.size();) {
    known = interleaved.size();
    batch.emplace(function, dims, symbol, BatchAnalysis::Barriers::Cut,
                  interleaved);
    for (Operation *op : onPath)
      if (llvm::any_of(op->getResults(), [&](Value value) {
            return batch->lookup(value).isInner();
          }))
        interleaved.insert(op);
  }
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
  // Autograd adds it to what is there, whoever reads it.
  Segment segment;
  segment.isWhole = true;
  segment.number = segments++;
  Maker maker{builder, weight.getLoc()};
  Value product = maker.multiply(weight, gradient, weight.getType());
  mark(product.getDefiningOp(), segment);
  auto scalar = RankedTensorType::get(
      {}, cast<RankedTensorType>(weight.getType()).getElementType());
  Value sum = maker.make<SumOp>(product, scalar);
  mark(sum.getDefiningOp(), segment);
  runBackward(sum, segment);
}

void BackwardSplitter::writeNorm(BatchNormOp op) {
  Value gradient = takeGradient(op.getResult());
  if (!gradient)
    return;
  BatchNorm norm(op);
  Maker maker{builder, op.getLoc()};
  Type channels = norm.getChannelType();
  Type type = gradient.getType();
  Value input = op.getInput(), variance = op.getRunningVar();
  auto normalise = [&](Value weight, Value bias) {
    auto made = cast<BatchNormOp>(builder.clone(*op));
    made.getWeightMutable().clear();
    made.getBiasMutable().clear();
    if (weight)
      made.getWeightMutable().assign(weight);
    if (bias)
      made.getBiasMutable().assign(bias);
    made->removeDiscardableAttr(kNormalisesBatchAttr);
    return made.getResult();
  };
  Value normalised = normalise({}, {});
  Value ofMean = norm.getMean(maker, gradient);
  Value ofDeviation =
      norm.getMean(maker, maker.multiply(gradient, normalised, type));
  if (Value weight = op.getWeight())
    addWeightGradient(weight, maker.multiply(ofDeviation, norm.count(maker)));
  if (Value bias = op.getBias())
    addWeightGradient(bias, maker.multiply(ofMean, norm.count(maker)));
  if (!isOnPath(input))
    return;
  Value shifted = AddScalarOp::create(
      builder, op.getLoc(), channels, variance, op.getEpsAttr(),
      builder.getI64IntegerAttr(1), nullptr, ValueRange());
  Value scale = maker.make<RsqrtOp>(shifted, channels);
  if (Value weight = op.getWeight())
    scale = maker.multiply(scale, weight, channels);
  forward.push_back(scale.getDefiningOp());
  Value negative = maker.multiply(scale, -1.0);
  // w/s * (dy - mean(dy) - x * mean(dy * x)), x the normalised input.
  Value rest = normalise(maker.multiply(negative, ofDeviation, channels),
                         maker.multiply(negative, ofMean, channels));
  for (int64_t dim = 2; dim < norm.type.getRank(); ++dim) {
    auto narrow = cast<RankedTensorType>(scale.getType());
    SmallVector<int64_t> shape(narrow.getShape());
    shape.push_back(1);
    scale =
        maker.make<UnsqueezeOp>(scale, narrow.clone(shape),
                                {{"dim", builder.getI64IntegerAttr(dim - 1)}});
  }
  contributions[input].push_back(AddcmulOp::create(
      builder, op.getLoc(), input.getType(), rest, gradient, scale,
      builder.getI64IntegerAttr(1), nullptr, ValueRange()));
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

LogicalResult BackwardSplitter::findSegments() {
  std::map<unsigned, Level> order;
  for (Operation *op : onPath)
    order[levels.lookup(op)][isNorm(op)           ? 2
                             : whole.contains(op) ? 1
                                                  : 0]
        .push_back(op);
  for (auto &[level, kinds] : llvm::reverse(order)) {
    for (bool isWhole : {false, true}) {
      if (kinds[isWhole].empty())
        continue;
      Segment segment;
      segment.ops = kinds[isWhole];
      segment.set.insert_range(segment.ops);
      segment.isWhole = isWhole;
      segment.number = segments++;
      if (failed(findOutputs(segment)))
        return failure();
      plan.push_back({std::move(segment), {}});
    }
    if (!kinds[2].empty())
      plan.push_back({Segment(), kinds[2]});
  }
  return success();
}

Value BackwardSplitter::readNorm(Value value) {
  Operation *made = builder.clone(*value.getDefiningOp());
  made->removeDiscardableAttr(kNormalisesBatchAttr);
  forward.push_back(made);
  return made->getResult(0);
}

Value BackwardSplitter::getLeaf(Writer &writer, Value value) {
  Value &leaf = writer.leaves[value];
  if (leaf)
    return leaf;
  Value source = value;
  if (isNorm(value.getDefiningOp())) {
    source = readNorm(value);
    mark(source.getDefiningOp(), writer.segment);
  }
  auto op = LeafOp::create(builder, value.getLoc(), source.getType(), source);
  // Without the batch it is there before the loops.
  if (writer.segment.isWhole || batch->lookupRead(value).isAt())
    mark(op, writer.segment);
  return leaf = op.getResult();
}

/// What stands for `value`, through which no gradient flows: made again where
/// it is made of what the segment makes.
Value BackwardSplitter::getLocal(Writer &writer, IRMapping &mapping,
                                 Value value) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  if (Value leaf = writer.leaves.lookup(value))
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

void BackwardSplitter::writeForward(Writer &writer, Value output) {
  // What it is made of, up to leaves, in order.
  llvm::SetVector<Operation *> found;
  SmallVector<Operation *> work{output.getDefiningOp()};
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (!found.insert(op))
      continue;
    for (Value source : getSources(op)) {
      Operation *maker = source.getDefiningOp();
      if (!writer.segment.outputs.contains(source) && maker &&
          writer.segment.set.contains(maker))
        work.push_back(maker);
    }
  }
  SmallVector<Operation *> needed = found.takeVector();
  llvm::sort(needed, [](Operation *lhs, Operation *rhs) {
    return lhs->isBeforeInBlock(rhs);
  });
  IRMapping &mapping = writer.clones[output];
  for (Operation *op : needed) {
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
    Operation *made = mark(builder.clone(*op, mapping), writer.segment);
    // Leaves are not written.
    if (auto torchOp = dyn_cast<TorchOperatorInterface>(made))
      torchOp.permitTie(false);
  }
}

void BackwardSplitter::writeSegment(const Segment &segment) {
  Writer writer{segment, {}, {}};
  for (Value output : segment.outputs)
    writeForward(writer, output);
  auto readLeaf = [&](Value leaf) {
    return LeafGradOp::create(builder, leaf.getLoc(), leaf.getType(), leaf)
        .getResult();
  };
  for (Value output : llvm::reverse(segment.outputs)) {
    if (Value leaf = writer.leaves.lookup(output)) {
      Value gradient = readLeaf(leaf);
      mark(gradient.getDefiningOp(), segment);
      contributions[output].push_back(gradient);
      writer.leaves.erase(output);
    }
    SmallVector<Value> operands{writer.clones[output].lookup(output)};
    if (Value gradient = takeGradient(output, &segment))
      operands.push_back(gradient);
    runBackward(operands, segment);
  }
  for (auto [value, leaf] : writer.leaves) {
    Value gradient = readLeaf(leaf);
    contributions[value].push_back(gradient);
    if (leaf.getDefiningOp()->hasAttr(kSegmentAttr))
      mark(gradient.getDefiningOp(), segment);
    else
      gradient.getDefiningOp()->setAttr(
          kAfterSegmentAttr, builder.getI64IntegerAttr(segment.number));
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

LogicalResult BackwardSplitter::run() {
  if (failed(collect()) || failed(findSegments()))
    return failure();
  for (Operation &op : function.getFunctionBody().front()) {
    if (!isa<BackwardOp>(op))
      forward.push_back(&op);
  }
  builder.setInsertionPoint(backward);
  // Also of the forward pass: rows begin anew behind these.
  for (Operation *op : whole)
    op->setAttr(kWholeSegmentAttr, builder.getUnitAttr());
  for (auto &[segment, norms] : plan) {
    if (!segment.ops.empty())
      writeSegment(segment);
    for (Operation *op : llvm::reverse(norms))
      writeNorm(cast<BatchNormOp>(op));
  }
  backward.erase();
  detachForward();
  for (Operation *op : forward) {
    // What segments read again is not written.
    auto torchOp = dyn_cast<TorchOperatorInterface>(op);
    if (torchOp && torchOp.isTied() && !isOrderedWrite(op) &&
        !op->getOperand(0).hasOneUse())
      torchOp.permitTie(false);
    if (isa<LeafOp>(op)) {
      op->getResult(0).replaceAllUsesWith(op->getOperand(0));
      op->erase();
    }
  }
  return success();
}

LogicalResult koila::splitBackward(FunctionOpInterface function,
                                   StringRef batchSymbol) {
  return BackwardSplitter(function, batchSymbol).run();
}
