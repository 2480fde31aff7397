//===- ProductBackward.cpp - Gradients of products ------------------------===//
//
// Sources: mm_mat1_backward and mm_mat2_backward in FunctionsManual.cpp,
// native/Linear.cpp, native/LinearAlgebra.cpp.
//
//===----------------------------------------------------------------------===//

#include "../ATenCPU/GemmOperandCopies.h"
#include "../BackwardRules.h"
#include "BackwardFormulas.h"
#include "BackwardReplay.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using blas::Factor;

namespace {
/// A product of two operands. What multiplies them may be a copy of one, or a
/// view with other dims.
struct Product {
  BackwardRule &rule;
  BackwardReplay steps;
  Factor lhs, rhs;
  /// Whether the second factor is the transposed operand.
  bool isTransposed = false;

  Product(BackwardRule &rule, Factor lhs, Factor rhs)
      : rule(rule), steps(rule), lhs(std::move(lhs)), rhs(std::move(rhs)) {}

  /// The gradient in the dims that the kernel saw; a copy replaces it.
  Factor readGradient(ArrayRef<int64_t> dims);
  void give(unsigned operand, const Factor &like, bool isInColumns);
  /// mm and bmm compute the second gradient first, addmm the first.
  void runMm(unsigned first, unsigned second, bool isAdded);
  void runBmm(unsigned first, unsigned second, bool isAdded);
};
} // namespace

static Factor toFactor(const ConcreteTensor &tensor) {
  auto strides = tensor.getStrides();
  return {tensor.dims, strides.value_or(SmallVector<int64_t>()),
          tensor.elementType};
}

Factor Product::readGradient(ArrayRef<int64_t> dims) {
  bool isCopy = false;
  ConcreteTensor seen = steps.reshape(steps.getGradient(), dims, isCopy);
  if (!seen.getStrides())
    rule.setInexact("the strides of a gradient are unknown");
  if (isCopy)
    steps.AllocationTrace::free(rule.getReleasableBytes());
  return toFactor(seen);
}

/// The new gradient of an operand: of the dims of `like`, in rows or columns.
void Product::give(unsigned operand, const Factor &like, bool isInColumns) {
  ConcreteTensor self = steps.read(operand);
  ConcreteTensor made = steps.allocate({like.dims, like.type});
  if (isInColumns)
    made = withStrides(std::move(made), SmallVector<int64_t>{1, like.dims[0]});
  // Both have nodes of their own, which give views.
  bool isWeight = isTransposed && &like == &rhs;
  if (isWeight)
    made = transposeDims(made, 0, 1);
  bool isFolded =
           self.dims != made.dims && self.numElements() == made.numElements(),
       isCopy = false;
  if (isFolded)
    made = steps.reshape(made, self.dims, isCopy);
  steps.give(operand, made, isInColumns || isWeight || isFolded);
}

/// Of a matrix in columns the gradient is computed transposed.
static bool isInColumns(const Factor &factor) {
  return factor.strides[0] == 1 && factor.strides[1] == factor.dims[0];
}

void Product::runMm(unsigned first, unsigned second, bool isAdded) {
  Factor gradient = readGradient({lhs.dims[0], rhs.dims[1]});
  if (!rule.isExact())
    return;
  auto multiply = [&](const Factor &left, const Factor &right,
                      const Factor &made, unsigned operand, bool isInColumns) {
    steps.allocateTemporary(blas::getMmBytes(rule, left, right) +
                            made.numBytes());
    give(operand, made, isInColumns);
  };
  auto runFirst = [&] {
    if (!steps.wants(first))
      return;
    if (isInColumns(lhs))
      return multiply(rhs, blas::transpose(gradient), lhs, first, true);
    multiply(gradient, blas::transpose(rhs), lhs, first, false);
  };
  auto runSecond = [&] {
    if (!steps.wants(second))
      return;
    if (isInColumns(rhs))
      return multiply(blas::transpose(gradient), lhs, rhs, second, true);
    multiply(blas::transpose(lhs), gradient, rhs, second, false);
  };
  if (isAdded)
    runFirst();
  runSecond();
  if (!isAdded)
    runFirst();
}

void Product::runBmm(unsigned first, unsigned second, bool isAdded) {
  Factor gradient = readGradient({lhs.dims[0], lhs.dims[1], rhs.dims[2]});
  if (!rule.isExact())
    return;
  auto multiply = [&](const Factor &left, const Factor &right,
                      const Factor &made, unsigned operand) {
    if (!steps.wants(operand))
      return;
    steps.allocateTemporary(blas::getBmmBytes(rule, left, right) +
                            made.numBytes());
    give(operand, made, false);
  };
  if (isAdded)
    multiply(gradient, blas::transpose(rhs), lhs, first);
  multiply(blas::transpose(lhs), gradient, rhs, second);
  if (!isAdded)
    multiply(gradient, blas::transpose(rhs), lhs, first);
}

/// The left factor, of any rank, as one matrix. Copies are operations of their
/// own, which the forward pass keeps.
static Product makeMatrix(BackwardRule &rule, const Factor &lhs,
                          const Factor &rhs) {
  int64_t copied = 0;
  return Product(rule, blas::foldRows(lhs, copied), rhs);
}

/// Both as matrices of one batch.
static Product makeBatched(BackwardRule &rule, const Factor &lhs,
                           const Factor &rhs) {
  int64_t copied = 0;
  SmallVector<int64_t> leading = blas::getLeadingDims(lhs, rhs);
  return Product(rule, blas::flattenLeading(lhs, leading, copied),
                 blas::flattenLeading(rhs, leading, copied));
}

