//===- Loss.h - What gradients of losses allocate ---------------*- C++ -*-===//
//
// Private to lib/KernelModels: the gradients of losses that have a file of
// their own.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_LOSS_LOSS_H
#define KOILA_KERNELMODELS_ATEN_LOSS_LOSS_H

#include "koila/Interfaces/BackwardRule.h"

namespace koila::kernels {
class BackwardReplay;
} // namespace koila::kernels

namespace koila::loss {

/// The gradient of cross_entropy_loss.
void describeCrossEntropyBackward(BackwardRule &rule);
/// That of ctc_loss.
void describeCtcBackward(BackwardRule &rule, kernels::BackwardReplay &steps);

/// The argument `reduction`.
int64_t getReduction(WorkspaceRule &rule);

} // namespace koila::loss

#endif // KOILA_KERNELMODELS_ATEN_LOSS_LOSS_H
