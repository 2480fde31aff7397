//===- ReductionShapes.cpp - Rules of reductions --------------------------===//

#include "../Rules/ReductionRules.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Element types
//===----------------------------------------------------------------------===//

StringRef rules::getOperatorName(Operation *op) {
  StringRef schema = cast<TorchOperatorInterface>(op).getTorchSchema();
  return schema.take_until([](char c) { return c == '(' || c == '.'; })
      .rsplit(':')
      .second;
}

Type rules::getFloatType(Type type) {
  return type && isa<IntegerType>(type) ? Float32Type::get(type.getContext())
                                        : type;
}

Type rules::getRealType(Type type) {
  auto complex = dyn_cast_or_null<ComplexType>(type);
  return complex ? complex.getElementType() : type;
}

FailureOr<Type> rules::getResultType(ShapeRule &rule, ResultType how,
                                     Type self) {
  Operation *op = rule.getOp();
  MLIRContext *context = rule.getContext();
  Type type;
  if (auto code = op->getAttrOfType<IntegerAttr>("dtype")) {
    type = getTypeForScalarTypeCode(context, code.getInt());
    if (!type)
      return rule.emitError()
             << "dtype code " << code.getInt() << " is unknown";
  }
  bool integer = self && isa<IntegerType>(self);
  auto refuse = [&]() -> FailureOr<Type> {
    return rule.emitError() << getOperatorName(op)
                            << " of integers needs a floating-point dtype";
  };
  switch (how) {
  case ResultType::Same:
    return self;
  case ResultType::Sum:
    if (type || !integer)
      return type ? type : self;
    return Type(IntegerType::get(context, 64));
  case ResultType::Mean:
    type = type ? type : self;
    // nanmean checks its input, mean the type it computes in.
    if ((type && isa<IntegerType>(type)) ||
        (integer && getOperatorName(op) == "nanmean"))
      return refuse();
    return type;
  case ResultType::Float:
    return getFloatType(self);
  case ResultType::Real:
    if (integer)
      return refuse();
    return getRealType(self);
  case ResultType::Norm:
    if (integer)
      return refuse();
    // aten/src/ATen/native/LinearAlgebraUtils.h, checkInputsSolver and
    // linalg_vector_norm in LinearAlgebra.cpp.
    if (type && self &&
        (isa<IntegerType>(type) ||
         isa<ComplexType>(type) != isa<ComplexType>(self) ||
         promoteTypes(self, true, type, true) != type ||
         (isa<ComplexType>(type) && getOperatorName(op) == "norm")))
      return rule.emitError()
             << "a norm of " << self << " cannot be computed in " << type;
    return getRealType(type ? type : self);
  case ResultType::Index:
    return Type(IntegerType::get(context, 64));
  case ResultType::Truth:
    return self && self.isUnsignedInteger(8)
               ? self
               : Type(IntegerType::get(context, 1));
  }
  return Type();
}

//===----------------------------------------------------------------------===//
// Dims
//===----------------------------------------------------------------------===//

std::optional<SmallVector<bool>>
rules::getReducedDims(Operation *op, int64_t rank, bool emptyIsAll) {
  Attribute attr = op->getAttr("dim");
  SmallVector<int64_t> dims;
  if (auto single = dyn_cast_or_null<IntegerAttr>(attr))
    dims.push_back(single.getInt());
  else if (auto list = dyn_cast_or_null<DenseI64ArrayAttr>(attr))
    llvm::append_range(dims, list.asArrayRef());
  // A 0-dim tensor takes dims as if it had one.
  SmallVector<bool> reduced(std::max<int64_t>(rank, 1),
                            !attr || (dims.empty() && emptyIsAll));
  for (int64_t dim : dims) {
    auto normal = normalizeDim(dim, rank);
    if (!normal || reduced[*normal])
      return std::nullopt;
    reduced[*normal] = true;
  }
  reduced.truncate(rank);
  return reduced;
}

static bool keepsDims(Operation *op) {
  auto keepdim = op->getAttrOfType<BoolAttr>("keepdim");
  return keepdim && keepdim.getValue();
}

