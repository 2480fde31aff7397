//===- Products.h - What cuBLAS holds for products --------------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_CUBLAS_PRODUCTS_H
#define KOILA_LIB_KERNELMODELS_CUBLAS_PRODUCTS_H

#include "../ATen/ProductKernels.h"

namespace koila::cuda {

/// The workspace of cuBLAS and cuBLASLt, of which each handle has one for each
/// stream; a thread has a handle.
void shareBlasWorkspace(AllocationTrace &trace, const WorkspaceRule &rule);

class CuBLASProducts : public blas::ProductKernels {
public:
  void multiply(AllocationTrace &trace, WorkspaceRule &rule,
                const blas::Factor &lhs,
                const blas::Factor &rhs) const override;
  void multiplyVector(AllocationTrace &trace, WorkspaceRule &rule,
                      const blas::Factor &lhs,
                      const blas::Factor &rhs) const override;
  int64_t getBiasBytes(const WorkspaceRule &rule, const blas::Factor &lhs,
                       const blas::Factor &rhs) const override;
};

} // namespace koila::cuda

#endif // KOILA_LIB_KERNELMODELS_CUBLAS_PRODUCTS_H
