//===- Products.cpp - What cuBLAS holds for products ----------------------===//
//
// Sources: native/cuda/Blas.cpp, cuda/CublasHandlePool.cpp; sizes as in the
// released 2.13.0 libraries (parseChosenWorkspaceSize).
//
//===----------------------------------------------------------------------===//

#include "Products.h"
#include "../ATenCPU/GemmOperandCopies.h"
#include "koila/KernelModels/DeviceProfile.h"

using namespace mlir;
using namespace koila;
using namespace koila::cuda;
using blas::Factor;

void cuda::shareBlasWorkspace(AllocationTrace &trace,
                              const WorkspaceRule &rule) {
  // Of Hopper and Blackwell, and of cards that are not named; of all others.
  constexpr int64_t kLarge = 32 << 20, kSmall = (8 << 20) + (128 << 10);
  const DeviceProfile *profile = rule.getTarget().profile;
  auto major = profile ? profile->getProperties().major : std::nullopt;
  bool isLarge = !major || *major == 9 || *major == 10 || *major == 12;
  trace.share(AllocationTrace::Library::CuBLAS, isLarge ? kLarge : kSmall);
}

/// A copy in rows where neither rows nor columns are dense. Source:
/// prepare_matrix_for_cublas.
static AllocationTrace::Block copyUnlessReadable(AllocationTrace &trace,
                                                 const Factor &factor) {
  int64_t rows = factor.dims.end()[-2], columns = factor.dims.end()[-1];
  int64_t row = factor.strides.end()[-2], column = factor.strides.end()[-1];
  bool isReadable = (column == 1 && row >= std::max<int64_t>(columns, 1)) ||
                    (row == 1 && column >= std::max<int64_t>(rows, 1));
  return trace.allocate(isReadable ? 0 : factor.numBytes());
}

void CuBLASProducts::multiply(AllocationTrace &trace, WorkspaceRule &rule,
                              const Factor &lhs, const Factor &rhs) const {
  AllocationTrace::Block left = copyUnlessReadable(trace, lhs);
  AllocationTrace::Block right = copyUnlessReadable(trace, rhs);
  shareBlasWorkspace(trace, rule);
  trace.free(right);
  trace.free(left);
}

void CuBLASProducts::multiplyVector(AllocationTrace &trace, WorkspaceRule &rule,
                                    const Factor &, const Factor &) const {
  shareBlasWorkspace(trace, rule);
}

/// cuBLASLt adds the vector. Before it had the workspace of cuBLAS each call
/// took one of its own. Sources: gemm_and_bias and _parseChosenWorkspaceSize in
/// cuda/CUDABlas.cpp of 2.6, addmm_out_cuda_impl in native/cuda/Blas.cpp.
int64_t CuBLASProducts::getBiasBytes(const WorkspaceRule &rule,
                                     const Factor &lhs,
                                     const Factor &rhs) const {
  constexpr int64_t kOwn = 1 << 20;
  const DeviceProfile *profile = rule.getTarget().profile;
  bool hasOwn = profile && profile->getProperties().isBefore(2, 7);
  bool isByLt = rhs.dims.end()[-2] > 1 && rhs.dims.end()[-1] > 1;
  return hasOwn && isByLt ? kOwn : 0;
}
