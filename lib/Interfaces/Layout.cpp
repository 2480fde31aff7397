//===- Layout.cpp - Strides over symbols ----------------------------------===//

#include "koila/Interfaces/Layout.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace koila;

TriBool koila::proveAtMost(DimExpr lhs, DimExpr rhs) {
  if (auto least = lhs.getConstant(), most = rhs.getConstant(); least && most)
    return *least <= *most ? TriBool::Yes : TriBool::No;
  DimExpr difference = rhs - lhs;
  if (auto constant = difference.getConstant())
    return *constant >= 0 ? TriBool::Yes : TriBool::No;
  // Each monomial is at least one: a sum without minus is at least the sum of
  // its coefficients, and one without plus at most that.
  int64_t sum = 0;
  bool positive = false, negative = false;
  for (auto [coefficient, monomial] :
       llvm::zip_equal(difference.getAttr().getCoefficients(),
                       difference.getAttr().getMonomials())) {
    if (llvm::AddOverflow(sum, coefficient, sum))
      return TriBool::Unknown;
    if (monomial.empty())
      continue;
    // A quotient may be zero.
    for (Attribute factor : monomial)
      if (!isa<DimSymbol>(factor))
        return TriBool::Unknown;
    (coefficient > 0 ? positive : negative) = true;
  }
  if (!negative && sum >= 0)
    return TriBool::Yes;
  if (!positive && sum < 0)
    return TriBool::No;
  return TriBool::Unknown;
}

/// As proveEqual, also by an order between the two.
static TriBool proveSame(DimExpr lhs, DimExpr rhs) {
  TriBool equal = proveEqual(lhs, rhs);
  if (equal == TriBool::Unknown && (proveAtMost(lhs + 1, rhs) == TriBool::Yes ||
                                    proveAtMost(rhs + 1, lhs) == TriBool::Yes))
    return TriBool::No;
  return equal;
}

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

ViewStrides koila::computeViewStrides(const TensorInfo &info,
                                      ArrayRef<DimExpr> dims) {
  ViewStrides result;
  if (!info.hasRank() || !info.strides ||
      llvm::any_of(dims, [](DimExpr dim) { return !dim; }) ||
      llvm::any_of(*info.dims, [](DimExpr dim) { return !dim; }))
    return result;
  if (dims.empty()) {
    result.possible = TriBool::Yes;
    return result;
  }
  DimExpr one = DimExpr::constant(dims.front().getContext(), 1);
  if (info.getRank() == 0 ||
      product(one.getContext(), *info.dims).isConstant(0)) {
    result.possible = TriBool::Yes;
    result.strides = *TensorInfo::contiguous(dims, {}).strides;
    return result;
  }
  result.strides.assign(dims.size(), one);
  ArrayRef<DimExpr> from = *info.dims, strides = *info.strides;
  int64_t view = static_cast<int64_t>(dims.size()) - 1;
  DimExpr base = strides.back(), elements = one, viewed = one;
  for (int64_t dim = info.getRank() - 1; dim >= 0; --dim) {
    elements = elements * from[dim];
    if (dim > 0) {
      if (from[dim - 1].isConstant(1))
        continue;
      // The dim before goes on where this run of memory ends.
      TriBool adjoins = proveSame(strides[dim - 1], elements * base);
      if (adjoins == TriBool::Yes)
        continue;
      if (adjoins == TriBool::Unknown)
        return {};
    }
    while (view >= 0 && (proveEqual(viewed, elements) != TriBool::Yes ||
                         dims[view].isConstant(1))) {
      result.strides[view] = viewed * base;
      viewed = viewed * dims[view];
      --view;
    }
    if (TriBool equal = proveSame(viewed, elements); equal != TriBool::Yes) {
      // Groups of dims that do not end together: no view has these strides.
      result.possible = equal;
      return result;
    }
    if (dim > 0) {
      base = strides[dim - 1];
      elements = viewed = one;
    }
  }
  result.possible = view == -1 ? TriBool::Yes : TriBool::No;
  return result;
}

//===----------------------------------------------------------------------===//
// Dense layouts
//===----------------------------------------------------------------------===//

/// Whether `lhs` is the smaller stride; No: the larger. Where they are equal at
/// an extent of one only, which does not matter, one of both directions can be
/// proved.
static TriBool isFaster(DimExpr lhs, DimExpr rhs) {
  TriBool faster = proveAtMost(lhs, rhs);
  if (faster == TriBool::Unknown && proveAtMost(rhs, lhs) == TriBool::Yes)
    return TriBool::No;
  return faster;
}

/// Dims from the fastest in memory to the slowest; none if an order of strides
/// cannot be proved.
static std::optional<SmallVector<int64_t>>
sortByStride(const TensorInfo &info) {
  SmallVector<int64_t> order;
  for (int64_t dim : llvm::reverse(llvm::seq<int64_t>(0, info.getRank())))
    if (!info.dim(dim).isConstant(1))
      order.push_back(dim);
  ArrayRef<DimExpr> strides = *info.strides;
  for (size_t i = 1; i < order.size(); ++i)
    for (size_t j = i; j > 0; --j) {
      TriBool ordered = isFaster(strides[order[j - 1]], strides[order[j]]);
      if (ordered == TriBool::Unknown)
        return std::nullopt;
      if (ordered == TriBool::Yes)
        break;
      std::swap(order[j - 1], order[j]);
    }
  return order;
}

