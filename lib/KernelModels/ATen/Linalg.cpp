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

int64_t linalg::getInnerVectorBytes(const WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto tensor = rule.tensor(op->getOperand(0));
  if (!isa<LinalgSvdvalsOp>(op) || !rule.wantsGradient(op->getOperand(0)) ||
      !tensor)
    return 0;
  int64_t rows = tensor->dims.rbegin()[1], columns = tensor->dims.back();
  if (tensor->numElements() == 0)
    return 0;
  return tensor->numBytes() / (rows * columns) * std::min(rows, columns) *
         (rows + columns);
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
  trace.allocateTemporary(matrices.getCheckBytes());
}

/// Whether all infos are zero.
static void checkInfos(AllocationTrace &trace, const Matrices &matrices) {
  trace.allocateTemporary(1 + matrices.count);
}

//===----------------------------------------------------------------------===//
// Inverses and solutions
//===----------------------------------------------------------------------===//

/// The matrices are factored, and the factors solved; `copied` are the bytes
/// of a right side that is no matrix with its columns first.
static void solve(AllocationTrace &trace, const Matrices &matrices,
                  int64_t result, int64_t copied, bool checks) {
  trace.allocate(result);
  trace.allocate(matrices.getInfoBytes());
  trace.allocate(matrices.bytes);
  trace.allocate(matrices.getPivotBytes());
  trace.allocate(copied);
  checkPivots(trace, matrices);
  trace.free(copied + matrices.getPivotBytes() + matrices.bytes);
  if (checks) {
    checkInfos(trace, matrices);
    trace.free(matrices.getInfoBytes());
  }
}

static void describeInverse(WorkspaceRule &rule, bool keepsInfos, bool checks) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  AllocationTrace trace;
  solve(trace, *matrices, matrices->bytes, 0, !keepsInfos);
  if (keepsInfos && checks)
    checkInfos(trace, *matrices);
  rule.setTransient(trace.getTransient());
}

static void describeSolve(WorkspaceRule &rule, Value left, Value right,
                          bool keepsInfos, bool checks) {
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
  solve(trace, *matrices, result->numBytes(), isVector ? result->numBytes() : 0,
        !keepsInfos);
  if (keepsInfos && checks)
    checkInfos(trace, *matrices);
  rule.setTransient(trace.getTransient());
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
  rule.setTransient(trace.getTransient());
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
  trace.allocate(all.bytes);
  trace.allocateTemporary(
      getBlockBytes(transposeDims(matrices->tensor, -1, -2)));
  trace.allocate(all.getInfoBytes());
  checkInfos(trace, all);
  trace.free(all.getInfoBytes() + all.bytes);
  rule.setTransient(trace.getTransient());
}

/// The factors are copied into the result. Source: cholesky_inverse.
static void describeCholeskyInverse(WorkspaceRule &rule) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  AllocationTrace trace;
  trace.allocate(matrices->getInfoBytes());
  trace.allocate(matrices->bytes);
  checkInfos(trace, *matrices);
  trace.free(matrices->getInfoBytes());
  rule.setTransient(trace.getTransient());
}

//===----------------------------------------------------------------------===//
// Eigenvalues and singular values
//===----------------------------------------------------------------------===//

/// The eigenvectors, which are computed in the place of the matrices, and what
/// LAPACK asks for. Sources: _linalg_eigh, apply_lapack_eigh; ?syevd.
static void describeEigh(WorkspaceRule &rule) {
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
  trace.allocate(matrices->bytes);
  if (!hasVectors)
    trace.allocateTemporary(
        getBlockBytes(transposeDims(matrices->tensor, -1, -2)));
  trace.allocate(matrices->getRows() * size);
  trace.allocate(matrices->getInfoBytes());
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
  trace.allocateTemporary(work * size + places * 4);
  checkInfos(trace, *matrices);
  trace.free(matrices->getInfoBytes());
  if (isOnlyValues)
    trace.free(matrices->bytes);
  rule.setTransient(trace.getTransient());
}

/// A copy of the matrices with their columns first; LAPACK's work is in memory
/// of its own. Source: _linalg_svd, svd_kernel.
static void describeSvd(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto matrices = getMatrices(rule, op->getOperand(0));
  if (!matrices)
    return;
  if (isa<ComplexType>(matrices->tensor.elementType))
    return rule.setInexact("singular values of complex numbers");
  AllocationTrace trace;
  int64_t inner = getInnerVectorBytes(rule);
  trace.allocate(inner);
  int64_t results = 0;
  for (Value value : op->getResults()) {
    auto result = rule.tensor(value);
    if (!result)
      return rule.setInexact("the shape of a result is unknown");
    results += result->numBytes();
  }
  trace.allocate(results);
  trace.allocate(matrices->getInfoBytes());
  trace.allocate(matrices->bytes);
  trace.allocateTemporary(
      getBlockBytes(transposeDims(matrices->tensor, -1, -2)));
  trace.free(matrices->bytes);
  checkInfos(trace, *matrices);
  trace.free(matrices->getInfoBytes() + inner);
  rule.setTransient(trace.getTransient());
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

/// Factors, pivots and infos, and while `products` are alive, the signs of the
/// permutations: pivots that are not their place, counted as int64.
static void permute(AllocationTrace &trace, const Matrices &matrices,
                    int64_t products) {
  trace.allocate(matrices.bytes + matrices.getPivotBytes() +
                 matrices.getInfoBytes());
  trace.allocate(products);
  int64_t places = 4 * matrices.rows + matrices.getRows();
  trace.allocate(places);
  trace.allocate(8 * matrices.count);
  trace.allocateTemporary(8 * matrices.getRows());
  trace.free(places);
}

static void describeDet(WorkspaceRule &rule) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!matrices || !result)
    return;
  AllocationTrace trace;
  permute(trace, *matrices, result->numBytes());
  trace.allocateTemporary(result->numBytes());
  rule.setTransient(trace.getPeak());
}

