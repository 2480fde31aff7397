//===- LossMemory.h - What losses hold inside, by their sources -*- C++ -*-===//
//
// Private to lib/Dialect/Koila/IR: the parts of describeLossWorkspace.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_LOSSMEMORY_H
#define KOILA_LIB_DIALECT_KOILA_IR_LOSSMEMORY_H

#include "koila/Interfaces/BackwardRule.h"

namespace koila::footprint {
class Backprop;
} // namespace koila::footprint

namespace koila::loss {

/// Losses that PyTorch writes as expressions over other operators; `saved` is
/// told what autograd keeps of them.
void describeComposed(WorkspaceRule &rule, SavedRule *saved = nullptr);
/// Losses on classes.
void describeClasses(WorkspaceRule &rule);
/// Negative likelihoods and cross entropies.
void describeCrossEntropy(WorkspaceRule &rule, SavedRule *saved = nullptr);
/// The gradient of cross_entropy_loss.
void describeCrossEntropyBackward(BackwardRule &rule);
/// ctc_loss.
void describeCtc(WorkspaceRule &rule, SavedRule *saved = nullptr);
void describeCtcBackward(BackwardRule &rule, footprint::Backprop &steps);

bool isComposed(mlir::Operation *op);
bool isCrossEntropy(mlir::Operation *op);
/// The argument `reduction`.
int64_t getReduction(WorkspaceRule &rule);

} // namespace koila::loss

#endif // KOILA_LIB_DIALECT_KOILA_IR_LOSSMEMORY_H
