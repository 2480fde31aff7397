//===- RulesMatmul.cpp - Rules of products with matrices ------------------===//

#include "koila/Dialect/Koila/IR/KoilaMatmulOps.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// linear
//===----------------------------------------------------------------------===//

LogicalResult LinearOp::inferShapes(ShapeRule &rule) {
  TensorInfo input = rule.tensor(getInput()), weight = rule.tensor(getWeight());
  TensorInfo result;
  result.elementType = input.elementType;
  if (input.elementType && weight.elementType &&
      input.elementType != weight.elementType)
    return rule.emitError() << "input is " << input.elementType
                            << ", the weight is " << weight.elementType;
  if (!input.hasRank() || !weight.hasRank() || weight.getRank() != 2) {
    rule.setResult(0, result);
    return success();
  }
  if (input.getRank() == 0)
    return rule.emitError() << "expects an input of rank 1 or more";
  auto features = input.dim(input.getRank() - 1).getConstant();
  auto expected = weight.dim(1).getConstant();
  if (features && expected && *features != *expected)
    return rule.emitError() << "the weight takes " << *expected
                            << " features, the input has " << *features;
  TensorInfo bias = rule.tensor(getBias());
  if (bias.hasRank() && bias.getRank() > std::max<int64_t>(input.getRank(), 1))
    return rule.emitError() << "adds a bias of rank " << bias.getRank()
                            << " to a result of rank " << input.getRank();
  if (bias.hasRank() && bias.getRank() > 0) {
    auto count = bias.dim(bias.getRank() - 1).getConstant();
    auto out = weight.dim(0).getConstant();
    if (count && out && *count != 1 && *count != *out)
      return rule.emitError() << "adds a bias of " << *count << " elements to "
                              << *out << " features";
  }
  SmallVector<DimExpr> dims(input.dims->begin(), input.dims->end() - 1);
  dims.push_back(weight.dim(0));
  rule.setResult(0, TensorInfo::contiguous(dims, input.elementType));
  return success();
}

void LinearOp::inferBatch(BatchRule &rule) {
  TensorInfo input = rule.tensor(getInput());
  if (!rule.fact(getWeight()).isFree() || !rule.fact(getBias()).isFree())
    return rule.mix("the weight of linear depends on the batch");
  BatchFact fact = rule.fact(getInput());
  if (!input.hasRank() || fact.dim >= input.getRank() - 1)
    return rule.mix("linear sums over the batch dim");
  rule.setResult(0, fact);
}

void LinearOp::describeStorage(StorageRule &) {}

/// An empty inner dim: what is added is scaled by a 0-dim tensor (measured;
/// see docs/Workspaces.md).
static int64_t
getEmptyInnerTransient(const ConcreteTensor &matrix,
                       const std::optional<ConcreteTensor> &result) {
  if (isa<FloatType>(matrix.elementType))
    return 8 + getElementBytes(matrix.elementType);
  return result && result->numElements() == 0 ? 0 : 8;
}

void LinearOp::describeWorkspace(WorkspaceRule &rule) {
  auto input = rule.tensor(getInput());
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  if (getBias() && !input->dims.empty() && input->dims.back() == 0)
    rule.setTransient(getEmptyInnerTransient(*input, rule.tensor(getResult())));
  if (!input->contiguous)
    rule.setTransient(input->numBytes());
  if (!input->elementType.isF32() && !input->elementType.isF64())
    rule.setInexact("linear of another type than float32 or float64");
}

//===----------------------------------------------------------------------===//
// addmm
//===----------------------------------------------------------------------===//

LogicalResult AddmmOp::inferShapes(ShapeRule &rule) {
  TensorInfo lhs = rule.tensor(getMat1()), rhs = rule.tensor(getMat2());
  TensorInfo result;
  result.elementType = lhs.elementType;
  TensorInfo self = rule.tensor(getSelf());
  for (const TensorInfo &other : {rhs, self})
    if (lhs.elementType && other.elementType &&
        lhs.elementType != other.elementType)
      return rule.emitError()
             << "mixes " << lhs.elementType << " and " << other.elementType;
  if (!lhs.hasRank() || !rhs.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  if (self.hasRank() && self.getRank() > 2)
    return rule.emitError() << "adds a tensor of rank " << self.getRank();
  if (self.hasRank() && self.getRank() > 0 && rhs.getRank() == 2) {
    auto count = self.dim(self.getRank() - 1).getConstant();
    auto columns = rhs.dim(1).getConstant();
    if (count && columns && *count != 1 && *count != *columns)
      return rule.emitError()
             << "adds " << *count << " columns to " << *columns;
  }
  if (lhs.getRank() != 2 || rhs.getRank() != 2)
    return rule.emitError() << "expects matrices, got ranks " << lhs.getRank()
                            << " and " << rhs.getRank();
  auto inner = lhs.dim(1).getConstant(), other = rhs.dim(0).getConstant();
  if (inner && other && *inner != *other)
    return rule.emitError() << "cannot multiply " << *inner << " columns with "
                            << *other << " rows";
  rule.setResult(
      0, TensorInfo::contiguous({lhs.dim(0), rhs.dim(1)}, lhs.elementType));
  return success();
}

void AddmmOp::inferBatch(BatchRule &rule) {
  if (!rule.fact(getMat2()).isFree())
    return rule.mix("the right matrix of addmm depends on the batch");
  BatchFact fact = rule.fact(getMat1());
  if (!fact.isAt() || fact.dim != 0)
    return rule.mix("addmm sums over the batch dim");
  TensorInfo self = rule.tensor(getSelf());
  BatchFact selfFact = rule.fact(getSelf());
  bool followsRows = selfFact.isAt() && selfFact == fact && self.hasRank() &&
                     self.getRank() == 2;
  bool repeats = selfFact.isFree() && self.hasRank() &&
                 (self.getRank() < 2 || self.dim(0).isConstant(1));
  if (!followsRows && !repeats)
    return rule.mix("the added matrix of addmm does not follow the batch");
  rule.setResult(0, fact);
}

void AddmmOp::describeStorage(StorageRule &) {}

void AddmmOp::describeWorkspace(WorkspaceRule &rule) {
  auto lhs = rule.tensor(getMat1());
  if (!lhs || !lhs->contiguous)
    return rule.setInexact("addmm of a matrix that is not contiguous");
  if (lhs->dims.size() == 2 && lhs->dims[1] == 0)
    rule.setTransient(getEmptyInnerTransient(*lhs, rule.tensor(getResult())));
}
