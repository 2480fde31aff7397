//===- LinalgBackward.cpp - Gradients of functions of matrices ------------===//
//
// Sources: FunctionsManual.cpp, native/BatchLinearAlgebra.cpp. Solvers give
// matrices with their columns first, products give rows.
//
//===----------------------------------------------------------------------===//

#include "../../ATenCPU/GemmOperandCopies.h"
#include "../../Models.h"
#include "../Linalg.h"
#include "BackwardReplay.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using namespace koila::linalg;
using Number = OpReplay::Number;
using Result = OpReplay::Result;

namespace {
class LinalgBackward {
public:
  explicit LinalgBackward(BackwardRule &rule) : rule(rule), steps(rule) {}

  void finish() { steps.finish(); }

  void runInverse();
  void runSolve();
  void runTriangular();
  void runCholesky();
  void runCholeskySolve();
  void runCholeskyInverse();
  void runDet();
  void runLogarithm();
  void runLogdet();
  void runEigh();
  void runSvd();
  void runQr();
  void runPseudoInverse();
  void runExponential();
  void runReflectors();

private:
  ConcreteTensor getGradient(unsigned index = 0) const {
    return *rule.getGradient(index);
  }
  /// A result; of an unknown shape the gradient, and the rule says so.
  ConcreteTensor getResult(unsigned index = 0);
  bool isVectors(const ConcreteTensor &matrices) const {
    return getGradient().dims.size() + 1 == matrices.dims.size();
  }
  void fail() { koila::detail::describeUnknownBackward(rule); }

  ConcreteTensor multiply(const ConcreteTensor &lhs, const ConcreteTensor &rhs);
  ConcreteTensor solveFactors(const ConcreteTensor &rhs,
                              const Matrices &matrices);
  ConcreteTensor embedDiagonal(const ConcreteTensor &like);
  void giveNegated(unsigned operand, const ConcreteTensor &product);
  void giveLogarithm(bool isComposed);

  BackwardRule &rule;
  BackwardReplay steps;
};
} // namespace

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

static ConcreteTensor adjoin(const ConcreteTensor &tensor) {
  return transposeDims(tensor, -1, -2);
}

/// With the columns of each matrix first.
static ConcreteTensor layColumns(ConcreteTensor tensor) {
  if (tensor.dims.size() < 2)
    return tensor;
  std::swap(tensor.dims.rbegin()[0], tensor.dims.rbegin()[1]);
  tensor.contiguous = true;
  tensor.strides.reset();
  return adjoin(tensor);
}

static ConcreteTensor withDims(ConcreteTensor tensor, int64_t rows,
                               int64_t columns) {
  tensor.dims.rbegin()[1] = rows;
  tensor.dims.back() = columns;
  tensor.contiguous = true;
  tensor.strides.reset();
  return tensor;
}

ConcreteTensor LinalgBackward::getResult(unsigned index) {
  if (auto result = rule.tensor(rule.getOp()->getResult(index)))
    return *result;
  rule.setInexact("the shape of a result is unknown");
  return steps.read(0);
}

/// Tensor::matmul of as many matrices.
ConcreteTensor LinalgBackward::multiply(const ConcreteTensor &lhs,
                                        const ConcreteTensor &rhs) {
  ConcreteTensor made = lhs;
  made.dims.back() = rhs.dims.back();
  auto left = lhs.getStrides(), right = rhs.getStrides();
  if (!left || !right) {
    rule.setInexact("the strides of a gradient are unknown");
    return steps.allocate(made);
  }
  blas::MatmulCopies copies =
      blas::getMatmulCopies(rule, {lhs.dims, *left, lhs.elementType},
                            {rhs.dims, *right, rhs.elementType});
  steps.allocateTemporary(made.numBytes() + copies.bytes);
  return steps.allocate(made);
}

