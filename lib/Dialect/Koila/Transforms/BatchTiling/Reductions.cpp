//===- Reductions.cpp - Results that tiles add up to ----------------------===//

#include "Reductions.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/PointwiseOps.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace koila;

bool koila::canCombine(Combine combine, Type type) {
  switch (combine) {
  case Combine::None:
    return false;
  case Combine::Sum:
    return type.isF32() || type.isInteger(64);
  case Combine::GradientSum:
    return type.isF32() || isHalf(type);
  case Combine::Mean:
  case Combine::LogSumExp:
  case Combine::Norm:
  case Combine::Variance:
  case Combine::Deviation:
  case Combine::MeanAndVariance:
    return type.isF32();
  case Combine::Max:
    // The least int64 has no literal in TorchScript.
    if (type.isInteger(64))
      return false;
    [[fallthrough]];
  case Combine::Min:
    // Nothing is rounded.
    return isa<FloatType>(type) || type.isInteger(64);
  case Combine::Any:
  case Combine::All:
    return type.isInteger(1);
  }
  return false;
}

bool koila::canAddLosses(Combine combine, Type type) {
  return (combine == Combine::Sum || combine == Combine::Mean) &&
         (type.isF32() || type.isF64());
}

bool koila::givesResults(Combine combine, Operation *op) {
  // What has no rank cannot be carried.
  if (llvm::any_of(op->getResults(), [](OpResult result) {
        return !isa<RankedTensorType>(result.getType()) && !result.use_empty();
      }))
    return false;
  switch (combine) {
  case Combine::Sum:
  case Combine::GradientSum:
    return true;
  case Combine::Max:
  case Combine::Min:
    return op->getNumResults() <= 2;
  case Combine::MeanAndVariance:
    return op->getNumResults() == 2;
  default:
    return op->getNumResults() == 1;
  }
}

SmallVector<Value> koila::getCombinedResults(Operation *op) {
  SmallVector<Value> found;
  for (Value result : op->getResults())
    if (isa<RankedTensorType>(result.getType()))
      found.push_back(result);
  return found;
}

bool Combiner::hasPlaces() const {
  return (combine == Combine::Max || combine == Combine::Min) &&
         op->getNumResults() == 2;
}

bool Combiner::isMoment() const {
  return combine == Combine::Variance || combine == Combine::Deviation;
}

unsigned Combiner::getNumCarried() const {
  return isMoment() ? 2 : getCombinedResults(op).size();
}

Value Combiner::getShaped(unsigned index) const {
  return isMoment() ? op->getResult(0) : getCombinedResults(op)[index];
}

bool Combiner::runsInTiles() const { return !isMoment(); }

static Type getElementType(Value tensor) {
  return cast<RankedTensorType>(tensor.getType()).getElementType();
}

Type Combiner::getCarriedType(unsigned index) const {
  Type type = getElementType(getShaped(index));
  if (hasPlaces())
    return type;
  if (combine == Combine::Max || combine == Combine::Min)
    return type;
  if (isHalf(type))
    return Float32Type::get(type.getContext());
  return type.isF32() ? Float64Type::get(type.getContext()) : type;
}

/// What combining starts from, in elements of `type`.
static Attribute getStart(Builder &builder, Combine combine, Type type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  bool isLeast = combine == Combine::Max || combine == Combine::LogSumExp;
  if (!isLeast && combine != Combine::Min)
    return builder.getI64IntegerAttr(combine == Combine::All);
  if (isa<FloatType>(type))
    return builder.getF64FloatAttr(isLeast ? -kInfinity : kInfinity);
  using Limits = std::numeric_limits<int64_t>;
  return builder.getI64IntegerAttr(isLeast ? Limits::min() : Limits::max());
}

Value Combiner::start(OpBuilder &builder, unsigned index, Value buffer) const {
  // Where all are as small as can be, the first is the place.
  Attribute value = hasPlaces() && index == 1
                        ? builder.getI64IntegerAttr(0)
                        : getStart(builder, combine, getElementType(buffer));
  return FillScalarOp::create(builder, op->getLoc(), buffer.getType(), buffer,
                              value, /*tied=*/true, ValueRange());
}

/// The index as a number of PyTorch.
static Value makeNumber(OpBuilder &builder, Location loc, Value index) {
  return arith::IndexCastOp::create(builder, loc, builder.getI64Type(), index);
}

Value koila::convertElements(OpBuilder &builder, Location loc, Value tensor,
                             Type type) {
  auto shaped = cast<TensorType>(tensor.getType());
  if (shaped.getElementType() == type)
    return tensor;
  return ToDtypeOp::create(
      builder, loc, shaped.clone(type), tensor,
      *getScalarTypeCode(getDTypeName(type)), /*non_blocking=*/false,
      /*copy=*/false, /*memory_format=*/nullptr, ValueRange());
}

