//===- TileFunction.cpp - Rewrite a function to run in tiles --------------===//
//
// The outer loop goes over tile sizes T, T/2, ..., 1, the inner one over the
// tiles of that size that still fit: all full tiles in the first round, then
// none or one per bit of what is left. One copy of the body serves static and
// dynamic batches.
//
//===----------------------------------------------------------------------===//

#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/Transforms/Tiling.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

namespace {
/// Runs after everything that tiles: the return, or a container for it.
bool isLast(Operation *op) {
  return op->hasTrait<OpTrait::IsTerminator>() ||
         (isa<ConstructOp>(op) && llvm::all_of(op->getUsers(), isLast));
}

class Tiler {
public:
  Tiler(FunctionOpInterface function, StringRef symbol)
      : function(function), symbol(symbol), dims(function),
        batch(function, dims, symbol) {}

  LogicalResult plan();
  std::pair<Operation *, Operation *> rewrite();

private:
  LogicalResult planOperation(Operation &op);
  LogicalResult planOutput(Value value, Operation *user);
  LogicalResult planOutputs(Operation &op);
  LogicalResult refuse(Operation *op, const BatchFact &fact);
  /// An index value for `expr`; every symbol is an argument's extent.
  Value materialize(OpBuilder &builder, Location loc, DimExpr expr);
  Value materialize(OpBuilder &builder, Location loc, Attribute atom);
  bool canMaterialize(DimExpr expr) const;
  Value getExtent(OpBuilder &builder, Location loc, Value tensor, int64_t dim);
  Value slice(OpBuilder &builder, Location loc, Value argument, Value start,
              Value size);
  Value insert(OpBuilder &builder, Location loc, Value part, Value buffer,
               Value start, const BatchFact &fact);
  void buildBody(OpBuilder &builder, Location loc, Value start, Value size,
                 ValueRange buffers, SmallVectorImpl<Value> &updated);
  /// The type of `value` in a tile: the batch extent is dynamic.
  Type getTileType(Value value, const BatchFact &fact);

  FunctionOpInterface function;
  StringRef symbol;
  DimAnalysis dims;
  BatchAnalysis batch;
  /// Operations that run per tile, in order.
  SmallVector<Operation *> body;
  /// Containers built of outputs, after the loops.
  SmallVector<Operation *> containers;
  /// Batched arguments that the body reads, and batched results of it.
  llvm::SetVector<BlockArgument> inputs;
  llvm::SetVector<Value> outputs;
  /// Where each symbol can be read at run time.
  llvm::StringMap<std::pair<BlockArgument, int64_t>> symbolDims;
  BlockArgument batchArgument;
  int64_t batchDim = 0, batchFactor = 1;
};
} // namespace

/// ` at file.py:46 (layer1.0)`, or nothing.
static std::string describePlace(Operation *op) {
  SourcePlace place = getSourcePlace(op->getLoc());
  std::string text;
  if (place.isKnown())
    text += " at " + place.file + ":" + std::to_string(place.line);
  if (!place.module.empty())
    text += " (" + place.module + ")";
  return text;
}

LogicalResult Tiler::refuse(Operation *op, const BatchFact &fact) {
  Operation *origin = fact.origin ? fact.origin : op;
  return origin->emitError() << "cannot tile the batch '" << symbol
                             << "': " << fact.reason << describePlace(origin);
}

LogicalResult Tiler::planOutput(Value value, Operation *user) {
  const BatchFact &fact = batch.lookup(value);
  if (fact.isMixed())
    return refuse(user, fact);
  if (!fact.isAt() || isa<BlockArgument>(value))
    return success();
  const ValueInfo &info = dims.lookup(value);
  if (!info.tensor || !info.tensor->hasRank() || !info.tensor->elementType)
    return value.getDefiningOp()->emitError()
           << "cannot tile the batch: the shape of this result is not known"
           << describePlace(value.getDefiningOp());
  for (DimExpr dim : *info.tensor->dims)
    if (dim.isConstant(0))
      return value.getDefiningOp()->emitError()
             << "cannot tile the batch: this result is always empty"
             << describePlace(value.getDefiningOp());
  for (auto [index, dim] : llvm::enumerate(*info.tensor->dims))
    if (static_cast<int64_t>(index) != fact.dim && !canMaterialize(dim))
      return value.getDefiningOp()->emitError()
             << "cannot tile the batch: extent " << dim.str()
             << " of this result is not known before it is computed"
             << describePlace(value.getDefiningOp());
  outputs.insert(value);
  return success();
}

