//===- RulesMatmul.cpp - Rules of products with matrices ------------------===//

#include "koila/Dialect/Koila/IR/KoilaMatmulOps.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace koila;
using rules::Labels;

LogicalResult rules::checkOneElementType(const ShapeRule &rule, Type input,
                                         Type other, StringRef name) {
  if (!input || !other || input == other)
    return success();
  return rule.emitError() << "input is " << input << ", " << name << " is "
                          << other;
}

//===----------------------------------------------------------------------===//
// Products with labelled dims
//===----------------------------------------------------------------------===//

/// What is added must broadcast to `result`, or have its shape where it is
/// written in place.
static LogicalResult checkAdded(ShapeRule &rule, const TensorInfo &added,
                                TensorInfo &result) {
  if (!added.hasRank())
    return success();
  auto op = dyn_cast<TorchOperatorInterface>(rule.getOp());
  bool tied = op && op.isTied();
  int64_t offset = result.getRank() - added.getRank();
  if (offset < 0 || (tied && offset != 0))
    return rule.emitError() << "adds a tensor of rank " << added.getRank()
                            << " to a result of rank " << result.getRank();
  for (auto [index, dim] : llvm::enumerate(*added.dims)) {
    DimExpr whole = result.dim(offset + index);
    if ((tied || !dim.isConstant(1)) && proveEqual(dim, whole) == Proof::No)
      return rule.emitError() << "adds " << dim << " elements to " << whole
                              << " in dim " << offset + index;
  }
  if (tied)
    result = added;
  return success();
}

LogicalResult rules::inferLabelled(ShapeRule &rule, const Labels &labels,
                                   ArrayRef<Value> factors, Value added) {
  TensorInfo result, first = rule.tensor(factors.front());
  SmallVector<Value> operands(factors);
  operands.push_back(added);
  for (Value operand : operands) {
    TensorInfo info = rule.tensor(operand);
    if (failed(checkOneElementType(rule, first.elementType, info.elementType,
                                   "another operand")))
      return failure();
    if (!result.elementType)
      result.elementType = info.elementType;
  }
  llvm::SmallDenseMap<int, DimExpr> extents;
  for (auto [factor, own] : llvm::zip_equal(factors, labels.factors)) {
    TensorInfo info = rule.tensor(factor);
    for (auto [dim, label] : llvm::zip_equal(*info.dims, own)) {
      auto [known, isNew] = extents.try_emplace(label, dim);
      if (isNew)
        continue;
      DimExpr other = known->second;
      bool repeats = label >= Labels::kBroadcast;
      if (proveEqual(other, dim) == Proof::No &&
          !(repeats && (dim.isConstant(1) || other.isConstant(1)))) {
        if (!repeats && !llvm::is_contained(labels.result, label))
          return rule.emitError() << "cannot multiply " << other
                                  << " columns with " << dim << " rows";
        return rule.emitError()
               << "has extents " << other << " and " << dim << " in one dim";
      }
      known->second = repeats              ? other.broadcast(dim)
                      : dim.getConstant() ? dim
                                          : other;
    }
  }
  SmallVector<DimExpr> dims;
  for (int label : labels.result)
    dims.push_back(extents.lookup(label));
  result = TensorInfo::contiguous(dims, result.elementType);
  if (failed(checkAdded(rule, rule.tensor(added), result)))
    return failure();
  rule.setResult(0, result);
  return success();
}

