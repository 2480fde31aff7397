//===- Linalg.cpp - What functions of matrices hold inside ----------------===//
//
// Sources: native/BatchLinearAlgebra.cpp, native/LinearAlgebra.cpp. Functions
// for which LAPACK itself says how much it needs are not modelled.
//
//===----------------------------------------------------------------------===//

#include "Linalg.h"
#include "../ATenCPU/GemmOperandCopies.h"
#include "../WorkspaceRules.h"
#include "Backward/BackwardReplay.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using namespace koila::linalg;
using blas::Factor;

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

std::optional<Matrices> linalg::getMatrices(WorkspaceRule &rule, Value value) {
  auto tensor = rule.tensor(value);
  if (!tensor || tensor->dims.size() < 2) {
    rule.setInexact("the shape of the matrices is unknown");
    return std::nullopt;
  }
  Matrices matrices{*tensor, 1, tensor->dims.rbegin()[1], tensor->numBytes()};
  for (int64_t extent : ArrayRef(tensor->dims).drop_back(2))
    matrices.count *= extent;
  // Above that, threads keep partial results of checks.
  constexpr int64_t kGrain = 32768;
  if (matrices.bytes == 0 || matrices.getRows() >= kGrain) {
    rule.setInexact("no matrices, or very many of them");
    return std::nullopt;
  }
  return matrices;
}

SmallVector<int64_t, 2> linalg::getInnerVectorBytes(const WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto tensor = rule.tensor(op->getOperand(0));
  if (!isa<LinalgSvdvalsOp>(op) || !rule.wantsGradient(op->getOperand(0)) ||
      !tensor)
    return {};
  int64_t rows = tensor->dims.rbegin()[1], columns = tensor->dims.back();
  if (tensor->numElements() == 0)
    return {};
  int64_t values =
      tensor->numBytes() / (rows * columns) * std::min(rows, columns);
  return {values * rows, values * columns};
}

int64_t linalg::getExponentialBytes(WorkspaceRule &rule,
                                    const Matrices &matrices) {
  // Matrices that are scaled down, five powers of each, and five sums.
  constexpr int64_t kHeld = 10, kAlone = 12;
  // What says which matrices are squared how often holds less if these are
  // not tiny.
  constexpr int64_t kTiny = 128, kPlaces = 256;
  int64_t bytes = kHeld * matrices.bytes;
  if (matrices.count > 1 && matrices.bytes >= kTiny * matrices.count)
    return bytes +
           3 * matrices.count * getElementBytes(matrices.tensor.elementType);
  rule.setBound("how an exponential is computed, data decide; the most counts");
  return (matrices.count == 1 ? kAlone * matrices.bytes : bytes) +
         kPlaces * matrices.count;
}

/// Whether all pivots are those of rows: compared with two numbers.
static void checkPivots(AllocationTrace &trace, const Matrices &matrices) {
  for (int64_t check = 0; check < 2; ++check) {
    auto number = trace.allocate(sizeof(int64_t));
    auto cast = trace.allocate(sizeof(int32_t));
    auto fits = trace.allocate(matrices.getRows());
    trace.free(number);
    trace.free(cast);
    trace.allocateTemporary(1);
    trace.free(fits);
  }
}

/// Whether all infos are zero.
static void checkInfos(AllocationTrace &trace, const Matrices &matrices) {
  auto all = trace.allocate(1);
  trace.allocateTemporary(matrices.count);
  trace.free(all);
}

//===----------------------------------------------------------------------===//
// Inverses and solutions
//===----------------------------------------------------------------------===//

namespace {
/// What a solution is computed with, and the solution.
struct Solution {
  AllocationTrace::Block result, factors, pivots, infos;
};
} // namespace

/// The factors are solved; `copied` are the bytes of a right side that is no
/// matrix with its columns first.
static void solveFactors(AllocationTrace &trace, const Matrices &matrices,
                         int64_t copied = 0) {
  auto right = trace.allocate(copied);
  checkPivots(trace, matrices);
  trace.free(right);
}

static void freeInfos(AllocationTrace &trace, const Matrices &matrices,
                      const Solution &made) {
  checkInfos(trace, matrices);
  trace.free(made.infos);
}