LogicalResult Tiler::planOutputs(Operation &op) {
  for (Value operand : op.getOperands()) {
    if (isa<TensorType>(operand.getType())) {
      if (failed(planOutput(operand, &op)))
        return failure();
      continue;
    }
    const BatchFact &fact = batch.lookup(operand);
    bool isNumber = operand.getType().isIntOrIndexOrFloat();
    if (isNumber && !fact.isFree())
      return op.emitError() << "cannot tile the batch '" << symbol
                            << "': the program returns a number that follows "
                            << "the batch" << describePlace(&op);
  }
  return success();
}

/// Whether all that `op` does besides its results is to draw random numbers.
static bool onlyDraws(Operation &op) {
  auto interface = dyn_cast<MemoryEffectOpInterface>(op);
  if (!interface)
    return false;
  SmallVector<MemoryEffects::EffectInstance> effects;
  interface.getEffects(effects);
  return !effects.empty() &&
         llvm::all_of(effects, [](const MemoryEffects::EffectInstance &effect) {
           return effect.getResource() == RandomResource::get();
         });
}

LogicalResult Tiler::planOperation(Operation &op) {
  if (isa<AssumeOp>(op))
    return success();
  if (op.hasTrait<OpTrait::IsTerminator>())
    return planOutputs(op);
  if (isa<ConstructOp>(op) && llvm::all_of(op.getUsers(), isLast)) {
    containers.push_back(&op);
    return planOutputs(op);
  }
  if (op.getNumRegions() > 0)
    return op.emitError() << "cannot tile the batch: control flow is not "
                          << "supported yet" << describePlace(&op);
  // Also when it reads no batch: running it once before the loops instead of
  // where it stood could be told apart.
  if (!isMemoryEffectFree(&op))
    return op.emitError() << "cannot tile the batch: '"
                          << (isa<TorchOpaqueOp>(op)
                                  ? cast<TorchOpaqueOp>(op).getCallee()
                                  : op.getName().getStringRef())
                          << (onlyDraws(op)
                                  ? "' draws random numbers, and tiles would "
                                    "draw others: random streams differ in "
                                    "tiles"
                                  : "' has effects whose order tiling would "
                                    "change")
                          << describePlace(&op);
  bool batched = false;
  for (Value result : op.getResults()) {
    const BatchFact &fact = batch.lookup(result);
    if (fact.isMixed())
      return refuse(&op, fact);
    batched |= !fact.isFree();
  }
  // What reads a batched value and has none in its results (the size of
  // another dim) runs once before the loops.
  if (!batched)
    return success();
  body.push_back(&op);
  for (Value operand : op.getOperands())
    if (auto argument = dyn_cast<BlockArgument>(operand))
      if (batch.lookup(argument).isAt())
        inputs.insert(argument);
  return success();
}

