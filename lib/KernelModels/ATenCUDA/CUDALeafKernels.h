//===- CUDALeafKernels.h - Kernels of a GPU without an operation *- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_ATENCUDA_CUDALEAFKERNELS_H
#define KOILA_LIB_KERNELMODELS_ATENCUDA_CUDALEAFKERNELS_H

#include "koila/KernelModels/LeafKernels.h"
#include <memory>

namespace koila::cuda {

std::unique_ptr<LeafKernels> makeLeafKernels();

/// One step of an optimizer of torch.optim, over all weights at once unless
/// `foreach=false`. What is left is the state that the first step makes; counts
/// of steps are on the host. None of optimizers that are not known.
std::optional<AllocationTrace> traceStep(const Optimizer &optimizer,
                                         llvm::ArrayRef<TrainedWeight> weights,
                                         bool isFirst);

} // namespace koila::cuda

#endif // KOILA_LIB_KERNELMODELS_ATENCUDA_CUDALEAFKERNELS_H
