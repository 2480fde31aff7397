//===- Models.h - The rows of the libraries ---------------------*- C++ -*-===//
//
// Private to lib/KernelModels: each family adds the models of its operations to
// a library.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_MODELS_H
#define KOILA_LIB_KERNELMODELS_MODELS_H

#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "koila/KernelModels/KernelModel.h"
#include "mlir/IR/MLIRContext.h"

namespace koila::kernels {

/// Nothing but the results.
inline void allocateNothing(WorkspaceRule &) {}

// Replays of one operator tell what a call allocates, what autograd keeps of it
// if there is a rule for that, and what the gradients take if there is one for
// those. These are their models.

template <void (*Replay)(WorkspaceRule &, SavedRule *)>
void forwardOf(WorkspaceRule &rule) {
  Replay(rule, /*saved=*/nullptr);
}
template <void (*Replay)(WorkspaceRule &, SavedRule *)>
void savedOf(SavedRule &rule) {
  Replay(rule, &rule);
}
template <void (*Replay)(WorkspaceRule &, SavedRule *, BackwardRule *)>
void forwardOf(WorkspaceRule &rule) {
  Replay(rule, /*saved=*/nullptr, /*backward=*/nullptr);
}
template <void (*Replay)(WorkspaceRule &, SavedRule *, BackwardRule *)>
void savedOf(SavedRule &rule) {
  Replay(rule, &rule, /*backward=*/nullptr);
}
template <void (*Replay)(WorkspaceRule &, SavedRule *, BackwardRule *)>
void backwardOf(BackwardRule &rule) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  Replay(rule, /*saved=*/nullptr, &rule);
}

void addAttentionModels(KernelLibrary &library);
/// Blocks of images as columns, and back.
void addBlockModels(KernelLibrary &library);
void addBatchNormModels(KernelLibrary &library);
void addClassLossModels(KernelLibrary &library);
void addComposedElementwiseModels(KernelLibrary &library);
void addComposedLossModels(KernelLibrary &library);
void addConvolutionModels(KernelLibrary &library);
void addCopyModels(KernelLibrary &library);
void addCovarianceModels(KernelLibrary &library);
void addCrossEntropyModels(KernelLibrary &library);
void addDeterminantModels(KernelLibrary &library);
void addDistanceModels(KernelLibrary &library);
void addDropoutModels(KernelLibrary &library);
void addFactoryModels(KernelLibrary &library);
void addIndexModels(KernelLibrary &library);
void addJoinModels(KernelLibrary &library);
void addLossModels(KernelLibrary &library);
void addMatrixDecompositionModels(KernelLibrary &library);
void addMatrixFunctionModels(KernelLibrary &library);
void addNormModels(KernelLibrary &library);
void addPermuteRepeatModels(KernelLibrary &library);
void addPoolModels(KernelLibrary &library);
void addProductModels(KernelLibrary &library);
void addQuantileModels(KernelLibrary &library);
void addRecurrentModels(KernelLibrary &library);
void addReductionModels(KernelLibrary &library);
void addResampleModels(KernelLibrary &library);
void addSoftmaxModels(KernelLibrary &library);
void addSortModels(KernelLibrary &library);
void addSpectralModels(KernelLibrary &library);
void addStftModels(KernelLibrary &library);
void addViewModels(KernelLibrary &library);

// Backward passes of families whose models are many.
void addCopyGradients(KernelLibrary &library);
void addCumulativeGradients(KernelLibrary &library);
void addIndexGradients(KernelLibrary &library);
void addJoinGradients(KernelLibrary &library);
void addMatrixFunctionGradients(KernelLibrary &library);
/// Of what moves elements, and adds up where it has repeated them.
void addMoveGradients(KernelLibrary &library);
void addProductGradients(KernelLibrary &library);
void addReductionGradients(KernelLibrary &library);
void addSpectralGradients(KernelLibrary &library);
void addViewGradients(KernelLibrary &library);

/// Of all elementwise operators that have no other model.
void addElementwiseModels(KernelLibrary &library, mlir::MLIRContext &context);
/// The backward passes that formulas give, of all operators that have no other
/// and whose base name, `mul` for one, `holds` accepts.
void addBackwardFormulas(
    KernelLibrary &library, mlir::MLIRContext &context,
    llvm::function_ref<bool(llvm::StringRef)> holds = [](llvm::StringRef) {
      return true;
    });

// Parts of models that other targets have as well.
/// Selections by a condition, and what is computed by one kernel.
void addSelectModels(KernelLibrary &library);
/// Adaptive averages, which are means where one element is left.
void addAdaptiveAverageModels(KernelLibrary &library);
/// Tensors that one kernel fills or draws.
void addFilledModels(KernelLibrary &library);
void describeDropoutForward(WorkspaceRule &rule);
void saveDropout(SavedRule &rule);
void describeDropoutBackward(BackwardRule &rule);

} // namespace koila::kernels

#endif // KOILA_LIB_KERNELMODELS_MODELS_H