static void describeLinear(BackwardRule &rule, LinearOp op) {
  auto input = blas::getFactor(rule, op.getInput()),
       weight = blas::getFactor(rule, op.getWeight());
  if (!blas::checkFactors(rule, input, weight))
    return;
  auto bias = rule.tensor(op.getBias());
  if (input->getRank() < 2 || weight->getRank() != 2 ||
      (op.getBias() && (!bias || bias->dims.size() != 1)))
    return koila::detail::describeUnknownBackward(rule);
  auto self = rule.tensor(op.getInput());
  // With a bias, a matrix and what is contiguous go to addmm; else the bias is
  // added in place, and its gradient is made first.
  bool isJoined = input->getRank() == 2 || (self && self->contiguous);
  Factor transposed = blas::transpose(*weight);
  bool isBatched = input->getRank() > 2 && !(isJoined && op.getBias()) &&
                   !blas::isMatrixProduct(*input, transposed);
  Product product = isBatched ? makeBatched(rule, *input, transposed)
                              : makeMatrix(rule, *input, transposed);
  product.isTransposed = true;
  bool wantsBias = op.getBias() && product.steps.wants(2);
  // The transposition of the weight has a node of its own, and so has the fold
  // of the input: recorded before it for addmm, in matmul after it.
  rule.accumulateFirst(2);
  bool isFolded = input->getRank() > 2;
  if (isFolded && !(isJoined && op.getBias()))
    rule.splitIntoOwnNode(0);
  rule.splitIntoOwnNode(1);
  if (isFolded && isJoined && op.getBias())
    rule.splitIntoOwnNode(0);
  BackwardReplay &steps = product.steps;
  auto addBias = [&] {
    steps.give(2, steps.sum({{1, bias->dims.front()}, bias->elementType}, 0));
  };
  if (wantsBias && !isJoined) {
    addBias();
    if (rule.isAccumulated(2))
      steps.AllocationTrace::free(steps.read(2).numBytes());
  }
  if (isBatched)
    product.runBmm(0, 1, /*isAdded=*/false);
  else
    product.runMm(0, 1, isJoined && op.getBias());
  if (wantsBias && isJoined)
    addBias();
  steps.finish();
}

static void describePair(BackwardRule &rule, unsigned first, unsigned second) {
  Operation *op = rule.getOp();
  auto lhs = blas::getFactor(rule, op->getOperand(first)),
       rhs = blas::getFactor(rule, op->getOperand(second));
  if (!blas::checkFactors(rule, lhs, rhs))
    return;
  int64_t left = lhs->getRank(), right = rhs->getRank();
  if (left < 2 || right < 2 || (left == 2 && right > 2))
    return koila::detail::describeUnknownBackward(rule);
  if (right == 2 && (left == 2 || blas::isMatrixProduct(*lhs, *rhs))) {
    Product product = makeMatrix(rule, *lhs, *rhs);
    // The fold has a node of its own.
    if (left > 2)
      rule.splitIntoOwnNode(first);
    product.runMm(first, second, /*isAdded=*/false);
    return product.steps.finish();
  }
  SmallVector<int64_t> leading = blas::getLeadingDims(*lhs, *rhs);
  // Those of bmm are read as they are.
  Product product = isa<BmmOp>(op) ? Product(rule, *lhs, *rhs)
                                   : makeBatched(rule, *lhs, *rhs);
  // What was repeated is summed afterwards.
  auto isRepeated = [&](const Factor &factor) {
    return ArrayRef(factor.dims).drop_back(2) != ArrayRef(leading);
  };
  if ((isRepeated(*lhs) && product.steps.wants(first)) ||
      (isRepeated(*rhs) && product.steps.wants(second)))
    return rule.setInexact("the gradient of a product that broadcasts");
  // matmul expands and folds both, the second one later.
  if (!isa<BmmOp>(op)) {
    rule.splitIntoOwnNode(second);
    rule.splitIntoOwnNode(first);
  }
  product.runBmm(first, second, /*isAdded=*/false);
  product.steps.finish();
}

/// What is added gets the gradient itself.
static void describeSum(BackwardRule &rule, bool isBatched) {
  Operation *op = rule.getOp();
  auto lhs = blas::getFactor(rule, op->getOperand(1)),
       rhs = blas::getFactor(rule, op->getOperand(2));
  auto isOne = [&](StringRef name) {
    Attribute attr = op->getAttr(name);
    auto number = dyn_cast_or_null<IntegerAttr>(attr);
    return number && number.getInt() == 1;
  };
  if (!blas::checkFactors(rule, lhs, rhs) || !isOne("beta") || !isOne("alpha"))
    return koila::detail::describeUnknownBackward(rule);
  Product product(rule, *lhs, *rhs);
  if (isBatched)
    product.runBmm(1, 2, /*isAdded=*/true);
  else
    product.runMm(1, 2, /*isAdded=*/true);
  if (product.steps.wants(0))
    rule.forwardGrad(0);
  product.steps.finish();
}

void rules::describeProductBackward(BackwardRule &rule) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<LinearOp>([&](LinearOp op) { describeLinear(rule, op); })
      .Case<MmOp, MatmulOp, LinalgMatmulOp, BmmOp>(
          [&](auto) { describePair(rule, 0, 1); })
      .Case<AddmmOp>([&](auto) { describeSum(rule, /*isBatched=*/false); })
      .Case<BaddbmmOp>([&](auto) { describeSum(rule, /*isBatched=*/true); })
      .Case<EinsumOp>([&](auto) { describeEinsumBackward(rule); })
      .Default(
          [&](Operation *) { koila::detail::describeUnknownBackward(rule); });
}
