//===- Einsum.cpp - What einsum holds inside ------------------------------===//
//
// Sources: einsum and sumproduct_pair in native/Linear.cpp.
//
//===----------------------------------------------------------------------===//

#include "../WorkspaceRules.h"
#include "EinsumSteps.h"
#include "TensorBytes.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using namespace koila::blas;
using namespace koila::einsum;
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

/// The elementwise product, of operands cast to one type.
static std::optional<PairProduct>
multiplyElements(WorkspaceRule &rule, const Factor &left, const Factor &right) {
  PairProduct product;
  auto result = rule.tensor(rule.getOp()->getResult(0));
  auto getCast = [&](const Factor &factor) -> int64_t {
    return result ? kernels::getCastBytes({factor.dims, factor.type},
                                          result->elementType)
                  : 0;
  };
  product.leftCopy = getCast(left);
  product.rightCopy = getCast(right);
  MLIRContext *context = rule.getOp()->getContext();
  auto toExprs = [&](ArrayRef<int64_t> numbers) {
    return llvm::map_to_vector(numbers, [&](int64_t number) {
      return DimExpr::constant(context, number);
    });
  };
  auto toInfo = [&](const Factor &factor) {
    return TensorInfo{toExprs(factor.dims), factor.type,
                      toExprs(factor.strides)};
  };
  product.result = {{}, {}, result ? result->elementType : left.type};
  for (auto [mine, other] : llvm::zip_equal(left.dims, right.dims))
    product.result.dims.push_back(mine == 1 ? other : mine);
  auto strides = computeElementwiseStrides({toInfo(left), toInfo(right)},
                                           toExprs(product.result.dims));
  if (!strides)
    return product;
  for (DimExpr stride : *strides)
    product.result.strides.push_back(stride.getConstant().value_or(0));
  return product;
}

Groups einsum::getGroups(const Factor &left, const Factor &right,
                         ArrayRef<int64_t> sums) {
  Groups groups;
  for (int64_t dim = 0; dim < left.getRank(); ++dim) {
    if (llvm::is_contained(sums, dim))
      continue;
    bool isLeft = left.dims[dim] != 1, isRight = right.dims[dim] != 1;
    (isLeft && isRight ? groups.both
     : isLeft          ? groups.onlyLeft
                       : groups.onlyRight)
        .push_back(dim);
  }
  if (!groups.onlyLeft.empty() && !groups.onlyRight.empty() &&
      groups.onlyRight.back() < groups.onlyLeft.front()) {
    std::swap(groups.onlyLeft, groups.onlyRight);
    groups.isSwapped = true;
  }
  return groups;
}

/// A batched product of both, permuted: [both, left, sums] x [both, sums,
/// right], exchanged where the result then is in order. Source:
/// sumproduct_pair.
static std::optional<PairProduct> multiply(WorkspaceRule &rule, Factor left,
                                           Factor right,
                                           const SmallVector<int64_t> &sums) {
  if (sums.empty())
    return multiplyElements(rule, left, right);
  Groups groups = getGroups(left, right, sums);
  auto &[both, onlyLeft, onlyRight, isSwapped] = groups;
  int64_t rank = left.getRank();
  PairProduct product;
  MatmulCopies &copies = product.copies;
  if (isSwapped)
    std::swap(left, right);
  product.left = group(left, {both, onlyLeft, sums}, copies.left);
  product.right = group(right, {both, sums, onlyRight}, copies.right);
  product.isSwapped = isSwapped;
  product.result = {SmallVector<int64_t>(rank, 1),
                    SmallVector<int64_t>(rank, 1), left.type};
  int64_t stride = 1;
  for (ArrayRef<int64_t> dims : {onlyRight, sums, onlyLeft, both})
    for (int64_t dim : llvm::reverse(dims)) {
      product.result.strides[dim] = stride;
      if (!llvm::is_contained(sums, dim))
        product.result.dims[dim] = std::max(left.dims[dim], right.dims[dim]);
      stride *= product.result.dims[dim];
    }
  if (isSwapped)
    std::swap(copies.left, copies.right);
  product.leftCopy = copies.left;
  product.rightCopy = copies.right;
  return product;
}

