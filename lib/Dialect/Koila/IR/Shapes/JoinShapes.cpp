//===- JoinShapes.cpp - Rules of operators that join tensors --------------===//

#include "../Rules/ElementwiseRules.h"
#include "../Rules/IndexRules.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;
using indexing::Join;

//===----------------------------------------------------------------------===//
// cat and what is made of it
//===----------------------------------------------------------------------===//

/// Where dim 0 of an operand of `rank` is once the operand fits; the dims
/// that are new have extent one. Source: atleast_1d and others in
/// aten/src/ATen/native/TensorTransformations.cpp, column_stack in
/// TensorShape.cpp.
static int64_t getShift(Join kind, int64_t rank) {
  if (kind == Join::Vertical || kind == Join::Depth)
    return rank < 2 ? 1 : 0;
  return 0;
}

/// The least rank that operands are given.
static int64_t getLeastRank(Join kind) {
  switch (kind) {
  case Join::Cat:
  case Join::Stack:
    return 0;
  case Join::Horizontal:
    return 1;
  case Join::Vertical:
  case Join::Column:
    return 2;
  case Join::Depth:
    return 3;
  }
  return 0;
}

/// The operand with the dims that the operator adds.
static TensorInfo fit(ShapeRule &rule, TensorInfo info, Join kind) {
  int64_t least = getLeastRank(kind);
  if (!info.hasRank() || info.getRank() >= least)
    return info;
  SmallVector<DimExpr> dims(getShift(kind, info.getRank()), rule.constant(1));
  dims.append(*info.dims);
  dims.resize(least, rule.constant(1));
  // Of rank 3 at most: strides do not decide anything.
  return TensorInfo::contiguous(dims, info.elementType);
}

/// The dim along which operands that fit are joined; hstack looks at the first.
static int64_t getJoinedDim(Join kind, int64_t dim,
                            std::optional<int64_t> rank) {
  return kind == Join::Horizontal ? rank.value_or(1) > 1 : dim;
}

/// Once, cat took empty vectors among tensors of any rank.
static bool isSkipped(const TensorInfo &info) {
  return info.hasRank() && info.getRank() == 1 && info.dim(0).isConstant(0);
}

// Source: cat in aten/src/ATen/native/TensorShape.cpp.
static LogicalResult concatenate(ShapeRule &rule, ArrayRef<TensorInfo> operands,
                                 int64_t dim, TensorInfo &result) {
  result = indexing::unranked(indexing::promoteAll(operands));
  if (operands.empty())
    return rule.emitError() << "joins an empty list of tensors";
  const TensorInfo *first = nullptr;
  bool known = true;
  for (const TensorInfo &operand : operands) {
    known &= operand.hasRank();
    if (operand.hasRank() && operand.getRank() == 0)
      return rule.emitError() << "cannot join tensors without dims";
    if (operand.hasRank() && !isSkipped(operand) && !first)
      first = &operand;
  }
  if (!known)
    return success();
  if (!first) {
    result = TensorInfo::contiguous(rule.constant(0), result.elementType);
    return success();
  }
  int64_t joined = 0, rank = first->getRank();
  if (failed(indexing::wrapDim(rule, dim, rank, joined)))
    return failure();
  SmallVector<DimExpr> dims = *first->dims;
  dims[joined] = rule.constant(0);
  // The rows that are numbers: sums on the way need not be expressions.
  int64_t rows = 0;
  TriBool channelsLast = TriBool::Yes;
  for (const TensorInfo &operand : operands) {
    TriBool suggested = indexing::suggestsChannelsLast(operand);
    // One without rows would decide for row-major.
    if (suggested == TriBool::Yes && operands.size() > 1 &&
        !operand.dim(joined).getConstant())
      suggested = TriBool::Unknown;
    if (suggested == TriBool::No || channelsLast == TriBool::No)
      channelsLast = TriBool::No;
    else if (suggested == TriBool::Unknown)
      channelsLast = TriBool::Unknown;
    if (isSkipped(operand))
      continue;
    if (operand.getRank() != rank) {
      // A vector whose extent data decides may be an empty one.
      for (const TensorInfo *one : {first, &operand})
        if (one->getRank() == 1 && one->dim(0).hasLocalSymbol())
          return success();
      return rule.emitError() << "cannot join tensors of rank " << rank
                              << " and " << operand.getRank();
    }
    for (int64_t at = 0; at < rank; ++at) {
      DimExpr extent = operand.dim(at);
      if (at == joined) {
        auto number = extent.getConstant();
        if (int64_t sum; number && !llvm::AddOverflow(rows, *number, sum))
          rows = sum;
        else
          dims[at] = dims[at] + extent;
        continue;
      }
      if (proveEqual(dims[at], extent) == TriBool::No)
        return rule.emitError() << "joined tensors have extents " << dims[at]
                                << " and " << extent << " in dim " << at;
      if (extent.getConstant())
        dims[at] = extent;
    }
  }
  dims[joined] = dims[joined] + rows;
  TensorInfo like = *first;
  if (channelsLast == TriBool::No)
    result = TensorInfo::contiguous(dims, result.elementType);
  else
    result = indexing::packedLike(dims, result.elementType, like);
  if (channelsLast == TriBool::Unknown)
    result.strides.reset();
  return success();
}

