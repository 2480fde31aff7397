//===- ScatterShapes.cpp - Rules of operators that write along a dim ------===//

#include "../Rules/IndexRules.h"

using namespace mlir;
using namespace koila;

static DimExpr getExtent(ShapeRule &rule, const TensorInfo &info, int64_t dim) {
  return info.getRank() == 0 ? rule.constant(1) : info.dim(dim);
}

/// PyTorch refuses to write into elements that share memory.
static LogicalResult checkNoOverlap(ShapeRule &rule, const TensorInfo &info) {
  auto op = dyn_cast<TorchOperatorInterface>(rule.getOp());
  if (!op || !op.isTied() || !info.hasRank() || !info.strides)
    return success();
  if (indexing::countElements(rule, info).isConstant(0))
    return success();
  for (auto [extent, stride] : llvm::zip_equal(*info.dims, *info.strides))
    if (stride.isConstant(0) && extent.getConstant().value_or(0) > 1)
      return rule.emitError() << "writes in place into an expanded tensor";
  return success();
}

// Source: scatter_shape_check in aten/src/ATen/native/ScatterGatherChecks.h.
LogicalResult indexing::inferScatter(ShapeRule &rule, Value self, int64_t dim,
                                     Value index, Value src, StringRef reduce,
                                     ArrayRef<StringRef> modes) {
  TensorInfo info = rule.tensor(self), rows = rule.tensor(index);
  TensorInfo from = rule.tensor(src);
  bool empty = rows.hasRank() && countElements(rule, rows).isConstant(0);
  int64_t along = 0;
  if ((info.hasRank() && failed(wrapDim(rule, dim, info.getRank(), along))) ||
      (!empty && rows.hasRank() && failed(checkIndexType(rule, rows))) ||
      failed(checkSameType(rule, info, from)) ||
      failed(checkNoOverlap(rule, info)))
    return failure();
  // Of a number only scatter with a source looks at the mode (measured).
  bool looks = src || (info.hasRank() && info.getRank() > 0 && rows.hasRank() &&
                       rows.getRank() > 0);
  if (looks && !modes.empty() && !llvm::is_contained(modes, reduce))
    return rule.emitError() << "reduce is no '" << reduce << "'";
  if (info.hasRank() && rows.hasRank() && !empty) {
    int64_t rank = std::max<int64_t>(info.getRank(), 1);
    auto checkRank = [&](const TensorInfo &other, StringRef what) {
      return std::max<int64_t>(other.getRank(), 1) == rank
                 ? success()
                 : rule.emitError() << what << " of rank " << other.getRank()
                                    << " does not fit rank " << rank;
    };
    if (failed(checkRank(rows, "an index")) ||
        (from.hasRank() && failed(checkRank(from, "a src"))))
      return failure();
    for (int64_t at = 0; at < rank; ++at) {
      DimExpr count = getExtent(rule, rows, at);
      DimExpr extent = getExtent(rule, info, at);
      if (at != along && proveAtMost(count, extent) == TriBool::No)
        return rule.emitError() << "the index has extent " << count
                                << " in dim " << at << ", self " << extent;
      if (from.hasRank() &&
          proveAtMost(count, getExtent(rule, from, at)) == TriBool::No)
        return rule.emitError()
               << "the index has extent " << count << " in dim " << at
               << ", src " << getExtent(rule, from, at);
    }
    if (failed(checkSelects(rule, getExtent(rule, info, along),
                            countElements(rule, rows))))
      return failure();
  }
  return setWritten(rule, self, Copy::Packed);
}

/// A vector of indices, or a number, into dim `dim` of `self`.
static LogicalResult checkRows(ShapeRule &rule, const TensorInfo &self,
                               int64_t dim, const TensorInfo &rows,
                               bool allowsInt32, int64_t &along) {
  if (failed(indexing::checkIndexType(rule, rows, allowsInt32)) ||
      (self.hasRank() &&
       failed(indexing::wrapDim(rule, dim, self.getRank(), along))))
    return failure();
  if (rows.hasRank() && rows.getRank() > 1)
    return rule.emitError()
           << "takes a vector of indices, got rank " << rows.getRank();
  return success();
}

/// Refuses rows of a dim without any, unless they have no elements.
static LogicalResult checkWritten(ShapeRule &rule, const TensorInfo &self,
                                  int64_t along, DimExpr count) {
  for (int64_t at = 0; count && at < self.getRank(); ++at)
    if (at != along)
      count = count * self.dim(at);
  return indexing::checkSelects(rule, getExtent(rule, self, along), count);
}

