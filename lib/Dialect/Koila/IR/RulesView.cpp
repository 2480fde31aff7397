//===- RulesView.cpp - Rules of views -------------------------------------===//

#include "koila/Dialect/Koila/IR/KoilaViewOps.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// flatten
//===----------------------------------------------------------------------===//

LogicalResult rules::inferFlatten(ShapeRule &rule, Value self, int64_t start,
                                  int64_t end) {
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank()) {
    TensorInfo result;
    result.elementType = info.elementType;
    rule.setResult(0, result);
    return success();
  }
  int64_t rank = info.getRank();
  auto first = normalizeDim(start, rank), last = normalizeDim(end, rank);
  if (!first || !last)
    return rule.emitError() << "dim " << (first ? end : start)
                            << " is out of range for rank " << rank;
  if (*first > *last)
    return rule.emitError()
           << "start_dim " << start << " comes after end_dim " << end;
  SmallVector<DimExpr> dims;
  if (rank == 0) {
    dims.push_back(rule.constant(1));
  } else {
    dims.append(info.dims->begin(), info.dims->begin() + *first);
    dims.push_back(
        product(rule.getContext(),
                ArrayRef(*info.dims).slice(*first, *last - *first + 1)));
    dims.append(info.dims->begin() + *last + 1, info.dims->end());
  }
  TensorInfo result = TensorInfo::contiguous(dims, info.elementType);
  if (rank != 0 && *first == *last)
    result = info;
  else if (info.isContiguous() != Proof::Yes)
    result.strides.reset();
  rule.setResult(0, result);
  return success();
}

LogicalResult FlattenOp::inferShapes(ShapeRule &rule) {
  return rules::inferFlatten(rule, getSelf(), getStartDim(), getEndDim());
}