void rules::inferLabelledBatch(BatchRule &rule, const Labels &labels,
                               ArrayRef<Value> factors, Value added) {
  StringRef name = rule.getOp()->getName().stripDialect();
  SmallVector<std::pair<Value, ArrayRef<int>>> operands;
  for (auto [factor, own] : llvm::zip_equal(factors, labels.factors))
    operands.emplace_back(factor, own);
  if (added) {
    TensorInfo info = rule.tensor(added);
    if (!info.hasRank() ||
        info.getRank() > static_cast<int64_t>(labels.result.size()))
      return rule.mix("the rank of what " + name + " adds is unknown");
    operands.emplace_back(added,
                          ArrayRef(labels.result).take_back(info.getRank()));
  }
  std::optional<int> label;
  int64_t factor = 1;
  for (auto [value, own] : operands) {
    BatchFact fact = rule.fact(value);
    if (fact.isFree())
      continue;
    if (!fact.isAt() || fact.dim < 0)
      return;
    if (label && (own[fact.dim] != *label || factor != fact.factor))
      return rule.mix("the operands of " + name +
                      " carry the batch in different dims, so that every "
                      "sample meets every other");
    label = own[fact.dim];
    factor = fact.factor;
  }
  if (!label)
    return rule.setAll(BatchFact::free());
  for (auto [value, own] : operands) {
    bool carries = !rule.fact(value).isFree();
    if (carries && llvm::count(own, *label) > 1)
      return rule.mix(name + " takes the diagonal of the batch dim");
    for (auto [index, mine] : llvm::enumerate(own))
      if (!carries && mine == *label &&
          !rule.tensor(value).dim(index).isConstant(1))
        return rule.mix("an operand of " + name +
                        " without the batch has extent " +
                        rule.tensor(value).dim(index).str() +
                        " in the batch dim");
  }
  const int *place = llvm::find(labels.result, *label);
  if (place == labels.result.end())
    return rule.mix(name + " sums over the batch dim");
  rule.setAll(BatchFact::at(place - labels.result.begin(), factor));
}

/// The ranks of the factors; none if one is unknown.
template <typename Rule>
static std::optional<SmallVector<int64_t>> getRanks(Rule &rule,
                                                    ArrayRef<Value> values) {
  SmallVector<int64_t> ranks;
  for (Value value : values) {
    TensorInfo info = rule.tensor(value);
    if (!info.hasRank())
      return std::nullopt;
    ranks.push_back(info.getRank());
  }
  return ranks;
}

static LogicalResult setTypeOnly(ShapeRule &rule, Value self) {
  TensorInfo result;
  result.elementType = rule.tensor(self).elementType;
  rule.setResult(0, result);
  return success();
}

LogicalResult rules::inferProduct(ShapeRule &rule, const Product &product) {
  auto ranks = getRanks(rule, product.factors);
  if (!ranks)
    return setTypeOnly(rule, product.factors.front());
  std::string error;
  auto labels = parseEquation(product.equation, *ranks, error);
  if (!labels)
    return rule.emitError() << error;
  return inferLabelled(rule, *labels, product.factors, product.added);
}

void rules::inferProductBatch(BatchRule &rule, const Product &product) {
  auto ranks = getRanks(rule, product.factors);
  std::string error;
  auto labels = ranks ? parseEquation(product.equation, *ranks, error)
                      : std::nullopt;
  if (!labels)
    return rule.mix("the rank of an operand is unknown");
  inferLabelledBatch(rule, *labels, product.factors, product.added);
}

//===----------------------------------------------------------------------===//
// linear, addmm
//===----------------------------------------------------------------------===//

static StringRef getLinearEquation(const TensorInfo &weight) {
  return weight.hasRank() && weight.getRank() == 1 ? "...i,i->..."
                                                   : "...i,oi->...o";
}

LogicalResult LinearOp::inferShapes(ShapeRule &rule) {
  TensorInfo input = rule.tensor(getInput()), weight = rule.tensor(getWeight());
  if (failed(rules::checkOneElementType(rule, input.elementType,
                                        weight.elementType)))
    return failure();
  if (input.hasRank() && weight.hasRank() && input.getRank() > 0 &&
      weight.getRank() > 0) {
    auto features = input.dim(input.getRank() - 1).getConstant();
    auto expected = weight.dim(weight.getRank() - 1).getConstant();
    if (features && expected && *features != *expected)
      return rule.emitError() << "the weight takes " << *expected
                              << " features, the input has " << *features;
  }
  return rules::inferProduct(
      rule, {{getInput(), getWeight()}, getLinearEquation(weight), getBias()});
}