/// The matrices are factored, and the factors solved. Source: linalg_inv_ex.
static Solution invert(AllocationTrace &trace, const Matrices &matrices,
                       bool keepsInfos) {
  Solution made;
  made.result = trace.allocate(matrices.bytes);
  made.infos = trace.allocate(matrices.getInfoBytes());
  made.factors = trace.allocate(matrices.bytes);
  made.pivots = trace.allocate(matrices.getPivotBytes());
  solveFactors(trace, matrices);
  trace.free(made.pivots);
  trace.free(made.factors);
  if (!keepsInfos)
    freeInfos(trace, matrices, made);
  return made;
}

/// The same of any right side. Source: _linalg_solve_ex.
static Solution solve(AllocationTrace &trace, const Matrices &matrices,
                      int64_t result, int64_t copied, bool keepsInfos) {
  Solution made;
  made.result = trace.allocate(result);
  made.factors = trace.allocate(matrices.bytes);
  made.pivots = trace.allocate(matrices.getPivotBytes());
  made.infos = trace.allocate(matrices.getInfoBytes());
  solveFactors(trace, matrices, copied);
  trace.free(made.factors);
  trace.free(made.pivots);
  if (!keepsInfos)
    freeInfos(trace, matrices, made);
  return made;
}

static void describeInverse(WorkspaceRule &rule, bool keepsInfos, bool checks) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  AllocationTrace trace;
  invert(trace, *matrices, keepsInfos);
  if (keepsInfos && checks)
    checkInfos(trace, *matrices);
  rule.setTrace(std::move(trace));
}

static void describeSolve(WorkspaceRule &rule, SavedRule *saved, Value left,
                          Value right, bool keepsInfos, bool checks) {
  auto matrices = getMatrices(rule, left);
  auto other = rule.tensor(right);
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!matrices)
    return;
  if (!other || !result || result->numElements() == 0)
    return rule.setInexact("the shape of a right side is unknown");
  ArrayRef<int64_t> lead = ArrayRef(matrices->tensor.dims).drop_back();
  bool isVector = ArrayRef(other->dims) == lead;
  if (!isVector && ArrayRef(result->dims).drop_back(2) != lead.drop_back())
    return rule.setInexact("matrices that are repeated for right sides");
  if (isVector && matrices->rows == 1)
    return rule.setInexact("vectors of one element");
  AllocationTrace trace;
  Solution made = solve(trace, *matrices, result->numBytes(),
                        isVector ? result->numBytes() : 0, keepsInfos);
  if (keepsInfos && checks)
    checkInfos(trace, *matrices);
  rule.setTrace(trace);
  if (saved)
    blas::keepBlocks(*saved, trace, {made.factors, made.pivots});
}

/// The triangles are taken out of matrices that are one after the other.
/// Source: checkTrilTriuBatchContiguous, without repeated matrices.
bool linalg::copiesForTriangle(const ConcreteTensor &tensor) {
  auto strides = tensor.getStrides();
  if (tensor.contiguous || !strides)
    return false;
  int64_t rank = tensor.dims.size();
  int64_t expected = tensor.dims[rank - 1] * tensor.dims[rank - 2];
  for (int64_t dim = rank - 3; dim >= 0; --dim) {
    if ((*strides)[dim] != expected)
      return true;
    expected *= tensor.dims[dim];
  }
  return false;
}

static void describeCholesky(WorkspaceRule &rule, bool keepsInfos,
                             bool checks) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  if (!matrices->tensor.getStrides())
    return rule.setInexact("the strides of the matrices are unknown");
  AllocationTrace trace;
  trace.allocate(matrices->bytes);
  trace.allocate(matrices->getInfoBytes());
  // The older operator copies its matrices as they are.
  if (!isa<CholeskyOp>(rule.getOp()) && copiesForTriangle(matrices->tensor))
    trace.allocateTemporary(matrices->bytes);
  if (checks)
    checkInfos(trace, *matrices);
  if (!keepsInfos)
    trace.free(matrices->getInfoBytes());
  rule.setTrace(std::move(trace));
}

//===----------------------------------------------------------------------===//
// Systems with triangles
//===----------------------------------------------------------------------===//

