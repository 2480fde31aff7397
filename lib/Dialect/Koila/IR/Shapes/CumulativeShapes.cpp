//===- CumulativeShapes.cpp - Rules of sorting and scans along a dim ------===//

#include "../Rules/ReductionRules.h"
#include "koila/Dialect/Koila/IR/SortOps.h"

using namespace mlir;
using namespace koila;

LogicalResult rules::inferAlongDim(ShapeRule &rule, int64_t dim,
                                   ArrayRef<ResultType> types,
                                   bool keepsStrides) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  if (self.hasRank() && !normalizeDim(dim, self.getRank()))
    return rule.emitError()
           << "dim " << dim << " is out of range for rank " << self.getRank();
  bool tied = cast<TorchOperatorInterface>(rule.getOp()).isTied();
  for (auto [index, how] : llvm::enumerate(types)) {
    auto type = getResultType(rule, how, self.elementType);
    if (failed(type))
      return failure();
    if (tied) {
      // A type that is asked for must be the one that is there.
      if (rule.hasArgument("dtype") && *type && self.elementType &&
          *type != self.elementType)
        return rule.emitError()
               << "result type " << *type << " cannot be written into "
               << self.elementType << " in place";
      rule.setResult(index, self);
      continue;
    }
    TensorInfo result;
    result.elementType = *type;
    if (self.hasRank()) {
      result = TensorInfo::contiguous(*self.dims, *type);
      if (keepsStrides)
        result.strides = computePreservedStrides(self);
    }
    rule.setResult(index, result);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// diff
//===----------------------------------------------------------------------===//

LogicalResult rules::inferDiff(ShapeRule &rule, int64_t n, int64_t dim,
                               Value prepend, Value append) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  if (n < 0)
    return rule.emitError() << "the order " << n << " is negative";
  TensorInfo result;
  result.elementType = self.elementType;
  bool packed = self.isContiguous() == TriBool::Yes;
  bool joined = prepend || append;
  for (Value value : {prepend, append}) {
    if (!value)
      continue;
    TensorInfo part = rule.tensor(value), sofar = self;
    sofar.elementType = result.elementType;
    result.elementType = promoteTypes(sofar, part);
    packed &= part.isContiguous() == TriBool::Yes;
  }
  if (!self.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  int64_t rank = self.getRank();
  auto along = normalizeDim(dim, rank);
  if (rank == 0 || !along)
    return rule.emitError()
           << "dim " << dim << " is out of range for rank " << rank;
  DimExpr total = self.dim(*along);
  for (Value value : {prepend, append}) {
    if (!value)
      continue;
    TensorInfo part = rule.tensor(value);
    if (!part.hasRank()) {
      rule.setResult(0, result);
      return success();
    }
    bool fits = part.getRank() == rank;
    for (int64_t index = 0; fits && index < rank; ++index)
      fits = index == *along ||
             proveEqual(part.dim(index), self.dim(index)) != TriBool::No;
    if (!fits)
      return rule.emitError()
             << "what is put before or after must have the extents of self";
    total = total + part.dim(*along);
  }
  SmallVector<DimExpr> dims(*self.dims);
  dims[*along] = total;
  TensorInfo whole =
      joined ? TensorInfo::contiguous(dims, result.elementType) : self;
  if (joined && !packed)
    whole.strides.reset();
  // No difference is a copy of self alone.
  if (n == 0) {
    self.strides = computePreservedStrides(self);
    rule.setResult(0, self);
    return success();
  }
  dims[*along] = (total - n).max(rule.constant(0));
  // Each time the difference of two slices with the strides of what was.
  whole.dims = result.dims = dims;
  result.strides = computeElementwiseStrides({whole, whole}, dims);
  rule.setResult(0, result);
  return success();
}

void rules::inferDiffBatch(BatchRule &rule, int64_t dim, Value prepend,
                           Value append) {
  Value self = rule.getOp()->getOperand(0);
  BatchFact fact = rule.fact(self);
  for (Value value : {prepend, append})
    if (value && !(rule.fact(value) == fact))
      return rule.mix("what is put before or after does not have the batch in "
                      "the dim where self has it");
  inferAlongDimBatch(rule, self, dim, "diff");
}

//===----------------------------------------------------------------------===//
// topk, kthvalue
//===----------------------------------------------------------------------===//

/// The dim, with `k` checked against its extent.
static FailureOr<int64_t> checkSelection(ShapeRule &rule,
                                         const TensorInfo &self, int64_t dim,
                                         DimExpr k, int64_t least) {
  auto along = rules::normalizeDim(dim, self.getRank());
  if (!along)
    return rule.emitError()
           << "dim " << dim << " is out of range for rank " << self.getRank();
  DimExpr extent = self.getRank() ? self.dim(*along) : rule.constant(1);
  auto number = k ? k.getConstant() : std::nullopt;
  if (k && ((number && *number < least) || (extent.getConstant() && number &&
                                            *number > *extent.getConstant())))
    return rule.emitError() << "k is " << k.str() << ", dim " << dim << " has "
                            << extent.str() << " elements";
  return *along;
}

LogicalResult rules::inferTopk(ShapeRule &rule, int64_t dim) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  DimExpr k = rule.integerArgument("k");
  TensorInfo result;
  if (self.hasRank()) {
    auto along = checkSelection(rule, self, dim, k, 0);
    if (failed(along))
      return failure();
    SmallVector<DimExpr> dims(*self.dims);
    if (self.getRank())
      dims[*along] = k;
    result.dims = dims;
    if (llvm::all_of(dims, [](DimExpr dim) { return bool(dim); }))
      result = TensorInfo::contiguous(dims, {});
  }
  result.elementType = self.elementType;
  rule.setResult(0, result);
  result.elementType = IntegerType::get(rule.getContext(), 64);
  rule.setResult(1, result);
  return success();
}

LogicalResult rules::inferKthvalue(ShapeRule &rule, int64_t dim) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  if (self.hasRank() &&
      failed(checkSelection(rule, self, dim, rule.integerArgument("k"), 1)))
    return failure();
  return inferReduction(rule, {{ResultType::Same, ResultType::Index}});
}

void rules::inferSelectionBatch(BatchRule &rule, int64_t dim, bool dropsDim) {
  Value self = rule.getOp()->getOperand(0);
  StringRef name = getOperatorName(rule.getOp());
  if (!rule.argumentFact("k").isFree())
    return rule.mix("k of " + name + " follows the number of samples");
  inferAlongDimBatch(rule, self, dim, name);
  BatchFact fact = rule.getResults()[0];
  TensorInfo info = rule.tensor(self);
  if (fact.isAt() && dropsDim && *normalizeDim(dim, info.getRank()) < fact.dim)
    --fact.dim;
  rule.setAll(fact);
}
