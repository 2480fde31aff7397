//===- ProductBackward.cpp - Gradients of products ------------------------===//
//
// Sources: mm_mat1_backward and mm_mat2_backward in FunctionsManual.cpp,
// native/Linear.cpp, native/LinearAlgebra.cpp.
//
//===----------------------------------------------------------------------===//

#include "../../ATenCPU/GemmOperandCopies.h"
#include "../../BackwardRules.h"
#include "BackwardModels.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"

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
  /// Whether both factors are the transposed other operand: the result is
  /// transposed.
  bool isExchanged = false;
  /// Whether operands are reshaped to factors, and so are their gradients.
  bool isReshaped = false;
  /// The second factor, where it is a copy, which goes before the first one.
  int64_t copiedBytes = 0;
  /// The dims to which both are repeated.
  SmallVector<int64_t> leading;
  /// What multiplies both gradients.
  OpReplay::Number alpha = OpReplay::Number::None;

  Product(BackwardRule &rule, Factor lhs, Factor rhs)
      : rule(rule), steps(rule), lhs(std::move(lhs)), rhs(std::move(rhs)) {}

  /// The gradient in the dims that the kernel saw; a copy replaces it.
  Factor readGradient(ArrayRef<int64_t> dims);
  /// What `run` holds beside it comes after the new tensor.
  void give(unsigned operand, const Factor &like, bool isInColumns,
            llvm::function_ref<void()> run);
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
  ConcreteTensor arrived = steps.getGradient();
  if (isExchanged)
    arrived = transposeDims(arrived, -1, -2);
  ConcreteTensor seen = steps.reshape(arrived, dims, isCopy);
  if (!seen.getStrides())
    rule.setInexact("the strides of a gradient are unknown");
  if (isCopy)
    steps.freeOutside(rule.getReleasableBytes());
  return toFactor(seen);
}

/// The new gradient of an operand: of the dims of `like`, in rows or columns.
void Product::give(unsigned operand, const Factor &like, bool isInColumns,
                   llvm::function_ref<void()> run) {
  ConcreteTensor self = steps.read(operand);
  MadeTensor product = steps.allocate({like.dims, like.type});
  run();
  ConcreteTensor made = product;
  AllocationTrace::Block block = product.block;
  bool isScaled = alpha != OpReplay::Number::None;
  if (isScaled) {
    block = steps.compute(made, alpha).block;
    steps.free(product);
  }
  if (isInColumns)
    made = withStrides(std::move(made), SmallVector<int64_t>{1, like.dims[0]});
  // Both have nodes of their own, which give views.
  bool isWeight = (isTransposed || isExchanged) && &like == &rhs;
  if (isWeight)
    made = transposeDims(made, 0, 1);
  bool isRows = isExchanged && !isWeight, isCopy = false;
  if (isRows)
    self = transposeDims(self, -1, -2);
  // What was repeated is summed afterwards, also over new dims of one.
  SmallVector<int64_t> dims = self.dims;
  if (self.dims.size() < leading.size() + 2 ||
      self.numElements() != made.numElements()) {
    dims = leading;
    dims.append(made.dims.end() - 2, made.dims.end());
  }
  bool isFolded = isReshaped || dims != made.dims;
  if (dims != made.dims)
    made = steps.reshape(made, dims, isCopy);
  if (isCopy)
    block = {};
  if (isRows)
    made = transposeDims(made, -1, -2);
  steps.give(operand, MadeTensor(made, block),
             (isInColumns && !isScaled) || isWeight || isFolded || isRows);
}

/// Of a matrix in columns the gradient is computed transposed.
static bool isInColumns(const Factor &factor) {
  return factor.strides[0] == 1 && factor.strides[1] == factor.dims[0];
}

/// mm reads a conjugated factor as it is where BLAS transposes it; else it is
/// copied. Source: addmm_impl_cpu_.
static int64_t getResolvedBytes(const Factor &factor, int64_t columns) {
  if (!isa<ComplexType>(factor.type))
    return 0;
  // BLAS takes columns: a result in rows is transposed.
  unsigned fast = columns == 1 ? 0 : 1;
  bool isPlain =
      factor.strides[fast] == 1 &&
      factor.strides[1 - fast] >= std::max<int64_t>(1, factor.dims[fast]);
  return isPlain ? factor.numBytes() : 0;
}

