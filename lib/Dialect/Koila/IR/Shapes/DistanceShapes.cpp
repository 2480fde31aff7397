//===- DistanceShapes.cpp - Rules of distances and losses made of them ----===//

#include "../Rules/LossRules.h"
#include "../Rules/ReductionRules.h"
#include "koila/Dialect/Koila/IR/Dropout.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;

FailureOr<std::optional<SmallVector<DimExpr>>>
rules::broadcastOperands(ShapeRule &rule, ArrayRef<TensorInfo> operands) {
  int64_t rank = 0;
  for (const TensorInfo &info : operands) {
    if (!info.hasRank())
      return std::optional<SmallVector<DimExpr>>();
    rank = std::max(rank, info.getRank());
  }
  SmallVector<DimExpr> dims(rank, rule.constant(1));
  for (const TensorInfo &info : operands)
    for (int64_t index = 0; index < info.getRank(); ++index) {
      DimExpr &dim = dims[rank - info.getRank() + index];
      auto left = dim.getConstant(), right = info.dim(index).getConstant();
      if (left && right && *left != *right && *left != 1 && *right != 1)
        return rule.emitError()
               << "cannot broadcast extents " << *left << " and " << *right
               << " in dim " << rank - info.getRank() + index;
      dim = dim.broadcast(info.dim(index));
    }
  return std::optional(dims);
}

/// All tensor operands.
static SmallVector<TensorInfo> getTensors(ShapeRule &rule) {
  SmallVector<TensorInfo> infos;
  for (Value value : rule.getOp()->getOperands())
    infos.push_back(rule.tensor(value));
  return infos;
}

static TensorInfo
contiguousOrUnknown(const std::optional<SmallVector<DimExpr>> &dims,
                    Type type) {
  TensorInfo info;
  if (dims)
    return TensorInfo::contiguous(*dims, type);
  info.elementType = type;
  return info;
}

LogicalResult rules::inferCosineSimilarity(ShapeRule &rule, int64_t dim) {
  SmallVector<TensorInfo> infos = getTensors(rule);
  // The type is that of the expanded operands: 0-dim ones do not give way.
  Type type;
  if (infos[0].elementType && infos[1].elementType)
    type = promoteTypes(infos[0].elementType, true, infos[1].elementType, true);
  if (type && !isa<FloatType>(type))
    return rule.emitError() << "takes floating-point numbers, not " << type;
  auto dims = broadcastOperands(rule, infos);
  if (failed(dims))
    return failure();
  if (*dims) {
    auto along = normalizeDim(dim, (*dims)->size());
    if (!along)
      return rule.emitError() << "dim " << dim << " is out of range for rank "
                              << (*dims)->size();
    if (!(*dims)->empty())
      (*dims)->erase((*dims)->begin() + *along);
  }
  rule.setResult(0, contiguousOrUnknown(*dims, type));
  return success();
}

/// The type of norm(x - y + eps).
static Type getDistanceType(const TensorInfo &x, const TensorInfo &y) {
  return rules::getRealType(rules::getFloatType(rules::promoteTypes(x, y)));
}

/// bool has no difference.
static LogicalResult checkDifference(ShapeRule &rule, const TensorInfo &x,
                                     const TensorInfo &y) {
  for (const TensorInfo &info : {x, y})
    if (info.elementType && info.elementType.isInteger(1))
      return rule.emitError() << "booleans cannot be subtracted";
  return success();
}

LogicalResult rules::inferPairwiseDistance(ShapeRule &rule, bool keepdim) {
  SmallVector<TensorInfo> infos = getTensors(rule);
  if (failed(checkDifference(rule, infos[0], infos[1])))
    return failure();
  auto dims = broadcastOperands(rule, infos);
  if (failed(dims))
    return failure();
  if (*dims && !(*dims)->empty()) {
    (*dims)->pop_back();
    if (keepdim)
      (*dims)->push_back(rule.constant(1));
  }
  rule.setResult(
      0, contiguousOrUnknown(*dims, getDistanceType(infos[0], infos[1])));
  return success();
}