/// The right sides are solved in the place of the result. Matrices are read as
/// they are if their rows or their columns are dense.
/// Source: linalg_solve_triangular_out.
static void describeTriangular(WorkspaceRule &rule,
                               LinalgSolveTriangularOp op) {
  auto matrices = rule.tensor(op.getSelf());
  auto result = rule.tensor(op.getResult());
  if (!matrices || !result || matrices->dims.size() < 2)
    return rule.setInexact("the shape of the matrices is unknown");
  bool isRead =
      matrices->contiguous || transposeDims(*matrices, -1, -2).contiguous;
  if (!isRead || ArrayRef(matrices->dims).drop_back(2) !=
                     ArrayRef(result->dims).drop_back(2))
    return rule.setInexact("triangles that are copied or repeated");
  if (result->numElements() == 0)
    return rule.setInexact("no matrices");
}

/// Copies of both sides, one of which is the result.
/// Source: _cholesky_solve_helper_cpu.
static void describeCholeskySolve(WorkspaceRule &rule, CholeskySolveOp op) {
  auto matrices = getMatrices(rule, op.getInput2());
  auto result = rule.tensor(op.getResult());
  if (!matrices)
    return;
  if (!result || result->numElements() == 0)
    return rule.setInexact("the shape of a right side is unknown");
  Matrices all = *matrices;
  all.count = 1;
  for (int64_t extent : ArrayRef(result->dims).drop_back(2))
    all.count *= extent;
  all.bytes = matrices->bytes / matrices->count * all.count;
  AllocationTrace trace;
  trace.allocate(result->numBytes());
  auto copy = trace.allocate(all.bytes);
  trace.allocateTemporary(
      getBlockBytes(transposeDims(matrices->tensor, -1, -2)));
  auto infos = trace.allocate(all.getInfoBytes());
  checkInfos(trace, all);
  trace.free(infos);
  trace.free(copy);
  rule.setTrace(std::move(trace), result->numBytes());
}

/// The factors are copied into the result. Source: cholesky_inverse.
static void describeCholeskyInverse(WorkspaceRule &rule) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  AllocationTrace trace;
  auto infos = trace.allocate(matrices->getInfoBytes());
  trace.allocate(matrices->bytes);
  checkInfos(trace, *matrices);
  trace.free(infos);
  rule.setTrace(std::move(trace));
}

//===----------------------------------------------------------------------===//
// Eigenvalues and singular values
//===----------------------------------------------------------------------===//

/// The eigenvectors, which are computed in the place of the matrices, and what
/// LAPACK asks for. Sources: _linalg_eigh, apply_lapack_eigh; ?syevd.
static void describeEigh(WorkspaceRule &rule, SavedRule *saved) {
  Operation *op = rule.getOp();
  auto matrices = getMatrices(rule, op->getOperand(0));
  if (!matrices)
    return;
  Type type = matrices->tensor.elementType;
  if (isa<ComplexType>(type))
    return rule.setInexact("eigenvalues of complex numbers");
  bool isOnlyValues = isa<LinalgEigvalshOp>(op);
  bool hasVectors = !isOnlyValues || rule.wantsGradient(op->getOperand(0));
  int64_t n = matrices->rows, size = getElementBytes(type);
  AllocationTrace trace;
  AllocationTrace::Block vectors;
  if (hasVectors)
    vectors = trace.allocate(matrices->bytes);
  trace.allocate(matrices->getRows() * size);
  if (!hasVectors) {
    vectors = trace.allocate(matrices->bytes);
    trace.allocateTemporary(
        getBlockBytes(transposeDims(matrices->tensor, -1, -2)));
  }
  auto infos = trace.allocate(matrices->getInfoBytes());
  // The least that ?syevd needs, which it asks for (measured for threads and
  // sizes); the blocks of the reduction without vectors are MKL's, of at most
  // 64 columns.
  constexpr int64_t kMostColumns = 64;
  int64_t work = n == 1 ? 2 : 2 * n * n + 6 * n + 2, places = 5 * n + 3;
  if (!hasVectors && n > 1) {
    work = (kMostColumns + 2) * n + 1;
    rule.setBound("in blocks of how many columns LAPACK works is not known");
  }
  if (!hasVectors || n == 1)
    places = 1;
  auto numbers = trace.allocate(work * size);
  trace.allocateTemporary(places * sizeof(int32_t));
  trace.free(numbers);
  checkInfos(trace, *matrices);
  trace.free(infos);
  if (isOnlyValues)
    trace.free(vectors);
  rule.setTrace(trace);
  if (saved && isOnlyValues)
    blas::keepBlocks(*saved, trace, vectors);
}

