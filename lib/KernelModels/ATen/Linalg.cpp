//===- Linalg.cpp - What functions of matrices hold inside ----------------===//
//
// Sources: native/BatchLinearAlgebra.cpp, native/LinearAlgebra.cpp. Functions
// for which LAPACK itself says how much it needs are not modelled.
//
//===----------------------------------------------------------------------===//

#include "../ATenCPU/GemmOperandCopies.h"
#include "../WorkspaceRules.h"
#include "AllocationTrace.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using blas::Factor;

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

namespace {
/// Square matrices. Pivots and infos are int32.
struct Matrices {
  ConcreteTensor tensor;
  int64_t count, rows, bytes;

  int64_t getRows() const { return count * rows; }
  int64_t getPivotBytes() const { return 4 * getRows(); }
  int64_t getInfoBytes() const { return 4 * count; }
};
} // namespace

static std::optional<Matrices> getMatrices(WorkspaceRule &rule, Value value) {
  auto tensor = rule.tensor(value);
  if (!tensor || tensor->dims.size() < 2) {
    rule.setInexact("the shape of the matrices is unknown");
    return std::nullopt;
  }
  Matrices matrices{*tensor, 1, tensor->dims.back(), tensor->numBytes()};
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

/// Whether all pivots are those of rows: compared with two numbers.
static void checkPivots(AllocationTrace &trace, const Matrices &matrices) {
  constexpr int64_t kNumberBytes = 8 + 4;
  trace.allocateTemporary(matrices.getRows() + kNumberBytes);
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
static bool copiesForTriangle(const ConcreteTensor &tensor) {
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

void rules::describeMatrixFunctionWorkspace(WorkspaceRule &rule) {
  llvm::TypeSwitch<Operation *>(rule.getOp())
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
