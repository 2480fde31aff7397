//===- Loss.h - What losses hold inside, by their sources -------*- C++ -*-===//
//
// Private to lib/KernelModels: the parts of describeLossWorkspace.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_LOSS_LOSS_H
#define KOILA_KERNELMODELS_ATEN_LOSS_LOSS_H

#include "koila/Interfaces/BackwardRule.h"

namespace koila::kernels {
class BackwardReplay;
} // namespace koila::kernels

namespace koila::loss {

/// Losses that PyTorch writes as expressions over other operators; `saved` is
/// told what autograd keeps of them, `backward` what their gradients take.
void describeComposed(WorkspaceRule &rule, SavedRule *saved = nullptr,
                      BackwardRule *backward = nullptr);
/// Losses on classes.
void describeClasses(WorkspaceRule &rule);
/// Negative likelihoods and cross entropies.
void describeCrossEntropy(WorkspaceRule &rule, SavedRule *saved = nullptr);
/// The gradient of cross_entropy_loss.
void describeCrossEntropyBackward(BackwardRule &rule);
/// ctc_loss.
void describeCtc(WorkspaceRule &rule, SavedRule *saved = nullptr);
void describeCtcBackward(BackwardRule &rule, kernels::BackwardReplay &steps);

bool isComposed(mlir::Operation *op);
bool isCrossEntropy(mlir::Operation *op);
/// The argument `reduction`.
int64_t getReduction(WorkspaceRule &rule);

} // namespace koila::loss

#endif // KOILA_KERNELMODELS_ATEN_LOSS_LOSS_H