/// stack joins along a dim and splits it, or adds a last dim and joins.
static LogicalResult stack(ShapeRule &rule, SmallVector<TensorInfo> operands,
                           int64_t dim) {
  TensorInfo result = indexing::unranked(indexing::promoteAll(operands));
  if (operands.empty())
    return rule.emitError() << "stacks an empty list of tensors";
  TensorInfo first = operands.front();
  for (const TensorInfo &operand : operands) {
    if (!operand.hasRank() || !first.hasRank()) {
      rule.setResult(0, result);
      return success();
    }
    bool differ = operand.getRank() != first.getRank();
    for (int64_t at = 0; !differ && at < first.getRank(); ++at)
      differ = proveEqual(operand.dim(at), first.dim(at)) == TriBool::No;
    if (differ)
      return rule.emitError() << "stacks tensors of different shapes";
  }
  int64_t rank = first.getRank(), place = 0;
  if (failed(indexing::wrapDim(rule, dim, rank + 1, place)))
    return failure();
  DimExpr one = rule.constant(1), count = rule.constant(operands.size());
  if (place == rank) {
    for (TensorInfo &operand : operands) {
      operand.dims->push_back(one);
      if (operand.strides)
        operand.strides->push_back(one);
    }
    if (failed(concatenate(rule, operands, place, result)))
      return failure();
  } else {
    if (failed(concatenate(rule, operands, place, result)))
      return failure();
    if (!result.hasRank() || result.getRank() != rank)
      result = TensorInfo::contiguous(*first.dims, result.elementType);
    DimExpr extent = first.dim(place);
    (*result.dims)[place] = extent;
    result.dims->insert(result.dims->begin() + place, count);
    if (result.strides)
      result.strides->insert(result.strides->begin() + place,
                             (*result.strides)[place] * extent);
  }
  rule.setResult(0, result);
  return success();
}

LogicalResult indexing::inferJoin(ShapeRule &rule, ValueRange tensors,
                                  Join kind, int64_t dim) {
  SmallVector<TensorInfo> operands;
  for (Value tensor : tensors)
    operands.push_back(fit(rule, rule.tensor(tensor), kind));
  if (kind == Join::Stack)
    return stack(rule, operands, dim);
  std::optional<int64_t> rank;
  if (!operands.empty() && operands.front().hasRank())
    rank = operands.front().getRank();
  if (kind == Join::Horizontal && !rank && !operands.empty()) {
    rule.setResult(0, unranked(promoteAll(operands)));
    return success();
  }
  TensorInfo result;
  if (failed(
          concatenate(rule, operands, getJoinedDim(kind, dim, rank), result)))
    return failure();
  rule.setResult(0, result);
  return success();
}

