//===- MatrixDecomposition.cpp - Eigenvalues and singular values ----------===//
//
// Source: native/BatchLinearAlgebra.cpp. Decompositions for which LAPACK itself
// says how much it needs are not modelled.
//
//===----------------------------------------------------------------------===//

#include "../ATenCPU/GemmOperandCopies.h"
#include "../Models.h"
#include "Backward/BackwardReplay.h"
#include "Linalg.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using namespace koila::linalg;

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

static int64_t getVectorBytes(WorkspaceRule &rule) {
  auto matrices = getMatrices(rule, rule.getOp()->getOperand(0));
  return matrices ? matrices->bytes : 0;
}

static void saveEigenvalues(SavedRule &rule) {
  saveInner(rule, describeEigh, getVectorBytes);
}

static void saveSingularValues(SavedRule &rule) {
  saveInner(rule, describeSvd, [](WorkspaceRule &rule) {
    return llvm::sum_of(getInnerVectorBytes(rule), int64_t(0));
  });
}

void kernels::addMatrixDecompositionModels(KernelLibrary &library) {
  library.add<LinalgEighOp>({forwardOf<describeEigh>, saveOperands});
  library.add<LinalgEigvalshOp>({forwardOf<describeEigh>, saveEigenvalues});
  library.add<LinalgHouseholderProductOp>({describeReflectors, saveOperands});
  library.add<LinalgQrOp, PinverseOp>({.saved = saveOperands});
  library.add<LinalgSvdOp>({forwardOf<describeSvd>, saveOperands});
  library.add<LinalgSvdvalsOp>({forwardOf<describeSvd>, saveSingularValues});
}