void FlattenOp::inferBatch(BatchRule &rule) {
  BatchFact fact = rule.fact(getSelf());
  TensorInfo info = rule.tensor(getSelf());
  if (!info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  auto first = rules::normalizeDim(getStartDim(), info.getRank());
  auto last = rules::normalizeDim(getEndDim(), info.getRank());
  if (!first || !last)
    return;
  if (fact.dim < *first)
    return rule.setResult(0, fact);
  if (fact.dim > *last) {
    fact.dim -= *last - *first;
    return rule.setResult(0, fact);
  }
  if (fact.dim != *first)
    return rule.mix("flatten merges the batch into the dim before it");
  // Sample-major: each sample brings as many rows as the merged dims have.
  for (int64_t dim = *first + 1; dim <= *last; ++dim) {
    auto extent = info.dim(dim).getConstant();
    if (!extent)
      return rule.mix("flatten merges the batch with a dim of unknown extent");
    fact.factor *= *extent;
  }
  if (fact.factor == 0)
    return rule.mix("flatten merges the batch with an empty dim");
  rule.setResult(0, fact);
}

void FlattenOp::describeStorage(StorageRule &rule) {
  rules::describeReshapeStorage(rule, getSelf());
}

void FlattenOp::describeWorkspace(WorkspaceRule &) {}

void rules::describeReshapeStorage(StorageRule &rule, Value self) {
  switch (rule.tensor(self).isContiguous()) {
  case Proof::Yes:
    rule.setAlias(0, self);
    return;
  case Proof::No:
    rule.setNew(0);
    rule.setInexact(0);
    return;
  case Proof::Unknown:
    rule.setAlias(0, self);
    rule.setInexact(0);
    return;
  }
}

//===----------------------------------------------------------------------===//
// view, reshape
//===----------------------------------------------------------------------===//

LogicalResult rules::inferReshape(ShapeRule &rule, Value self,
                                  ArrayRef<int64_t> sizes,
                                  ValueRange dynamicSizes) {
  TensorInfo info = rule.tensor(self);
  SmallVector<DimExpr> dims;
  std::optional<size_t> inferredDim;
  size_t dynamicIndex = 0;
  DimExpr known = rule.constant(1);
  for (auto [index, size] : llvm::enumerate(sizes)) {
    DimExpr dim;
    if (ShapedType::isDynamic(size)) {
      if (dynamicIndex >= dynamicSizes.size())
        return rule.emitError() << "has fewer dynamic sizes than its list says";
      dim = rule.integer(dynamicSizes[dynamicIndex++]);
      if (!dim)
        return success(); // An extent that nothing is known of.
    } else if (size == -1) {
      if (inferredDim)
        return rule.emitError() << "only one size can be -1";
      inferredDim = index;
      dim = rule.constant(1);
    } else if (size < 0) {
      return rule.emitError() << "size " << size << " is negative";
    } else {
      dim = rule.constant(size);
    }
    known = known * dim;
    dims.push_back(dim);
  }
  if (dynamicIndex != dynamicSizes.size())
    return rule.emitError() << "has more dynamic sizes than its list says";
  if (info.hasRank()) {
    DimExpr total = product(rule.getContext(), *info.dims);
    auto totalCount = total.getConstant(), knownCount = known.getConstant();
    if (inferredDim) {
      if (totalCount && knownCount &&
          (*knownCount == 0 || *totalCount % *knownCount != 0))
        return rule.emitError() << "cannot split " << *totalCount
                                << " elements into groups of " << *knownCount;
      dims[*inferredDim] = total.floorDiv(known);
    } else if (totalCount && knownCount && *totalCount != *knownCount) {
      return rule.emitError() << "sizes hold " << *knownCount
                              << " elements, the operand has " << *totalCount;
    }
  } else if (inferredDim) {
    return success();
  }
  TensorInfo result = TensorInfo::contiguous(dims, info.elementType);
  if (info.isContiguous() != Proof::Yes)
    result.strides.reset();
  rule.setResult(0, result);
  return success();
}

void rules::inferReshapeBatch(BatchRule &rule, Value self,
                              ArrayRef<int64_t> sizes,
                              ValueRange dynamicSizes) {
  BatchFact fact = rule.fact(self);
  TensorInfo from = rule.tensor(self);
  TensorInfo to = rule.tensor(rule.getOp()->getResult(0));
  if (!fact.isAt() || !from.hasRank() || !to.hasRank())
    return rule.mix("a shape is unknown");
  // The batch symbol, from the extent `factor * B` of the batch dim.
  StringRef symbol;
  std::string name;
  from.dim(fact.dim).forEachSymbol(
      [&](StringRef found) { name = found.str(); });
  symbol = name;
  if (from.dim(fact.dim).getMultipleOf(symbol) != fact.factor)
    return rule.mix("the extent of the batch dim is no multiple of the batch");
  MLIRContext *context = rule.getOp()->getContext();
  DimExpr before = product(context, ArrayRef(*from.dims).take_front(fact.dim));
  // The rows of a sample stay together if the batch starts a dim of the
  // result with the same elements before it.
  DimExpr passed = DimExpr::constant(context, 1);
  for (auto [index, dim] : llvm::enumerate(*to.dims)) {
    auto factor = dim.getMultipleOf(symbol);
    if (factor && proveEqual(passed, before) == Proof::Yes) {
      int64_t size = index < sizes.size() ? sizes[index] : -1;
      if (size != -1 && !ShapedType::isDynamic(size))
        break;
      return rule.setResult(0, BatchFact::at(index, *factor));
    }
    passed = passed * dim;
  }
  rule.mix("the sizes do not keep the samples apart; a literal batch size was "
           "perhaps baked in by tracing");
}

//===----------------------------------------------------------------------===//
// size
//===----------------------------------------------------------------------===//

LogicalResult SizeIntOp::inferShapes(ShapeRule &rule) {
  TensorInfo info = rule.tensor(getSelf());
  if (!info.hasRank())
    return success();
  auto dim = rules::normalizeDim(getDim(), info.getRank());
  if (!dim || info.getRank() == 0)
    return rule.emitError() << "dim " << getDim()
                            << " is out of range for rank " << info.getRank();
  rule.setInteger(0, info.dim(*dim));
  return success();
}

void SizeIntOp::inferBatch(BatchRule &rule) {
  BatchFact fact = rule.fact(getSelf());
  TensorInfo info = rule.tensor(getSelf());
  if (!info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  auto dim = rules::normalizeDim(getDim(), info.getRank());
  // The number of samples here: an integer that follows the batch.
  rule.setResult(0, dim && *dim == fact.dim ? BatchFact::at(-1, fact.factor)
                                            : BatchFact::free());
}

void SizeIntOp::describeStorage(StorageRule &rule) { rule.setKeeps(0); }
void SizeIntOp::describeWorkspace(WorkspaceRule &) {}