/// All samples of one tensor, then those of the next: their rows follow each
/// other as often as there are tensors.
static void joinRows(BatchRule &rule, ValueRange tensors, int64_t dim) {
  std::optional<BatchFact> common;
  int64_t count = 0;
  bool agrees = true;
  for (Value tensor : tensors) {
    if (isSkipped(rule.tensor(tensor)))
      continue;
    BatchFact fact = rule.rows(tensor);
    agrees &= fact.isAt() && (!common || *common == fact);
    common = fact;
    ++count;
  }
  std::string reason = "joining over dim " + std::to_string(dim) +
                       " puts all samples of one tensor before those of the "
                       "next";
  if (!agrees)
    return indexing::mixSamples(rule, reason);
  MLIRContext *context = rule.getOp()->getContext();
  BatchFact fact =
      BatchFact::inner(dim, common->factor, DimExpr::constant(context, count));
  fact.reason = reason;
  rule.setResult(0, fact);
}

void indexing::inferJoinBatch(BatchRule &rule, ValueRange tensors, Join kind,
                              int64_t dim) {
  std::optional<BatchFact> common;
  std::optional<int64_t> rank;
  unsigned joined = 0;
  for (Value tensor : tensors) {
    TensorInfo info = rule.tensor(tensor);
    BatchFact fact = rule.fact(tensor);
    if (!info.hasRank())
      return mixSamples(rule, "the rank of an operand is unknown");
    if (kind == Join::Cat && isSkipped(info))
      continue;
    ++joined;
    rank = std::max(rank.value_or(getLeastRank(kind)), info.getRank());
    if (fact.isFree())
      continue;
    fact.dim += getShift(kind, info.getRank());
    if (common && !(*common == fact))
      return mixSamples(rule, "the joined tensors carry the batch in "
                              "different dims");
    common = fact;
  }
  if (!common)
    return mixSamples(rule, "an empty tensor carries the batch");
  int64_t resultRank = *rank + (kind == Join::Stack);
  auto place = rules::normalizeDim(getJoinedDim(kind, dim, rank), resultRank);
  if (!place)
    return;
  if (kind == Join::Stack && common->dim >= *place)
    ++common->dim;
  else if (common->dim == *place && joined > 1)
    return joinRows(rule, tensors, *place);
  for (Value tensor : tensors)
    if (rule.fact(tensor).isFree() && !isSkipped(rule.tensor(tensor)))
      return mixSamples(rule, "a tensor without the batch is joined with one "
                              "that has it");
  rule.setResult(0, *common);
}

// Source: block_diag in aten/src/ATen/native/TensorShape.cpp.
LogicalResult indexing::inferBlockDiag(ShapeRule &rule, ValueRange tensors) {
  SmallVector<TensorInfo> operands;
  DimExpr rows = rule.constant(0), columns = rule.constant(0);
  for (Value tensor : tensors) {
    TensorInfo info = rule.tensor(tensor);
    operands.push_back(info);
    if (!info.hasRank()) {
      rows = columns = DimExpr();
      continue;
    }
    int64_t rank = info.getRank();
    if (rank > 2)
      return rule.emitError() << "takes matrices, got rank " << rank;
    if (!rows)
      continue;
    rows = rows + (rank > 1 ? info.dim(0) : rule.constant(1));
    columns = columns + (rank > 0 ? info.dim(rank - 1) : rule.constant(1));
  }
  Type type = rules::getCommonType(operands, {});
  if (operands.empty()) {
    rows = rule.constant(1);
    type = Float32Type::get(rule.getContext());
  }
  TensorInfo result = unranked(type);
  if (rows)
    result = packed({rows, columns}, type);
  else
    result.dims = SmallVector<DimExpr>(2);
  rule.setResult(0, result);
  return success();
}