/// linalg_lu_solve, of factors that are there.
ConcreteTensor LinalgBackward::solveFactors(const ConcreteTensor &rhs,
                                            const Matrices &matrices) {
  MadeTensor made = steps.allocate(rhs);
  steps.allocateTemporary(matrices.getCheckBytes());
  return rhs.dims.size() < matrices.tensor.dims.size() ? made
                                                       : layColumns(made);
}

/// Zeros of `like`, into the diagonals of which is written.
ConcreteTensor LinalgBackward::embedDiagonal(const ConcreteTensor &like) {
  return steps.allocate(like);
}

void LinalgBackward::giveNegated(unsigned operand,
                                 const ConcreteTensor &product) {
  steps.give(operand, steps.compute(product));
  steps.free(product);
}

//===----------------------------------------------------------------------===//
// Solutions
//===----------------------------------------------------------------------===//

/// -(inverse.mH() @ (grad @ inverse.mH()))
void LinalgBackward::runInverse() {
  ConcreteTensor inverse = adjoin(getResult());
  ConcreteTensor first = multiply(getGradient(), inverse);
  ConcreteTensor second = multiply(inverse, first);
  giveNegated(0, second);
  steps.free(first);
}

/// The gradient, solved by the factors of the transposed matrices; times the
/// transposed result for these. Source: linalg_solve_backward.
void LinalgBackward::runSolve() {
  Operation *op = rule.getOp();
  auto left = op->getAttrOfType<BoolAttr>("left");
  auto matrices = getMatrices(rule, op->getOperand(0));
  ConcreteTensor result = getResult();
  if (!matrices)
    return;
  bool areVectors = isVectors(matrices->tensor);
  size_t rank = result.dims.size() - (areVectors ? 1 : 2);
  if (!left || !left.getValue() ||
      ArrayRef(result.dims).take_front(rank) !=
          ArrayRef(matrices->tensor.dims).drop_back(2))
    return fail();
  ConcreteTensor solved = solveFactors(getGradient(), *matrices);
  if (steps.wants(0)) {
    ConcreteTensor lhs = solved, rhs = result;
    for (ConcreteTensor *factor : {&lhs, &rhs})
      if (areVectors)
        *factor = withStrides(unsqueeze(*factor, rank + 1),
                              unsqueeze(*factor, rank + 1).getStrides());
    giveNegated(0, multiply(lhs, adjoin(rhs)));
  }
  if (steps.wants(1))
    steps.give(1, solved, /*isViewed=*/areVectors);
  else
    steps.free(solved);
}

/// As runSolve; of the matrices the triangle is left.
/// Source: linalg_solve_triangular_backward.
void LinalgBackward::runTriangular() {
  auto op = cast<LinalgSolveTriangularOp>(rule.getOp());
  ConcreteTensor matrices = steps.read(0), result = getResult();
  if (ArrayRef(result.dims).drop_back(2) !=
      ArrayRef(matrices.dims).drop_back(2))
    return fail();
  ConcreteTensor solved = layColumns(steps.allocate(getGradient()));
  if (steps.wants(0)) {
    ConcreteTensor product = op.getLeft() ? multiply(solved, adjoin(result))
                                          : multiply(adjoin(result), solved);
    MadeTensor negated = steps.compute(product);
    steps.free(product);
    steps.give(0, steps.allocate(negated));
    steps.free(negated);
  }
  if (steps.wants(1))
    steps.give(1, solved);
  else
    steps.free(solved);
}

/// L^-H @ f(L^H @ grad) @ L^-1, where f makes a triangle symmetric.
/// Source: cholesky_backward.
void LinalgBackward::runCholesky() {
  bool isUpper = rule.getOp()->getAttrOfType<BoolAttr>("upper").getValue();
  ConcreteTensor lower = getResult(), gradient = getGradient();
  if (isUpper) {
    lower = adjoin(lower);
    gradient = adjoin(gradient);
  }
  ConcreteTensor product = multiply(adjoin(lower), gradient);
  MadeTensor triangle = steps.allocate(product);
  steps.free(product);
  MadeTensor strict = steps.allocate(triangle);
  MadeTensor sum = steps.compute({triangle, adjoin(strict)});
  MadeTensor half = steps.compute(sum, Number::Float);
  steps.free({strict, sum, triangle});
  MadeTensor first = steps.allocate(half);
  steps.free(half);
  ConcreteTensor second = layColumns(steps.allocate(half));
  steps.free(first);
  steps.give(0, second);
}

