//===- Rewrite.cpp - Rewrite a function to run in tiles -------------------===//
//
// Each phase of the plan becomes two loops: the outer one goes over tile sizes
// T, T/2, ..., 1, the inner one over the tiles of that size that still fit: all
// full tiles in the first round, then none or one per bit of what is left. One
// copy of the body serves static and dynamic batches. Where no tile may be one
// sample, sizes end at 2, and the first tile of an odd batch has one more.
//
//===----------------------------------------------------------------------===//

#include "BackwardSegments.h"
#include "PhasePlan.h"
#include "Reductions.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/MemoryFormat.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace koila;

namespace {
class Tiler {
public:
  Tiler(FunctionOpInterface function, const PhasePlan &plan)
      : function(function), plan(plan), dims(plan.getDims()),
        batch(plan.getBatch()) {}

  SmallVector<PhaseLoops> rewrite();

private:
  /// An index value for `expr`; every symbol is an argument's extent.
  Value materialize(OpBuilder &builder, Location loc, DimExpr expr);
  Value materialize(OpBuilder &builder, Location loc, Attribute atom);
  Value getExtent(OpBuilder &builder, Location loc, Value tensor, int64_t dim);
  /// All of `value`, which may be made per tile, after the loops that make it.
  Value getWhole(OpBuilder &builder, Value value);
  /// A tensor as `value` of no samples.
  Value makeEmpty(OpBuilder &builder, Value value);
  Value slice(OpBuilder &builder, Location loc, Value input, Value tensor,
              Value start, Value size);
  Value insert(OpBuilder &builder, Location loc, Value part, Value buffer,
               Value start, const BatchFact &fact);
  void buildBody(OpBuilder &builder, Location loc, const TilePhase &phase,
                 IRMapping mapping, Value start, Value size, ValueRange buffers,
                 SmallVectorImpl<Value> &updated);
  // The backward pass of a training step.
  /// The part of `value` that this tile of `size` samples adds to the sum over
  /// all tiles.
  Value weigh(OpBuilder &builder, Operation *op, Value part, Value size);
  void buildBackward(OpBuilder &builder, const IRMapping &mapping, Value size);
  /// What leaves a tile leaves it without its gradient.
  void detachResults(OpBuilder &builder, const TilePhase &phase,
                     IRMapping &mapping);
  /// Removes what only gradients were made of.
  void dropBackward(ArrayRef<Operation *> wholes);
  /// A tensor of `elementType` for all of `value`, its dims in the plan's
  /// order.
  Value makeBuffer(OpBuilder &builder, Location loc, Value value,
                   Type elementType);
  /// How many elements of its operand the reduction `op` takes for one of its
  /// result, an index.
  Value countElements(OpBuilder &builder, Operation *op);
  void buildLoops(OpBuilder &builder, Location loc, const TilePhase &phase,
                  PhaseLoops &loops);
  void placeWhole(OpBuilder &builder, Operation *op, Operation *anchor);
  void useWhole(OpBuilder &builder, Operation *op);
  /// The type of `value` in a tile: the batch extent is dynamic.
  Type getTileType(Value value, const BatchFact &fact);

  FunctionOpInterface function;
  const PhasePlan &plan;
  const DimAnalysis &dims;
  const BatchAnalysis &batch;
  /// What stands for a value of the original program outside of its loops.
  IRMapping wholes;
  Value zero, one, two, samples;
};
} // namespace

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

/// The step of a plan in segments that runs in these loops.
static std::optional<int64_t> findStep(const TilePhase &phase) {
  std::optional<int64_t> step;
  for (Operation *op : phase.body)
    if (auto found = op->getAttrOfType<IntegerAttr>(kStepAttr))
      step = std::max(step.value_or(0), found.getInt());
  return step;
}

static Value makeIndex(OpBuilder &builder, Location loc, int64_t value) {
  return arith::ConstantIndexOp::create(builder, loc, value);
}