/// The extents of `source` are those of `self`, but along `along` the number
/// of rows.
static LogicalResult checkSource(ShapeRule &rule, const TensorInfo &self,
                                 const TensorInfo &source, int64_t along,
                                 const TensorInfo &rows) {
  if (!self.hasRank() || !source.hasRank())
    return success();
  DimExpr count = indexing::countElements(rule, rows);
  auto drop = [&](const TensorInfo &info) {
    SmallVector<DimExpr> rest = *info.dims;
    if (!rest.empty() && along < info.getRank())
      rest.erase(rest.begin() + along);
    return rest;
  };
  SmallVector<DimExpr> mine = drop(self), other = drop(source);
  bool differ = mine.size() != other.size();
  for (size_t at = 0; !differ && at < mine.size(); ++at)
    differ = proveEqual(mine[at], other[at]) == TriBool::No;
  if (differ)
    return rule.emitError() << "source must have the shape of self outside "
                            << "dim " << along;
  if (count && along < std::max<int64_t>(source.getRank(), 1) &&
      proveEqual(count, getExtent(rule, source, along)) == TriBool::No)
    return rule.emitError() << "writes " << getExtent(rule, source, along)
                            << " rows to " << count << " indices";
  return success();
}

// Source: index_add in TensorAdvancedIndexing.cpp.
LogicalResult indexing::inferIndexAdd(ShapeRule &rule, Value self, int64_t dim,
                                      Value index, Value source) {
  TensorInfo info = rule.tensor(self), rows = rule.tensor(index);
  TensorInfo from = rule.tensor(source);
  int64_t along = 0;
  if (failed(checkRows(rule, info, dim, rows, /*allowsInt32=*/true, along)) ||
      failed(checkSameType(rule, info, from)) ||
      failed(checkNoOverlap(rule, info)))
    return failure();
  if (info.hasRank() && from.hasRank() && info.getRank() != from.getRank())
    return rule.emitError() << "a source of rank " << from.getRank()
                            << " does not fit rank " << info.getRank();
  if (failed(checkSource(rule, info, from, along, rows)))
    return failure();
  return setWritten(rule, self, Copy::Packed);
}

// Source: index_copy in TensorAdvancedIndexing.cpp.
LogicalResult indexing::inferIndexCopy(ShapeRule &rule, Value self, int64_t dim,
                                       Value index, Value source) {
  TensorInfo info = rule.tensor(self), rows = rule.tensor(index);
  TensorInfo from = rule.tensor(source);
  int64_t along = 0;
  if (failed(checkRows(rule, info, dim, rows, /*allowsInt32=*/false, along)) ||
      failed(checkSameType(rule, info, from)) ||
      failed(checkNoOverlap(rule, info)) ||
      failed(checkSource(rule, info, from, along, rows)) ||
      (info.hasRank() &&
       failed(checkWritten(rule, info, along, countElements(rule, rows)))))
    return failure();
  return setWritten(rule, self, Copy::Packed);
}

// Source: index_fill_ in TensorAdvancedIndexing.cpp.
LogicalResult indexing::inferIndexFill(ShapeRule &rule, Value self, int64_t dim,
                                       Value index, Value value) {
  TensorInfo info = rule.tensor(self), rows = rule.tensor(index);
  TensorInfo from = rule.tensor(value);
  int64_t along = 0;
  if (failed(checkRows(rule, info, dim, rows, /*allowsInt32=*/false, along)))
    return failure();
  if (from.hasRank() && from.getRank() != 0)
    return rule.emitError()
           << "fills with one number, got rank " << from.getRank();
  if (info.elementType && from.elementType &&
      isa<ComplexType>(from.elementType) && !isa<ComplexType>(info.elementType))
    return rule.emitError()
           << "fills " << info.elementType << " with a complex number";
  if (info.hasRank() &&
      failed(checkWritten(rule, info, along, countElements(rule, rows))))
    return failure();
  return setWritten(rule, self, Copy::Preserved);
}

void indexing::inferWriteBatch(BatchRule &rule, Value self, int64_t dim,
                               ArrayRef<Value> along, ArrayRef<Value> free) {
  TensorInfo info = rule.tensor(self);
  BatchFact fact = rule.fact(self);
  if (fact.isFree())
    return mixSamples(rule, "rows of all samples are written into one tensor");
  if (!info.hasRank())
    return mixSamples(rule, "the rank of the operand is unknown");
  if (rules::normalizeDim(dim, info.getRank()) == fact.dim)
    return mixSamples(rule, "the indices choose among the samples");
  for (Value operand : free)
    if (!rule.fact(operand).isFree())
      return mixSamples(rule, "the indices of one sample are used for all");
  for (Value operand : along)
    if (!(rule.fact(operand) == fact))
      return mixSamples(rule, "what is written does not carry the batch in "
                              "the dim of self");
  rule.setResult(0, fact);
}