/// That of both sides; for the factors (grad @ result.mH()), made symmetric,
/// times them. Source: cholesky_solve_backward.
void LinalgBackward::runCholeskySolve() {
  auto op = cast<CholeskySolveOp>(rule.getOp());
  auto factors = getMatrices(rule, op.getInput2());
  ConcreteTensor result = getResult();
  if (!factors)
    return;
  if (ArrayRef(result.dims).drop_back(2) !=
      ArrayRef(factors->tensor.dims).drop_back(2))
    return fail();
  ConcreteTensor solved = layColumns(steps.allocate(getGradient()));
  steps.allocateTemporary(factors->bytes + factors->getInfoBytes() + 1 +
                          factors->count);
  if (steps.wants(1)) {
    ConcreteTensor product = multiply(solved, adjoin(result));
    MadeTensor common = steps.compute({product, adjoin(product)});
    steps.free(product);
    giveNegated(1, op.getUpper() ? multiply(factors->tensor, common)
                                 : multiply(common, factors->tensor));
    steps.free(common);
  }
  if (steps.wants(0))
    steps.give(0, solved);
  else
    steps.free(solved);
}

/// -(inverse @ (grad + grad.mH()) @ inverse @ self), or self in front.
/// Source: cholesky_inverse_backward.
void LinalgBackward::runCholeskyInverse() {
  auto op = cast<CholeskyInverseOp>(rule.getOp());
  ConcreteTensor inverse = getResult(), self = steps.read(0);
  MadeTensor sum = steps.compute({getGradient(), adjoin(getGradient())});
  ConcreteTensor right = multiply(sum, inverse);
  ConcreteTensor common = multiply(inverse, right);
  steps.free({right, sum});
  giveNegated(0,
              op.getUpper() ? multiply(self, common) : multiply(common, self));
  steps.free(common);
}

//===----------------------------------------------------------------------===//
// Determinants
//===----------------------------------------------------------------------===//

/// grad * det on the diagonals, solved by factors in which zeros of the
/// diagonals are replaced. Source: linalg_det_backward.
void LinalgBackward::runDet() {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  // Of single numbers it is the gradient itself, and the factors go before the
  // determinants (measured).
  if (matrices->tensor.dims.back() == 1) {
    steps.freeOutside(matrices->tensor.numBytes());
    return rule.setView(
        0, ConcreteTensor{matrices->tensor.dims, getGradient().elementType});
  }
  MadeTensor scaled = steps.compute({getGradient(), getResult()});
  ConcreteTensor embedded = embedDiagonal(matrices->tensor);
  ConcreteTensor diagonal = matrices->tensor;
  diagonal.dims.pop_back();
  MadeTensor isZero = steps.compute(diagonal, Number::Float, Result::Bool);
  // Numbers alone are of the default type.
  Type narrow = Float32Type::get(rule.getOp()->getContext());
  ConcreteTensor number{{}, narrow}, shift{diagonal.dims, narrow};
  ConcreteTensor shifts{matrices->tensor.dims, narrow};
  steps.allocate(number);
  steps.allocate(number);
  shift = steps.allocate(shift);
  steps.free({number, number});
  shifts = embedDiagonal(shifts);
  MadeTensor factors = steps.compute({layColumns(matrices->tensor), shifts});
  steps.free({shifts, shift, isZero});
  steps.give(0, solveFactors(embedded, *matrices));
  steps.free({factors, embedded, scaled});
}