SmallVector<int> einsum::getOrder(const Labels &labels) {
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

std::optional<Operands> einsum::readOperands(WorkspaceRule &rule) {
  auto op = cast<EinsumOp>(rule.getOp());
  auto fail = [&](StringRef why) -> std::optional<Operands> {
    rule.setInexact(why);
    return std::nullopt;
  };
  SmallVector<Factor> factors;
  SmallVector<int64_t> ranks;
  for (Value tensor : op.getTensors()) {
    auto factor = getFactor(rule, tensor);
    if (!checkFactors(rule, factor, factor))
      return std::nullopt;
    ranks.push_back(factor->getRank());
    factors.push_back(std::move(*factor));
  }
  std::string error;
  auto labels = rules::parseEquation(op.getEquation(), ranks, error);
  if (!labels)
    return fail("the equation of einsum is not understood");
  SmallVector<int> order = getOrder(*labels);
  Operands operands;
  operands.resultRank = labels->result.size();
  for (auto [factor, own] : llvm::zip_equal(factors, labels->factors)) {
    auto aligned = align(factor, own, order);
    if (!aligned)
      return fail("einsum takes a diagonal");
    operands.factors.push_back(std::move(*aligned));
  }
  return operands;
}

/// The sum of `factor` over `dims`, which stay with an extent of one: its
/// bytes. None where it holds more.
static std::optional<int64_t> sumBefore(WorkspaceRule &rule, Factor &factor,
                                        ArrayRef<int64_t> dims) {
  if (dims.empty())
    return 0;
  ConcreteTensor before{factor.dims, factor.type};
  ConcreteTensor sum = before;
  for (int64_t dim : dims)
    sum.dims[dim] = 1;
  if (!kernels::isPlain(factor.type) ||
      kernels::getPartialBytes(rule, before, sum) > 0)
    return std::nullopt;
  factor.dims = sum.dims;
  factor.strides = *sum.getStrides();
  return sum.numBytes();
}

/// `left` and `right` are those that are multiplied afterwards. None where what
/// a sum holds is not known, and then the rule says so; `isMade` if `left` is
/// the product of others.
static std::optional<Sums> getSums(WorkspaceRule &rule, Factor &left,
                                   Factor &right, int64_t resultRank,
                                   MutableArrayRef<int64_t> counts,
                                   bool isMade = false) {
  Sums sums;
  SmallVector<int64_t> ofLeft, ofRight;
  for (int64_t dim = resultRank; dim < left.getRank(); ++dim) {
    bool isLeft = left.dims[dim] != 1, isRight = right.dims[dim] != 1;
    if (isLeft && isRight) {
      if (--counts[dim] == 1)
        sums.dims.push_back(dim);
    } else if (counts[dim] == 1 && (isLeft || isRight)) {
      (isLeft ? ofLeft : ofRight).push_back(dim);
      counts[dim] = 0;
    }
  }
  auto leftBytes = sumBefore(rule, left, ofLeft),
       rightBytes = sumBefore(rule, right, ofRight);
  // The product of others would be gone after its sum.
  if (!leftBytes || !rightBytes || (isMade && *leftBytes > 0)) {
    rule.setInexact("einsum sums an operand before the product");
    return std::nullopt;
  }
  sums.left = *leftBytes;
  sums.right = *rightBytes;
  return sums;
}

/// The product of what has been summed: autograd keeps a sum where it would
/// keep the operand.
static std::optional<PairProduct> multiply(WorkspaceRule &rule,
                                           const Factor &left,
                                           const Factor &right,
                                           const Sums &sums) {
  auto product = multiply(rule, left, right, sums.dims);
  if (!product)
    return std::nullopt;
  MatmulCopies &copies = product->copies;
  if (copies.left == 0)
    copies.left = sums.left;
  if (copies.right == 0)
    copies.right = sums.right;
  return product;
}

namespace {
/// What is read in the place of the operands, and the product.
struct PairBlocks {
  AllocationTrace::Block left, right, result;
};
} // namespace

/// Leaves the product, and what is kept of that which is read.
static PairBlocks allocatePair(AllocationTrace &trace, WorkspaceRule &rule,
                               const PairProduct &product, const Sums &sums,
                               bool keepsLeft = false,
                               bool keepsRight = false) {
  PairBlocks blocks;
  auto leftSum = trace.allocate(sums.left);
  auto rightSum = trace.allocate(sums.right);
  auto allocateCopy = [&](bool isLeft) {
    (isLeft ? blocks.left : blocks.right) =
        trace.allocate(isLeft ? product.leftCopy : product.rightCopy);
  };
  allocateCopy(/*isLeft=*/!product.isSwapped);
  allocateCopy(/*isLeft=*/product.isSwapped);
  blocks.result = trace.allocate(product.result.numBytes());
  if (!product.left.dims.empty())
    allocateBmm(trace, rule, product.left, product.right);
  auto copies = {product.isSwapped ? blocks.left : blocks.right,
                 product.isSwapped ? blocks.right : blocks.left};
  if (blocks.left.isEmpty())
    blocks.left = leftSum;
  if (blocks.right.isEmpty())
    blocks.right = rightSum;
  auto free = [&](AllocationTrace::Block block) {
    bool isKept = (keepsLeft && block == blocks.left) ||
                  (keepsRight && block == blocks.right);
    if (!isKept)
      trace.free(block);
  };
  llvm::for_each(copies, free);
  free(rightSum);
  free(leftSum);
  return blocks;
}

static SmallVector<int64_t> countOperands(ArrayRef<Factor> factors) {
  SmallVector<int64_t> counts(factors.front().dims.size(), 0);
  for (const Factor &factor : factors)
    for (auto [dim, extent] : llvm::enumerate(factor.dims))
      counts[dim] += extent > 1;
  return counts;
}

/// Whether the operands have elements, all of one type.
static bool isUniform(const Operands &operands) {
  return llvm::all_of(operands.factors, [&](const Factor &factor) {
    return factor.type == operands.factors.front().type &&
           factor.numBytes() > 0;
  });
}

std::optional<std::vector<Step>> einsum::getSteps(WorkspaceRule &rule,
                                                  const Operands &operands) {
  ArrayRef<Factor> factors = operands.factors;
  auto op = cast<EinsumOp>(rule.getOp());
  auto fail = [&](StringRef why) -> std::optional<std::vector<Step>> {
    rule.setInexact(why);
    return std::nullopt;
  };
  if (op.getPath() && factors.size() > 2)
    return fail("einsum of more than two tensors along a path");
  if (!isUniform(operands))
    return fail("einsum of several element types or of nothing");
  SmallVector<int64_t> counts = countOperands(factors);
  std::vector<Step> steps;
  Factor left = factors.front();
  bool isLeftTrained = rule.wantsGradient(op.getTensors().front());
  for (auto [index, factor] : llvm::enumerate(factors.drop_front())) {
    Factor right = factor;
    auto sums = getSums(rule, left, right, operands.resultRank, counts,
                        /*isMade=*/index > 0);
    auto product = sums ? multiply(rule, left, right, *sums) : std::nullopt;
    if (!product)
      return std::nullopt;
    if (index + 2 < factors.size() &&
        product->result.strides.size() != product->result.dims.size())
      return fail("the strides of a factor are unknown");
    Step step{left, right, *sums, *product, isLeftTrained};
    step.isRightTrained = rule.wantsGradient(op.getTensors()[index + 1]);
    isLeftTrained |= step.isRightTrained;
    left = product->result;
    steps.push_back(std::move(step));
  }
  return steps;
}

void einsum::writeChain(AllocationTrace &trace, WorkspaceRule &rule,
                        MutableArrayRef<Step> steps) {
  AllocationTrace::Block before;
  for (Step &step : steps) {
    PairBlocks made = allocatePair(trace, rule, step.product, step.sums,
                                   /*keepsLeft=*/step.isRightTrained,
                                   /*keepsRight=*/step.isLeftTrained);
    bool keepsBefore = step.isRightTrained && made.left.isEmpty();
    if (step.isRightTrained)
      step.keptLeft = keepsBefore ? before : made.left;
    if (step.isLeftTrained)
      step.keptRight = made.right;
    if (!keepsBefore)
      trace.free(before);
    before = made.result;
  }
}

SmallVector<SavedFactor, 2> einsum::listSaved(const Step &step,
                                              unsigned index) {
  SmallVector<SavedFactor, 2> saved;
  if (step.isLeftTrained)
    saved.push_back({step.keptRight, index + 1});
  if (step.isRightTrained)
    saved.push_back({step.keptLeft, 0});
  if (step.product.isSwapped)
    std::reverse(saved.begin(), saved.end());
  return saved;
}

/// Autograd keeps what each product reads of the other factor; `saved`, if
/// there, is told.
static void describeChain(WorkspaceRule &rule, const Operands &operands,
                          SavedRule *saved = nullptr) {
  auto op = cast<EinsumOp>(rule.getOp());
  auto steps = getSteps(rule, operands);
  if (!steps)
    return;
  AllocationTrace trace;
  writeChain(trace, rule, *steps);
  rule.setTrace(trace, steps->back().product.result.numBytes());
  if (!saved)
    return;
  SmallVector<AllocationTrace::Block> kept;
  for (auto [index, step] : llvm::enumerate(*steps))
    for (const SavedFactor &factor : listSaved(step, index)) {
      kept.push_back(factor.block);
      if (factor.block.isEmpty())
        saved->save(op.getTensors()[factor.operand]);
    }
  blas::keepBlocks(*saved, trace, kept);
}

/// Of two tensors; what is summed before is told to `sums`. None where what the
/// product copies is not known.
static std::optional<PairProduct> getProduct(WorkspaceRule &rule,
                                             const Operands &operands,
                                             std::optional<Sums> &sums) {
  Factor left = operands.factors[0], right = operands.factors[1];
  SmallVector<int64_t> counts = countOperands(operands.factors);
  sums = getSums(rule, left, right, operands.resultRank, counts);
  return sums ? multiply(rule, left, right, *sums) : std::nullopt;
}

/// A view of one tensor, or its sum over what the result does not have.
static void describeOne(WorkspaceRule &rule, const Operands &operands) {
  const Factor &factor = operands.factors.front();
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result)
    return rule.setInexact("the shape of the result is unknown");
  if (factor.getRank() == operands.resultRank)
    return;
  if (factor.type != result->elementType)
    return rule.setInexact("a sum in another element type");
  AllocationTrace trace;
  trace.allocateTemporary(kernels::getPartialBytes(
      rule, ConcreteTensor{factor.dims, factor.type}, *result));
  rule.setTrace(std::move(trace));
}

void rules::describeEinsumWorkspace(WorkspaceRule &rule) {
  auto operands = readOperands(rule);
  if (!operands)
    return;
  if (operands->factors.size() == 1)
    return describeOne(rule, *operands);
  if (operands->factors.size() > 2 || isUniform(*operands))
    return describeChain(rule, *operands);
  std::optional<Sums> sums;
  auto product = getProduct(rule, *operands, sums);
  if (!product)
    return;
  AllocationTrace trace;
  allocatePair(trace, rule, *product, *sums);
  rule.setTrace(std::move(trace));
}

void rules::describeEinsumSaved(SavedRule &rule) {
  auto op = cast<EinsumOp>(rule.getOp());
  // Neither a view nor a sum reads anything.
  if (op.getTensors().size() == 1)
    return;
  auto operands = readOperands(rule);
  if (!operands)
    return;
  if (op.getTensors().size() > 2 || isUniform(*operands))
    return describeChain(rule, *operands, &rule);
  std::optional<Sums> sums;
  if (auto product = getProduct(rule, *operands, sums))
    blas::saveFactors(rule, op.getTensors()[0], product->copies);
}