/// A copy of the matrices with their columns first; LAPACK's work is in memory
/// of its own. Source: _linalg_svd, svd_kernel.
static void describeSvd(WorkspaceRule &rule, SavedRule *saved) {
  Operation *op = rule.getOp();
  auto matrices = getMatrices(rule, op->getOperand(0));
  if (!matrices)
    return;
  if (isa<ComplexType>(matrices->tensor.elementType))
    return rule.setInexact("singular values of complex numbers");
  AllocationTrace trace;
  SmallVector<AllocationTrace::Block> inner;
  for (int64_t bytes : getInnerVectorBytes(rule))
    inner.push_back(trace.allocate(bytes));
  SmallVector<int64_t> results;
  for (Value value : op->getResults()) {
    auto result = rule.tensor(value);
    if (!result)
      return rule.setInexact("the shape of a result is unknown");
    results.push_back(result->numBytes());
  }
  // The values are the last.
  if (results.size() == 3)
    std::swap(results[1], results[2]);
  for (int64_t bytes : results)
    trace.allocate(bytes);
  auto infos = trace.allocate(matrices->getInfoBytes());
  auto copy = trace.allocate(matrices->bytes);
  trace.allocateTemporary(
      getBlockBytes(transposeDims(matrices->tensor, -1, -2)));
  trace.free(copy);
  checkInfos(trace, *matrices);
  trace.free(infos);
  for (AllocationTrace::Block block : llvm::reverse(inner))
    trace.free(block);
  rule.setTrace(trace);
  if (saved)
    blas::keepBlocks(*saved, trace, inner);
}

/// Written over a copy of the reflectors. Source: linalg_householder_product.
static void describeReflectors(WorkspaceRule &rule) {
  auto tensor = rule.tensor(rule.getOp()->getOperand(0));
  if (!tensor || tensor->dims.size() < 2 || tensor->numElements() == 0 ||
      isa<ComplexType>(tensor->elementType))
    return rule.setInexact("the reflectors are unknown, none or complex");
  // ?orgqr of MKL asks for blocks of 16 to 128 columns (measured for sizes and
  // threads).
  constexpr int64_t kMostColumns = 128;
  int64_t rows = tensor->dims.rbegin()[1], columns = tensor->dims.back();
  rule.setTransient((kMostColumns * (rows + 2 * columns) + 1) *
                    getElementBytes(tensor->elementType));
  rule.setBound("in blocks of how many columns LAPACK works is not known");
}

/// Source: mexp_impl and compute_T18_scale_square in native/LinearAlgebra.cpp.
static void describeExponential(WorkspaceRule &rule) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  Type type = matrices->tensor.elementType;
  if (!(type.isF32() || type.isF64()) || matrices->rows < 2 ||
      !matrices->tensor.contiguous)
    return rule.setInexact("the exponential of one number or a strided matrix, "
                           "or of another type than float32 and float64");
  rule.setTransient(getExponentialBytes(rule, *matrices));
}

//===----------------------------------------------------------------------===//
// Determinants
//===----------------------------------------------------------------------===//

namespace {
/// Of what determinants are computed.
struct Permutation {
  AllocationTrace::Block factors, pivots, infos;
  /// The product of a diagonal, and the signs of the permutations.
  AllocationTrace::Block product, signs;
};
} // namespace

/// Factors, pivots and infos, and while `products` are alive, the signs of the
/// permutations: pivots that are not their place, counted as int64.
static Permutation permute(AllocationTrace &trace, const Matrices &matrices,
                           int64_t products) {
  Permutation made;
  made.factors = trace.allocate(matrices.bytes);
  made.pivots = trace.allocate(matrices.getPivotBytes());
  made.infos = trace.allocate(matrices.getInfoBytes());
  made.product = trace.allocate(products);
  auto places = trace.allocate(sizeof(int32_t) * matrices.rows);
  auto moved = trace.allocate(matrices.getRows());
  made.signs = trace.allocate(sizeof(int64_t) * matrices.count);
  trace.allocateTemporary(sizeof(int64_t) * matrices.getRows());
  // Three numbers make a sign of a count.
  for (int64_t number = 0; number < 3; ++number)
    trace.allocateTemporary(sizeof(int64_t));
  trace.free(moved);
  trace.free(places);
  return made;
}