Value Tiler::materialize(OpBuilder &builder, Location loc, Attribute atom) {
  if (auto symbol = dyn_cast<DimSymbol>(atom)) {
    auto found = plan.symbolDims.find(symbol);
    if (found != plan.symbolDims.end())
      return getExtent(builder, loc, found->second.first, found->second.second);
    // The batch of arguments that all have a multiple of it.
    Value rows = getExtent(builder, loc, plan.batchArgument, plan.batchDim);
    return arith::FloorDivSIOp::create(
        builder, loc, rows, makeIndex(builder, loc, plan.batchFactor));
  }
  auto call = cast<DimAtomAttr>(atom);
  Value lhs = materialize(builder, loc, DimExpr(call.getLhs()));
  Value rhs = materialize(builder, loc, DimExpr(call.getRhs()));
  StringRef name = call.getFunction().getValue();
  if (name == "min")
    return arith::MinSIOp::create(builder, loc, lhs, rhs);
  if (name == "max" || name == "broadcast")
    return arith::MaxSIOp::create(builder, loc, lhs, rhs);
  return arith::FloorDivSIOp::create(builder, loc, lhs, rhs);
}

Value Tiler::materialize(OpBuilder &builder, Location loc, DimExpr expr) {
  if (auto constant = expr.getConstant())
    return makeIndex(builder, loc, *constant);
  Value sum;
  for (auto [coefficient, monomial] : llvm::zip_equal(
           expr.getAttr().getCoefficients(), expr.getAttr().getMonomials())) {
    Value term;
    for (Attribute atom : monomial) {
      Value factor = materialize(builder, loc, atom);
      term = term
                 ? arith::MulIOp::create(builder, loc, term, factor).getResult()
                 : factor;
    }
    if (!term)
      term = makeIndex(builder, loc, coefficient);
    else if (coefficient != 1)
      term = arith::MulIOp::create(builder, loc, term,
                                   makeIndex(builder, loc, coefficient));
    sum =
        sum ? arith::AddIOp::create(builder, loc, sum, term).getResult() : term;
  }
  return sum;
}

Value Tiler::getExtent(OpBuilder &builder, Location loc, Value tensor,
                       int64_t dim) {
  return tensor::DimOp::create(builder, loc, tensor,
                               makeIndex(builder, loc, dim));
}

static Value scale(OpBuilder &builder, Location loc, Value value,
                   int64_t factor) {
  if (factor == 1)
    return value;
  return arith::MulIOp::create(builder, loc, value,
                               makeIndex(builder, loc, factor));
}

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

static Type getElementType(Value tensor) {
  return cast<RankedTensorType>(tensor.getType()).getElementType();
}

Type Tiler::getTileType(Value value, const BatchFact &fact) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !(fact.isAt() || fact.isInner()) || fact.dim < 0)
    return value.getType();
  SmallVector<int64_t> shape(type.getShape());
  shape[fact.dim] = ShapedType::kDynamic;
  return type.clone(shape);
}

namespace {
/// Offsets, sizes and strides of the rows of one tile.
struct Window {
  SmallVector<OpFoldResult> offsets, sizes, strides;
};
} // namespace

static Window makeWindow(OpBuilder &builder, Location loc, Value tensor,
                         int64_t dim, Value offset, Value size) {
  Window window;
  auto type = cast<RankedTensorType>(tensor.getType());
  for (int64_t index = 0; index < type.getRank(); ++index) {
    window.strides.push_back(builder.getIndexAttr(1));
    if (index == dim) {
      window.offsets.push_back(offset);
      window.sizes.push_back(size);
      continue;
    }
    window.offsets.push_back(builder.getIndexAttr(0));
    if (type.isDynamicDim(index))
      window.sizes.push_back(
          tensor::DimOp::create(builder, loc, tensor,
                                makeIndex(builder, loc, index))
              .getResult());
    else
      window.sizes.push_back(builder.getIndexAttr(type.getDimSize(index)));
  }
  return window;
}

Value Tiler::slice(OpBuilder &builder, Location loc, Value input, Value tensor,
                   Value start, Value size) {
  const BatchFact &fact = batch.lookupRead(input);
  Window window = makeWindow(builder, loc, tensor, fact.dim,
                             scale(builder, loc, start, fact.factor),
                             scale(builder, loc, size, fact.factor));
  return tensor::ExtractSliceOp::create(
      builder, loc, cast<RankedTensorType>(getTileType(input, fact)), tensor,
      window.offsets, window.sizes, window.strides);
}

Value Tiler::insert(OpBuilder &builder, Location loc, Value part, Value buffer,
                    Value start, const BatchFact &fact) {
  Value offset = scale(builder, loc, start, fact.factor);
  Value rows = getExtent(builder, loc, part, fact.dim);
  Window window = makeWindow(builder, loc, buffer, fact.dim, offset, rows);
  return tensor::InsertSliceOp::create(
      builder, loc, part, buffer, window.offsets, window.sizes, window.strides);
}