/// grad on the diagonals, solved by the factors. logdet chooses the logarithm
/// where the sign is not negative, in a node of its own: then the gradient that
/// arrived goes, and where it was chosen. Source: slogdet_backward.
void LinalgBackward::giveLogarithm(bool isComposed) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  ConcreteTensor chosen = getResult();
  if (isComposed) {
    MadeTensor zero = steps.makeNumber(chosen);
    chosen = steps.allocate(chosen);
    steps.free(zero);
    steps.AllocationTrace::free(rule.getReleasableBytes() + matrices->count);
  }
  ConcreteTensor embedded = embedDiagonal(matrices->tensor);
  steps.give(0, solveFactors(embedded, *matrices));
  steps.free(embedded);
  if (isComposed)
    steps.free(chosen);
}

void LinalgBackward::runLogarithm() { giveLogarithm(/*isComposed=*/false); }
void LinalgBackward::runLogdet() { giveLogarithm(/*isComposed=*/true); }

//===----------------------------------------------------------------------===//
// Eigenvalues and singular values
//===----------------------------------------------------------------------===//

/// V @ (f(V^H @ gV) / E) @ V^H, where f makes it skew and E are differences of
/// eigenvalues; without a gradient of V, (V * gL) @ V^H.
/// Source: linalg_eig_backward.
void LinalgBackward::runEigh() {
  bool isOnlyValues = isa<LinalgEigvalshOp>(rule.getOp());
  ConcreteTensor vectors = layColumns(steps.read(0));
  const ConcreteTensor *gradient = isOnlyValues ? nullptr : rule.getGradient(1);
  if (!gradient) {
    MadeTensor scaled = steps.allocate(vectors);
    steps.give(0, multiply(layColumns(scaled), adjoin(vectors)));
    return steps.free(scaled);
  }
  ConcreteTensor product = multiply(adjoin(vectors), *gradient);
  MadeTensor skew = steps.compute({product, adjoin(product)});
  MadeTensor half = steps.compute(skew, Number::Float);
  steps.free(skew);
  steps.allocateTemporary(vectors.numBytes());
  ConcreteTensor right = multiply(half, adjoin(vectors));
  steps.give(0, multiply(vectors, right));
  steps.free({right, half, product});
}

/// Of the values alone: U @ (gS * Vh), or (U * gS) @ Vh where there are more
/// columns than rows. Source: svd_backward.
void LinalgBackward::runSvd() {
  bool isOnlyValues = isa<LinalgSvdvalsOp>(rule.getOp());
  if (!isOnlyValues && (rule.getGradient(0) || rule.getGradient(2)))
    return fail();
  ConcreteTensor self = steps.read(0);
  int64_t rows = self.dims.rbegin()[1], columns = self.dims.back();
  int64_t values = std::min(rows, columns);
  ConcreteTensor left = layColumns(withDims(self, rows, values));
  ConcreteTensor right = layColumns(withDims(self, values, columns));
  // Of all vectors the first ones are read.
  if (auto svd = dyn_cast<LinalgSvdOp>(rule.getOp());
      svd && svd.getFullMatrices()) {
    auto wide = layColumns(withDims(self, columns, columns)).getStrides();
    auto tall = layColumns(withDims(self, rows, rows)).getStrides();
    right = withStrides(right, wide);
    left = withStrides(left, tall);
  }
  if (rows >= columns) {
    MadeTensor scaled = steps.makeLike(right);
    steps.give(0, multiply(left, scaled));
    return steps.free(scaled);
  }
  MadeTensor scaled = steps.makeLike(left);
  steps.give(0, multiply(scaled, right));
  steps.free(scaled);
}