/// The extents that are left, or ones; failure after an error.
static FailureOr<SmallVector<DimExpr>> reduceDims(ShapeRule &rule,
                                                  const TensorInfo &self,
                                                  bool needsElements,
                                                  bool emptyIsAll) {
  auto reduced =
      rules::getReducedDims(rule.getOp(), self.getRank(), emptyIsAll);
  if (!reduced)
    return rule.emitError() << "a dim is out of range for rank "
                            << self.getRank() << ", or given twice";
  SmallVector<DimExpr> dims;
  for (auto [index, dim] : llvm::enumerate(*self.dims)) {
    if (!(*reduced)[index])
      dims.push_back(dim);
    else if (needsElements && dim.isConstant(0))
      return rule.emitError()
             << rules::getOperatorName(rule.getOp()) << " of no elements: dim "
             << index << " is empty";
    else if (keepsDims(rule.getOp()))
      dims.push_back(rule.constant(1));
  }
  return dims;
}

LogicalResult rules::inferReduction(ShapeRule &rule, const Reduction &how) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  std::optional<SmallVector<DimExpr>> dims;
  if (self.hasRank()) {
    auto left = reduceDims(rule, self, how.needsElements, how.emptyIsAll);
    if (failed(left))
      return failure();
    dims = *left;
  }
  for (auto [index, how] : llvm::enumerate(how.types)) {
    auto type = getResultType(rule, how, self.elementType);
    if (failed(type))
      return failure();
    TensorInfo result;
    result.elementType = *type;
    if (dims)
      result = TensorInfo::contiguous(*dims, *type);
    rule.setResult(index, result);
  }
  return success();
}

void rules::inferReductionBatch(BatchRule &rule, bool emptyIsAll,
                                Combine combine) {
  rule.takeAnyRows();
  Operation *op = rule.getOp();
  TensorInfo self = rule.tensor(op->getOperand(0));
  BatchFact fact = rule.fact(op->getOperand(0));
  if (!self.hasRank())
    return rule.mix("the rank of the operand is unknown");
  if (!fact.isAt())
    return rule.mix("the batch is the inner factor of a dim");
  auto reduced = getReducedDims(op, self.getRank(), emptyIsAll);
  if (!reduced || (*reduced)[fact.dim])
    return rule.mix(getOperatorName(op) + " over dim " + Twine(fact.dim) +
                        " mixes samples",
                    reduced ? combine : Combine::None);
  if (!keepsDims(op))
    fact.dim -= llvm::count(ArrayRef(*reduced).take_front(fact.dim), true);
  rule.setAll(fact);
}

//===----------------------------------------------------------------------===//
// Single operators
//===----------------------------------------------------------------------===//

bool rules::isNormOfElements(Attribute p) {
  if (auto number = dyn_cast_or_null<FloatAttr>(p))
    return number.getValue().isNegative() || number.getValue().isInfinity();
  auto integer = dyn_cast_or_null<IntegerAttr>(p);
  return integer && integer.getType().isInteger(64) && integer.getInt() < 0;
}

Combine rules::getNormCombine(Attribute p) {
  double order = 2;
  if (auto number = dyn_cast_or_null<FloatAttr>(p))
    order = number.getValueAsDouble();
  else if (auto integer = dyn_cast_or_null<IntegerAttr>(p))
    order = integer.getInt();
  else if (p)
    return Combine::None;
  if (order == 2)
    return Combine::Norm;
  // The norm of order 0 counts what is not zero.
  if (order == 0 || order == 1)
    return Combine::Sum;
  if (std::isinf(order))
    return order > 0 ? Combine::Max : Combine::Min;
  return Combine::None;
}

std::optional<double> rules::getCorrection(Operation *op) {
  if (auto unbiased = op->getAttrOfType<BoolAttr>("unbiased"))
    return unbiased.getValue();
  Attribute correction = op->getAttr("correction");
  if (auto number = dyn_cast_or_null<FloatAttr>(correction))
    return number.getValueAsDouble();
  if (auto integer = dyn_cast_or_null<IntegerAttr>(correction))
    return integer.getInt();
  return correction ? std::nullopt : std::optional(1.0);
}

