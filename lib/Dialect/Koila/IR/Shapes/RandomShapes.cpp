//===- RandomShapes.cpp - Rules of random tensors -------------------------===//
//
// Source: aten/src/ATen/native/DistributionTemplates.h, Distributions.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Rules/FactoryRules.h"
#include "../Rules/NewTensors.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace koila;
using rules::MemoryFormat;

LogicalResult rules::checkReal(const ShapeRule &rule, Type type) {
  if (!type || !isa<IntegerType>(type))
    return success();
  return rule.emitError() << "works with floating-point types, not with "
                          << type;
}

/// The least and greatest value of an integer type.
static std::pair<int64_t, int64_t> getBounds(IntegerType type) {
  unsigned width = type.getWidth();
  if (width == 1 || type.isUnsigned())
    return {0, (int64_t(1) << width) - 1};
  int64_t half = int64_t(1) << (width - 1);
  return {-half, half - 1};
}

LogicalResult rules::checkDrawRange(const ShapeRule &rule, StringRef low,
                                    StringRef high, Type type) {
  DimExpr from =
      rule.hasArgument(low) ? rule.integerArgument(low) : rule.constant(0);
  DimExpr to = rule.integerArgument(high);
  auto width = from && to ? (to - from).getConstant() : std::nullopt;
  if (width && *width <= 0)
    return rule.emitError()
           << "draws from an empty range, " << from.str() << " to " << to.str();
  auto integer = dyn_cast_or_null<IntegerType>(type);
  if (!integer || integer.getWidth() > 32)
    return success();
  auto [least, greatest] = getBounds(integer);
  for (auto [bound, past] : {std::pair(from, 0), std::pair(to, 1)})
    if (auto value = bound ? bound.getConstant() : std::nullopt;
        value && (*value - past < least || *value - past > greatest))
      return rule.emitError() << "draws " << *value - past << ", which " << type
                              << " does not hold";
  return success();
}

LogicalResult rules::checkDeviation(const ShapeRule &rule,
                                    const APFloat &deviation) {
  if (!deviation.isNegative() || deviation.isZero())
    return success();
  return rule.emitError() << "standard deviation "
                          << deviation.convertToDouble() << " is negative";
}

LogicalResult rules::inferNormal(ShapeRule &rule, ArrayRef<Value> operands) {
  for (Value operand : operands)
    if (failed(checkReal(rule, rule.tensor(operand).elementType)))
      return failure();
  if (Type type = rule.tensor(operands.back()).elementType;
      isa_and_nonnull<ComplexType>(type) &&
      (operands.size() == 2 || rule.getOp()->hasAttr("mean")))
    return rule.emitError() << "the standard deviation is complex";
  TensorInfo info = rule.tensor(operands.front());
  if (operands.size() == 2) {
    Type type = info.elementType;
    if (failed(inferBinary(rule, operands[0], operands[1])))
      return failure();
    info = *rule.getResults()[0].tensor;
    info.elementType = type;
  }
  if (failed(setStrides(rule, info, MemoryFormat::Contiguous)))
    return failure();
  rule.setResult(0, info);
  return success();
}

LogicalResult rules::inferMultinomial(ShapeRule &rule, Value self,
                                      bool replacement) {
  TensorInfo weights = rule.tensor(self);
  if (failed(checkReal(rule, weights.elementType)))
    return failure();
  DimExpr count = rule.integerArgument("num_samples");
  auto drawn = count ? count.getConstant() : std::nullopt;
  if (drawn && *drawn <= 0)
    return rule.emitError() << "draws " << *drawn << " samples";
  TensorInfo info;
  info.elementType = IntegerType::get(rule.getContext(), 64);
  if (!weights.hasRank()) {
    rule.setResult(0, info);
    return success();
  }
  if (weights.getRank() != 1 && weights.getRank() != 2)
    return rule.emitError()
           << "takes weights of 1 or 2 dims, not of " << weights.getRank();
  auto present = weights.dims->back().getConstant();
  if (present &&
      (*present == 0 || (!replacement && drawn && *drawn > *present)))
    return rule.emitError()
           << "draws more samples than the " << *present << " that there are";
  info.dims = weights.dims;
  info.dims->back() = count;
  if (failed(setStrides(rule, info, MemoryFormat::Contiguous)))
    return failure();
  rule.setResult(0, info);
  return success();
}

void rules::inferMultinomialBatch(BatchRule &rule, Value self) {
  BatchFact fact = rule.fact(self);
  if (!rule.argumentFact("num_samples").isFree())
    return rule.mix("as many indices are drawn as there are samples");
  TensorInfo weights = rule.tensor(self);
  if (!weights.hasRank())
    return rule.mix("the rank of the weights is unknown");
  if (fact.isAt() && fact.dim == weights.getRank() - 1)
    return rule.mix("multinomial draws one of the samples");
  rule.setResult(0, fact);
}

//===----------------------------------------------------------------------===//
// Draws into new storage
//===----------------------------------------------------------------------===//

Value rules::drawSame(OpBuilder &builder, Operation *op, Value storage) {
  IRMapping mapping;
  mapping.map(op->getOperand(0), storage);
  Operation *draw = builder.clone(*op, mapping);
  draw->getResult(0).setType(storage.getType());
  cast<TorchOperatorInterface>(draw).permitTie(true);
  return draw->getResult(0);
}

/// `DrawT` of `storage`, in place.
template <typename DrawT>
static Value draw(OpBuilder &builder, Operation *op, Value storage,
                  ArrayRef<std::pair<StringRef, Attribute>> numbers) {
  OperationState state(op->getLoc(), DrawT::getOperationName());
  state.addOperands(storage);
  state.addTypes(storage.getType());
  for (auto [name, number] : numbers)
    state.addAttribute(name, number);
  state.addAttribute("tied", builder.getUnitAttr());
  return builder.create(state)->getResult(0);
}

Value rules::drawUniform(OpBuilder &builder, Operation *op, Value storage) {
  return draw<UniformOp>(builder, op, storage,
                         {{"from", builder.getF64FloatAttr(0)},
                          {"to", builder.getF64FloatAttr(1)}});
}

Value rules::drawNormal(OpBuilder &builder, Operation *op, Value storage) {
  return draw<NormalOp>(builder, op, storage,
                        {{"mean", builder.getF64FloatAttr(0)},
                         {"std", builder.getF64FloatAttr(1)}});
}

Value rules::drawIntegers(OpBuilder &builder, Operation *op, Value storage) {
  Attribute low = op->getAttr("low");
  return draw<RandomFromOp>(builder, op, storage,
                            {{"from", low ? low : builder.getI64IntegerAttr(0)},
                             {"to", op->getAttr("high")}});
}
