//===- CUDAModels.h - The rows of CUDA --------------------------*- C++ -*-===//
//
// Private to lib/KernelModels: each family adds the models of its operations on
// a GPU to the library `cuda`.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_ATENCUDA_CUDAMODELS_H
#define KOILA_LIB_KERNELMODELS_ATENCUDA_CUDAMODELS_H

#include "../Models.h"

namespace koila::kernels {
struct InputAndResult;
} // namespace koila::kernels

namespace koila::cuda {

/// The result of a kernel that reads rows, and after it a copy of `copyBytes`.
void allocateResultThenCopy(WorkspaceRule &rule,
                            const kernels::InputAndResult &tensors,
                            int64_t copyBytes);
/// The gradient of the first operand: a new tensor in rows that a kernel
/// writes, and nothing else.
void giveNew(BackwardRule &rule);

void addAttentionModels(KernelLibrary &library);
void addBatchNormModels(KernelLibrary &library);
void addCopyModels(KernelLibrary &library);
void addDropoutModels(KernelLibrary &library);
void addElementwiseModels(KernelLibrary &library, mlir::MLIRContext &context);
void addIndexModels(KernelLibrary &library);
void addLossModels(KernelLibrary &library);
void addMoveModels(KernelLibrary &library);
void addNormModels(KernelLibrary &library);
void addPoolModels(KernelLibrary &library);
void addReductionModels(KernelLibrary &library);
void addResampleModels(KernelLibrary &library);
void addSoftmaxModels(KernelLibrary &library);

} // namespace koila::cuda

#endif // KOILA_LIB_KERNELMODELS_ATENCUDA_CUDAMODELS_H
