//===- IndexSupport.cpp - What rules of indexing have in common -----------===//

#include "../Rules/IndexRules.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

/// Strides of dims from the fastest to the slowest; none if a null extent is
/// needed.
static TensorInfo pack(ArrayRef<DimExpr> dims, Type type,
                       ArrayRef<int64_t> order) {
  TensorInfo info = indexing::unranked(type);
  info.dims.emplace(dims.begin(), dims.end());
  SmallVector<DimExpr> strides(dims.size());
  DimExpr next;
  for (int64_t place : order) {
    if (!next) {
      auto known = llvm::find_if(dims, [](DimExpr dim) { return !!dim; });
      MLIRContext *context =
          known != dims.end() ? known->getContext() : type.getContext();
      next = DimExpr::constant(context, 1);
    }
    strides[place] = next;
    if (place == order.back())
      break;
    if (!dims[place])
      return info;
    next = next * dims[place];
  }
  info.strides = strides;
  return info;
}

TensorInfo indexing::packed(ArrayRef<DimExpr> dims, Type type) {
  if (llvm::all_of(dims, [](DimExpr dim) { return !!dim; }))
    return TensorInfo::contiguous(dims, type);
  TensorInfo info = unranked(type);
  if (!type && llvm::none_of(dims, [](DimExpr dim) { return !!dim; })) {
    info.dims.emplace(dims.begin(), dims.end());
    return info;
  }
  SmallVector<int64_t> order;
  for (int64_t dim = dims.size(); dim > 0; --dim)
    order.push_back(dim - 1);
  return pack(dims, type, order);
}

/// Dims of rank 4 or 5 from the fastest to the slowest in channels last.
static ArrayRef<int64_t> getChannelsLastOrder(int64_t rank) {
  static const int64_t planes[] = {1, 3, 2, 0}, volumes[] = {1, 4, 3, 2, 0};
  if (rank == 4)
    return planes;
  return rank == 5 ? ArrayRef<int64_t>(volumes) : ArrayRef<int64_t>();
}

/// Whether a step over all of dim `inner` is at most one along dim `outer`.
/// Most strides are numbers, of which no expression need be made.
static TriBool proveNested(const TensorInfo &info, int64_t inner,
                           int64_t outer) {
  DimExpr step = (*info.strides)[inner], extent = info.dim(inner),
          next = (*info.strides)[outer];
  auto size = step.getConstant(), times = extent.getConstant(),
       most = next.getConstant();
  if (int64_t whole;
      size && times && most && !llvm::MulOverflow(*size, *times, whole))
    return whole <= *most ? TriBool::Yes : TriBool::No;
  return proveAtMost(step * extent, next);
}

// Source: is_channels_last_strides_2d_s4 in c10/core/MemoryFormat.h.
TriBool indexing::suggestsChannelsLast(const TensorInfo &info) {
  if (!info.hasRank())
    return TriBool::Unknown;
  ArrayRef<int64_t> order = getChannelsLastOrder(info.getRank());
  if (order.empty() ||
      llvm::any_of(*info.dims, [](DimExpr dim) { return dim.isConstant(0); }))
    return TriBool::No;
  if (!info.strides)
    return TriBool::Unknown;
  ArrayRef<DimExpr> strides = *info.strides;
  if (strides[1].isConstant(0))
    return TriBool::No;
  std::optional<int64_t> before;
  for (int64_t dim : order) {
    TriBool ordered =
        before ? proveNested(info, *before, dim)
               : proveAtMost(DimExpr::constant(strides[dim].getContext(), 0),
                             strides[dim]);
    if (ordered != TriBool::Yes)
      return ordered;
    if (dim == 0 && proveEqual(strides[*before] * info.dim(*before),
                               strides[1]) == TriBool::Yes)
      return TriBool::No;
    before = dim;
  }
  return TriBool::Yes;
}

TensorInfo indexing::packedLike(ArrayRef<DimExpr> dims, Type type,
                                const TensorInfo &like) {
  switch (suggestsChannelsLast(like)) {
  case TriBool::Yes:
    if (ArrayRef<int64_t> order = getChannelsLastOrder(dims.size());
        !order.empty())
      return pack(dims, type, order);
    break;
  case TriBool::No:
    return packed(dims, type);
  case TriBool::Unknown:
    break;
  }
  TensorInfo info = packed(dims, type);
  info.strides.reset();
  return info;
}

TensorInfo indexing::unranked(Type type) {
  TensorInfo info;
  info.elementType = type;
  return info;
}

LogicalResult indexing::setWritten(ShapeRule &rule, Value self, Copy copy) {
  TensorInfo info = rule.tensor(self);
  auto op = dyn_cast<TorchOperatorInterface>(rule.getOp());
  if (!op || !op.isTied()) {
    if (info.hasRank() && copy == Copy::Packed)
      info = packed(*info.dims, info.elementType);
    else if (info.hasRank())
      info.strides = computePreservedStrides(info);
  }
  rule.setResult(0, info);
  return success();
}

//===----------------------------------------------------------------------===//
// Types and dims
//===----------------------------------------------------------------------===//

Type indexing::promoteAll(ArrayRef<TensorInfo> operands) {
  Type common;
  for (const TensorInfo &operand : operands) {
    if (!operand.elementType)
      return {};
    common = common
                 ? rules::promoteTypes(common, true, operand.elementType, true)
                 : operand.elementType;
  }
  return common;
}

