//===- RulesEinsumMemory.cpp - What einsum holds inside -------------------===//
//
// Sources: einsum and sumproduct_pair in native/Linear.cpp.
//
//===----------------------------------------------------------------------===//

#include "ProductCopies.h"
#include "koila/Dialect/Koila/IR/KoilaMatmulOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"

using namespace mlir;
using namespace koila;
using namespace koila::blas;
using rules::Labels;

/// The factor with one dim for each label of `order`, of extent one where it
/// has none. None if it has a label twice.
static std::optional<Factor> align(const Factor &factor, ArrayRef<int> own,
                                   ArrayRef<int> order) {
  Factor aligned{{}, {}, factor.type};
  for (int label : order) {
    if (llvm::count(own, label) > 1)
      return std::nullopt;
    const int *place = llvm::find(own, label);
    bool has = place != own.end();
    aligned.dims.push_back(has ? factor.dims[place - own.begin()] : 1);
    aligned.strides.push_back(has ? factor.strides[place - own.begin()] : 0);
  }
  return aligned;
}

/// Three groups of dims, each as one: a view, or a copy whose bytes are added.
static Factor group(const Factor &factor, ArrayRef<SmallVector<int64_t>> groups,
                    int64_t &bytes) {
  Factor grouped{{}, {}, factor.type};
  bool isView = true;
  for (ArrayRef<int64_t> dims : groups) {
    SmallVector<int64_t> extents, strides;
    int64_t count = 1, stride = 0;
    for (int64_t dim : dims) {
      extents.push_back(factor.dims[dim]);
      strides.push_back(factor.strides[dim]);
      count *= extents.back();
      if (extents.back() != 1)
        stride = strides.back();
    }
    isView &= isOneDim(extents, strides);
    grouped.dims.push_back(count);
    grouped.strides.push_back(stride);
  }
  // An extent of one has the stride that a view gives it.
  for (int64_t dim = 2; dim >= 0; --dim)
    if (grouped.dims[dim] == 1)
      grouped.strides[dim] =
          dim == 2 ? 1 : grouped.dims[dim + 1] * grouped.strides[dim + 1];
  if (isView || grouped.numBytes() == 0)
    return grouped;
  grouped.strides = {grouped.dims[1] * grouped.dims[2], grouped.dims[2], 1};
  bytes += grouped.numBytes();
  return grouped;
}

/// A batched product of both, permuted: [both, left, sums] x [both, sums,
/// right], exchanged where the result then is in order.
static void describePair(WorkspaceRule &rule, Factor left, Factor right,
                         size_t resultRank) {
  SmallVector<int64_t> both, onlyLeft, onlyRight, sums;
  for (size_t dim = 0; dim < left.dims.size(); ++dim) {
    bool isLeft = left.dims[dim] > 1, isRight = right.dims[dim] > 1;
    if (dim >= resultRank && isLeft != isRight)
      return rule.setInexact("einsum sums an operand before the product");
    if (dim >= resultRank) {
      if (isLeft)
        sums.push_back(dim);
    } else
      (isLeft && isRight ? both : isLeft ? onlyLeft : onlyRight).push_back(dim);
  }
  // Without sums, an elementwise product.
  if (sums.empty())
    return;
  if (!onlyLeft.empty() && !onlyRight.empty() &&
      onlyRight.back() < onlyLeft.front()) {
    std::swap(left, right);
    std::swap(onlyLeft, onlyRight);
  }
  int64_t bytes = 0;
  Factor lhs = group(left, {both, onlyLeft, sums}, bytes);
  Factor rhs = group(right, {both, sums, onlyRight}, bytes);
  rule.setTransient(bytes + getBmmBytes(lhs, rhs));
}

/// The labels of the result, then those that are summed, in their order.
static SmallVector<int> getOrder(const Labels &labels) {
  SmallVector<int> order(labels.result), summed;
  for (ArrayRef<int> own : labels.factors)
    for (int label : own)
      if (!llvm::is_contained(order, label) &&
          !llvm::is_contained(summed, label))
        summed.push_back(label);
  llvm::sort(summed);
  order.append(summed);
  return order;
}

void rules::describeEinsumWorkspace(WorkspaceRule &rule) {
  auto op = cast<EinsumOp>(rule.getOp());
  if (op.getTensors().size() != 2)
    return rule.setInexact("einsum of one tensor or of more than two");
  auto lhs = getFactor(rule, op.getTensors()[0]);
  auto rhs = getFactor(rule, op.getTensors()[1]);
  if (!checkFactors(rule, lhs, rhs))
    return;
  std::string error;
  auto labels = parseEquation(op.getEquation(),
                              {lhs->getRank(), rhs->getRank()}, error);
  if (!labels)
    return rule.setInexact("the equation of einsum is not understood");
  SmallVector<int> order = getOrder(*labels);
  auto left = align(*lhs, labels->factors[0], order);
  auto right = align(*rhs, labels->factors[1], order);
  if (!left || !right)
    return rule.setInexact("einsum takes a diagonal");
  describePair(rule, *left, *right, labels->result.size());
}