//===----------------------------------------------------------------------===//
// The rewrite
//===----------------------------------------------------------------------===//

/// `tensor` with its dims in the order given, a view.
static Value permute(OpBuilder &builder, Value tensor,
                     ArrayRef<int64_t> order) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<int64_t> shape;
  for (int64_t dim : order)
    shape.push_back(type.getDimSize(dim));
  return PermuteOp::create(builder, tensor.getLoc(), type.clone(shape), tensor,
                           order);
}

Value Tiler::getWhole(OpBuilder &builder, Value value) {
  if (Value whole = wholes.lookupOrNull(value))
    return whole;
  if (plan.isNumber(value)) {
    Location loc = value.getLoc();
    Value number = arith::IndexCastOp::create(
        builder, loc, value.getType(),
        materialize(builder, loc, plan.getNumber(value)));
    wholes.map(value, number);
    return number;
  }
  if (!plan.isTiled(value))
    return value;
  Operation *op = value.getDefiningOp();
  IRMapping operands;
  for (Value operand : op->getOperands())
    operands.map(operand, plan.ignores(value, operand)
                              ? makeEmpty(builder, operand)
                              : getWhole(builder, operand));
  Operation *clone = builder.clone(*op, operands);
  for (auto [old, result] :
       llvm::zip_equal(op->getResults(), clone->getResults()))
    if (batch.lookup(old).isFree() == batch.lookup(value).isFree())
      wholes.map(old, result);
    else
      result.setType(getTileType(old, batch.lookup(old)));
  return wholes.lookup(value);
}

Value Tiler::makeEmpty(OpBuilder &builder, Value value) {
  Location loc = value.getLoc();
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[batch.lookup(value).dim] = 0;
  SmallVector<Value> extents;
  for (auto [dim, extent] : llvm::enumerate(shape))
    if (ShapedType::isDynamic(extent))
      extents.push_back(
          materialize(builder, loc, dims.lookup(value).tensor->dim(dim)));
  return tensor::EmptyOp::create(builder, loc, type.clone(shape), extents);
}

void Tiler::useWhole(OpBuilder &builder, Operation *op) {
  op->walk([&](Operation *inner) {
    for (OpOperand &operand : inner->getOpOperands())
      operand.set(plan.isUnread(inner, operand.get())
                      ? makeEmpty(builder, operand.get())
                      : getWhole(builder, operand.get()));
  });
}

void Tiler::placeWhole(OpBuilder &builder, Operation *op, Operation *anchor) {
  // What stands for its operands is made before it.
  useWhole(builder, op);
  op->moveBefore(anchor);
}

void Tiler::buildBody(OpBuilder &builder, Location loc, const TilePhase &phase,
                      IRMapping mapping, Value start, Value size,
                      ValueRange buffers, SmallVectorImpl<Value> &updated) {
  for (Value input : phase.inputs) {
    Value part = slice(builder, loc, input, mapping.lookup(input), start, size);
    if (plan.isPacked(input))
      part =
          CloneTensorOp::create(builder, loc, part.getType(), part,
                                builder.getI64IntegerAttr(static_cast<int64_t>(
                                    rules::MemoryFormat::Contiguous)));
    mapping.map(input, part);
  }
  llvm::SmallDenseSet<Value> shown;
  for (Value input : phase.inputs)
    if (!plan.isPacked(input))
      shown.insert(input);
  if (plan.differentiates(phase))
    for (Operation *op : plan.getBackward().repeated)
      builder.clone(*op, mapping);
  for (Operation *op : phase.body) {
    for (Value read : getReads(op))
      if (plan.isSamples(read) && !mapping.contains(read))
        mapping.map(read,
                    arith::IndexCastOp::create(
                        builder, loc, read.getType(),
                        scale(builder, loc, size, batch.lookup(read).factor))
                        .getResult());
    if (Combine combine = plan.getCombine(op);
        combine != Combine::None && !Combiner(op, combine).runsInTiles())
      continue;
    Operation *clone = builder.clone(*op, mapping);
    if (plan.writesShown(op, shown))
      withdrawTie(cast<TorchOperatorInterface>(clone));
    auto adapt = [&](Value old) {
      mapping.lookup(old).setType(getTileType(old, batch.lookup(old)));
    };
    op->walk([&](Operation *inner) {
      llvm::for_each(inner->getResults(), adapt);
      for (Region &region : inner->getRegions())
        llvm::for_each(region.getArguments(), adapt);
    });
  }
  if (plan.differentiates(phase)) {
    buildBackward(builder, mapping, size);
    for (Operation *op : plan.getBackward().gradients) {
      Value old = op->getResult(0);
      builder.clone(*op, mapping);
      mapping.lookup(old).setType(getTileType(old, batch.lookup(old)));
    }
  }
  detachResults(builder, phase, mapping);
  ValueRange sums = buffers.drop_front(phase.outputs.size());
  for (auto [output, buffer] : llvm::zip_first(phase.outputs, buffers)) {
    Value part = mapping.lookup(output);
    BatchFact fact = batch.lookup(output);
    ArrayRef<int64_t> order = plan.getOrder(output);
    if (!order.empty()) {
      part = permute(builder, part, order);
      fact.dim = llvm::find(order, fact.dim) - order.begin();
    }
    updated.push_back(insert(builder, loc, part, buffer, start, fact));
  }
  for (Operation *op : phase.combined) {
    Combiner combiner(op, plan.getCombine(op));
    unsigned count = combiner.getNumCarried();
    int64_t factor = batch.lookupRead(op->getOperand(0)).factor;
    llvm::append_range(updated, combiner.add(builder, sums.take_front(count),
                                             mapping, {start, size, factor}));
    sums = sums.drop_front(count);
  }
}

