//===- TileCombine.cpp - Results that tiles add up to ---------------------===//

#include "TileCombine.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/KoilaBinaryOps.h"
#include "koila/Dialect/Koila/IR/KoilaCopyOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace koila;

bool koila::canCombine(Combine combine, Type type) {
  switch (combine) {
  case Combine::None:
    return false;
  case Combine::Sum:
    return type.isF32() || type.isF64() || type.isInteger(64);
  case Combine::Mean:
    return type.isF32() || type.isF64();
  case Combine::Max:
  case Combine::Min:
    // Nothing is rounded.
    return isa<FloatType>(type) || type.isInteger(64);
  case Combine::Any:
  case Combine::All:
    return type.isInteger(1);
  }
  return false;
}

/// The smallest value of `type`, or the largest.
static TypedAttr getExtreme(Builder &builder, Type type, bool isLargest) {
  if (isa<FloatType>(type)) {
    double infinity = std::numeric_limits<double>::infinity();
    return builder.getF64FloatAttr(isLargest ? infinity : -infinity);
  }
  using Limits = std::numeric_limits<int64_t>;
  return builder.getI64IntegerAttr(isLargest ? Limits::max() : Limits::min());
}

Value koila::startCombining(OpBuilder &builder, Location loc, Combine combine,
                            Value buffer) {
  Type type = cast<RankedTensorType>(buffer.getType()).getElementType();
  Attribute start = builder.getI64IntegerAttr(combine == Combine::All);
  if (combine == Combine::Max || combine == Combine::Min)
    start = getExtreme(builder, type, combine == Combine::Min);
  return FillScalarOp::create(builder, loc, buffer.getType(), buffer, start,
                              /*tied=*/true, ValueRange());
}

/// The index as a number of PyTorch.
static Value makeNumber(OpBuilder &builder, Location loc, Value index) {
  return arith::IndexCastOp::create(builder, loc, builder.getI64Type(), index);
}

Value koila::addPart(OpBuilder &builder, Location loc, Combine combine,
                     Value sum, Value part, Value size) {
  Type type = sum.getType();
  switch (combine) {
  case Combine::Mean:
    part = MulScalarOp::create(builder, loc, type, part,
                               DynamicAttr::get(builder.getContext()),
                               /*tied=*/true, makeNumber(builder, loc, size));
    [[fallthrough]];
  case Combine::Sum:
    return AddTensorOp::create(builder, loc, type, sum, part,
                               builder.getI64IntegerAttr(1), /*tied=*/true,
                               ValueRange());
  case Combine::Max:
    return MaximumOp::create(builder, loc, type, sum, part);
  case Combine::Min:
    return MinimumOp::create(builder, loc, type, sum, part);
  case Combine::Any:
    return LogicalOrOp::create(builder, loc, type, sum, part, /*tied=*/true);
  case Combine::All:
    return LogicalAndOp::create(builder, loc, type, sum, part, /*tied=*/true);
  case Combine::None:
    break;
  }
  llvm_unreachable("nothing to combine");
}

Value koila::finishCombining(OpBuilder &builder, Location loc, Combine combine,
                             Value sum, Value samples) {
  if (combine != Combine::Mean)
    return sum;
  return DivScalarOp::create(builder, loc, sum.getType(), sum,
                             DynamicAttr::get(builder.getContext()),
                             /*tied=*/true, makeNumber(builder, loc, samples));
}
