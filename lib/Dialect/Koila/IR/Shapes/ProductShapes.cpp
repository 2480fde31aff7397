//===- ProductShapes.cpp - Rules of products whose ranks vary -------------===//

#include "../Rules/MatmulRules.h"
#include "koila/Dialect/Koila/IR/Elementwise.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using rules::Labels;

//===----------------------------------------------------------------------===//
// Contractions
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
    return inferTypeOnly(rule, lhs);
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
    return inferTypeOnly(rule, lhs);
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
  inferProductBatch(rule,
                    getContraction(left, right, {left - 1}, {right - 1}, 128),
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
    return rule.emitError()
           << "pairs " << lhsDims.size() << " dims with " << rhsDims.size();
  auto ranks = getRanks(rule, {lhs, rhs});
  if (!ranks)
    return inferTypeOnly(rule, lhs);
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
    inferProductBatch(rule,
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
    return rule.emitError()
           << "multiplies 2 tensors or more, got " << matrices.size();
  SmallVector<Value> factors(matrices);
  auto ranks = getRanks(rule, factors);
  if (!ranks)
    return inferTypeOnly(rule, factors.front());
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
    inferProductBatch(rule, getChain(*ranks), factors);
}

LogicalResult rules::checkBilinear(ShapeRule &rule, Value lhs, Value rhs) {
  TensorInfo left = rule.tensor(lhs), right = rule.tensor(rhs);
  if (!left.hasRank() || !right.hasRank())
    return success();
  if (left.getRank() != right.getRank())
    return rule.emitError() << "expects inputs of one rank, got "
                            << left.getRank() << " and " << right.getRank();
  for (int64_t dim = 0; dim < left.getRank() - 1; ++dim)
    if (proveEqual(left.dim(dim), right.dim(dim)) == TriBool::No)
      return rule.emitError()
             << "has extents " << left.dim(dim).str() << " and "
             << right.dim(dim).str() << " in dim " << dim;
  for (const TensorInfo &info : {left, right})
    if (info.getRank() > 0 && info.dims->back().isConstant(0))
      return rule.emitError() << "has an input without features";
  return success();
}

//===----------------------------------------------------------------------===//
// Products of each element with each
//===----------------------------------------------------------------------===//

/// bool, integer, floating point, complex.
static int getCategory(Type type) {
  if (isa<ComplexType>(type))
    return 3;
  return isa<FloatType>(type) ? 2 : !type.isInteger(1);
}

LogicalResult rules::inferOuter(ShapeRule &rule, Value lhs, Value rhs,
                                Value added) {
  TensorInfo left = rule.tensor(lhs), right = rule.tensor(rhs);
  for (const TensorInfo &info : {left, right})
    if (info.hasRank() && info.getRank() != 1)
      return rule.emitError() << "expects vectors, got rank " << info.getRank();
  TensorInfo result;
  result.elementType = promoteTypes(left, right);
  if (!left.hasRank() || !right.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  result =
      TensorInfo::contiguous({left.dim(0), right.dim(0)}, result.elementType);
  if (added) {
    TensorInfo self = rule.tensor(added);
    Type common = promoteTypes(result, self);
    if (failed(checkAdded(rule, self, result)))
      return failure();
    auto op = dyn_cast<TorchOperatorInterface>(rule.getOp());
    if (op && op.isTied()) {
      // What the common type needs must fit into the written tensor.
      if (common && getCategory(common) > getCategory(self.elementType))
        return rule.emitError()
               << "result type " << common << " cannot be written into "
               << self.elementType << " in place";
    } else {
      result.elementType = common;
      // Elementwise over what is added, the one vector as a column and the
      // other (build_addr_iter in aten/src/ATen/native/LinearAlgebra.cpp).
      if (left.strides) {
        left.dims->push_back(rule.constant(1));
        left.strides->push_back(rule.constant(1));
      }
      result.strides = computeElementwiseStrides({getCastLayout(self, common),
                                                  getCastLayout(left, common),
                                                  getCastLayout(right, common)},
                                                 *result.dims);
    }
  }
  rule.setResult(0, result);
  return success();
}

/// The operand with a dim of extent one before or after each of its own, up
/// to `rank` pairs.
static TensorInfo spread(const ShapeRule &rule, const TensorInfo &info,
                         int64_t rank, bool left) {
  TensorInfo result;
  result.dims.emplace();
  for (int64_t place = 0; place < rank; ++place) {
    int64_t dim = place - (rank - info.getRank());
    for (bool own : {left, !left})
      result.dims->push_back(own && dim >= 0 ? info.dim(dim)
                                             : rule.constant(1));
  }
  ViewStrides view = computeViewStrides(info, *result.dims);
  if (view.possible == TriBool::Yes)
    result.strides = view.strides;
  return result;
}

LogicalResult rules::inferKron(ShapeRule &rule, Value lhs, Value rhs) {
  TensorInfo left = rule.tensor(lhs), right = rule.tensor(rhs), result;
  result.elementType = promoteTypes(left, right);
  if (!left.hasRank() || !right.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  // A product of interleaved dims, of which a view merges the pairs (kron in
  // aten/src/ATen/native/LinearAlgebra.cpp).
  int64_t rank = std::max(left.getRank(), right.getRank());
  if (left.elementType && right.elementType)
    result.elementType =
        promoteTypes(left.elementType, rank != 0, right.elementType, rank != 0);
  TensorInfo a = spread(rule, left, rank, /*left=*/true);
  TensorInfo b = spread(rule, right, rank, /*left=*/false);
  SmallVector<DimExpr> dims;
  TensorInfo whole;
  whole.dims.emplace();
  for (int64_t place = 0; place < rank; ++place) {
    DimExpr outer = a.dim(2 * place), inner = b.dim(2 * place + 1);
    whole.dims->append({outer, inner});
    dims.push_back(outer * inner);
  }
  whole.strides =
      computeElementwiseStrides({getCastLayout(a, result.elementType),
                                 getCastLayout(b, result.elementType)},
                                *whole.dims);
  ViewStrides view = computeViewStrides(whole, dims);
  if (view.possible == TriBool::No)
    return rule.emitError()
           << "merges dims of operands that are not contiguous";
  result.dims = dims;
  if (view.possible == TriBool::Yes)
    result.strides = view.strides;
  rule.setResult(0, result);
  return success();
}

void rules::inferKronBatch(BatchRule &rule, Value lhs, Value rhs) {
  TensorInfo left = rule.tensor(lhs), right = rule.tensor(rhs);
  BatchFact fact = rule.fact(lhs), other = rule.fact(rhs);
  if (!left.hasRank() || !right.hasRank())
    return rule.mix("the rank of an operand is unknown");
  if (!fact.isFree() && !other.isFree())
    return rule.mix("kron multiplies every sample with every other");
  int64_t rank = std::max(left.getRank(), right.getRank());
  TensorInfo &own = fact.isFree() ? right : left;
  TensorInfo &free = fact.isFree() ? left : right;
  bool inner = fact.isFree();
  if (inner)
    fact = other;
  int64_t place = fact.dim + rank - own.getRank();
  int64_t mate = place - (rank - free.getRank());
  DimExpr extent = mate < 0 ? DimExpr() : free.dim(mate);
  auto count = extent ? extent.getConstant() : 1;
  if (!count || *count == 0 || (inner && *count != 1))
    return rule.mix("kron repeats the samples");
  rule.setResult(0, BatchFact::at(place, fact.factor * *count));
}

//===----------------------------------------------------------------------===//
// Cross products
//===----------------------------------------------------------------------===//

/// The dim of extent 3, counted from the start; none if none is found.
static std::optional<int64_t> getCrossDim(const TensorInfo &info,
                                          std::optional<int64_t> dim) {
  if (dim)
    return rules::normalizeDim(*dim, info.getRank());
  for (int64_t index = 0; index < info.getRank(); ++index)
    if (info.dim(index).isConstant(3))
      return index;
  return std::nullopt;
}

LogicalResult rules::inferCross(ShapeRule &rule, Value lhs, Value rhs,
                                std::optional<int64_t> dim) {
  TensorInfo left = rule.tensor(lhs), right = rule.tensor(rhs);
  if (left.hasRank() && right.hasRank() && left.getRank() != right.getRank())
    return rule.emitError() << "expects operands of one rank, got "
                            << left.getRank() << " and " << right.getRank();
  if (failed(checkOneElementType(rule, left.elementType, right.elementType,
                                 "another operand")) ||
      failed(inferBinary(rule, lhs, rhs)))
    return failure();
  if (!left.hasRank() || !right.hasRank())
    return success();
  auto place = getCrossDim(left, dim);
  if (!place && dim)
    return rule.emitError()
           << "dim " << *dim << " is out of range for rank " << left.getRank();
  for (const TensorInfo &info : {left, right})
    if (place &&
        (info.getRank() == 0 ||
         proveEqual(info.dim(*place), rule.constant(3)) == TriBool::No))
      return rule.emitError() << "expects an extent of 3 in dim " << *place;
  if (!place && llvm::all_of(*left.dims, [](DimExpr extent) {
        return extent.getConstant().has_value();
      }))
    return rule.emitError() << "has no dim of extent 3";
  TensorInfo result = *rule.getResults()[0].tensor;
  rule.setResult(0, TensorInfo::contiguous(*result.dims, result.elementType));
  return success();
}

void rules::inferCrossBatch(BatchRule &rule, Value lhs, Value rhs,
                            std::optional<int64_t> dim) {
  inferBroadcastBatch(rule, {lhs, rhs});
  BatchFact fact = rule.getResults()[0];
  TensorInfo info = rule.tensor(lhs);
  if (!fact.isAt())
    return;
  auto place = getCrossDim(info, dim);
  if (!place || *place == fact.dim)
    return rule.mix("the cross product is along the batch dim");
  if (!dim && fact.dim < *place)
    return rule.mix("without dim, the cross product is along the first dim of "
                    "extent 3: of three samples that is the batch");
}