//===----------------------------------------------------------------------===//
// The backward pass
//===----------------------------------------------------------------------===//

static Value detach(OpBuilder &builder, Value value) {
  return DetachOp::create(builder, value.getLoc(), value.getType(), value);
}

Value Tiler::weigh(OpBuilder &builder, Operation *op, Value part, Value size) {
  if (plan.getCombine(op) != Combine::Mean)
    return part;
  Location loc = op->getLoc();
  Attribute dynamic = DynamicAttr::get(builder.getContext());
  auto makeNumber = [&](Value index) -> Value {
    return arith::IndexCastOp::create(builder, loc, builder.getI64Type(),
                                      index);
  };
  Value sum = MulScalarOp::create(builder, loc, part.getType(), part, dynamic,
                                  /*tied=*/nullptr, makeNumber(size));
  return DivScalarOp::create(builder, loc, part.getType(), sum, dynamic,
                             /*tied=*/nullptr, makeNumber(samples));
}

void Tiler::buildBackward(OpBuilder &builder, const IRMapping &mapping,
                          Value size) {
  const BackwardPlan &backward = plan.getBackward();
  IRMapping parts;
  auto mapPart = [&](Value value) {
    if (parts.contains(value))
      return;
    Operation *op = value.getDefiningOp();
    if (plan.isOfParts(value))
      // Of the head, what comes before is there already.
      parts.map(value, weigh(builder, op, mapping.lookup(value), size));
    else if (plan.wantsGradient(value))
      parts.map(value, detach(builder, wholes.lookupOrDefault(value)));
    else
      parts.map(value, wholes.lookupOrDefault(value));
  };
  for (Operation *op : backward.head) {
    llvm::for_each(op->getOperands(), mapPart);
    builder.clone(*op, parts);
  }
  Value loss = backward.backward->getOperand(0);
  mapPart(loss);
  builder.clone(*backward.backward, parts);
}

void Tiler::detachResults(OpBuilder &builder, const TilePhase &phase,
                          IRMapping &mapping) {
  auto leave = [&](Value value) {
    if (plan.wantsGradient(value))
      mapping.map(value, detach(builder, mapping.lookup(value)));
  };
  for (Value output : phase.outputs)
    leave(output);
  for (Operation *op : phase.combined) {
    if (!Combiner(op, plan.getCombine(op)).runsInTiles())
      leave(op->getOperand(0));
    else
      llvm::for_each(getCombinedResults(op), leave);
  }
}

void Tiler::dropBackward(ArrayRef<Operation *> wholes) {
  const BackwardPlan &backward = plan.getBackward();
  if (!backward.backward)
    return;
  // Tiles have added all gradients there are.
  if (!backward.hasRest)
    backward.backward->erase();
  for (Operation *op : llvm::reverse(wholes))
    if (op != backward.backward && isOpTriviallyDead(op))
      op->erase();
}

//===----------------------------------------------------------------------===//
// The loops
//===----------------------------------------------------------------------===//

