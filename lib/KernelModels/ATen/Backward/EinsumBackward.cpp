//===- EinsumBackward.cpp - Gradients of einsum ---------------------------===//
//
// Sources: native/Linear.cpp; bmm and mul in derivatives.yaml.
//
//===----------------------------------------------------------------------===//

#include "../../BackwardRules.h"
#include "../EinsumSteps.h"
#include "AutogradReplay.h"
#include "BackwardReplay.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include <limits>

using namespace mlir;
using namespace koila;
using namespace koila::blas;
using namespace koila::einsum;
using kernels::MadeTensor;
using rules::Labels;

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
