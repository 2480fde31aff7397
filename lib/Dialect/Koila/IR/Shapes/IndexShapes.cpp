//===- IndexShapes.cpp - Rules of rows that one tensor of indices names ---===//

#include "../Rules/IndexRules.h"

using namespace mlir;
using namespace koila;

/// A 0-dim tensor counts as a vector of one element.
static DimExpr getExtent(ShapeRule &rule, const TensorInfo &info, int64_t dim) {
  return info.getRank() == 0 ? rule.constant(1) : info.dim(dim);
}

// Source: index_select_out_cpu_ in TensorAdvancedIndexing.cpp.
LogicalResult indexing::inferIndexSelect(ShapeRule &rule, Value self,
                                         int64_t dim, Value index) {
  TensorInfo info = rule.tensor(self), rows = rule.tensor(index);
  if (failed(checkIndexType(rule, rows)))
    return failure();
  if (rows.hasRank() && rows.getRank() > 1)
    return rule.emitError()
           << "takes a vector of indices, got rank " << rows.getRank();
  if (!info.hasRank()) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  int64_t wrapped = 0;
  if (failed(wrapDim(rule, dim, info.getRank(), wrapped)))
    return failure();
  DimExpr count = countElements(rule, rows);
  SmallVector<DimExpr> dims = *info.dims;
  if (dims.empty()) {
    if (count && proveEqual(count, rule.constant(1)) == TriBool::No)
      return rule.emitError() << "selects " << count << " rows of a number";
  } else {
    if (failed(checkSelects(rule, dims[wrapped], count)))
      return failure();
    dims[wrapped] = count;
  }
  rule.setResult(0, packed(dims, info.elementType));
  return success();
}

void indexing::inferIndexSelectBatch(BatchRule &rule, Value self, int64_t dim,
                                     Value index) {
  TensorInfo info = rule.tensor(self);
  BatchFact fact = rule.fact(self), rows = rule.fact(index);
  if (!info.hasRank() || info.getRank() == 0)
    return mixSamples(rule, "the rank of the operand is unknown");
  auto along = rules::normalizeDim(dim, info.getRank());
  if (!along)
    return;
  if (fact.isFree())
    return rule.setResult(0, BatchFact::at(*along, rows.factor));
  if (!rows.isFree())
    return rule.mix("index_select takes rows of every sample for each sample");
  if (fact.dim == *along)
    return rule.mix("index_select over dim " + Twine(dim) + " mixes samples");
  rule.setResult(0, fact);
}

// Source: gather_shape_check in ScatterGatherChecks.h.
LogicalResult indexing::inferGather(ShapeRule &rule, Value self, int64_t dim,
                                    Value index) {
  TensorInfo info = rule.tensor(self), rows = rule.tensor(index);
  bool empty = rows.hasRank() && countElements(rule, rows).isConstant(0);
  if (!empty && rows.hasRank() && failed(checkIndexType(rule, rows)))
    return failure();
  int64_t along = 0;
  if (info.hasRank() && failed(wrapDim(rule, dim, info.getRank(), along)))
    return failure();
  if (!rows.hasRank()) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  if (info.hasRank() && !empty) {
    int64_t rank = std::max<int64_t>(info.getRank(), 1);
    if (rank != std::max<int64_t>(rows.getRank(), 1))
      return rule.emitError() << "an index of rank " << rows.getRank()
                              << " does not fit rank " << info.getRank();
    for (int64_t at = 0; at < rank; ++at) {
      DimExpr extent = getExtent(rule, info, at);
      DimExpr count = getExtent(rule, rows, at);
      if (at != along && proveAtMost(count, extent) == TriBool::No)
        return rule.emitError() << "the index has extent " << count
                                << " in dim " << at << ", self " << extent;
    }
    if (failed(checkSelects(rule, getExtent(rule, info, along),
                            countElements(rule, rows))))
      return failure();
  }
  rule.setResult(0, packed(*rows.dims, info.elementType));
  return success();
}

