//===- Linalg.cpp - What functions of matrices hold inside ----------------===//
//
// Sources: native/BatchLinearAlgebra.cpp, native/LinearAlgebra.cpp. Functions
// for which LAPACK itself says how much it needs are not modelled.
//
//===----------------------------------------------------------------------===//

#include "Linalg.h"
#include "../ATenCPU/GemmOperandCopies.h"
#include "../Models.h"
#include "Backward/BackwardReplay.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"

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

void linalg::checkInfos(AllocationTrace &trace, const Matrices &matrices) {
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

static void traceInverse(WorkspaceRule &rule, bool keepsInfos, bool checks) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return;
  AllocationTrace trace;
  invert(trace, *matrices, keepsInfos);
  if (keepsInfos && checks)
    checkInfos(trace, *matrices);
  rule.setTrace(std::move(trace));
}

static void describeInverse(WorkspaceRule &rule) {
  traceInverse(rule, /*keepsInfos=*/false, /*checks=*/true);
}

static void describeInverseEx(WorkspaceRule &rule) {
  traceInverse(rule, /*keepsInfos=*/true,
               cast<LinalgInvExOp>(rule.getOp()).getCheckErrors());
}

static void traceSolve(WorkspaceRule &rule, SavedRule *saved, Value left,
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

static void describeSolve(WorkspaceRule &rule, SavedRule *saved) {
  auto op = cast<LinalgSolveOp>(rule.getOp());
  traceSolve(rule, saved, op.getA(), op.getB(), /*keepsInfos=*/false,
             /*checks=*/true);
}

static void describeSolveEx(WorkspaceRule &rule, SavedRule *saved) {
  auto op = cast<LinalgSolveExOp>(rule.getOp());
  traceSolve(rule, saved, op.getA(), op.getB(), /*keepsInfos=*/true,
             op.getCheckErrors());
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

static void traceCholesky(WorkspaceRule &rule, bool keepsInfos, bool checks) {
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

static void describeCholesky(WorkspaceRule &rule) {
  traceCholesky(rule, /*keepsInfos=*/false, /*checks=*/true);
}

static void describeCholeskyEx(WorkspaceRule &rule) {
  traceCholesky(rule, /*keepsInfos=*/true,
                cast<LinalgCholeskyExOp>(rule.getOp()).getCheckErrors());
}

//===----------------------------------------------------------------------===//
// Systems with triangles
//===----------------------------------------------------------------------===//

/// The right sides are solved in the place of the result. Matrices are read as
/// they are if their rows or their columns are dense.
/// Source: linalg_solve_triangular_out.
static void describeTriangular(WorkspaceRule &rule) {
  auto op = cast<LinalgSolveTriangularOp>(rule.getOp());
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
static void describeCholeskySolve(WorkspaceRule &rule) {
  auto op = cast<CholeskySolveOp>(rule.getOp());
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
// Powers and exponentials
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

template <typename OpT>
static void describePower(WorkspaceRule &rule) {
  int64_t exponent = cast<OpT>(rule.getOp()).getN();
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
    return describeInverse(rule);
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
// What autograd keeps
//===----------------------------------------------------------------------===//

void linalg::saveOperands(SavedRule &rule) { saveDifferentiated(rule); }

int64_t linalg::getFactorBytes(WorkspaceRule &rule) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  return matrices ? matrices->bytes + matrices->getPivotBytes() : 0;
}

void linalg::saveInner(SavedRule &rule,
                       void (*replay)(WorkspaceRule &, SavedRule *),
                       int64_t (*getKeptBytes)(WorkspaceRule &)) {
  saveDifferentiated(rule);
  int64_t before = rule.getKept();
  replay(rule, &rule);
  // Where the function is not known, the bytes may be.
  if (int64_t kept = getKeptBytes(rule); rule.getKept() == before && kept > 0)
    rule.keep(kept);
}

static void saveSolve(SavedRule &rule) {
  saveInner(rule, describeSolve, getFactorBytes);
}

static void saveSolveEx(SavedRule &rule) {
  saveInner(rule, describeSolveEx, getFactorBytes);
}

// Powers say themselves that they do not know what autograd keeps.
void kernels::addMatrixFunctionModels(KernelLibrary &library) {
  library.add<CholeskyInverseOp>({describeCholeskyInverse, saveOperands});
  library.add<CholeskyOp, LinalgCholeskyOp>({describeCholesky, saveOperands});
  library.add<CholeskySolveOp>({describeCholeskySolve, saveOperands});
  library.add<InverseOp, LinalgInvOp>({describeInverse, saveOperands});
  library.add<LinalgCholeskyExOp>({describeCholeskyEx, saveOperands});
  library.add<LinalgInvExOp>({describeInverseEx, saveOperands});
  library.add<LinalgMatrixExpOp, MatrixExpOp>(
      {describeExponential, saveOperands});
  library.add<LinalgMatrixPowerOp>(
      {describePower<LinalgMatrixPowerOp>, saveOperands});
  library.add<LinalgSolveExOp>({forwardOf<describeSolveEx>, saveSolveEx});
  library.add<LinalgSolveOp>({forwardOf<describeSolve>, saveSolve});
  library.add<LinalgSolveTriangularOp>({describeTriangular, saveOperands});
  library.add<MatrixPowerOp>({describePower<MatrixPowerOp>, saveOperands});
}