/// What slogdet holds beyond its results.
static int64_t getSlogdetBytes(const Matrices &matrices) {
  Type type = matrices.tensor.elementType;
  int64_t size = getElementBytes(type), diagonal = matrices.getRows() * size;
  AllocationTrace trace;
  permute(trace, matrices, 0);
  // Signs along the diagonal, their product, and that by the permutation's.
  trace.allocateTemporary(diagonal + 2 * matrices.count * size);
  trace.free(8 * matrices.count);
  // Magnitudes; those of complex numbers are complex at first.
  trace.allocateTemporary(isa<ComplexType>(type) ? diagonal / 2 + diagonal
                                                 : diagonal);
  return trace.getPeak();
}

static void describeSlogdet(WorkspaceRule &rule) {
  if (auto matrices = getMatrices(rule, rule.getOp()->getOperand(0)))
    rule.setTransient(getSlogdetBytes(*matrices));
}

/// slogdet, whose results are then put together.
static void describeLogdet(WorkspaceRule &rule) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!matrices || !result)
    return;
  if (isa<ComplexType>(result->elementType))
    return rule.setInexact("logdet of complex numbers");
  rule.setTransient(getSlogdetBytes(*matrices) + result->numBytes());
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

/// Whether the matrices can be multiplied says checkFactors.
static Factor multiply(WorkspaceRule &rule, AllocationTrace &trace,
                       const Factor &lhs, const Factor &rhs) {
  trace.allocate(lhs.numBytes());
  trace.allocateTemporary(blas::getMatmulCopies(rule, lhs, rhs).bytes);
  return makeContiguous(lhs);
}

/// Source: matrix_power_impl.
static void raise(WorkspaceRule &rule, AllocationTrace &trace,
                  const Factor &base, int64_t exponent) {
  Factor square = multiply(rule, trace, base, base);
  if (exponent == 3) {
    multiply(rule, trace, square, base);
    trace.free(base.numBytes());
  }
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
  if (exponent < 0) {
    solve(trace, *matrices, matrices->bytes, 0, /*checks=*/true);
    // The columns of an inverse are dense.
    base = blas::transpose(makeContiguous(*base));
  }
  raise(rule, trace, *base, std::abs(exponent));
  trace.free(exponent < 0 ? matrices->bytes : 0);
  rule.setTransient(trace.getTransient());
}

/// What autograd keeps beyond operands and results: factors and their pivots,
/// and vectors that are no results.
void rules::describeMatrixFunctionSaved(SavedRule &rule) {
  Operation *op = rule.getOp();
  // Powers say themselves that they do not know.
  saveDifferentiated(rule);
  bool isFactored = isa<LinalgSolveOp, LinalgSolveExOp, LinalgDetOp, DetOp,
                        LinalgSlogdetOp, SlogdetOp, LogdetOp>(op);
  if (isFactored || isa<LinalgEigvalshOp>(op)) {
    auto matrices = getMatrices(rule, op->getOperand(0));
    if (!matrices)
      return;
    rule.keep(matrices->bytes + (isFactored ? matrices->getPivotBytes() : 0));
    // The sign, and where it is negative.
    if (isa<LogdetOp>(op))
      rule.keep(matrices->count *
                (getElementBytes(matrices->tensor.elementType) + 1));
  }
  if (isa<LinalgSvdvalsOp>(op))
    rule.keep(getInnerVectorBytes(rule));
}

void rules::describeMatrixFunctionWorkspace(WorkspaceRule &rule) {
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<LinalgSolveTriangularOp>(
          [&](auto op) { describeTriangular(rule, op); })
      .Case<CholeskySolveOp>([&](auto op) { describeCholeskySolve(rule, op); })
      .Case<CholeskyInverseOp>([&](auto) { describeCholeskyInverse(rule); })
      .Case<LinalgEighOp, LinalgEigvalshOp>([&](auto) { describeEigh(rule); })
      .Case<LinalgSvdOp, LinalgSvdvalsOp>([&](auto) { describeSvd(rule); })
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
        describeSolve(rule, op.getA(), op.getB(), false, true);
      })
      .Case<LinalgSolveExOp>([&](auto op) {
        describeSolve(rule, op.getA(), op.getB(), true, op.getCheckErrors());
      })
      .Case<LinalgDetOp, DetOp>([&](auto) { describeDet(rule); })
      .Case<LinalgSlogdetOp, SlogdetOp>([&](auto) { describeSlogdet(rule); })
      .Case<LogdetOp>([&](auto) { describeLogdet(rule); })
      .Case<LinalgMatrixPowerOp, MatrixPowerOp>(
          [&](auto op) { describePower(rule, op.getN()); })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}
