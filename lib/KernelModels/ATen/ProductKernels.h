//===- ProductKernels.h - Products of a target's library --------*- C++ -*-===//
//
// Private to lib/KernelModels: what the library that multiplies matrices on a
// target takes beside the result. Without such kernels products are those of
// the CPU (ATenCPU/GemmOperandCopies.h).
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_ATEN_PRODUCTKERNELS_H
#define KOILA_LIB_KERNELMODELS_ATEN_PRODUCTKERNELS_H

#include "koila/Interfaces/Rules.h"

namespace koila::blas {

struct Factor;

class ProductKernels {
public:
  virtual ~ProductKernels() = default;

  /// Of two matrices, or of two batches of them.
  virtual void multiply(AllocationTrace &trace, WorkspaceRule &rule,
                        const Factor &lhs, const Factor &rhs) const = 0;
  /// Of a matrix and a vector, or of two vectors.
  virtual void multiplyVector(AllocationTrace &trace, WorkspaceRule &rule,
                              const Factor &lhs, const Factor &rhs) const = 0;
  /// What a call has of its own to multiply two matrices and add a vector to
  /// each row of the product.
  virtual int64_t getBiasBytes(const WorkspaceRule &rule, const Factor &lhs,
                               const Factor &rhs) const {
    return 0;
  }
};

/// Those of the target; null on the CPU.
const ProductKernels *getKernels(const WorkspaceRule &rule);

} // namespace koila::blas

#endif // KOILA_LIB_KERNELMODELS_ATEN_PRODUCTKERNELS_H