LogicalResult Tiler::plan() {
  Region &region = function.getFunctionBody();
  if (!region.hasOneBlock())
    return function.emitError() << "cannot tile a function with several blocks";
  if (!dims.isValid())
    return failure();
  for (BlockArgument argument : region.getArguments()) {
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
  for (Operation &op : region.front())
    if (failed(planOperation(op)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

static Value makeIndex(OpBuilder &builder, Location loc, int64_t value) {
  return arith::ConstantIndexOp::create(builder, loc, value);
}

bool Tiler::canMaterialize(DimExpr expr) const {
  bool all = true;
  expr.forEachSymbol([&](StringRef name) {
    all &= symbolDims.contains(name) ||
           (name == symbol && static_cast<bool>(batchArgument));
  });
  return all;
}

Value Tiler::materialize(OpBuilder &builder, Location loc, Attribute atom) {
  if (auto name = dyn_cast<StringAttr>(atom)) {
    auto found = symbolDims.find(name.getValue());
    if (found != symbolDims.end())
      return getExtent(builder, loc, found->second.first, found->second.second);
    // The batch of arguments that all have a multiple of it.
    Value rows = getExtent(builder, loc, batchArgument, batchDim);
    return arith::FloorDivSIOp::create(builder, loc, rows,
                                       makeIndex(builder, loc, batchFactor));
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

Type Tiler::getTileType(Value value, const BatchFact &fact) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !fact.isAt() || fact.dim < 0)
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

Value Tiler::slice(OpBuilder &builder, Location loc, Value argument,
                   Value start, Value size) {
  const BatchFact &fact = batch.lookup(argument);
  Window window = makeWindow(builder, loc, argument, fact.dim,
                             scale(builder, loc, start, fact.factor),
                             scale(builder, loc, size, fact.factor));
  return tensor::ExtractSliceOp::create(
      builder, loc, cast<RankedTensorType>(getTileType(argument, fact)),
      argument, window.offsets, window.sizes, window.strides);
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

void Tiler::buildBody(OpBuilder &builder, Location loc, Value start, Value size,
                      ValueRange buffers, SmallVectorImpl<Value> &updated) {
  IRMapping mapping;
  for (BlockArgument input : inputs)
    mapping.map(input, slice(builder, loc, input, start, size));
  for (Operation *op : body) {
    Operation *clone = builder.clone(*op, mapping);
    for (auto [old, result] :
         llvm::zip_equal(op->getResults(), clone->getResults()))
      result.setType(getTileType(old, batch.lookup(old)));
  }
  for (auto [output, buffer] : llvm::zip_equal(outputs, buffers))
    updated.push_back(insert(builder, loc, mapping.lookup(output), buffer,
                             start, batch.lookup(output)));
}

std::pair<Operation *, Operation *> Tiler::rewrite() {
  Block &entry = function.getFunctionBody().front();
  Operation *terminator = entry.getTerminator();
  // The loops stand before the first use of their results.
  Operation *anchor = containers.empty() ? terminator : containers.front();
  for (Operation *container : containers)
    container->moveBefore(terminator);
  anchor = containers.empty() ? terminator : containers.front();
  OpBuilder builder(anchor);
  Location loc = function.getLoc();
  Value zero = makeIndex(builder, loc, 0), one = makeIndex(builder, loc, 1);
  Value two = makeIndex(builder, loc, 2);
  auto tile = arith::ConstantIndexOp::create(builder, loc, 1);
  auto rounds = arith::ConstantIndexOp::create(builder, loc, 1);
  Value rows = getExtent(builder, loc, batchArgument, batchDim);
  Value samples =
      batchFactor == 1
          ? rows
          : arith::FloorDivSIOp::create(builder, loc, rows,
                                        makeIndex(builder, loc, batchFactor))
                .getResult();
  SmallVector<Value> carried;
  for (Value output : outputs) {
    const TensorInfo &info = *dims.lookup(output).tensor;
    const BatchFact &fact = batch.lookup(output);
    auto type = cast<RankedTensorType>(getTileType(output, fact));
    SmallVector<Value> extents;
    for (int64_t index = 0; index < type.getRank(); ++index)
      if (type.isDynamicDim(index))
        extents.push_back(index == fact.dim
                              ? scale(builder, loc, samples, fact.factor)
                              : materialize(builder, loc, info.dim(index)));
    carried.push_back(
        tensor::EmptyOp::create(builder, output.getLoc(), type, extents));
  }
  size_t buffers = carried.size();
  carried.push_back(zero);
  carried.push_back(tile);
  auto outer = scf::ForOp::create(
      builder, loc, zero, rounds, one, carried,
      [&](OpBuilder &outerBuilder, Location, Value, ValueRange state) {
        Value start = state[buffers], size = state[buffers + 1];
        Value left = arith::SubIOp::create(outerBuilder, loc, samples, start);
        Value trips =
            arith::FloorDivSIOp::create(outerBuilder, loc, left, size);
        auto inner = scf::ForOp::create(
            outerBuilder, loc, zero, trips, one,
            ValueRange(state).take_front(buffers + 1),
            [&](OpBuilder &innerBuilder, Location, Value,
                ValueRange innerState) {
              SmallVector<Value> next;
              Value offset = innerState[buffers];
              buildBody(innerBuilder, loc, offset, size,
                        innerState.take_front(buffers), next);
              next.push_back(
                  arith::AddIOp::create(innerBuilder, loc, offset, size));
              scf::YieldOp::create(innerBuilder, loc, next);
            });
        SmallVector<Value> next(inner.getResults());
        next.push_back(
            arith::FloorDivSIOp::create(outerBuilder, loc, size, two));
        scf::YieldOp::create(outerBuilder, loc, next);
      });
  for (auto [number, result] :
       llvm::enumerate(outer.getResults().take_front(buffers))) {
    Value output = outputs[number];
    Value replacement = result;
    output.replaceUsesWithIf(replacement, [&](OpOperand &use) {
      return use.getOwner() == terminator ||
             llvm::is_contained(containers, use.getOwner());
    });
  }
  for (Operation *op : llvm::reverse(body))
    op->erase();
  return {tile, rounds};
}

FailureOr<TiledFunction> TiledFunction::create(FunctionOpInterface function,
                                               StringRef batchSymbol) {
  Tiler tiler(function, batchSymbol);
  if (failed(tiler.plan()))
    return failure();
  auto [tile, rounds] = tiler.rewrite();
  TiledFunction result(tile, rounds);
  result.setTile(1);
  auto module = function->getParentOfType<ModuleOp>();
  if (failed(inferShapes(module)))
    return failure();
  return result;
}

void TiledFunction::setTile(int64_t value) {
  tile = value;
  auto set = [](Operation *constant, int64_t number) {
    cast<arith::ConstantOp>(constant).setValueAttr(
        IntegerAttr::get(IndexType::get(constant->getContext()), number));
  };
  set(tileConstant, value);
  set(bitsConstant, static_cast<int64_t>(llvm::Log2_64(value)) + 1);
}