void rules::inferDistanceBatch(BatchRule &rule, int64_t dim, bool keepdim) {
  SmallVector<Value> operands(rule.getOp()->getOperands());
  inferBroadcastBatch(rule, operands);
  BatchFact fact = rule.getResults()[0];
  if (!fact.isAt())
    return;
  int64_t rank = 0;
  for (Value operand : operands)
    rank = std::max(rank, rule.tensor(operand).getRank());
  auto along = normalizeDim(dim, rank);
  if (!along || *along == fact.dim)
    return rule.mix(getOperatorName(rule.getOp()) + " over dim " +
                    Twine(fact.dim) + " mixes samples");
  fact.dim -= !keepdim && *along < fact.dim;
  rule.setAll(fact);
}

//===----------------------------------------------------------------------===//
// cdist, pdist; aten/src/ATen/native/Distance.cpp
//===----------------------------------------------------------------------===//

static LogicalResult checkDistanceType(ShapeRule &rule, const TensorInfo &info,
                                       double p) {
  if (info.elementType && !isa<FloatType>(info.elementType))
    return rule.emitError()
           << "takes floating-point numbers, not " << info.elementType;
  if (!(p >= 0))
    return rule.emitError() << "p is " << p;
  return success();
}

LogicalResult rules::inferCdist(ShapeRule &rule, double p) {
  SmallVector<TensorInfo> infos = getTensors(rule);
  TensorInfo result;
  result.elementType = infos[0].elementType;
  for (const TensorInfo &info : infos) {
    if (failed(checkDistanceType(rule, info, p)))
      return failure();
    if (info.hasRank() && info.getRank() < 2)
      return rule.emitError()
             << "expects rank 2 or more, got " << info.getRank();
  }
  auto mode = rule.getOp()->getAttrOfType<IntegerAttr>("compute_mode");
  if (mode && (mode.getInt() < 0 || mode.getInt() > 2))
    return rule.emitError() << "compute_mode is " << mode.getInt();
  if (infos[0].elementType && infos[1].elementType &&
      infos[0].elementType != infos[1].elementType)
    return rule.emitError() << "x1 is of " << infos[0].elementType << ", x2 of "
                            << infos[1].elementType;
  if (infos[0].hasRank() && infos[1].hasRank()) {
    if (proveEqual(infos[0].dims->back(), infos[1].dims->back()) == TriBool::No)
      return rule.emitError()
             << "x1 has rows of " << infos[0].dims->back().str()
             << " elements, x2 of " << infos[1].dims->back().str();
    SmallVector<DimExpr> rows;
    for (TensorInfo &info : infos) {
      info.dims->pop_back();
      rows.push_back(info.dims->pop_back_val());
    }
    auto dims = broadcastOperands(rule, infos);
    if (failed(dims))
      return failure();
    (*dims)->append(rows);
    result = TensorInfo::contiguous(**dims, result.elementType);
  }
  rule.setResult(0, result);
  return success();
}

void rules::inferCdistBatch(BatchRule &rule) {
  Value x1 = rule.getOp()->getOperand(0), x2 = rule.getOp()->getOperand(1);
  TensorInfo left = rule.tensor(x1), right = rule.tensor(x2);
  BatchFact rows = rule.fact(x1), columns = rule.fact(x2);
  if (!left.hasRank() || !right.hasRank())
    return rule.mix("the rank of an operand is unknown");
  int64_t rank = std::max(left.getRank(), right.getRank());
  rows.dim += rank - left.getRank();
  columns.dim += rank - right.getRank();
  bool alone = !rows.isAt() || !columns.isAt();
  if (rows.isAt() && rows.dim == rank - 2 && alone)
    return rule.setAll(rows);
  if (columns.isAt() && columns.dim == rank - 2 && alone) {
    ++columns.dim;
    return rule.setAll(columns);
  }
  // Leading dims broadcast.
  if ((rows.isAt() && rows.dim >= rank - 2) ||
      (columns.isAt() && columns.dim >= rank - 2))
    return rule.mix("cdist compares each row with each: it mixes samples");
  inferBroadcastBatch(rule, {x1, x2});
}