void LinearOp::inferBatch(BatchRule &rule) {
  rules::inferProductBatch(rule, {{getInput(), getWeight()},
                                  getLinearEquation(rule.tensor(getWeight())),
                                  getBias()});
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

void rules::describeAddmmWorkspace(WorkspaceRule &rule, Value mat1) {
  auto lhs = rule.tensor(mat1);
  if (!lhs || !lhs->contiguous)
    return rule.setInexact("addmm of a matrix that is not contiguous");
  if (lhs->dims.size() == 2 && lhs->dims[1] == 0)
    rule.setTransient(
        getEmptyInnerTransient(*lhs, rule.tensor(rule.getOp()->getResult(0))));
}

//===----------------------------------------------------------------------===//
// Products of any rank
//===----------------------------------------------------------------------===//

/// matmul is another product for each pair of ranks; empty if there is none.
static StringRef getMatmulEquation(int64_t lhs, int64_t rhs) {
  if (lhs == 0 || rhs == 0)
    return "";
  if (lhs == 1)
    return rhs == 1 ? "k,k->" : "k,...km->...m";
  return rhs == 1 ? "...nk,k->...n" : "...nk,...km->...nm";
}

LogicalResult rules::inferMatmul(ShapeRule &rule, Value lhs, Value rhs) {
  auto ranks = getRanks(rule, {lhs, rhs});
  if (!ranks)
    return setTypeOnly(rule, lhs);
  StringRef equation = getMatmulEquation((*ranks)[0], (*ranks)[1]);
  if (equation.empty())
    return rule.emitError() << "expects operands of rank 1 or more, got "
                            << (*ranks)[0] << " and " << (*ranks)[1];
  return inferProduct(rule, {{lhs, rhs}, equation, {}});
}

void rules::inferMatmulBatch(BatchRule &rule, Value lhs, Value rhs) {
  if (auto ranks = getRanks(rule, {lhs, rhs}))
    inferProductBatch(
        rule, {{lhs, rhs}, getMatmulEquation((*ranks)[0], (*ranks)[1]), {}});
}

/// Labels for a contraction of pairs of dims; the others follow each other.
static Labels getContraction(int64_t lhsRank, int64_t rhsRank,
                             ArrayRef<int64_t> lhsDims,
                             ArrayRef<int64_t> rhsDims, int summed) {
  Labels labels;
  labels.factors.resize(2);
  int next = 0;
  for (auto [side, rank, dims] :
       {std::tuple(0, lhsRank, lhsDims), std::tuple(1, rhsRank, rhsDims)})
    for (int64_t dim = 0; dim < rank; ++dim) {
      const int64_t *pair = llvm::find(dims, dim);
      if (pair != dims.end()) {
        labels.factors[side].push_back(summed + (pair - dims.begin()));
        continue;
      }
      labels.factors[side].push_back(next);
      labels.result.push_back(next++);
    }
  return labels;
}

LogicalResult rules::inferInner(ShapeRule &rule, Value lhs, Value rhs) {
  auto ranks = getRanks(rule, {lhs, rhs});
  if (!ranks)
    return setTypeOnly(rule, lhs);
  int64_t left = (*ranks)[0], right = (*ranks)[1];
  if (left == 0 || right == 0)
    return inferBinary(rule, lhs, rhs);
  return inferLabelled(
      rule, getContraction(left, right, {left - 1}, {right - 1}, 128),
      {lhs, rhs});
}

void rules::inferInnerBatch(BatchRule &rule, Value lhs, Value rhs) {
  auto ranks = getRanks(rule, {lhs, rhs});
  if (!ranks)
    return rule.mix("the rank of an operand is unknown");
  int64_t left = (*ranks)[0], right = (*ranks)[1];
  if (left == 0 || right == 0)
    return inferBroadcastBatch(rule, {lhs, rhs});
  inferLabelledBatch(
      rule, getContraction(left, right, {left - 1}, {right - 1}, 128),
      {lhs, rhs});
}

/// Dims counted from the start; none if one is out of range or given twice.
static std::optional<SmallVector<int64_t>> normalizeDims(ArrayRef<int64_t> dims,
                                                         int64_t rank) {
  SmallVector<int64_t> found;
  for (int64_t dim : dims) {
    auto normal = rules::normalizeDim(dim, rank);
    if (!normal || llvm::is_contained(found, *normal))
      return std::nullopt;
    found.push_back(*normal);
  }
  return found;
}

LogicalResult rules::inferTensordot(ShapeRule &rule, Value lhs, Value rhs,
                                    ArrayRef<int64_t> lhsDims,
                                    ArrayRef<int64_t> rhsDims) {
  if (lhsDims.size() != rhsDims.size())
    return rule.emitError() << "pairs " << lhsDims.size() << " dims with "
                            << rhsDims.size();
  auto ranks = getRanks(rule, {lhs, rhs});
  if (!ranks)
    return setTypeOnly(rule, lhs);
  auto left = normalizeDims(lhsDims, (*ranks)[0]);
  auto right = normalizeDims(rhsDims, (*ranks)[1]);
  if (!left || !right)
    return rule.emitError() << "a dim is out of range for ranks " << (*ranks)[0]
                            << " and " << (*ranks)[1] << ", or given twice";
  // An extent of one repeats (aten/src/ATen/native/Linear.cpp).
  return inferLabelled(rule,
                       getContraction((*ranks)[0], (*ranks)[1], *left, *right,
                                      Labels::kBroadcast),
                       {lhs, rhs});
}

void rules::inferTensordotBatch(BatchRule &rule, Value lhs, Value rhs,
                                ArrayRef<int64_t> lhsDims,
                                ArrayRef<int64_t> rhsDims) {
  auto ranks = getRanks(rule, {lhs, rhs});
  if (!ranks)
    return rule.mix("the rank of an operand is unknown");
  auto left = normalizeDims(lhsDims, (*ranks)[0]);
  auto right = normalizeDims(rhsDims, (*ranks)[1]);
  if (left && right)
    inferLabelledBatch(rule,
                       getContraction((*ranks)[0], (*ranks)[1], *left, *right,
                                      Labels::kBroadcast),
                       {lhs, rhs});
}

/// The labels of a chain of matrices, whose ends may be vectors.
static Labels getChain(ArrayRef<int64_t> ranks) {
  Labels labels;
  int last = static_cast<int>(ranks.size()) - 1;
  for (int index = 0; index <= last; ++index) {
    SmallVector<int> own{index, index + 1};
    if (ranks[index] == 1)
      own = {index == 0 ? 1 : index};
    labels.factors.push_back(own);
  }
  if (ranks.front() == 2)
    labels.result.push_back(0);
  if (ranks.back() == 2)
    labels.result.push_back(last + 1);
  return labels;
}

LogicalResult rules::inferMultiDot(ShapeRule &rule, ValueRange matrices) {
  if (matrices.size() < 2)
    return rule.emitError() << "multiplies 2 tensors or more, got "
                            << matrices.size();
  SmallVector<Value> factors(matrices);
  auto ranks = getRanks(rule, factors);
  if (!ranks)
    return setTypeOnly(rule, factors.front());
  for (auto [index, rank] : llvm::enumerate(*ranks)) {
    bool end = index == 0 || index + 1 == ranks->size();
    if (rank != 2 && !(end && rank == 1))
      return rule.emitError()
             << "expects " << (end ? "a vector or matrix" : "a matrix")
             << ", got rank " << rank << " for tensor " << index;
  }
  return inferLabelled(rule, getChain(*ranks), factors);
}

void rules::inferMultiDotBatch(BatchRule &rule, ValueRange matrices) {
  SmallVector<Value> factors(matrices);
  if (auto ranks = getRanks(rule, factors))
    inferLabelledBatch(rule, getChain(*ranks), factors);
}