void Product::runMm(unsigned first, unsigned second, bool isAdded) {
  Factor gradient = readGradient({lhs.dims[0], rhs.dims[1]});
  if (!rule.isExact())
    return;
  // The factor that is not the gradient is conjugated.
  auto multiply = [&](const Factor &left, const Factor &right, bool isLeft,
                      const Factor &made, unsigned operand, bool isInColumns) {
    int64_t resolved = getResolvedBytes(isLeft ? left : right, right.dims[1]);
    give(operand, made, isInColumns, [&] {
      if (resolved > 0)
        steps.lump(blas::getMmBytes(rule, left, right) + resolved);
      else
        blas::allocateMm(steps, rule, left, right);
    });
  };
  auto runFirst = [&] {
    if (!steps.wants(first))
      return;
    if (isInColumns(lhs))
      return multiply(rhs, blas::transpose(gradient), true, lhs, first, true);
    multiply(gradient, blas::transpose(rhs), false, lhs, first, false);
  };
  auto runSecond = [&] {
    if (!steps.wants(second))
      return;
    if (isInColumns(rhs))
      return multiply(blas::transpose(gradient), lhs, false, rhs, second, true);
    multiply(blas::transpose(lhs), gradient, true, rhs, second, false);
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
  auto multiply = [&](Factor left, Factor right, bool isLeft,
                      const Factor &made, unsigned operand) {
    if (!steps.wants(operand))
      return;
    int64_t resolved = resolveConjugate(rule, isLeft ? left : right);
    give(operand, made, false, [&] {
      auto copy = steps.AllocationTrace::allocate(resolved);
      blas::allocateBmm(steps, rule, left, right);
      steps.AllocationTrace::free(copy);
    });
  };
  if (isAdded)
    multiply(gradient, blas::transpose(rhs), false, lhs, first);
  multiply(blas::transpose(lhs), gradient, true, rhs, second);
  if (!isAdded)
    multiply(gradient, blas::transpose(rhs), false, lhs, first);
  if (copiedBytes > 0) {
    steps.freeOutside(rule.getReleasableBytes());
    steps.freeOutside(copiedBytes);
  }
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
  int64_t left = 0, right = 0;
  SmallVector<int64_t> leading = blas::getLeadingDims(lhs, rhs);
  Product product(rule, blas::flattenLeading(lhs, leading, left),
                  blas::flattenLeading(rhs, leading, right));
  product.isReshaped = true;
  product.copiedBytes = right;
  return product;
}

static void describeLinear(BackwardRule &rule) {
  auto op = cast<LinearOp>(rule.getOp());
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
    // On the CPU one thread adds up each number.
    int64_t rows = readsAnyType(rule) ? input->numRows() : 1;
    steps.give(2,
               steps.sum({{rows, bias->dims.front()}, bias->elementType}, 0));
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

/// What maybe_multiply multiplies a gradient by; nothing for the number one.
/// None where it is computed.
static std::optional<OpReplay::Number> getFactorNumber(Operation *op,
                                                       StringRef name) {
  Attribute attr = op->getAttr(name);
  if (auto number = dyn_cast_or_null<IntegerAttr>(attr))
    return number.getInt() == 1 ? OpReplay::Number::None
                                : OpReplay::Number::Integer;
  if (auto number = dyn_cast_or_null<FloatAttr>(attr))
    return number.getValueAsDouble() == 1 ? OpReplay::Number::None
                                          : OpReplay::Number::Float;
  return std::nullopt;
}

/// What is added gets the gradient itself, or times beta.
static void giveAdded(BackwardRule &rule, BackwardReplay &steps,
                      OpReplay::Number beta) {
  if (!steps.wants(0))
    return;
  if (beta == OpReplay::Number::None)
    return rule.forwardGrad(0);
  steps.give(0, steps.compute(steps.getGradient(), beta));
}

namespace {
/// beta * self + alpha * (lhs @ rhs).
struct AddedProduct {
  Factor lhs, rhs;
  OpReplay::Number beta, alpha;
};
} // namespace

/// None, and the rule says that it is unknown, if a factor or number is.
static std::optional<AddedProduct> readAddedProduct(BackwardRule &rule) {
  Operation *op = rule.getOp();
  auto lhs = blas::getFactor(rule, op->getOperand(1)),
       rhs = blas::getFactor(rule, op->getOperand(2));
  auto beta = getFactorNumber(op, "beta"), alpha = getFactorNumber(op, "alpha");
  if (blas::checkFactors(rule, lhs, rhs) && beta && alpha)
    return AddedProduct{*lhs, *rhs, *beta, *alpha};
  koila::detail::describeUnknownBackward(rule);
  return std::nullopt;
}

static void describeSum(BackwardRule &rule, bool isBatched) {
  std::optional<AddedProduct> sum = readAddedProduct(rule);
  if (!sum)
    return;
  Product product(rule, sum->lhs, sum->rhs);
  product.alpha = sum->alpha;
  if (isBatched)
    product.runBmm(1, 2, /*isAdded=*/true);
  else
    product.runMm(1, 2, /*isAdded=*/true);
  giveAdded(rule, product.steps, sum->beta);
  product.steps.finish();
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

/// A column of `vector`, by Tensor::reshape.
static ConcreteTensor makeColumn(BackwardReplay &steps,
                                 const ConcreteTensor &vector) {
  bool isCopy = false;
  return steps.reshape(vector, {vector.dims.front(), 1}, isCopy);
}

/// A matrix times a vector: grad.ger(vec), and self.t().mv(grad).
static void multiplyVector(BackwardRule &rule, BackwardReplay &steps,
                           const Factor &matrix, const Factor &vector,
                           unsigned first, unsigned second,
                           OpReplay::Number alpha = OpReplay::Number::None) {
  bool isCopy = false;
  ConcreteTensor gradient =
      steps.reshape(steps.getGradient(), {matrix.dims[0]}, isCopy);
  if (isCopy)
    steps.freeOutside(rule.getReleasableBytes());
  auto scale = [&](MadeTensor made) {
    if (alpha == OpReplay::Number::None)
      return made;
    MadeTensor scaled = steps.compute(made, alpha);
    steps.free(made);
    return scaled;
  };
  if (steps.wants(first)) {
    MadeTensor made =
        scale(steps.compute({makeColumn(steps, gradient), steps.read(second)}));
    ConcreteTensor self = steps.read(first);
    if (self.dims == made.dims)
      steps.give(first, made);
    else
      steps.give(first, steps.reshape(made, self.dims, isCopy),
                 /*isViewed=*/true);
  }
  if (steps.wants(second)) {
    MadeTensor made = steps.allocate({vector.dims, vector.type});
    blas::allocateMv(steps, rule, blas::transpose(matrix), toFactor(gradient));
    steps.give(second, scale(made));
  }
  steps.finish();
}

/// A product of a matrix and a vector, on either side.
static void describeVector(BackwardRule &rule, const Factor &lhs,
                           const Factor &rhs) {
  BackwardReplay steps(rule);
  if (isa<ComplexType>(lhs.type))
    return rule.setInexact("gradients that are complex numbers");
  int64_t left = lhs.getRank(), right = rhs.getRank();
  if (left == 2 && right == 1)
    return multiplyVector(rule, steps, lhs, rhs, 0, 1);
  // The rows are one matrix, by a node of its own.
  if (right == 1 && left > 2 && blas::isMatrixProduct(lhs, rhs)) {
    int64_t copied = 0;
    Factor matrix = blas::foldRows(lhs, copied);
    rule.splitIntoOwnNode(0);
    return multiplyVector(rule, steps, matrix, rhs, 0, 1);
  }
  if (left != 1 || right != 2)
    return koila::detail::describeUnknownBackward(rule);
  Factor row{{1, lhs.dims[0]},
             {lhs.dims[0] * lhs.strides[0], lhs.strides[0]},
             lhs.type};
  Product product(rule, row, rhs);
  rule.splitIntoOwnNode(0);
  product.runMm(0, 1, /*isAdded=*/false);
  product.steps.finish();
}

/// grad * other, and grad * self: in the order of their names, of which
/// vdot(self, other) and dot(self, tensor) have others.
static void describeDot(BackwardRule &rule) {
  BackwardReplay steps(rule);
  bool isOther = isa<VdotOp>(rule.getOp());
  for (unsigned operand : {unsigned(isOther), unsigned(!isOther)})
    if (steps.wants(operand))
      steps.give(operand,
                 steps.compute({steps.getGradient(), steps.read(1 - operand)}));
  steps.finish();
}

/// The product of a column and a row, both of which broadcast: each gradient is
/// summed. Source: outer in native/LinearAlgebra.cpp.
static void describeOuter(BackwardRule &rule) {
  BackwardReplay steps(rule);
  ConcreteTensor left = steps.read(0), right = steps.read(1);
  const ConcreteTensor &gradient = steps.getGradient();
  if (left.dims.size() != 1 || right.dims.size() != 1 ||
      left.elementType != right.elementType)
    return koila::detail::describeUnknownBackward(rule);
  bool isCopy = false;
  ConcreteTensor column = steps.reshape(left, {left.dims.front(), 1}, isCopy);
  if (isCopy)
    return koila::detail::describeUnknownBackward(rule);
  // What does not broadcast is not summed.
  bool sumsLeft = right.dims.front() != 1;
  ConcreteTensor ofRight, ofLeft;
  if (steps.wants(1))
    ofRight = steps.compute({gradient, column});
  if (steps.wants(0))
    ofLeft = steps.compute({gradient, right});
  rule.splitIntoOwnNode(0);
  if (steps.wants(0)) {
    ConcreteTensor sum{left.dims, left.elementType};
    if (sumsLeft) {
      sum = steps.allocate(sum);
      steps.allocateBriefly(getPartialBytes(rule, ofLeft, sum));
      steps.free(ofLeft);
    }
    steps.give(0, sum, /*isViewed=*/true);
  }
  if (steps.wants(1)) {
    MadeTensor sum = steps.allocate({right.dims, right.elementType});
    steps.allocateBriefly(getPartialBytes(rule, ofRight, sum));
    steps.free(ofRight);
    steps.give(1, sum, /*isViewed=*/true);
  }
  steps.finish();
}

/// cross(grad, self), and cross(other, grad).
static void describeCross(BackwardRule &rule) {
  BackwardReplay steps(rule);
  if (steps.read(0).dims != steps.read(1).dims)
    return koila::detail::describeUnknownBackward(rule);
  for (unsigned operand : {1u, 0u})
    if (steps.wants(operand))
      steps.giveContiguous(operand);
  steps.finish();
}

/// beta * self + alpha * (mat @ vec): grad.ger(vec), mat.t().mv(grad).
static void describeAddmv(BackwardRule &rule) {
  std::optional<AddedProduct> sum = readAddedProduct(rule);
  if (!sum)
    return;
  BackwardReplay steps(rule);
  // In the order of mat, self and vec.
  if (sum->beta != OpReplay::Number::None && steps.wants(0))
    return koila::detail::describeUnknownBackward(rule);
  giveAdded(rule, steps, sum->beta);
  multiplyVector(rule, steps, sum->lhs, sum->rhs, 1, 2, sum->alpha);
}

/// beta * self + alpha * vec1 x vec2: grad.mv(vec2), grad.t().mv(vec1).
static void describeAddr(BackwardRule &rule) {
  std::optional<AddedProduct> sum = readAddedProduct(rule);
  if (!sum)
    return;
  BackwardReplay steps(rule);
  if (!steps.getGradient().getStrides())
    return rule.setInexact("the strides of a gradient are unknown");
  Factor gradient = toFactor(steps.getGradient());
  giveAdded(rule, steps, sum->beta);
  auto multiply = [&](unsigned operand, const Factor &matrix,
                      const Factor &vector) {
    if (!steps.wants(operand))
      return;
    ConcreteTensor self = steps.read(operand);
    MadeTensor made = steps.allocate(self);
    blas::allocateMv(steps, rule, matrix, vector);
    if (sum->alpha != OpReplay::Number::None) {
      MadeTensor scaled = steps.compute(made, sum->alpha);
      steps.free(made);
      made = scaled;
    }
    steps.give(operand, made);
  };
  multiply(1, gradient, sum->rhs);
  multiply(2, blas::transpose(gradient), sum->lhs);
  steps.finish();
}

//===----------------------------------------------------------------------===//
// Tensors of any ranks
//===----------------------------------------------------------------------===//

/// A trained matrix times the matrices of a batch: transposed rows of these
/// times the transposed matrix, transposed again. Source: _matmul_impl.
static void describeExchanged(BackwardRule &rule, const Factor &lhs,
                              const Factor &rhs) {
  // Of a single row the products read copies of the gradient.
  if (lhs.dims.front() == 1)
    return rule.setInexact("gradients of a row times the matrices of a batch");
  int64_t copied = 0;
  Product product(rule, blas::foldRows(blas::transpose(rhs), copied),
                  blas::transpose(lhs));
  product.isExchanged = true;
  rule.splitIntoOwnNode(0);
  rule.splitIntoOwnNode(1);
  product.runMm(1, 0, /*isAdded=*/false);
  product.steps.finish();
}

static void describePair(BackwardRule &rule) {
  constexpr unsigned first = 0, second = 1;
  Operation *op = rule.getOp();
  auto lhs = blas::getFactor(rule, op->getOperand(first)),
       rhs = blas::getFactor(rule, op->getOperand(second));
  if (!blas::checkFactors(rule, lhs, rhs))
    return;
  int64_t left = lhs->getRank(), right = rhs->getRank();
  if (isa<ComplexType>(lhs->type) != isa<ComplexType>(rhs->type) ||
      (isa<ComplexType>(lhs->type) && left == 1 && right == 1))
    return rule.setInexact("gradients that are complex numbers");
  if (isa<ComplexType>(lhs->type) && rule.getGradient()->numElements() == 0)
    return rule.setInexact("gradients of an empty product of complex numbers");
  if (left == 1 && right == 1)
    return describeDot(rule);
  if (left < 2 || right < 2)
    return describeVector(rule, *lhs, *rhs);
  if (left == 2 && right > 2 && lhs->isTrained)
    return describeExchanged(rule, *lhs, *rhs);
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
  product.leading = leading;
  // matmul expands and folds both, the second one later.
  if (!isa<BmmOp>(op)) {
    rule.splitIntoOwnNode(second);
    rule.splitIntoOwnNode(first);
  }
  product.runBmm(first, second, /*isAdded=*/false);
  product.steps.finish();
}

static void describeAddmm(BackwardRule &rule) {
  describeSum(rule, /*isBatched=*/false);
}

static void describeBaddbmm(BackwardRule &rule) {
  describeSum(rule, /*isBatched=*/true);
}

void kernels::addProductGradients(KernelLibrary &library) {
  library.add<AddmmOp>({.backward = ofRealGradient<describeAddmm>});
  library.add<AddmvOp>({.backward = ofRealGradient<describeAddmv>});
  library.add<AddrOp>({.backward = ofRealGradient<describeAddr>});
  library.add<BaddbmmOp>({.backward = ofRealGradient<describeBaddbmm>});
  library.add<BmmOp, LinalgMatmulOp, MatmulOp, MmOp>(
      {.backward = ofGradient<describePair>});
  library.add<CrossOp, LinalgCrossOp>(
      {.backward = ofRealGradient<describeCross>});
  library.add<DotOp, VdotOp>({.backward = ofRealGradient<describeDot>});
  library.add<EinsumOp>(
      {.backward = ofGradient<rules::describeEinsumBackward>});
  library.add<GerOp, OuterOp>({.backward = ofRealGradient<describeOuter>});
  library.add<LinearOp>({.backward = ofRealGradient<describeLinear>});
  library.add<MvOp>({.backward = ofRealGradient<describePair>});
}