Value Combiner::keep(OpBuilder &builder, Value carried, Value result) const {
  return CopyOp::create(builder, op->getLoc(), carried.getType(), carried,
                        result, builder.getBoolAttr(false),
                        builder.getUnitAttr());
}

Value Combiner::addPart(OpBuilder &builder, Value sum, Value part,
                        Value size) const {
  Location loc = op->getLoc();
  Type type = sum.getType();
  Attribute one = builder.getI64IntegerAttr(1);
  switch (combine) {
  case Combine::Sum:
  case Combine::GradientSum:
    return AddTensorOp::create(builder, loc, type, sum, part, one,
                               /*tied=*/true, ValueRange());
  case Combine::Mean:
    return AddTensorOp::create(builder, loc, type, sum, part,
                               DynamicAttr::get(builder.getContext()),
                               /*tied=*/true, makeNumber(builder, loc, size));
  case Combine::LogSumExp:
    return keep(builder, sum,
                LogaddexpOp::create(builder, loc, type, sum, part));
  case Combine::Norm:
    return AddcmulOp::create(builder, loc, type, sum, part, part, one,
                             /*tied=*/true, ValueRange());
  case Combine::Max:
    return keep(builder, sum, MaximumOp::create(builder, loc, type, sum, part));
  case Combine::Min:
    return keep(builder, sum, MinimumOp::create(builder, loc, type, sum, part));
  case Combine::Any:
    return LogicalOrOp::create(builder, loc, type, sum, part, /*tied=*/true);
  case Combine::All:
    return LogicalAndOp::create(builder, loc, type, sum, part, /*tied=*/true);
  case Combine::None:
  case Combine::Variance:
  case Combine::Deviation:
  case Combine::MeanAndVariance:
    break;
  }
  llvm_unreachable("nothing to combine");
}

/// The first of the largest, or of the NaN, as PyTorch compares. Source:
/// max_kernel_impl in aten/src/ATen/native/cpu/TensorCompareKernel.cpp.
SmallVector<Value> Combiner::addPlaces(OpBuilder &builder, ValueRange carried,
                                       ValueRange parts,
                                       const TileRange &tile) const {
  Location loc = op->getLoc();
  Value best = carried[0], places = carried[1];
  auto truth =
      cast<RankedTensorType>(best.getType()).clone(builder.getI1Type());
  Value isKept =
      combine == Combine::Max
          ? LeTensorOp::create(builder, loc, truth, parts[0], best, nullptr)
                .getResult()
          : GeTensorOp::create(builder, loc, truth, parts[0], best, nullptr)
                .getResult();
  isKept = LogicalOrOp::create(builder, loc, truth, isKept,
                               IsnanOp::create(builder, loc, truth, best),
                               /*tied=*/true);
  Value offset = tile.start;
  if (tile.factor != 1)
    offset = arith::MulIOp::create(
        builder, loc, offset,
        arith::ConstantIndexOp::create(builder, loc, tile.factor));
  Value moved = AddScalarOp::create(
      builder, loc, parts[1].getType(), parts[1],
      DynamicAttr::get(builder.getContext()), builder.getI64IntegerAttr(1),
      builder.getUnitAttr(), makeNumber(builder, loc, offset));
  auto select = [&](Value old, Value part) {
    return keep(
        builder, old,
        WhereSelfOp::create(builder, loc, old.getType(), isKept, old, part));
  };
  Value nextPlaces = select(places, moved);
  return {select(best, parts[0]), nextPlaces};
}

SmallVector<Value> Combiner::addMoments(OpBuilder &builder, ValueRange carried,
                                        Value self,
                                        const TileRange &tile) const {
  Location loc = op->getLoc();
  int64_t rank = cast<RankedTensorType>(self.getType()).getRank();
  SmallVector<int64_t> dims;
  for (auto [dim, isReduced] :
       llvm::enumerate(*rules::getReducedDims(op, rank)))
    if (isReduced)
      dims.push_back(dim);
  auto dimsAttr = builder.getDenseI64ArrayAttr(dims);
  auto keepdim = op->getAttrOfType<BoolAttr>("keepdim");
  if (!keepdim)
    keepdim = builder.getBoolAttr(false);
  Type wide = carried[0].getType();
  // As PyTorch does within its kernel, which rounds only the result: a mean in
  // float32 is as far off as the deviations are large where those are small
  // beside it, and a variance may be out of its range. Source: WelfordOps in
  // aten/src/ATen/native/SharedReduceOps.h.
  Value exact = convertElements(builder, loc, self, getElementType(carried[0]));
  Value partMean =
      MeanDimOp::create(builder, loc, wide, exact, dimsAttr, keepdim, nullptr);
  Value partVariance =
      VarCorrectionOp::create(builder, loc, wide, exact, dimsAttr,
                              builder.getI64IntegerAttr(0), keepdim);
  return addStatistics(builder, carried, partMean, partVariance, tile);
}