//===----------------------------------------------------------------------===//
// meshgrid, cartesian_prod
//===----------------------------------------------------------------------===//

/// The dim of the grids along which operand `index` of `count` varies.
static int64_t getGridDim(int64_t index, int64_t count, StringRef order) {
  return order == "xy" && count > 1 && index < 2 ? 1 - index : index;
}

// Source: meshgrid in aten/src/ATen/native/TensorShape.cpp.
LogicalResult indexing::inferMeshgrid(ShapeRule &rule, ValueRange tensors,
                                      StringRef order) {
  int64_t count = tensors.size();
  if (count == 0)
    return rule.emitError() << "takes one tensor or more";
  if (order != "ij" && order != "xy")
    return rule.emitError()
           << "indexing is 'ij' or 'xy', got '" << order << "'";
  SmallVector<DimExpr> dims(count);
  bool known = true;
  Type type = rule.tensor(tensors.front()).elementType;
  for (auto [index, tensor] : llvm::enumerate(tensors)) {
    TensorInfo info = rule.tensor(tensor);
    if (type && info.elementType && type != info.elementType)
      return rule.emitError() << "takes tensors of one type, got " << type
                              << " and " << info.elementType;
    known &= info.hasRank();
    if (!info.hasRank())
      continue;
    if (info.getRank() > 1)
      return rule.emitError() << "takes vectors, got rank " << info.getRank();
    dims[getGridDim(index, count, order)] = countElements(rule, info);
  }
  unsigned results = rule.getResults().size();
  if (results != count && !isa<ListType>(rule.getOp()->getResultTypes()[0]))
    return rule.emitError() << "returns " << count << " tensors, the program "
                            << "takes " << results;
  for (auto [index, tensor] : llvm::enumerate(tensors)) {
    if (index >= results)
      break;
    TensorInfo info = rule.tensor(tensor);
    TensorInfo result = unranked(info.elementType);
    if (known)
      result.dims = dims;
    if (known && info.strides) {
      result.strides = SmallVector<DimExpr>(count, rule.constant(0));
      if (info.getRank() == 1)
        (*result.strides)[getGridDim(index, count, order)] =
            info.strides->front();
    }
    rule.setResult(index, result);
  }
  return success();
}

void indexing::inferMeshgridBatch(BatchRule &rule, ValueRange tensors,
                                  StringRef order) {
  std::optional<BatchFact> common;
  for (auto [index, tensor] : llvm::enumerate(tensors)) {
    BatchFact fact = rule.fact(tensor);
    if (fact.isFree())
      continue;
    if (common)
      return mixSamples(rule, "meshgrid combines every sample with every "
                              "other");
    fact.dim = getGridDim(index, tensors.size(), order);
    common = fact;
  }
  if (common)
    rule.setAll(*common);
}

LogicalResult indexing::inferCartesianProduct(ShapeRule &rule,
                                              ValueRange tensors) {
  DimExpr rows = rule.constant(1);
  if (tensors.empty())
    return rule.emitError() << "takes one tensor or more";
  Type type = rule.tensor(tensors.front()).elementType;
  bool known = true;
  for (Value tensor : tensors) {
    TensorInfo info = rule.tensor(tensor);
    if (info.hasRank() && info.getRank() != 1)
      return rule.emitError() << "takes vectors, got rank " << info.getRank();
    if (type && info.elementType && type != info.elementType)
      return rule.emitError() << "takes tensors of one type, got " << type
                              << " and " << info.elementType;
    known &= info.hasRank();
    if (known)
      rows = rows * info.dim(0);
  }
  if (tensors.size() == 1)
    rule.setResult(0, rule.tensor(tensors.front()));
  else if (known)
    rule.setResult(0, packed({rows, rule.constant(tensors.size())}, type));
  else
    rule.setResult(0, unranked(type));
  return success();
}
