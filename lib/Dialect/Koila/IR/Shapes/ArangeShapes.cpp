//===- ArangeShapes.cpp - How many values arange has ----------------------===//
//
// Source: arange_out in aten/src/ATen/native/RangeFactories.cpp. There the
// count is computed in integers if the result is int64, else in doubles. Here
// the numbers may be expressions; a float takes part in one if a few bits
// after the point are enough for it.
//
//===----------------------------------------------------------------------===//

#include "../Rules/FactoryRules.h"
#include "../Rules/IndexRules.h"
#include "../Rules/NewTensors.h"
#include "koila/Interfaces/Layout.h"
#include <cmath>

using namespace mlir;
using namespace koila;

namespace {
/// An argument of arange.
struct Number {
  /// Null if the type is not known.
  Type type;
  /// Set for literals.
  std::optional<double> literal;
  /// Of an integer; null if not known.
  DimExpr integer;

  bool isFloat() const { return type && type.isF64(); }

  /// The number times `scale`, if that is an integer.
  DimExpr getScaled(int64_t scale, MLIRContext *context) const {
    if (integer)
      return integer * scale;
    if (!literal || std::abs(*literal) > 1e9)
      return {};
    double scaled = *literal * static_cast<double>(scale);
    return scaled == std::floor(scaled)
               ? DimExpr::constant(context, static_cast<int64_t>(scaled))
               : DimExpr();
  }
};
} // namespace

static Number getNumber(const ShapeRule &rule, StringRef name,
                        int64_t otherwise) {
  Number number;
  if (!rule.hasArgument(name)) {
    number.type = IntegerType::get(rule.getContext(), 64);
    number.integer = rule.constant(otherwise);
    number.literal = otherwise;
    return number;
  }
  number.type = rule.numberType(name);
  Attribute attr = rule.getOp()->getAttr(name);
  if (auto flag = dyn_cast<BoolAttr>(attr))
    number.integer = rule.constant(flag.getValue());
  else if (auto value = dyn_cast<FloatAttr>(attr))
    number.literal = value.getValueAsDouble();
  else if (!number.isFloat())
    number.integer = rule.integerArgument(name);
  if (number.integer)
    if (auto constant = number.integer.getConstant())
      number.literal = static_cast<double>(*constant);
  return number;
}

/// ceil((end - start) / step). A step of zero is unknown here.
static LogicalResult countSteps(const ShapeRule &rule, DimExpr start,
                                DimExpr end, DimExpr step, DimExpr &count) {
  auto by = step ? step.getConstant() : std::nullopt;
  if (!start || !end || !by || *by == 0)
    return success();
  int64_t size = std::abs(*by);
  DimExpr span = *by > 0 ? end - start : start - end;
  if (proveAtMost(rule.constant(0), span) == TriBool::No)
    return rule.emitError() << "the step leads away from the end";
  count = (span + (size - 1)).floorDiv(size);
  return success();
}

LogicalResult rules::inferArange(ShapeRule &rule) {
  MLIRContext *context = rule.getContext();
  Number start = getNumber(rule, "start", 0);
  Number end = getNumber(rule, "end", 0);
  Number step = getNumber(rule, "step", 1);
  Type otherwise;
  if (start.isFloat() || end.isFloat() || step.isFloat())
    otherwise = Float32Type::get(context);
  else if (start.type && end.type && step.type)
    otherwise = IntegerType::get(context, 64);
  TensorInfo info;
  info.elementType = getDtype(rule, otherwise);

  for (const Number &number : {start, end, step})
    if (number.literal && !std::isfinite(*number.literal))
      return rule.emitError() << "a bound or the step is not finite";
  // int64 takes the integer parts; shorter integers count in float64.
  bool isLong = info.elementType && info.elementType.isInteger(64);
  auto truncate = [&](Number number) {
    if (isLong && number.literal) {
      number.literal = std::trunc(*number.literal);
      number.integer = number.getScaled(1, context);
    }
    return number;
  };
  Number from = truncate(start), to = truncate(end), by = truncate(step);
  if (by.literal && *by.literal == 0)
    return rule.emitError() << "the step is zero";
  if (from.literal && to.literal && by.literal &&
      (*by.literal > 0 ? *to.literal < *from.literal
                       : *to.literal > *from.literal))
    return rule.emitError() << "the step leads away from the end";

  DimExpr count;
  if (isLong) {
    if (failed(countSteps(rule, from.integer, to.integer, by.integer, count)))
      return failure();
  } else if (start.literal && end.literal && step.literal &&
             (start.isFloat() || end.isFloat() || step.isFloat())) {
    double size = std::ceil((*end.literal - *start.literal) / *step.literal);
    if (size >= 0 && size < 1e15)
      count = rule.constant(static_cast<int64_t>(size));
  } else {
    for (int64_t scale = 1; scale <= 1024 && !count; scale *= 2)
      if (failed(countSteps(rule, start.getScaled(scale, context),
                            end.getScaled(scale, context),
                            step.getScaled(scale, context), count)))
        return failure();
  }
  info.dims.emplace({count});
  info.strides.emplace({rule.constant(1)});
  rule.setResult(0, info);
  return success();
}

/// Where bags of equal size begin, and which rows samples are, each tile counts
/// for itself: who reads that counts within what it gets.
void rules::inferStepsBatch(BatchRule &rule) {
  Value numbers = rule.getOp()->getResult(0);
  BatchFact end = rule.argumentFact("end");
  auto isFixed = [&](StringRef name) {
    return !rule.getOp()->hasAttr(name) || rule.argumentFact(name).isFree();
  };
  std::optional<int64_t> step;
  if (indexing::isReadAsRows(numbers))
    step = 1;
  else if (indexing::isReadAsOffsets(numbers))
    step = indexing::getBagSize(rule, numbers);
  if (!step || !end.isAt() || end.dim >= 0 || end.factor % *step != 0 ||
      !isFixed("start") || !isFixed("step"))
    return mixNumberOfSamples(rule);
  rule.setResult(0, BatchFact::at(0, end.factor / *step));
}
