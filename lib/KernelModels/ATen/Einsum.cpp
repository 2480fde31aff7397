//===- Einsum.cpp - What einsum holds inside ------------------------------===//
//
// Sources: einsum and sumproduct_pair in native/Linear.cpp.
//
//===----------------------------------------------------------------------===//

#include "../ATenCPU/GemmOperandCopies.h"
#include "../WorkspaceRules.h"
#include "AllocationTrace.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"

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
static std::optional<MatmulCopies> getCopies(WorkspaceRule &rule, Factor left,
                                             Factor right, size_t resultRank) {
  SmallVector<int64_t> both, onlyLeft, onlyRight, sums;
  for (size_t dim = 0; dim < left.dims.size(); ++dim) {
    bool isLeft = left.dims[dim] > 1, isRight = right.dims[dim] > 1;
    if (dim >= resultRank && isLeft != isRight) {
      rule.setInexact("einsum sums an operand before the product");
      return std::nullopt;
    }
    if (dim >= resultRank) {
      if (isLeft)
        sums.push_back(dim);
    } else
      (isLeft && isRight ? both : isLeft ? onlyLeft : onlyRight).push_back(dim);
  }
  // Without sums, an elementwise product, of operands cast to one type.
  MatmulCopies copies;
  if (sums.empty()) {
    auto result = rule.tensor(rule.getOp()->getResult(0));
    for (const Factor &factor : {left, right})
      if (result)
        copies.bytes += kernels::getCastBytes(
            ConcreteTensor{factor.dims, factor.type}, result->elementType);
    return copies;
  }
  bool isSwapped = false;
  if (!onlyLeft.empty() && !onlyRight.empty() &&
      onlyRight.back() < onlyLeft.front()) {
    std::swap(left, right);
    std::swap(onlyLeft, onlyRight);
    isSwapped = true;
  }
  Factor lhs = group(left, {both, onlyLeft, sums}, copies.left);
  Factor rhs = group(right, {both, sums, onlyRight}, copies.right);
  copies.bytes = copies.left + copies.right + getBmmBytes(rule, lhs, rhs);
  if (isSwapped)
    std::swap(copies.left, copies.right);
  return copies;
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

/// What the product of two tensors copies; none where that is not known.
static std::optional<MatmulCopies> getCopies(WorkspaceRule &rule) {
  auto op = cast<EinsumOp>(rule.getOp());
  auto fail = [&](StringRef why) -> std::optional<MatmulCopies> {
    rule.setInexact(why);
    return std::nullopt;
  };
  if (op.getTensors().size() != 2)
    return fail("einsum of one tensor or of more than two");
  auto lhs = getFactor(rule, op.getTensors()[0]);
  auto rhs = getFactor(rule, op.getTensors()[1]);
  if (!checkFactors(rule, lhs, rhs))
    return std::nullopt;
  std::string error;
  auto labels = rules::parseEquation(op.getEquation(),
                                     {lhs->getRank(), rhs->getRank()}, error);
  if (!labels)
    return fail("the equation of einsum is not understood");
  SmallVector<int> order = getOrder(*labels);
  auto left = align(*lhs, labels->factors[0], order);
  auto right = align(*rhs, labels->factors[1], order);
  if (!left || !right)
    return fail("einsum takes a diagonal");
  return getCopies(rule, *left, *right, labels->result.size());
}

void rules::describeEinsumWorkspace(WorkspaceRule &rule) {
  if (auto copies = getCopies(rule))
    rule.setTransient(copies->bytes);
}

void rules::describeEinsumSaved(SavedRule &rule) {
  auto op = cast<EinsumOp>(rule.getOp());
  if (auto copies = getCopies(rule))
    blas::saveFactors(rule, op.getTensors()[0], *copies);
}