/// (gQ + Q @ f((gR @ R^H - Q^H @ gQ).triu())) @ R^-H, where f makes it
/// symmetric. Source: linalg_qr_backward.
void LinalgBackward::runQr() {
  auto op = cast<LinalgQrOp>(rule.getOp());
  ConcreteTensor self = steps.read(0), q = getResult(0), r = getResult(1);
  if (op.getMode() != "reduced" ||
      self.dims.rbegin()[1] < self.dims.rbegin()[0])
    return fail();
  const ConcreteTensor *ofQ = rule.getGradient(0), *ofR = rule.getGradient(1);
  std::optional<ConcreteTensor> made;
  if (ofR)
    made = multiply(*ofR, adjoin(r));
  if (ofQ) {
    ConcreteTensor product = multiply(adjoin(q), *ofQ);
    ConcreteTensor next =
        made ? steps.compute({*made, product}) : steps.compute(product);
    steps.free(product);
    if (made)
      steps.free(*made);
    made = next;
  }
  MadeTensor triangle = steps.allocate(*made);
  MadeTensor sum = steps.compute({triangle, adjoin(triangle)});
  allocateFloat(steps, sum.elementType);
  ConcreteTensor product = multiply(q, sum);
  steps.free({sum, triangle, *made});
  if (ofQ) {
    MadeTensor all = steps.compute({product, *ofQ});
    steps.free(product);
    product = all;
  }
  steps.give(0, layColumns(steps.allocate(product)));
  steps.free(product);
}

/// Five products of the least size, and their sum. Source: pinv_backward.
void LinalgBackward::runPseudoInverse() {
  ConcreteTensor self = steps.read(0), inverse = getResult();
  ConcreteTensor inverseH = adjoin(inverse), gradientH = adjoin(getGradient());
  SmallVector<ConcreteTensor> held;
  auto hold = [&](ConcreteTensor made) {
    held.push_back(made);
    return made;
  };
  if (self.dims.rbegin()[1] > self.dims.back())
    return fail();
  ConcreteTensor k = hold(multiply(gradientH, inverse));
  ConcreteTensor kInverse = hold(multiply(k, inverseH));
  ConcreteTensor kSelf = hold(multiply(k, self));
  ConcreteTensor rest = hold(steps.compute({gradientH, kSelf}));
  ConcreteTensor square = hold(multiply(inverseH, inverse));
  hold(multiply(square, rest));
  ConcreteTensor projected = hold(multiply(self, inverse));
  hold(multiply(projected, kInverse));
  ConcreteTensor outer = hold(multiply(inverse, k));
  ConcreteTensor negated = adjoin(hold(steps.compute(outer)));
  ConcreteTensor sum = hold(steps.compute({negated, kInverse}));
  ConcreteTensor difference = hold(steps.compute({sum, kInverse}));
  steps.give(0, steps.compute({difference, rest}));
  steps.free(held);
}

/// Of the exponential of matrices twice as high and wide, which hold the
/// transposed one twice and the gradient, a part is the gradient.
/// Source: differential_analytic_matrix_function.
void LinalgBackward::runExponential() {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  Type type = matrices->tensor.elementType;
  if (!(type.isF32() || type.isF64()))
    return fail();
  constexpr int64_t kBlocks = 4;
  Matrices whole = *matrices;
  whole.rows *= 2;
  whole.bytes *= kBlocks;
  whole.tensor = withDims(whole.tensor, whole.rows, whole.rows);
  MadeTensor blocks = steps.allocate(whole.tensor);
  steps.allocateTemporary(getExponentialBytes(rule, whole) + whole.bytes);
  MadeTensor made = steps.allocate(whole.tensor);
  ConcreteTensor part = withStrides(matrices->tensor, made.getStrides());
  rule.setNew(0, part, /*isViewed=*/true, made.numBytes());
  steps.free(blocks);
}