Combine rules::getMomentCombine(const BatchRule &rule, Combine combine) {
  auto correction = getCorrection(rule.getOp());
  Type type = rule.tensor(rule.getOp()->getOperand(0)).elementType;
  bool isReal = type && !isa<ComplexType>(type);
  return isReal && (correction == 0.0 || correction == 1.0) ? combine
                                                            : Combine::None;
}

LogicalResult rules::inferLogSumExp(ShapeRule &rule) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  auto dims = rule.getOp()->getAttrOfType<DenseI64ArrayAttr>("dim");
  // The maxima that are subtracted are then of all dims, and keep them; no
  // elements have none.
  if (dims && dims.empty() && self.hasRank() && self.getRank() > 0 &&
      !keepsDims(rule.getOp()) &&
      llvm::none_of(*self.dims, [](DimExpr dim) { return dim.isConstant(0); }))
    return rule.emitError() << "logsumexp needs at least one dim";
  return inferReduction(rule, {{ResultType::Float}});
}

LogicalResult rules::inferTrace(ShapeRule &rule) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  if (self.hasRank() && self.getRank() != 2)
    return rule.emitError() << "expects a matrix, got rank " << self.getRank();
  return inferReduction(rule, {{ResultType::Sum}});
}

LogicalResult rules::inferQuantile(ShapeRule &rule, Value q) {
  Operation *op = rule.getOp();
  TensorInfo self = rule.tensor(op->getOperand(0)), at = rule.tensor(q);
  if (self.elementType && !self.elementType.isF32() &&
      !self.elementType.isF64())
    return rule.emitError()
           << "takes float32 and float64, not " << self.elementType;
  if (q && self.elementType && at.elementType &&
      self.elementType != at.elementType)
    return rule.emitError()
           << "q is of " << at.elementType << ", self of " << self.elementType;
  if (at.hasRank() && at.getRank() > 1)
    return rule.emitError() << "q has rank " << at.getRank();
  if (auto number = op->getAttrOfType<FloatAttr>("q"))
    if (double value = number.getValueAsDouble(); !(value >= 0 && value <= 1))
      return rule.emitError() << "q is " << value << ", not between 0 and 1";
  StringRef how = op->getAttrOfType<StringAttr>("interpolation").getValue();
  if (!llvm::is_contained({"linear", "lower", "higher", "midpoint", "nearest"},
                          how))
    return rule.emitError() << "interpolation '" << how << "' is unknown";
  TensorInfo result;
  result.elementType = self.elementType;
  if (self.hasRank()) {
    for (DimExpr dim : *self.dims)
      if (dim.isConstant(0))
        return rule.emitError() << "a quantile of no elements";
    auto dims = reduceDims(rule, self, true, true);
    if (failed(dims))
      return failure();
    result = TensorInfo::contiguous(*dims, self.elementType);
    if (q && !at.hasRank()) {
      result.dims.reset();
      result.strides.reset();
    } else if (q && at.getRank() == 1) {
      // Computed as the last dim, then moved to the front.
      SmallVector<DimExpr> moved(*dims);
      moved.push_back(at.dim(0));
      TensorInfo computed = TensorInfo::contiguous(moved, self.elementType);
      auto rotate = [](SmallVector<DimExpr> &list) {
        std::rotate(list.begin(), std::prev(list.end()), list.end());
      };
      rotate(*computed.dims);
      rotate(*computed.strides);
      result = computed;
    }
  }
  rule.setResult(0, result);
  return success();
}

void rules::inferQuantileBatch(BatchRule &rule, Value q) {
  TensorInfo at = rule.tensor(q);
  if (!rule.fact(q).isFree() || (q && !at.hasRank()))
    return rule.mix("the quantiles depend on the batch");
  if (rule.fact(rule.getOp()->getOperand(0)).isFree())
    return rule.setAll(BatchFact::free());
  inferReductionBatch(rule);
  BatchFact fact = rule.getResults()[0];
  if (fact.isAt() && q && at.getRank() == 1)
    ++fact.dim;
  rule.setAll(fact);
}
