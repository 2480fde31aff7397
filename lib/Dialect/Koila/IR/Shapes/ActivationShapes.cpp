//===- ActivationShapes.cpp - Elementwise operators with own rules --------===//

#include "../Rules/ElementwiseRules.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using rules::Elementwise;

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

/// Source: aten/src/ATen/native/GatedLinearUnit.cpp.
LogicalResult rules::inferGlu(ShapeRule &rule, Value self, int64_t dim) {
  TensorInfo half = rule.tensor(self);
  if (failed(checkCategory(rule, half.elementType, "bic")))
    return failure();
  if (!half.hasRank()) {
    rule.setResult(0, half);
    return success();
  }
  if (half.getRank() == 0)
    return rule.emitError() << "takes no 0-dim tensor";
  auto place = normalizeDim(dim, half.getRank());
  if (!place)
    return rule.emitError() << "dim " << dim << " is out of range for a tensor "
                            << "of rank " << half.getRank();
  DimExpr &extent = (*half.dims)[*place];
  if (auto constant = extent.getConstant(); constant && *constant % 2)
    return rule.emitError() << "halves dim " << *place << ", whose extent "
                            << *constant << " is odd";
  extent = extent.floorDiv(2);
  // The halves are views with the strides of the whole.
  TensorInfo result = half;
  result.strides = computeElementwiseStrides({half, half}, *half.dims);
  rule.setResult(0, result);
  return success();
}

void rules::inferGluBatch(BatchRule &rule, Value self, int64_t dim) {
  BatchFact fact = rule.fact(self);
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank())
    return rule.mix("the rank of an operand is unknown");
  auto place = normalizeDim(dim, info.getRank());
  if (fact.isAt() && place && fact.dim == *place)
    return rule.mix("glu over dim " + Twine(*place) +
                    " multiplies samples with each other");
  rule.setResult(0, fact);
}

/// Source: prelu in aten/src/ATen/native/Activation.cpp.
LogicalResult rules::inferPrelu(ShapeRule &rule, Value self, Value weight) {
  TensorInfo info = rule.tensor(self), slopes = rule.tensor(weight);
  Type type = info.elementType;
  if (isTorchType(type) && isTorchType(slopes.elementType) &&
      type != slopes.elementType)
    return rule.emitError()
           << "takes a weight of the element type of the "
           << "input, " << type << ", not " << slopes.elementType;
  if (failed(checkCategory(rule, type, "bic")))
    return failure();
  if (slopes.hasRank() && slopes.getRank() > 1)
    return rule.emitError() << "takes a weight of at most one dim, not of rank "
                            << slopes.getRank();
  if (!info.hasRank() || !slopes.hasRank()) {
    info.strides.reset();
    rule.setResult(0, info);
    return success();
  }
  DimExpr one = rule.constant(1);
  DimExpr count = slopes.getRank() ? slopes.dim(0) : one;
  DimExpr channels = info.getRank() > 1 ? info.dim(1) : one;
  if (!count.isConstant(1) && count.getConstant() && channels.getConstant() &&
      count != channels)
    return rule.emitError()
           << "takes one weight or one for each of the " << channels.str()
           << " channels, not " << count.str();
  if (!count.isConstant(1) && count.getConstant() && info.getRank() == 0)
    return rule.emitError()
           << "takes one weight for a 0-dim tensor, not " << count.str();
  // One slope per channel has the stride of the weight there, and takes part
  // only where the input does not tell.
  TensorInfo result = info;
  if (count.isConstant(1)) {
    result.strides = computeElementwiseStrides({info}, *info.dims);
  } else {
    SmallVector<DimExpr> dims(info.getRank(), one);
    if (info.getRank() > 1)
      dims[1] = count;
    result.strides = computeElementwiseStrides(
        {info, TensorInfo::contiguous(dims, type)}, *info.dims);
  }
  rule.setResult(0, result);
  return success();
}

void rules::inferPreluBatch(BatchRule &rule, Value self, Value weight) {
  BatchFact fact = rule.fact(self);
  TensorInfo slopes = rule.tensor(weight);
  if (!rule.fact(weight).isFree())
    return rule.mix("the weights of prelu depend on the batch");
  bool single = slopes.hasRank() &&
                (slopes.getRank() == 0 || slopes.dim(0).isConstant(1));
  if (fact.isAt() && fact.dim == 1 && !single)
    return rule.mix("the batch is the channel dim of prelu, which has a weight "
                    "for each channel");
  rule.setResult(0, fact);
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

/// Source: masked_fill in aten/src/ATen/native/TensorAdvancedIndexing.cpp.
LogicalResult rules::inferMaskedFill(ShapeRule &rule, Value self, Value mask,
                                     Value value) {
  TensorInfo info = rule.tensor(self), where = rule.tensor(mask);
  if (isTorchType(where.elementType) && !where.elementType.isInteger(1))
    return rule.emitError()
           << "takes a bool mask, not one of " << where.elementType;
  TensorInfo filled = rule.tensor(value);
  if (filled.hasRank() && filled.getRank() != 0)
    return rule.emitError()
           << "takes a 0-dim value, not one of rank " << filled.getRank();
  auto dims = broadcastDims(rule, {info, where});
  if (failed(dims))
    return failure();
  if (isInPlace(rule.getOp())) {
    if (failed(checkWrittenDims(rule, info, *dims)))
      return failure();
    rule.setResult(0, info);
    return success();
  }
  // The copy that is filled is made in rows.
  TensorInfo result;
  if (*dims)
    result = TensorInfo::contiguous(**dims, info.elementType);
  result.elementType = info.elementType;
  rule.setResult(0, result);
  return success();
}

/// Source: addcdiv in aten/src/ATen/native/PointwiseOps.cpp.
LogicalResult rules::inferAddcdiv(ShapeRule &rule) {
  OperandRange tensors = getTensors(rule.getOp());
  Type numerator = rule.tensor(tensors[1]).elementType;
  Type denominator = rule.tensor(tensors[2]).elementType;
  if (isa_and_nonnull<IntegerType>(numerator) &&
      isa_and_nonnull<IntegerType>(denominator))
    return rule.emitError() << "divides no integers, here " << numerator
                            << " by " << denominator;
  return inferElementwise(rule, Elementwise{});
}

/// Source: pow in aten/src/ATen/native/Pow.cpp.
LogicalResult rules::inferPowTensorScalar(ShapeRule &rule) {
  Type base = rule.tensor(rule.getOp()->getOperand(0)).elementType;
  Type exponent = rule.numberType("exponent");
  auto literal = getLiteralNumber(rule.getOp(), "exponent");
  if (isa_and_nonnull<IntegerType>(base) && exponent &&
      exponent.isInteger(64) && literal && *literal < 0)
    return rule.emitError() << "takes no negative integer exponent, here "
                            << static_cast<int64_t>(*literal)
                            << ", for elements of type " << base;
  return inferElementwise(rule, Elementwise{.numbers = {"exponent"}});
}
