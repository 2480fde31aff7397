//===- ViewStridedShapes.cpp - Views with strides of their own ------------===//

#include "../Rules/ViewRules.h"

using namespace mlir;
using namespace koila;

// Source: unfold in aten/src/ATen/native/TensorShape.cpp.
LogicalResult rules::inferUnfold(ShapeRule &rule, Value self, int64_t dim,
                                 int64_t size, int64_t step) {
  TensorInfo info = rule.tensor(self);
  if (size < 0)
    return rule.emitError() << "size " << size << " is negative";
  if (step <= 0)
    return rule.emitError() << "step " << step << " is not positive";
  if (!info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  auto normal = normalizeDim(dim, info.getRank());
  if (!normal)
    return emitDimOutOfRange(rule, dim, info.getRank());
  bool hasDim = info.getRank() != 0;
  DimExpr extent = hasDim ? info.dim(*normal) : rule.constant(1);
  if (auto known = extent.getConstant(); known && size > *known)
    return rule.emitError()
           << "windows of " << size << " in an extent of " << *known;
  if (info.strides)
    info.strides->push_back(hasDim ? (*info.strides)[*normal]
                                   : rule.constant(1));
  if (hasDim) {
    (*info.dims)[*normal] = (extent - size).floorDiv(step) + 1;
    if (info.strides)
      (*info.strides)[*normal] = (*info.strides)[*normal] * step;
  }
  info.dims->push_back(rule.constant(size));
  rule.setResult(0, info);
  return success();
}

// Source: diagonal in aten/src/ATen/native/TensorShape.cpp.
LogicalResult rules::inferDiagonal(ShapeRule &rule, Value self, int64_t offset,
                                   int64_t dim1, int64_t dim2) {
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  int64_t rank = info.getRank();
  auto rows = normalizeDim(dim1, rank), columns = normalizeDim(dim2, rank);
  if (!rows || !columns)
    return emitDimOutOfRange(rule, rows ? dim2 : dim1, rank);
  if (*rows == *columns)
    return rule.emitError() << "dim " << dim1 << " is named twice";
  DimExpr height = info.dim(*rows), width = info.dim(*columns);
  DimExpr length =
      clampToZero(offset >= 0 ? getSmaller(height, width - offset)
                              : getSmaller(height + offset, width));
  DimExpr stride = info.strides
                       ? (*info.strides)[*rows] + (*info.strides)[*columns]
                       : DimExpr();
  for (int64_t dim : {std::max(*rows, *columns), std::min(*rows, *columns)}) {
    info.dims->erase(info.dims->begin() + dim);
    if (info.strides)
      info.strides->erase(info.strides->begin() + dim);
  }
  info.dims->push_back(length);
  if (info.strides)
    info.strides->push_back(stride);
  rule.setResult(0, info);
  return success();
}

void rules::inferDiagonalBatch(BatchRule &rule, Value self, int64_t dim1,
                               int64_t dim2) {
  BatchFact fact = rule.fact(self);
  TensorInfo info = rule.tensor(self);
  if (!fact.isAt() || !info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  auto rows = normalizeDim(dim1, info.getRank());
  auto columns = normalizeDim(dim2, info.getRank());
  if (!rows || !columns)
    return;
  if (fact.dim == *rows || fact.dim == *columns)
    return rule.mix("takes a diagonal through the batch dim");
  fact.dim -= (*rows < fact.dim) + (*columns < fact.dim);
  rule.setResult(0, fact);
}

LogicalResult rules::inferAsStrided(ShapeRule &rule, Value self) {
  TensorInfo result;
  result.elementType = rule.tensor(self).elementType;
  result.dims = rule.integerList("size");
  result.strides = rule.integerList("stride");
  if (result.dims && result.strides) {
    if (result.dims->size() != result.strides->size())
      return rule.emitError() << "has " << result.dims->size() << " sizes and "
                              << result.strides->size() << " strides";
    for (const auto &list : {*result.dims, *result.strides})
      for (DimExpr number : list)
        if (auto known = number ? number.getConstant() : std::nullopt;
            known && *known < 0)
          return rule.emitError()
                 << "a size or stride of " << *known << " is negative";
  }
  if (result.strides &&
      (!result.dims ||
       llvm::any_of(*result.strides, [](DimExpr stride) { return !stride; })))
    result.strides.reset();
  rule.setResult(0, result);
  return success();
}

void rules::inferAsStridedBatch(BatchRule &rule, Value self) {
  BatchFact fact = rule.fact(self);
  bool computed = hasBatchArgument(rule);
  TensorInfo from = rule.tensor(self);
  TensorInfo to = rule.tensor(rule.getOp()->getResult(0));
  // The operand as it is; anything else addresses memory across samples.
  if (fact.isAt() && !computed && from.hasRank() && to.hasRank() &&
      from.strides && *from.dims == *to.dims && *from.strides == to.strides)
    return rule.setResult(0, fact);
  // A reshape in other words, as in _reshape_alias.
  MLIRContext *context = rule.getOp()->getContext();
  if (!rule.getOp()->hasAttr("storage_offset") && from.hasRank() &&
      to.hasRank() && from.isContiguous() == TriBool::Yes &&
      to.isContiguous() == TriBool::Yes &&
      product(context, *from.dims) == product(context, *to.dims))
    return inferReshapeBatch(rule, self, {});
  rule.mix("addresses memory by strides, across samples");
}
