//===- Einsum.cpp - What einsum holds inside ------------------------------===//
//
// Sources: einsum and sumproduct_pair in native/Linear.cpp.
//
//===----------------------------------------------------------------------===//

#include "../ATenCPU/GemmOperandCopies.h"
#include "../BackwardRules.h"
#include "../WorkspaceRules.h"
#include "Backward/AutogradReplay.h"
#include "Backward/BackwardReplay.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using namespace koila::blas;
using kernels::MadeTensor;
using rules::Labels;

namespace {
/// The product of two operands: what it copies, the factors of three dims that
/// it multiplies, none where it is elementwise, and what comes of it.
struct PairProduct {
  MatmulCopies copies;
  /// Of the operands as they are multiplied: copies in rows, or casts.
  int64_t leftCopy = 0, rightCopy = 0;
  /// Whether the operand on the right is the first factor.
  bool isSwapped = false;
  Factor left, right;
  Factor result;
};
} // namespace

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

namespace {
/// Dims that are not summed, by the factors that have them.
struct Groups {
  SmallVector<int64_t> both, onlyLeft, onlyRight;
  /// Whether the factors are exchanged, and so are these.
  bool isSwapped = false;
};
} // namespace

static Groups getGroups(const Factor &left, const Factor &right,
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

namespace {
/// The operands, with dims in one order: those of the result, then the summed.
struct Operands {
  SmallVector<Factor> factors;
  int64_t resultRank = 0;
};
} // namespace

/// None where a step is not known, and then the rule says so.
static std::optional<Operands> readOperands(WorkspaceRule &rule) {
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

namespace {
/// What is summed of the product of two operands: the dims of which no operand
/// is left. What only one of both has is summed before, into a new tensor.
struct Sums {
  SmallVector<int64_t> dims;
  int64_t left = 0, right = 0;
};
} // namespace

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

namespace {
/// One product of a chain.
struct Step {
  Factor left, right;
  Sums sums;
  PairProduct product;
  bool isLeftTrained = false, isRightTrained = false;
  /// What autograd keeps in the place of operands, for the gradient of the
  /// other factor.
  AllocationTrace::Block keptLeft = {}, keptRight = {};
};
} // namespace

/// From the left to the right, two operands at a time. None where a step is not
/// known, and then the rule says so.
static std::optional<std::vector<Step>> getSteps(WorkspaceRule &rule,
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

/// The products, the last of which is left, and what autograd keeps of them.
static void writeChain(AllocationTrace &trace, WorkspaceRule &rule,
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

namespace {
/// What a product has saved: an operand, if no block is in its place.
struct SavedFactor {
  AllocationTrace::Block block;
  unsigned operand;
};
} // namespace

/// In the order in which they go: bmm and mul let the second factor go first.
static SmallVector<SavedFactor, 2> listSaved(const Step &step, unsigned index) {
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

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

namespace {
/// The gradients of a chain of products, the last one first.
class ChainBackward {
public:
  ChainBackward(BackwardRule &rule, const Labels &labels)
      : rule(rule), steps(rule), labels(labels), order(getOrder(labels)) {}

  void run();

private:
  /// The product of `lhs` and `rhs`, whose dims are `groups`, as a gradient of
  /// `like`.
  MadeTensor multiply(Factor lhs, Factor rhs, bool isLeft,
                      ArrayRef<SmallVector<int64_t>> groups,
                      const Factor &like);
  void give(unsigned operand, const MadeTensor &made);
  bool runStep(const Step &step, unsigned index);
  /// The gradient that arrived goes, and `block` is there in its place.
  void replaceArrived(AllocationTrace::Block block);
  void freeSaved(const SavedFactor &factor);

  BackwardRule &rule;
  kernels::BackwardReplay steps;
  const Labels &labels;
  SmallVector<int> order;
  /// Whether an operand has a dim of one element.
  bool hasOnes = false;
  /// The products, and what is kept of them.
  AllocationTrace forward;
  SmallVector<AllocationTrace::Block> kept;
  /// The operands that are saved, from the one that goes last.
  SmallVector<unsigned> saved;
  /// The gradient that arrives, and what is freed when it goes.
  MadeTensor arrived;
  int64_t releasable = 0;
};
} // namespace

void ChainBackward::replaceArrived(AllocationTrace::Block block) {
  steps.AllocationTrace::free(arrived.block);
  steps.freeOutside(std::exchange(releasable, 0));
  arrived.block = block;
}

void ChainBackward::freeSaved(const SavedFactor &factor) {
  if (!factor.block.isEmpty())
    return blas::freeKept(rule, steps, forward, kept, factor.block);
  saved.pop_back();
  rule.freeSaved(steps, factor.operand, saved);
}

MadeTensor ChainBackward::multiply(Factor lhs, Factor rhs, bool isLeft,
                                   ArrayRef<SmallVector<int64_t>> groups,
                                   const Factor &like) {
  MadeTensor made = steps.allocate({like.dims, like.type});
  auto resolved = steps.AllocationTrace::allocate(
      kernels::resolveConjugate(rule, isLeft ? lhs : rhs));
  allocateBmm(steps, rule, lhs, rhs);
  steps.AllocationTrace::free(resolved);
  SmallVector<int64_t> strides(like.dims.size(), 1);
  int64_t stride = 1;
  for (ArrayRef<int64_t> group : llvm::reverse(groups))
    for (int64_t dim : llvm::reverse(group)) {
      strides[dim] = stride;
      stride *= like.dims[dim];
    }
  return {kernels::withStrides(made, strides), made.block};
}

void ChainBackward::give(unsigned operand, const MadeTensor &made) {
  SmallVector<int64_t> strides;
  ConcreteTensor self = steps.read(operand);
  auto all = made.getStrides();
  for (auto [label, extent] :
       llvm::zip_equal(labels.factors[operand], self.dims)) {
    auto place = llvm::find(order, label) - order.begin();
    // The gradient of a sum is expanded.
    strides.push_back(made.dims[place] == extent ? (*all)[place] : 0);
  }
  rule.setNew(operand, kernels::withStrides(std::move(self), strides),
              /*isViewed=*/true, made.numBytes(), made.block);
}

/// Whether there is a step before it that wants a gradient.
bool ChainBackward::runStep(const Step &step, unsigned index) {
  auto fail = [&] {
    koila::detail::describeUnknownBackward(rule);
    return false;
  };
  auto seen = arrived.getStrides();
  ArrayRef<int64_t> sums = step.sums.dims;
  // Where operands have dims of one element, rows and columns of one have the
  // strides that a view makes of theirs, and those decide what is copied.
  auto isNarrow = [](const Factor &factor) {
    return llvm::is_contained(ArrayRef(factor.dims).drop_front(), 1);
  };
  if (sums.empty() || !seen ||
      (hasOnes &&
       (isNarrow(step.product.left) || isNarrow(step.product.right))))
    return fail();
  Groups groups = getGroups(step.left, step.right, sums);
  const Factor &left = groups.isSwapped ? step.right : step.left;
  const Factor &right = groups.isSwapped ? step.left : step.right;
  ConcreteTensor permuted{{}, arrived.elementType};
  SmallVector<int64_t> moved, flat;
  for (ArrayRef<int64_t> group :
       {ArrayRef(groups.both), ArrayRef(groups.onlyLeft),
        ArrayRef(groups.onlyRight)}) {
    flat.push_back(1);
    for (int64_t dim : group) {
      permuted.dims.push_back(arrived.dims[dim]);
      moved.push_back((*seen)[dim]);
      flat.back() *= arrived.dims[dim];
    }
  }
  bool isCopied = false;
  AllocationTrace::Block copy(steps.getNumBlocks());
  ConcreteTensor folded =
      steps.reshape(kernels::withStrides(permuted, moved), flat, isCopied);
  auto strides = folded.getStrides();
  if (!strides)
    return fail();
  // The fold has a node of its own, which what arrived ends with.
  if (isCopied)
    replaceArrived(copy);
  Factor gradient{flat, *strides, arrived.elementType};
  bool wantsLeft = groups.isSwapped ? step.isRightTrained : step.isLeftTrained;
  bool wantsRight = groups.isSwapped ? step.isLeftTrained : step.isRightTrained;
  std::optional<MadeTensor> ofLeft, ofRight;
  if (wantsRight)
    ofRight = multiply(
        blas::transpose(step.product.left), gradient,
        /*isLeft=*/true,
        {groups.both, SmallVector<int64_t>(sums), groups.onlyRight}, right);
  if (wantsLeft)
    ofLeft = multiply(
        gradient, blas::transpose(step.product.right),
        /*isLeft=*/false,
        {groups.both, groups.onlyLeft, SmallVector<int64_t>(sums)}, left);
  if (groups.isSwapped)
    std::swap(ofLeft, ofRight);
  replaceArrived({});
  for (const SavedFactor &factor : listSaved(step, index))
    freeSaved(factor);
  if (ofRight)
    give(index + 1, *ofRight);
  if (ofLeft && index == 0)
    give(0, *ofLeft);
  if (!ofLeft)
    return false;
  arrived = *ofLeft;
  return true;
}

void ChainBackward::run() {
  auto operands = readOperands(rule);
  auto chain = operands ? getSteps(rule, *operands) : std::nullopt;
  for (unsigned operand = 0; operand < labels.factors.size(); ++operand)
    hasOnes |= llvm::is_contained(steps.read(operand).dims, 1);
  arrived = {steps.getGradient(), {}};
  auto strides = arrived.getStrides();
  if (!chain || !strides)
    return koila::detail::describeUnknownBackward(rule);
  arrived.dims.resize(order.size(), 1);
  // What was summed comes back by a view, as dims of one element at the end.
  strides->resize(order.size(), strides->empty() ? 1 : strides->back());
  arrived = {kernels::withStrides(arrived, strides), {}};
  releasable = rule.getReleasableBytes();
  writeChain(forward, rule, *chain);
  for (auto [index, step] : llvm::enumerate(*chain))
    for (const SavedFactor &factor : llvm::reverse(listSaved(step, index))) {
      kept.push_back(factor.block);
      if (factor.block.isEmpty())
        saved.push_back(factor.operand);
    }
  // The operands are permuted before the products, the first one first.
  for (unsigned operand = labels.factors.size(); operand-- > 0;)
    rule.splitIntoOwnNode(operand);
  for (size_t index = chain->size(); index-- > 0;)
    if (!runStep((*chain)[index], index))
      break;
  steps.finish();
}

/// A view of the gradient, in the order of the operand; a dim that was summed
/// is repeated.
static void describeOneBackward(BackwardRule &rule, const Labels &labels) {
  ArrayRef<int> own = labels.factors.front();
  auto self = rule.tensor(rule.getOp()->getOperand(0));
  auto strides = rule.getGradient()->getStrides();
  if (!strides)
    return rule.setInexact("the strides of a gradient are unknown");
  SmallVector<int64_t> seen;
  for (int label : own) {
    const auto *place = llvm::find(labels.result, label);
    bool isSummed = place == labels.result.end();
    if (llvm::count(own, label) > 1)
      return koila::detail::describeUnknownBackward(rule);
    seen.push_back(isSummed ? 0 : (*strides)[place - labels.result.begin()]);
  }
  rule.setView(0, kernels::withStrides(*self, seen));
}

/// Whether each dim lies within the one before: what is computed of such
/// tensors is in rows.
static bool isInOrder(const ConcreteTensor &tensor) {
  auto strides = tensor.getStrides();
  if (!strides)
    return false;
  int64_t before = std::numeric_limits<int64_t>::max();
  for (auto [extent, stride] : llvm::zip_equal(tensor.dims, *strides)) {
    if (extent == 1)
      continue;
    if (stride > before || stride == 0)
      return false;
    before = stride;
  }
  return true;
}

/// Products of elements, from the left to the right: the operands are views
/// with a dim for each label.
static void describeElementsBackward(BackwardRule &rule, const Labels &labels) {
  SmallVector<int> order = getOrder(labels);
  kernels::AutogradReplay steps(rule, /*saved=*/nullptr, &rule);
  SmallVector<kernels::Term> factors;
  for (auto [operand, own] :
       llvm::zip_equal(rule.getOp()->getOperands(), labels.factors)) {
    kernels::Term read = steps.read(operand), seen = read;
    SmallVector<int64_t> places;
    for (int label : own)
      places.push_back(llvm::find(order, label) - order.begin());
    // The strides of a product of others are not followed here.
    if (!isInOrder(read) || !llvm::is_sorted(places, std::less_equal<>()))
      return koila::detail::describeUnknownBackward(rule);
    for (kernels::Term *term : {&read, &seen}) {
      term->contiguous = true;
      term->strides.reset();
    }
    seen.dims.assign(order.size(), 1);
    for (auto [place, extent] : llvm::zip_equal(places, read.dims))
      seen.dims[place] = extent;
    steps.record("view", read, seen);
    factors.push_back(std::move(seen));
  }
  kernels::Term product = factors.front();
  for (auto [index, factor] : llvm::enumerate(ArrayRef(factors).drop_front())) {
    kernels::Term next = steps.compute("mul.Tensor", {product, factor});
    if (index > 0)
      steps.free(product);
    product = next;
  }
  steps.finish(product);
}

void rules::describeEinsumBackward(BackwardRule &rule) {
  auto op = cast<EinsumOp>(rule.getOp());
  std::string error;
  SmallVector<int64_t, 2> ranks;
  for (Value tensor : op.getTensors()) {
    auto shape = rule.tensor(tensor);
    bool isComplex = shape && isa<ComplexType>(shape->elementType);
    if (!shape || !(isComplex || kernels::isPlain(shape->elementType)) ||
        shape->elementType != rule.getGradient()->elementType)
      return koila::detail::describeUnknownBackward(rule);
    ranks.push_back(shape->dims.size());
  }
  auto labels = rules::parseEquation(op.getEquation(), ranks, error);
  if (!labels || ranks.empty())
    return koila::detail::describeUnknownBackward(rule);
  if (ranks.size() == 1)
    return describeOneBackward(rule, *labels);
  bool isOfElements = getOrder(*labels).size() == labels->result.size();
  if (isOfElements && isa<ComplexType>(rule.getGradient()->elementType))
    return rule.setInexact("gradients that are complex numbers");
  if (isOfElements && !op.getPath())
    return describeElementsBackward(rule, *labels);
  ChainBackward(rule, *labels).run();
}