/// result @ grad^H, turned by one reflector after the other, each of which has
/// its gradient of it. Source: householder_product_backward.
void LinalgBackward::runReflectors() {
  ConcreteTensor self = steps.read(0), factors = steps.read(1);
  ConcreteTensor result = getResult();
  int64_t rows = self.dims.rbegin()[1], columns = self.dims.back();
  int64_t vectors = self.numBytes() / columns, numbers = vectors / rows;
  AllocationTrace &trace = steps;
  MadeTensor lower = steps.allocate(self);
  MadeTensor squares = steps.allocate(self);
  MadeTensor sums = steps.allocate(factors);
  steps.free(squares);
  MadeTensor scaled = steps.compute({factors, sums});
  MadeTensor less = steps.compute(scaled, Number::Integer);
  MadeTensor inverses = steps.compute({factors, less});
  steps.free({scaled, less});
  ConcreteTensor turned = multiply(result, adjoin(getGradient()));
  // A vector times the matrices, and their product with it.
  int64_t outer = 2 * vectors + vectors * rows;
  trace.allocateTemporary(outer);
  steps.give(0, steps.allocate(self));
  steps.give(1, steps.allocate(factors));
  constexpr int64_t kVectors = 5;
  trace.allocateTemporary(kVectors * vectors + numbers);
  if (columns > 1)
    trace.allocateTemporary(vectors + numbers + vectors + vectors * rows);
  steps.free({turned, inverses, sums, lower});
}

/// Formulas that take the gradient of any result.
static constexpr int kAny = -1;

/// What `Run` does with the gradient of the result `needed`, the only one that
/// its formula takes.
template <void (LinalgBackward::*Run)(), int needed = 0>
static void describe(BackwardRule &rule) {
  Operation *op = rule.getOp();
  for (int index = 0; index < static_cast<int>(op->getNumResults()); ++index)
    if (const ConcreteTensor *gradient = rule.getGradient(index);
        gradient && (isa<ComplexType>(gradient->elementType) ||
                     (needed != kAny && index != needed)))
      return koila::detail::describeUnknownBackward(rule);
  for (Value operand : op->getOperands())
    if (auto tensor = rule.tensor(operand);
        !tensor || tensor->dims.empty() || tensor->numElements() == 0)
      return rule.setInexact("the shape of the matrices is unknown");
  if (needed != kAny && !rule.getGradient(needed))
    return koila::detail::describeUnknownBackward(rule);
  LinalgBackward of(rule);
  (of.*Run)();
  of.finish();
}

void kernels::addMatrixFunctionGradients(KernelLibrary &library) {
  using Of = LinalgBackward;
  library.add<CholeskyInverseOp>(
      {.backward = describe<&Of::runCholeskyInverse>});
  library.add<CholeskyOp, LinalgCholeskyExOp, LinalgCholeskyOp>(
      {.backward = describe<&Of::runCholesky>});
  library.add<CholeskySolveOp>({.backward = describe<&Of::runCholeskySolve>});
  library.add<DetOp, LinalgDetOp>({.backward = describe<&Of::runDet>});
  library.add<InverseOp, LinalgInvExOp, LinalgInvOp>(
      {.backward = describe<&Of::runInverse>});
  library.add<LinalgEighOp>({.backward = describe<&Of::runEigh, kAny>});
  library.add<LinalgEigvalshOp>({.backward = describe<&Of::runEigh>});
  library.add<LinalgHouseholderProductOp>(
      {.backward = describe<&Of::runReflectors>});
  library.add<LinalgMatrixExpOp, MatrixExpOp>(
      {.backward = describe<&Of::runExponential>});
  library.add<LinalgQrOp>({.backward = describe<&Of::runQr, kAny>});
  // A sign has no gradient.
  library.add<LinalgSlogdetOp, SlogdetOp>(
      {.backward = describe<&Of::runLogarithm, 1>});
  library.add<LinalgSolveExOp, LinalgSolveOp>(
      {.backward = describe<&Of::runSolve>});
  library.add<LinalgSolveTriangularOp>(
      {.backward = describe<&Of::runTriangular>});
  library.add<LinalgSvdOp>({.backward = describe<&Of::runSvd, kAny>});
  library.add<LinalgSvdvalsOp>({.backward = describe<&Of::runSvd>});
  library.add<LogdetOp>({.backward = describe<&Of::runLogdet>});
  library.add<PinverseOp>({.backward = describe<&Of::runPseudoInverse>});
}