static void describeDet(WorkspaceRule &rule, SavedRule *saved) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!matrices || !result)
    return;
  AllocationTrace trace;
  trace.allocate(result->numBytes());
  Permutation made = permute(trace, *matrices, result->numBytes());
  trace.allocateTemporary(result->numBytes());
  for (AllocationTrace::Block block :
       {made.signs, made.product, made.infos, made.factors, made.pivots})
    trace.free(block);
  rule.setTrace(trace);
  if (saved)
    blas::keepBlocks(*saved, trace, {made.factors, made.pivots});
}

/// What slogdet holds beyond its results.
static Permutation allocateSlogdet(AllocationTrace &trace,
                                   const Matrices &matrices) {
  Type type = matrices.tensor.elementType;
  int64_t size = getElementBytes(type), diagonal = matrices.getRows() * size;
  Permutation made = permute(trace, matrices, 0);
  // Signs along the diagonal, their product, and that by the permutation's.
  auto signs = trace.allocate(diagonal);
  auto product = trace.allocate(matrices.count * size);
  trace.allocateTemporary(matrices.count * size);
  trace.free(product);
  trace.free(signs);
  trace.free(made.signs);
  // Magnitudes; those of complex numbers are complex at first.
  if (isa<ComplexType>(type))
    trace.lump(diagonal / 2 + diagonal);
  else
    trace.allocateTemporary(diagonal);
  trace.free(made.infos);
  trace.free(made.factors);
  trace.free(made.pivots);
  return made;
}

static void describeSlogdet(WorkspaceRule &rule, SavedRule *saved) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  int64_t results = 0;
  AllocationTrace trace;
  for (Value value : rule.getOp()->getResults().take_front(2)) {
    auto result = rule.tensor(value);
    if (!result)
      return rule.setInexact("the shape of a result is unknown");
    results += result->numBytes();
    trace.allocate(result->numBytes());
  }
  Permutation made = allocateSlogdet(trace, *matrices);
  rule.setTrace(trace, results);
  if (saved)
    blas::keepBlocks(*saved, trace, {made.factors, made.pivots});
}

/// slogdet, whose results are then put together: a NaN where the sign is
/// negative.
static void describeLogdet(WorkspaceRule &rule, SavedRule *saved) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!matrices || !result)
    return;
  if (isa<ComplexType>(result->elementType))
    return rule.setInexact("logdet of complex numbers");
  int64_t size = getElementBytes(result->elementType);
  AllocationTrace trace;
  auto sign = trace.allocate(result->numBytes());
  auto logarithm = trace.allocate(result->numBytes());
  Permutation made = allocateSlogdet(trace, *matrices);
  auto number = trace.allocate(sizeof(double));
  auto cast = trace.allocate(result->elementType.isF64() ? 0 : size);
  auto isNegative = trace.allocate(matrices->count);
  trace.free(number);
  trace.free(cast);
  auto nan = trace.allocate(size);
  trace.allocate(result->numBytes());
  trace.free(nan);
  trace.free(isNegative);
  trace.free(sign);
  trace.free(logarithm);
  rule.setTrace(trace);
  if (saved)
    blas::keepBlocks(*saved, trace,
                     {made.factors, made.pivots, sign, isNegative});
}

//===----------------------------------------------------------------------===//
// Powers
//===----------------------------------------------------------------------===//

static Factor makeContiguous(Factor factor) {
  int64_t stride = 1;
  for (size_t dim = factor.dims.size(); dim-- > 0;) {
    factor.strides[dim] = stride;
    stride *= factor.dims[dim];
  }
  factor.isTrained = false;
  return factor;
}

/// Whether the matrices can be multiplied says checkFactors. Source:
/// matrix_power_impl.
static void raise(WorkspaceRule &rule, AllocationTrace &trace,
                  const Factor &base, int64_t exponent) {
  auto square = blas::allocateMatmul(trace, rule, base, base).result;
  if (exponent != 3)
    return;
  blas::allocateMatmul(trace, rule, makeContiguous(base), base);
  trace.free(square);
}

