//===- Loss.h - What gradients of losses allocate ---------------*- C++ -*-===//
//
// Private to lib/KernelModels: the models `backward` of losses.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_LOSS_LOSS_H
#define KOILA_KERNELMODELS_ATEN_LOSS_LOSS_H

#include "../TensorBytes.h"
#include "koila/Interfaces/BackwardRule.h"

namespace koila::loss {

void describeBinaryBackward(BackwardRule &rule);
void describeBinaryWithLogitsBackward(BackwardRule &rule);
void describeCrossEntropyBackward(BackwardRule &rule);
/// Losses of two tensors that have a kernel of their own.
void describeKernelBackward(BackwardRule &rule);
/// nll_loss and its kin.
void describeLikelihoodBackward(BackwardRule &rule);
void describeMultiMarginBackward(BackwardRule &rule);
void describeSoftMarginBackward(BackwardRule &rule);

/// What the kernel of nll_loss reads in rows when it writes gradients: the
/// weights, and of images whose losses are added up the targets.
void readInRows(AllocationTrace &steps, const ConcreteTensor &self,
                const ConcreteTensor &target,
                const std::optional<ConcreteTensor> &weight, int64_t reduction);

/// An elementwise kernel of a loss over `operands`, which casts them where the
/// kernels of the target do not read any type.
kernels::TensorIteration iterate(const WorkspaceRule &rule,
                                 llvm::ArrayRef<ConcreteTensor> operands,
                                 mlir::Type computed, int64_t resultBytes = 0);

/// The argument `reduction`.
int64_t getReduction(WorkspaceRule &rule);

} // namespace koila::loss

#endif // KOILA_KERNELMODELS_ATEN_LOSS_LOSS_H