LogicalResult indexing::wrapDim(ShapeRule &rule, int64_t dim, int64_t rank,
                                int64_t &wrapped) {
  auto normal = rules::normalizeDim(dim, rank);
  if (!normal)
    return rule.emitError()
           << "dim " << dim << " is out of range for rank " << rank;
  wrapped = *normal;
  return success();
}

LogicalResult indexing::checkIndexType(ShapeRule &rule, const TensorInfo &index,
                                       bool allowsInt32) {
  Type type = index.elementType;
  if (!type || type.isSignlessInteger(64) ||
      (allowsInt32 && type.isSignlessInteger(32)))
    return success();
  return rule.emitError() << "takes indices of int64"
                          << (allowsInt32 ? " or int32" : "") << ", got "
                          << type;
}

LogicalResult indexing::checkSameType(ShapeRule &rule, const TensorInfo &self,
                                      const TensorInfo &other) {
  if (!self.elementType || !other.elementType ||
      self.elementType == other.elementType)
    return success();
  return rule.emitError() << "writes " << other.elementType << " into "
                          << self.elementType;
}

bool indexing::isPositive(DimExpr extent) {
  if (extent.hasLocalSymbol() || extent.isConstant(0))
    return false;
  DimExpr one = DimExpr::constant(extent.getContext(), 1);
  return proveAtMost(one, extent) == TriBool::Yes;
}

LogicalResult indexing::checkSelects(ShapeRule &rule, DimExpr extent,
                                     DimExpr count) {
  if (!extent || !count || !extent.isConstant(0) || !isPositive(count))
    return success();
  return rule.emitError() << "selects " << count
                          << " rows of a dim that has none";
}

/// Known to be other extents, of which neither can be repeated.
static bool conflict(DimExpr lhs, DimExpr rhs) {
  auto left = lhs.getConstant(), right = rhs.getConstant();
  return left && right && *left != *right && *left != 1 && *right != 1;
}

LogicalResult indexing::broadcastDims(ShapeRule &rule, ArrayRef<DimExpr> lhs,
                                      ArrayRef<DimExpr> rhs,
                                      SmallVectorImpl<DimExpr> &result) {
  if (lhs.size() < rhs.size())
    std::swap(lhs, rhs);
  size_t offset = lhs.size() - rhs.size();
  result.assign(lhs.begin(), lhs.end());
  for (auto [index, dim] : llvm::enumerate(rhs)) {
    DimExpr &other = result[offset + index];
    if (conflict(other, dim))
      return rule.emitError() << "cannot broadcast extents " << other << " and "
                              << dim << " in dim " << offset + index;
    other = other.broadcast(dim);
  }
  return success();
}

/// Whether the expressions differ whatever their symbols are: `2*B` is not 1.
static bool neverEqual(DimExpr lhs, DimExpr rhs) {
  if (proveEqual(lhs, rhs) == TriBool::No)
    return true;
  DimExprAttr difference = (lhs - rhs).getAttr();
  int64_t divisor = 0, constant = 0;
  for (auto [coefficient, monomial] : llvm::zip_equal(
           difference.getCoefficients(), difference.getMonomials())) {
    if (monomial.empty())
      constant = coefficient;
    else
      divisor = std::gcd(divisor, coefficient);
  }
  return divisor > 1 && constant % divisor != 0;
}

LogicalResult indexing::checkExpands(ShapeRule &rule, const TensorInfo &info,
                                     ArrayRef<DimExpr> dims) {
  if (!info.hasRank())
    return success();
  int64_t offset = static_cast<int64_t>(dims.size()) - info.getRank();
  if (offset < 0)
    return rule.emitError() << "rank " << info.getRank()
                            << " does not broadcast to rank " << dims.size();
  for (int64_t dim = 0; dim < info.getRank(); ++dim) {
    DimExpr target = dims[offset + dim];
    if (!target || info.dim(dim).isConstant(1))
      continue;
    if (neverEqual(info.dim(dim), target) &&
        neverEqual(info.dim(dim), rule.constant(1)))
      return rule.emitError() << "extent " << info.dim(dim)
                              << " does not broadcast to " << target;
  }
  return success();
}

DimExpr indexing::countElements(ShapeRule &rule, const TensorInfo &info) {
  return info.hasRank() ? product(rule.getContext(), *info.dims) : DimExpr();
}

//===----------------------------------------------------------------------===//
// Batch
//===----------------------------------------------------------------------===//

void indexing::mixSamples(BatchRule &rule, const Twine &reason) {
  for (Value operand : rule.getOp()->getOperands())
    (void)rule.fact(operand);
  rule.mix(reason);
}

void indexing::keepBatchOutside(BatchRule &rule, Value self,
                                ArrayRef<int64_t> dims, StringRef what) {
  TensorInfo info = rule.tensor(self);
  BatchFact fact = rule.fact(self);
  if (!info.hasRank())
    return mixSamples(rule, "the rank of the operand is unknown");
  for (int64_t dim : dims)
    if (rules::normalizeDim(dim, info.getRank()) == fact.dim)
      return mixSamples(rule, what);
  rule.setResult(0, fact);
}