static void describePower(WorkspaceRule &rule, int64_t exponent) {
  Value self = rule.getOp()->getOperand(0);
  auto matrices = getMatrices(rule, self);
  auto base = blas::getFactor(rule, self);
  if (!matrices)
    return;
  if (exponent == 0)
    return rule.setTransient(matrices->bytes / matrices->count);
  if (exponent == 1)
    return;
  if (exponent == -1)
    return describeInverse(rule, /*keepsInfos=*/false, /*checks=*/true);
  if (!blas::checkFactors(rule, base, base))
    return;
  if (std::abs(exponent) > 3)
    return rule.setInexact("a high power of a matrix");
  AllocationTrace trace;
  AllocationTrace::Block inverse;
  if (exponent < 0) {
    inverse = invert(trace, *matrices, /*keepsInfos=*/false).result;
    // The columns of an inverse are dense.
    base = blas::transpose(makeContiguous(*base));
  }
  raise(rule, trace, *base, std::abs(exponent));
  trace.free(inverse);
  rule.setTrace(std::move(trace));
}

/// `saved`, if there, is told what autograd keeps inside: factors and their
/// pivots, and vectors that are no results.
static void describeFunction(WorkspaceRule &rule, SavedRule *saved) {
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<LinalgSolveTriangularOp>(
          [&](auto op) { describeTriangular(rule, op); })
      .Case<CholeskySolveOp>([&](auto op) { describeCholeskySolve(rule, op); })
      .Case<CholeskyInverseOp>([&](auto) { describeCholeskyInverse(rule); })
      .Case<LinalgEighOp, LinalgEigvalshOp>(
          [&](auto) { describeEigh(rule, saved); })
      .Case<LinalgSvdOp, LinalgSvdvalsOp>(
          [&](auto) { describeSvd(rule, saved); })
      .Case<LinalgMatrixExpOp, MatrixExpOp>(
          [&](auto) { describeExponential(rule); })
      .Case<LinalgHouseholderProductOp>([&](auto) { describeReflectors(rule); })
      .Case<LinalgInvOp, InverseOp>(
          [&](auto) { describeInverse(rule, false, true); })
      .Case<LinalgInvExOp>(
          [&](auto op) { describeInverse(rule, true, op.getCheckErrors()); })
      .Case<LinalgCholeskyOp, CholeskyOp>(
          [&](auto) { describeCholesky(rule, false, true); })
      .Case<LinalgCholeskyExOp>(
          [&](auto op) { describeCholesky(rule, true, op.getCheckErrors()); })
      .Case<LinalgSolveOp>([&](auto op) {
        describeSolve(rule, saved, op.getA(), op.getB(), false, true);
      })
      .Case<LinalgSolveExOp>([&](auto op) {
        describeSolve(rule, saved, op.getA(), op.getB(), true,
                      op.getCheckErrors());
      })
      .Case<LinalgDetOp, DetOp>([&](auto) { describeDet(rule, saved); })
      .Case<LinalgSlogdetOp, SlogdetOp>(
          [&](auto) { describeSlogdet(rule, saved); })
      .Case<LogdetOp>([&](auto) { describeLogdet(rule, saved); })
      .Case<LinalgMatrixPowerOp, MatrixPowerOp>(
          [&](auto op) { describePower(rule, op.getN()); })
      .Default([&](Operation *) { rules::describeUnknownWorkspace(rule); });
}

/// The same in bytes.
static int64_t getKeptBytes(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  if (isa<LinalgSvdvalsOp>(op))
    return llvm::sum_of(getInnerVectorBytes(rule));
  auto matrices = getMatrices(rule, op->getOperand(0));
  if (!matrices || isa<LinalgEigvalshOp>(op))
    return matrices ? matrices->bytes : 0;
  // The sign, and where it is negative.
  int64_t signs = getElementBytes(matrices->tensor.elementType) + 1;
  return matrices->bytes + matrices->getPivotBytes() +
         (isa<LogdetOp>(op) ? matrices->count * signs : 0);
}

void rules::describeMatrixFunctionSaved(SavedRule &rule) {
  // Powers say themselves that they do not know.
  saveDifferentiated(rule);
  if (!isa<LinalgSolveOp, LinalgSolveExOp, LinalgDetOp, DetOp, LinalgSlogdetOp,
           SlogdetOp, LogdetOp, LinalgEigvalshOp, LinalgSvdvalsOp>(
          rule.getOp()))
    return;
  int64_t before = rule.getKept();
  describeFunction(rule, &rule);
  // Where the function is not known, the bytes may be.
  if (int64_t kept = getKeptBytes(rule); rule.getKept() == before && kept > 0)
    rule.keep(kept);
}

void rules::describeMatrixFunctionWorkspace(WorkspaceRule &rule) {
  describeFunction(rule, /*saved=*/nullptr);
}