// Source: _take_along_dim_helper in TensorAdvancedIndexing.cpp.
LogicalResult indexing::inferTakeAlongDim(ShapeRule &rule, Value self,
                                          Value indices,
                                          std::optional<int64_t> dim) {
  TensorInfo info = rule.tensor(self), rows = rule.tensor(indices);
  if (failed(checkIndexType(rule, rows, /*allowsInt32=*/false)))
    return failure();
  if (!info.hasRank() || !rows.hasRank()) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  DimExpr count = countElements(rule, rows);
  if (!dim) {
    if (failed(checkSelects(rule, countElements(rule, info), count)))
      return failure();
    for (const TensorInfo &operand : {info, rows})
      if (computeViewStrides(operand, countElements(rule, operand)).possible ==
          TriBool::No)
        return rule.emitError() << "without dim needs operands that can be "
                                << "seen as vectors";
    rule.setResult(0, packed(count, info.elementType));
    return success();
  }
  if (info.getRank() != rows.getRank())
    return rule.emitError() << "indices of rank " << rows.getRank()
                            << " do not fit rank " << info.getRank();
  int64_t along = 0;
  if (info.getRank() == 0)
    return rule.emitError() << "takes no dim of a tensor without dims";
  if (failed(wrapDim(rule, *dim, info.getRank(), along)))
    return failure();
  SmallVector<DimExpr> dims = *info.dims;
  dims[along] = rows.dim(along);
  if (failed(checkSelects(rule, info.dim(along), count)) ||
      failed(broadcastDims(rule, SmallVector<DimExpr>(dims), *rows.dims, dims)))
    return failure();
  dims[along] = rows.dim(along);
  rule.setResult(0, packed(dims, info.elementType));
  return success();
}

void indexing::inferTakeAlongDimBatch(BatchRule &rule, Value self,
                                      Value indices,
                                      std::optional<int64_t> dim) {
  TensorInfo info = rule.tensor(self), rows = rule.tensor(indices);
  BatchFact fact = rule.fact(self), wanted = rule.fact(indices);
  if (!dim)
    return rule.mix("take_along_dim without dim takes from all samples");
  if (!info.hasRank() || !rows.hasRank())
    return rule.mix("the rank of an operand is unknown");
  auto along = rules::normalizeDim(*dim, info.getRank());
  if (!along || info.getRank() == 0)
    return;
  int64_t place = fact.isAt() ? fact.dim : wanted.dim;
  auto isOne = [&](const TensorInfo &operand) {
    return place < operand.getRank() && operand.dim(place).isConstant(1);
  };
  bool broadcasts = isa<TakeAlongDimOp>(rule.getOp());
  if (fact.isAt() && wanted.isAt()) {
    if (!(fact == wanted) || place == *along)
      return rule.mix("indices of one sample reach rows of another");
    return rule.setResult(0, fact);
  }
  if (fact.isFree()) {
    if (place != *along && !(broadcasts && isOne(info)))
      return rule.mix("a table without the batch is read by sample");
    return rule.setResult(0, wanted);
  }
  if (place == *along || !broadcasts || !isOne(rows))
    return rule.mix("indices without the batch choose samples");
  rule.setResult(0, fact);
}

// Source: take in TensorAdvancedIndexing.cpp.
LogicalResult indexing::inferTake(ShapeRule &rule, Value self, Value index) {
  TensorInfo info = rule.tensor(self), rows = rule.tensor(index);
  if (failed(checkIndexType(rule, rows, /*allowsInt32=*/false)) ||
      failed(checkSelects(rule, countElements(rule, info),
                          countElements(rule, rows))))
    return failure();
  rule.setResult(0, rows.hasRank() ? packed(*rows.dims, info.elementType)
                                   : unranked(info.elementType));
  return success();
}

// Source: aten/src/ATen/native/Embedding.cpp.
LogicalResult indexing::inferEmbedding(ShapeRule &rule, Value weight,
                                       Value indices) {
  TensorInfo table = rule.tensor(weight), rows = rule.tensor(indices);
  if (failed(checkIndexType(rule, rows)))
    return failure();
  if (table.hasRank() && table.getRank() != 2)
    return rule.emitError()
           << "takes a weight of rank 2, got " << table.getRank();
  if (!rows.hasRank()) {
    rule.setResult(0, unranked(table.elementType));
    return success();
  }
  SmallVector<DimExpr> dims = *rows.dims;
  dims.push_back(table.hasRank() ? table.dim(1) : DimExpr());
  if (table.hasRank() &&
      failed(checkSelects(rule, table.dim(0), countElements(rule, rows))))
    return failure();
  rule.setResult(0, packed(dims, table.elementType));
  return success();
}

void indexing::inferLookupBatch(BatchRule &rule, Value rows, Value table) {
  BatchFact fact = rule.fact(rows);
  if (!rule.fact(table).isFree())
    return rule.mix("the table that is read depends on the batch");
  rule.setResult(0, fact);
}