Value Tiler::makeBuffer(OpBuilder &builder, Location loc, Value value,
                        Type elementType) {
  const TensorInfo &info = *dims.lookup(value).tensor;
  const BatchFact &fact = batch.lookup(value);
  auto type = cast<RankedTensorType>(getTileType(value, fact));
  SmallVector<int64_t> order(plan.getOrder(value)), shape;
  if (order.empty())
    llvm::append_range(order, llvm::seq<int64_t>(0, type.getRank()));
  SmallVector<Value> extents;
  for (int64_t dim : order) {
    shape.push_back(type.getDimSize(dim));
    if (type.isDynamicDim(dim))
      extents.push_back(fact.isAt() && dim == fact.dim
                            ? scale(builder, loc, samples, fact.factor)
                            : materialize(builder, loc, info.dim(dim)));
  }
  return tensor::EmptyOp::create(builder, value.getLoc(), shape, elementType,
                                 extents);
}

Value Tiler::countElements(OpBuilder &builder, Operation *op) {
  const TensorInfo &self = *dims.lookup(op->getOperand(0)).tensor;
  DimExpr count = DimExpr::constant(op->getContext(), 1);
  for (auto [dim, isReduced] :
       llvm::zip_equal(*self.dims, *rules::getReducedDims(op, self.getRank())))
    if (isReduced)
      count = count * dim;
  return materialize(builder, op->getLoc(), count);
}

void Tiler::buildLoops(OpBuilder &builder, Location loc, const TilePhase &phase,
                       PhaseLoops &loops) {
  // What the body reads of outside: whole tensors to slice, and numbers.
  IRMapping mapping;
  for (Value input : phase.inputs)
    mapping.map(input, getWhole(builder, input));
  for (Operation *op : phase.body)
    for (Value read : getReads(op))
      if (plan.isNumber(read) && !plan.isSamples(read))
        mapping.map(read, getWhole(builder, read));
      else if (read.getDefiningOp() &&
               plan.getCombine(read.getDefiningOp()) != Combine::None &&
               !mapping.contains(read))
        mapping.map(read, getWhole(builder, read));
  // What the head reads beside parts.
  if (plan.differentiates(phase))
    for (Operation *op : plan.getBackward().head)
      for (Value operand : op->getOperands())
        if (!plan.isOfParts(operand))
          (void)getWhole(builder, operand);
  SmallVector<Value> carried;
  for (Value output : phase.outputs)
    carried.push_back(makeBuffer(builder, loc, output, getElementType(output)));
  for (Operation *op : phase.combined) {
    Combiner combiner(op, plan.getCombine(op));
    for (unsigned index = 0; index < combiner.getNumCarried(); ++index) {
      Value buffer = makeBuffer(builder, loc, combiner.getShaped(index),
                                combiner.getCarriedType(index));
      carried.push_back(combiner.start(builder, index, buffer));
    }
  }
  size_t buffers = carried.size();
  bool isPaired = loops.least > 1;
  carried.push_back(zero);
  // What the first tile has more than its size.
  if (isPaired) {
    Value half = arith::FloorDivSIOp::create(builder, loc, samples, two);
    carried.push_back(arith::SubIOp::create(
        builder, loc, samples, arith::MulIOp::create(builder, loc, half, two)));
  }
  size_t inner = carried.size();
  carried.push_back(loops.tile->getResult(0));
  auto outer = scf::ForOp::create(
      builder, loc, zero, loops.bits->getResult(0), one, carried,
      [&](OpBuilder &outerBuilder, Location, Value, ValueRange state) {
        Value start = state[buffers], size = state[inner];
        Value left = arith::SubIOp::create(outerBuilder, loc, samples, start);
        if (isPaired)
          left = arith::SubIOp::create(outerBuilder, loc, left,
                                       state[buffers + 1]);
        Value trips =
            arith::FloorDivSIOp::create(outerBuilder, loc, left, size);
        auto loop = scf::ForOp::create(
            outerBuilder, loc, zero, trips, one,
            ValueRange(state).take_front(inner),
            [&](OpBuilder &innerBuilder, Location, Value,
                ValueRange innerState) {
              SmallVector<Value> next;
              Value offset = innerState[buffers], rows = size;
              if (isPaired)
                rows = arith::AddIOp::create(innerBuilder, loc, rows,
                                             innerState[buffers + 1]);
              buildBody(innerBuilder, loc, phase, mapping, offset, rows,
                        innerState.take_front(buffers), next);
              next.push_back(
                  arith::AddIOp::create(innerBuilder, loc, offset, rows));
              if (isPaired)
                next.push_back(zero);
              scf::YieldOp::create(innerBuilder, loc, next);
            });
        SmallVector<Value> next(loop.getResults());
        next.push_back(
            arith::FloorDivSIOp::create(outerBuilder, loc, size, two));
        scf::YieldOp::create(outerBuilder, loc, next);
      });
  loops.loop = outer;
  ValueRange results = outer.getResults().take_front(buffers);
  ValueRange sums = results.drop_front(phase.outputs.size());
  for (Operation *op : phase.combined) {
    Combiner combiner(op, plan.getCombine(op));
    unsigned size = combiner.getNumCarried();
    wholes.map(
        ValueRange(getCombinedResults(op)),
        ValueRange(combiner.finish(
            builder, sums.take_front(size), samples,
            combiner.runsInTiles() ? Value() : countElements(builder, op))));
    sums = sums.drop_front(size);
  }
  for (auto [output, result] : llvm::zip_first(phase.outputs, results)) {
    ArrayRef<int64_t> order = plan.getOrder(output);
    SmallVector<int64_t> back(order.size());
    for (auto [index, dim] : llvm::enumerate(order))
      back[dim] = index;
    wholes.map(output, order.empty() ? result : permute(builder, result, back));
  }
}