LogicalResult rules::inferPdist(ShapeRule &rule, double p) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0)), result;
  if (failed(checkDistanceType(rule, self, p)))
    return failure();
  if (self.hasRank() && self.getRank() != 2)
    return rule.emitError() << "expects rank 2, got " << self.getRank();
  result.elementType = self.elementType;
  if (self.hasRank()) {
    DimExpr rows = self.dim(0);
    result = TensorInfo::contiguous({(rows * (rows - 1)).floorDiv(2)},
                                    self.elementType);
  }
  rule.setResult(0, result);
  return success();
}

//===----------------------------------------------------------------------===//
// Losses of distances
//===----------------------------------------------------------------------===//

LogicalResult rules::inferCosineEmbeddingLoss(ShapeRule &rule) {
  SmallVector<TensorInfo> infos = getTensors(rule);
  TensorInfo target = infos.pop_back_val();
  // Sums of integers become float32 where eps is added to them.
  Type type, left = getFloatType(infos[0].elementType),
             right = getFloatType(infos[1].elementType);
  if (left && right)
    type = promoteTypes(left, true, right, true);
  if (target.hasRank()) {
    if (target.getRank() > 1)
      return rule.emitError() << "the target has rank " << target.getRank();
    for (const TensorInfo &info : infos)
      if (info.hasRank() && info.getRank() != target.getRank() + 1)
        return rule.emitError()
               << "a target of rank " << target.getRank()
               << " needs inputs of rank " << target.getRank() + 1;
  }
  auto dims = broadcastOperands(rule, infos);
  if (failed(dims))
    return failure();
  if (*dims) {
    (*dims)->pop_back();
    dims =
        broadcastOperands(rule, {TensorInfo::contiguous(**dims, type), target});
    if (failed(dims))
      return failure();
  }
  return setLoss(rule, contiguousOrUnknown(*dims, type));
}

LogicalResult rules::inferTripletLoss(ShapeRule &rule) {
  SmallVector<TensorInfo> infos = getTensors(rule);
  Type type = getDistanceType(infos[0], infos[1]);
  TensorInfo near = infos[0];
  near.elementType = promoteTypes(infos[0], infos[1]);
  if (near.hasRank() && infos[2].hasRank())
    type = getDistanceType(near, infos[2]);
  for (const TensorInfo &info : infos) {
    if (failed(checkDifference(rule, info, info)))
      return failure();
    if (info.hasRank() && infos[0].hasRank() &&
        info.getRank() != infos[0].getRank())
      return rule.emitError() << "the operands have different ranks";
  }
  bool swap = rule.getOp()->getAttrOfType<BoolAttr>("swap").getValue();
  SmallVector<TensorInfo> distances;
  for (auto [a, b] : {std::pair(0, 1), std::pair(0, 2), std::pair(1, 2)}) {
    if (a == 1 && !swap)
      continue;
    auto dims = broadcastOperands(rule, {infos[a], infos[b]});
    if (failed(dims))
      return failure();
    if (*dims && !(*dims)->empty())
      (*dims)->pop_back();
    distances.push_back(contiguousOrUnknown(*dims, type));
  }
  auto dims = broadcastOperands(rule, distances);
  if (failed(dims))
    return failure();
  return setLoss(rule, contiguousOrUnknown(*dims, type));
}

void rules::inferTripletLossBatch(BatchRule &rule) {
  inferDistanceBatch(rule, -1, false);
  reduceLossBatch(rule, Combine::Mean);
}