/// The mean so far, and the sum of squared deviations from it, in samples: of
/// two parts, their own and what the distance of their means adds. Source:
/// T. Chan, G. Golub, R. LeVeque, Updating formulae and a pairwise algorithm
/// for computing sample variances, 1979.
SmallVector<Value> Combiner::addStatistics(OpBuilder &builder,
                                           ValueRange carried, Value partMean,
                                           Value partVariance,
                                           const TileRange &tile) const {
  Location loc = op->getLoc();
  Attribute dynamic = DynamicAttr::get(builder.getContext());
  Value mean = carried[0], squares = carried[1];
  Type wide = mean.getType();
  Value size = makeNumber(builder, loc, tile.size);
  Value end = makeNumber(
      builder, loc, arith::AddIOp::create(builder, loc, tile.start, tile.size));
  Value distance =
      SubTensorOp::create(builder, loc, wide, partMean, mean,
                          builder.getI64IntegerAttr(1), nullptr, ValueRange());
  Value step =
      MulScalarOp::create(builder, loc, wide, distance, dynamic, nullptr, size);
  step = DivScalarOp::create(builder, loc, wide, step, dynamic,
                             builder.getUnitAttr(), end);
  Value nextMean = AddTensorOp::create(builder, loc, wide, mean, step,
                                       builder.getI64IntegerAttr(1),
                                       /*tied=*/true, ValueRange());
  Value nextSquares = AddTensorOp::create(
      builder, loc, wide, squares, partVariance, dynamic, /*tied=*/true, size);
  nextSquares = AddcmulOp::create(builder, loc, wide, nextSquares, distance,
                                  step, dynamic, /*tied=*/true,
                                  makeNumber(builder, loc, tile.start));
  return {nextMean, nextSquares};
}

SmallVector<Value> Combiner::add(OpBuilder &builder, ValueRange carried,
                                 const IRMapping &mapping,
                                 const TileRange &tile) const {
  if (isMoment())
    return addMoments(builder, carried, mapping.lookup(op->getOperand(0)),
                      tile);
  SmallVector<Value> parts;
  for (Value result : getCombinedResults(op))
    parts.push_back(mapping.lookup(result));
  if (hasPlaces())
    return addPlaces(builder, carried, parts, tile);
  if (combine == Combine::MeanAndVariance) {
    Location loc = op->getLoc();
    for (auto [part, sum] : llvm::zip_equal(parts, carried))
      part = convertElements(builder, loc, part, getElementType(sum));
    return addStatistics(builder, carried, parts[0], parts[1], tile);
  }
  SmallVector<Value> sums;
  for (auto [part, sum] : llvm::zip_equal(parts, carried))
    sums.push_back(addPart(builder, sum, part, tile.size));
  return sums;
}

SmallVector<Value> Combiner::finish(OpBuilder &builder, ValueRange carried,
                                    Value samples, Value count) const {
  if (hasPlaces())
    return SmallVector<Value>(carried);
  Location loc = op->getLoc();
  Attribute dynamic = DynamicAttr::get(builder.getContext());
  SmallVector<Value> wholes(carried);
  // Of a moment the mean has served.
  if (isMoment())
    wholes.erase(wholes.begin());
  Value &last = wholes.back();
  auto divide = [&](Value index) {
    last = DivScalarOp::create(builder, loc, last.getType(), last, dynamic,
                               /*tied=*/true, makeNumber(builder, loc, index));
  };
  if (combine == Combine::Mean || combine == Combine::MeanAndVariance)
    divide(samples);
  if (isMoment()) {
    last = MulScalarOp::create(builder, loc, last.getType(), last, dynamic,
                               /*tied=*/true, makeNumber(builder, loc, count));
    divide(samples);
    if (rules::getCorrection(op) != 0)
      count = arith::SubIOp::create(
          builder, loc, count, arith::ConstantIndexOp::create(builder, loc, 1));
    divide(count);
  }
  if (combine == Combine::Norm || combine == Combine::Deviation)
    last = SqrtOp::create(builder, loc, last.getType(), last, /*tied=*/true);
  for (auto [whole, result] : llvm::zip_equal(wholes, getCombinedResults(op)))
    whole = convertElements(builder, loc, whole, getElementType(result));
  return wholes;
}
