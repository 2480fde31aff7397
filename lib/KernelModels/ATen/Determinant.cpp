//===- Determinant.cpp - What determinants hold inside --------------------===//
//
// Source: native/LinearAlgebra.cpp, with the factors of
// native/BatchLinearAlgebra.cpp.
//
//===----------------------------------------------------------------------===//

#include "../ATenCPU/GemmOperandCopies.h"
#include "../Models.h"
#include "Linalg.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using namespace koila::linalg;

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

static void saveDet(SavedRule &rule) {
  saveInner(rule, describeDet, getFactorBytes);
}

static void saveSlogdet(SavedRule &rule) {
  saveInner(rule, describeSlogdet, getFactorBytes);
}

/// The sign, and where it is negative, as well.
static int64_t getLogdetBytes(WorkspaceRule &rule) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  if (!matrices)
    return 0;
  int64_t signs = getElementBytes(matrices->tensor.elementType) + 1;
  return matrices->bytes + matrices->getPivotBytes() + matrices->count * signs;
}

static void saveLogdet(SavedRule &rule) {
  saveInner(rule, describeLogdet, getLogdetBytes);
}

void kernels::addDeterminantModels(KernelLibrary &library) {
  library.add<DetOp, LinalgDetOp>({forwardOf<describeDet>, saveDet});
  library.add<LinalgSlogdetOp, SlogdetOp>(
      {forwardOf<describeSlogdet>, saveSlogdet});
  library.add<LogdetOp>({forwardOf<describeLogdet>, saveLogdet});
}