TriBool koila::isNonOverlappingAndDense(const TensorInfo &info) {
  if (!info.hasRank() || !info.strides)
    return TriBool::Unknown;
  if (info.getRank() == 0)
    return TriBool::Yes;
  auto order = sortByStride(info);
  if (!order)
    return TriBool::Unknown;
  DimExpr expected = DimExpr::constant(info.dim(0).getContext(), 1);
  for (int64_t dim : *order) {
    TriBool equal = proveEqual((*info.strides)[dim], expected);
    if (equal != TriBool::Yes)
      return equal;
    expected = expected * info.dim(dim);
  }
  return TriBool::Yes;
}

//===----------------------------------------------------------------------===//
// Elementwise results
//===----------------------------------------------------------------------===//

/// -1: `lhs` is faster in memory than `rhs`; 1: slower; 0: no operand tells;
/// none: unknown. Strides are those of the broadcast operands.
static std::optional<int> compareDims(ArrayRef<SmallVector<DimExpr>> strides,
                                      ArrayRef<DimExpr> dims, int64_t lhs,
                                      int64_t rhs) {
  for (const SmallVector<DimExpr> &operand : strides) {
    DimExpr left = operand[lhs], right = operand[rhs];
    if (left.isConstant(0) || right.isConstant(0))
      continue;
    if (proveEqual(left, right) == TriBool::Yes) {
      // The larger extent is the slower one.
      TriBool atMost = isFaster(dims[lhs], dims[rhs]);
      if (atMost == TriBool::Unknown)
        return std::nullopt;
      if (atMost == TriBool::No)
        return 1;
      continue;
    }
    TriBool atMost = isFaster(left, right);
    if (atMost == TriBool::Unknown)
      return std::nullopt;
    return atMost == TriBool::Yes ? -1 : 1;
  }
  return 0;
}

std::optional<SmallVector<DimExpr>>
koila::computeElementwiseStrides(ArrayRef<TensorInfo> operands,
                                 ArrayRef<DimExpr> dims) {
  if (dims.empty())
    return SmallVector<DimExpr>();
  for (const TensorInfo &operand : operands)
    if (!operand.hasRank() || !operand.strides)
      return std::nullopt;
  int64_t rank = static_cast<int64_t>(dims.size());
  TensorInfo rows = TensorInfo::contiguous(dims, {});
  // Operands of one shape and one dense layout hand it on.
  if (llvm::all_of(operands, [&](const TensorInfo &operand) {
        return ArrayRef(*operand.dims) == dims;
      })) {
    auto every = [&](auto predicate) {
      return llvm::all_of(operands, [&](const TensorInfo &operand) {
        return predicate(operand) == TriBool::Yes;
      });
    };
    if (every([](const TensorInfo &info) { return info.isContiguous(); }))
      return rows.strides;
    if (every([](const TensorInfo &info) { return info.isChannelsLast(); }))
      return TensorInfo::channelsLast(dims, {}).strides;
    if (every(isNonOverlappingAndDense) &&
        llvm::all_of(operands, [&](const TensorInfo &operand) {
          return *operand.strides == *operands.front().strides;
        }))
      return operands.front().strides;
  }
  // Else the dims are sorted by the strides of the operands, the first that
  // tells first.
  DimExpr zero = DimExpr::constant(dims.front().getContext(), 0);
  SmallVector<SmallVector<DimExpr>> strides;
  for (const TensorInfo &operand : operands) {
    SmallVector<DimExpr> broadcast(rank, zero);
    int64_t offset = rank - operand.getRank();
    for (int64_t dim = 0; dim < operand.getRank(); ++dim)
      if (!operand.dim(dim).isConstant(1) || dims[offset + dim].isConstant(1))
        broadcast[offset + dim] = (*operand.strides)[dim];
    strides.push_back(std::move(broadcast));
  }
  SmallVector<int64_t> order(llvm::reverse(llvm::seq<int64_t>(0, rank)));
  for (int64_t i = 1; i < rank; ++i) {
    int64_t moved = i;
    for (int64_t j = i - 1; j >= 0; --j) {
      auto compared = compareDims(strides, dims, order[j], order[moved]);
      if (!compared)
        return std::nullopt;
      if (*compared > 0) {
        std::swap(order[j], order[moved]);
        moved = j;
      } else if (*compared < 0) {
        break;
      }
    }
  }
  SmallVector<DimExpr> result(rank);
  DimExpr next = DimExpr::constant(dims.front().getContext(), 1);
  for (int64_t dim : order) {
    result[dim] = next;
    next = next * dims[dim];
  }
  return result;
}

std::optional<SmallVector<DimExpr>>
koila::computePreservedStrides(const TensorInfo &info) {
  switch (isNonOverlappingAndDense(info)) {
  case TriBool::Yes:
    return info.strides;
  case TriBool::No:
    return computeElementwiseStrides(info, *info.dims);
  case TriBool::Unknown:
    // In an order that is known, dense dims have the same strides as dims that
    // are packed.
    if (info.hasRank() && info.strides && sortByStride(info))
      return computeElementwiseStrides(info, *info.dims);
    return std::nullopt;
  }
  return std::nullopt;
}
