//===- TileCombine.cpp - Results that tiles add up to ---------------------===//

#include "TileCombine.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/KoilaBinaryOps.h"
#include "koila/Dialect/Koila/IR/KoilaCopyOps.h"
#include "koila/Dialect/Koila/IR/KoilaPointwiseOps.h"
#include "koila/Support/DType.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace koila;

bool koila::canCombine(Combine combine, Type type) {
  switch (combine) {
  case Combine::None:
    return false;
  case Combine::Sum:
    return type.isF32() || type.isInteger(64);
  case Combine::Mean:
  case Combine::LogSumExp:
  case Combine::Norm:
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

Type koila::getCarriedType(Combine combine, Type type) {
  bool rounds = combine != Combine::Max && combine != Combine::Min;
  return rounds && type.isF32() ? Float64Type::get(type.getContext()) : type;
}

/// What combining starts from, in elements of `type`.
static Attribute getStart(Builder &builder, Combine combine, Type type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  using Limits = std::numeric_limits<int64_t>;
  bool isLeast = combine == Combine::Max || combine == Combine::LogSumExp;
  if (!isLeast && combine != Combine::Min)
    return builder.getI64IntegerAttr(combine == Combine::All);
  if (isa<FloatType>(type))
    return builder.getF64FloatAttr(isLeast ? -kInfinity : kInfinity);
  return builder.getI64IntegerAttr(isLeast ? Limits::min() : Limits::max());
}

Value koila::startCombining(OpBuilder &builder, Location loc, Combine combine,
                            Value buffer) {
  Type type = cast<RankedTensorType>(buffer.getType()).getElementType();
  return FillScalarOp::create(builder, loc, buffer.getType(), buffer,
                              getStart(builder, combine, type), /*tied=*/true,
                              ValueRange());
}

/// The index as a number of PyTorch.
static Value makeNumber(OpBuilder &builder, Location loc, Value index) {
  return arith::IndexCastOp::create(builder, loc, builder.getI64Type(), index);
}

Value koila::addPart(OpBuilder &builder, Location loc, Combine combine,
                     Value sum, Value part, Value size) {
  Type type = sum.getType();
  Attribute one = builder.getI64IntegerAttr(1);
  // Into the one tensor that the loops carry.
  auto keep = [&](Value result) -> Value {
    return CopyOp::create(builder, loc, type, sum, result,
                          builder.getBoolAttr(false), builder.getUnitAttr());
  };
  switch (combine) {
  case Combine::Sum:
    return AddTensorOp::create(builder, loc, type, sum, part, one,
                               /*tied=*/true, ValueRange());
  case Combine::Mean:
    return AddTensorOp::create(builder, loc, type, sum, part,
                               DynamicAttr::get(builder.getContext()),
                               /*tied=*/true, makeNumber(builder, loc, size));
  case Combine::LogSumExp:
    return keep(LogaddexpOp::create(builder, loc, type, sum, part));
  case Combine::Norm:
    return AddcmulOp::create(builder, loc, type, sum, part, part, one,
                             /*tied=*/true, ValueRange());
  case Combine::Max:
    return keep(MaximumOp::create(builder, loc, type, sum, part));
  case Combine::Min:
    return keep(MinimumOp::create(builder, loc, type, sum, part));
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
                             Value sum, Value samples, Type type) {
  if (combine == Combine::Mean)
    sum = DivScalarOp::create(builder, loc, sum.getType(), sum,
                              DynamicAttr::get(builder.getContext()),
                              /*tied=*/true, makeNumber(builder, loc, samples));
  else if (combine == Combine::Norm)
    sum = SqrtOp::create(builder, loc, sum.getType(), sum, /*tied=*/true);
  auto carried = cast<RankedTensorType>(sum.getType());
  if (carried.getElementType() == type)
    return sum;
  return ToDtypeOp::create(builder, loc, carried.clone(type), sum,
                           *getScalarTypeCode(getDTypeName(type)),
                           /*non_blocking=*/false,
                           /*copy=*/false, /*memory_format=*/nullptr);
}