SmallVector<PhaseLoops> Tiler::rewrite() {
  Block &entry = function.getFunctionBody().front();
  Operation *terminator = entry.getTerminator();
  for (Operation *container : plan.getContainers())
    container->moveBefore(terminator);
  Operation *anchor =
      plan.getContainers().empty() ? terminator : plan.getContainers().front();
  // What is replaced stays until all users have been seen.
  SmallVector<Operation *> replaced;
  for (Operation &op : entry)
    if (plan.getCombine(&op) != Combine::None || plan.isNeedless(&op) ||
        plan.isTiled(&op) || llvm::any_of(op.getResults(), [&](Value result) {
          return plan.isTiled(result) || plan.isNumber(result);
        }))
      replaced.push_back(&op);
  OpBuilder builder(anchor);
  Location loc = function.getLoc();
  SmallVector<PhaseLoops> nests;
  auto tilePhase = [&](const TilePhase &phase) {
    if (nests.empty()) {
      zero = makeIndex(builder, loc, 0);
      one = makeIndex(builder, loc, 1);
      two = makeIndex(builder, loc, 2);
      Value rows = getExtent(builder, loc, plan.batchArgument, plan.batchDim);
      samples = plan.batchFactor == 1
                    ? rows
                    : arith::FloorDivSIOp::create(
                          builder, loc, rows,
                          makeIndex(builder, loc, plan.batchFactor))
                          .getResult();
    }
    nests.push_back({arith::ConstantIndexOp::create(builder, loc, 1),
                     arith::ConstantIndexOp::create(builder, loc, 1),
                     phase.body.empty() ? loc : phase.body.front()->getLoc(),
                     plan.needsPairs(phase) ? 2 : 1});
    nests.back().step = findStep(phase);
    buildLoops(builder, loc, phase, nests.back());
  };
  for (const TilePhase &phase : plan.getPhases()) {
    for (Operation *op : phase.whole)
      placeWhole(builder, op, anchor);
    if (!phase.body.empty())
      tilePhase(phase);
  }
  // A program without work per sample is a loop over nothing.
  if (nests.empty())
    tilePhase(TilePhase());
  for (Operation *op : plan.getRest())
    placeWhole(builder, op, anchor);
  for (Operation *container : plan.getContainers())
    useWhole(builder, container);
  useWhole(builder, terminator);
  for (Operation *op : llvm::reverse(replaced)) {
    // Nothing can be assumed of what is not there any more.
    for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
      if (isa<AssumeOp>(user))
        user->erase();
    op->erase();
  }
  SmallVector<Operation *> wholes;
  for (const TilePhase &phase : plan.getPhases())
    llvm::append_range(wholes, phase.whole);
  llvm::append_range(wholes, plan.getRest());
  dropBackward(wholes);
  return nests;
}

SmallVector<PhaseLoops> koila::rewriteInTiles(FunctionOpInterface function,
                                              const PhasePlan &plan) {
  return Tiler(function, plan).rewrite();
}
