//===- ViewShapes.cpp - Other element types, and integers about tensors ---===//

#include "../Rules/ViewRules.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Other element types over the same bytes
//===----------------------------------------------------------------------===//

/// The strides in elements of `ratio` times the bytes, or of one `ratio`-th;
/// none if unknown. An error where the last dim is known to have gaps or a
/// stride is no multiple. Source: aten/src/ATen/native/TensorConversions.cpp,
/// view_dtype.
static FailureOr<rules::Sizes> rescaleStrides(ShapeRule &rule,
                                              const TensorInfo &info,
                                              int64_t ratio, bool wider) {
  if (!info.strides)
    return rules::Sizes();
  if (proveEqual(info.strides->back(), rule.constant(1)) == TriBool::No)
    return rule.emitError() << "the last dim has stride "
                            << info.strides->back().str() << ", not 1";
  SmallVector<DimExpr> strides;
  for (DimExpr stride : ArrayRef(*info.strides).drop_back()) {
    auto known = stride.getConstant();
    if (wider && known && *known % ratio != 0)
      return rule.emitError()
             << "stride " << *known << " is no multiple of " << ratio;
    strides.push_back(wider ? stride.floorDiv(ratio) : stride * ratio);
  }
  strides.push_back(rule.constant(1));
  return rules::Sizes(strides);
}

LogicalResult rules::inferViewDtype(ShapeRule &rule, Value self,
                                    int64_t dtype) {
  TensorInfo info = rule.tensor(self), result = info;
  result.elementType = getTypeForScalarTypeCode(rule.getContext(), dtype);
  if (!result.elementType)
    return rule.emitError() << "dtype code " << dtype << " is unknown";
  int64_t before = info.elementType ? getElementBytes(info.elementType) : 0;
  int64_t after = getElementBytes(result.elementType);
  if (before == 0 || !info.hasRank()) {
    setUnknownRank(rule, result);
    return success();
  }
  if (before == after) {
    rule.setResult(0, result);
    return success();
  }
  if (info.getRank() == 0)
    return rule.emitError()
           << "a tensor without dims has no view as " << result.elementType;
  bool wider = after > before;
  int64_t ratio = wider ? after / before : before / after;
  auto strides = rescaleStrides(rule, info, ratio, wider);
  if (failed(strides))
    return failure();
  result.strides = *strides;
  DimExpr last = info.dims->back();
  auto extent = last.getConstant();
  if (wider && extent && *extent % ratio != 0)
    return rule.emitError()
           << "the last extent " << *extent << " is no multiple of " << ratio;
  result.dims->back() = wider ? last.floorDiv(ratio) : last * ratio;
  rule.setResult(0, result);
  return success();
}

LogicalResult rules::inferViewAsReal(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  auto complex = dyn_cast_or_null<ComplexType>(info.elementType);
  if (info.elementType && !complex)
    return rule.emitError()
           << "needs a complex tensor, got " << info.elementType;
  if (complex)
    info.elementType = complex.getElementType();
  if (info.hasRank()) {
    info.dims->push_back(rule.constant(2));
    if (info.strides) {
      for (DimExpr &stride : *info.strides)
        stride = stride * 2;
      info.strides->push_back(rule.constant(1));
    }
  }
  rule.setResult(0, info);
  return success();
}

LogicalResult rules::inferViewAsComplex(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  if (info.elementType) {
    if (!isa<FloatType>(info.elementType) || info.elementType.isBF16())
      return rule.emitError()
             << "needs a floating-point tensor, got " << info.elementType;
    info.elementType = ComplexType::get(info.elementType);
  }
  if (!info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  if (info.getRank() == 0)
    return rule.emitError() << "a tensor without dims has no complex view";
  if (proveEqual(info.dims->back(), rule.constant(2)) == TriBool::No)
    return rule.emitError()
           << "the last extent is " << info.dims->back().str() << ", not 2";
  auto strides = rescaleStrides(rule, info, 2, /*wider=*/true);
  if (failed(strides))
    return failure();
  info.strides = *strides;
  info.dims->pop_back();
  if (info.strides)
    info.strides->pop_back();
  rule.setResult(0, info);
  return success();
}

LogicalResult rules::inferComplexPart(ShapeRule &rule, Value self,
                                      bool imaginary) {
  TensorInfo info = rule.tensor(self);
  auto complex = dyn_cast_or_null<ComplexType>(info.elementType);
  if (info.elementType && !complex && imaginary)
    return rule.emitError()
           << "needs a complex tensor, got " << info.elementType;
  if (!info.elementType)
    info.strides.reset();
  if (complex) {
    info.elementType = complex.getElementType();
    if (info.strides)
      for (DimExpr &stride : *info.strides)
        stride = stride * 2;
  }
  rule.setResult(0, info);
  return success();
}

void rules::inferTypeViewBatch(BatchRule &rule, Value self) {
  BatchFact fact = rule.fact(self);
  TensorInfo from = rule.tensor(self);
  TensorInfo to = rule.tensor(rule.getOp()->getResult(0));
  if (!fact.isAt() || !from.hasRank() || !to.hasRank())
    return rule.mix("the rank of the operand is unknown");
  if (fact.dim >= to.getRank() ||
      proveEqual(from.dim(fact.dim), to.dim(fact.dim)) != TriBool::Yes)
    return rule.mix("reads the batch dim as elements of another size");
  rule.setResult(0, fact);
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

LogicalResult rules::inferSizes(ShapeRule &rule, Value self) {
  ValueInfo info;
  info.list = rule.tensor(self).dims;
  if (info.list)
    for (DimExpr extent : *info.list) {
      info.elements.emplace_back();
      info.elements.back().integer = extent;
    }
  rule.setInfo(0, std::move(info));
  return success();
}

LogicalResult rules::inferSizeInt(ShapeRule &rule, Value self, int64_t dim) {
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank())
    return success();
  auto normal = normalizeDim(dim, info.getRank());
  if (!normal || info.getRank() == 0)
    return emitDimOutOfRange(rule, dim, info.getRank());
  rule.setInteger(0, info.dim(*normal));
  return success();
}

void rules::inferSizeIntBatch(BatchRule &rule, Value self, int64_t dim) {
  BatchFact fact = rule.fact(self);
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  auto normal = normalizeDim(dim, info.getRank());
  // The number of samples here: an integer that follows the batch.
  rule.setResult(0, normal && *normal == fact.dim
                        ? BatchFact::at(-1, fact.factor)
                        : BatchFact::free());
}

void rules::inferNumelBatch(BatchRule &rule, Value self) {
  BatchFact fact = rule.fact(self);
  TensorInfo info = rule.tensor(self);
  if (!fact.isAt() || !info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  DimExpr rest = DimExpr::constant(rule.getOp()->getContext(), fact.factor);
  for (auto [index, dim] : llvm::enumerate(*info.dims))
    if (static_cast<int64_t>(index) != fact.dim)
      rest = rest * dim;
  auto count = rest.getConstant();
  if (!count || *count <= 0)
    return rule.mix("the number of elements of a sample is unknown");
  rule.setResult(0, BatchFact::at(-1, *count));
}
