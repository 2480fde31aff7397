//===- WorkspaceRules.h - What operators hold inside ------------*- C++ -*-===//
//
// The workspace rules of the families, in lib/KernelModels. A rule says how
// many bytes an operator holds beyond its results at its worst moment, on CPU
// and without a gradient being recorded. docs/design/Workspaces.md has the
// figures; test/oracle/memory_oracle.py compares them with PyTorch.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_WORKSPACERULES_H
#define KOILA_LIB_KERNELMODELS_WORKSPACERULES_H

#include "koila/Interfaces/Rules.h"

namespace koila::rules {

struct ConvolutionKind;

/// For operators of a family whose transient bytes have no rule yet.
void describeUnknownWorkspace(WorkspaceRule &rule);
void describeAttentionWorkspace(WorkspaceRule &rule);
/// Elementwise operators that PyTorch composes of others.
void describeComposedWorkspace(WorkspaceRule &rule);
/// Distances of vectors and of their pairs.
void describeDistanceWorkspace(WorkspaceRule &rule);
void describeCovarianceWorkspace(WorkspaceRule &rule);
/// A conjugate that PyTorch leaves to those who read it.
void describeConjugateWorkspace(WorkspaceRule &rule);
void describeConvolutionWorkspace(WorkspaceRule &rule, ConvolutionKind kind);
/// Casts and copies of `source`.
void describeCopyWorkspace(WorkspaceRule &rule, mlir::Value source);
void describeBatchNormWorkspace(WorkspaceRule &rule);
void describeLayerNormWorkspace(WorkspaceRule &rule);
void describeLinearWorkspace(WorkspaceRule &rule);
/// Of the operator for its gradients.
void describeConvolutionBackwardWorkspace(WorkspaceRule &rule);
void describeEinsumWorkspace(WorkspaceRule &rule);
/// Reads, writes and searches by indices and masks.
void describeIndexWorkspace(WorkspaceRule &rule);
void describeJoinWorkspace(WorkspaceRule &rule);
void describeLossWorkspace(WorkspaceRule &rule);
/// Inverses, determinants, solutions and powers of matrices.
void describeMatrixFunctionWorkspace(WorkspaceRule &rule);
void describeMatrixFunctionSaved(SavedRule &rule);
void describeNormWorkspace(WorkspaceRule &rule);
/// torch.tensor and torch.as_tensor.
void describeNumberTensorWorkspace(WorkspaceRule &rule);
void describePadWorkspace(WorkspaceRule &rule);
void describePoolWorkspace(WorkspaceRule &rule);
/// Products with matrices.
void describeProductWorkspace(WorkspaceRule &rule);
/// Draws that read tensors.
void describeRandomWorkspace(WorkspaceRule &rule);
/// The same elements in other places.
void describeRearrangeWorkspace(WorkspaceRule &rule);
void describeRecurrentWorkspace(WorkspaceRule &rule);
void describeReductionWorkspace(WorkspaceRule &rule);
/// A copy into rows, where the strides do not allow a view.
void describeReshapeWorkspace(WorkspaceRule &rule, mlir::Value self);
void describeResampleWorkspace(WorkspaceRule &rule);
void describeSoftmaxWorkspace(WorkspaceRule &rule, mlir::Value self,
                              mlir::Value result);
void describeSortWorkspace(WorkspaceRule &rule);
/// Fourier transforms and their frequencies.
void describeSpectralWorkspace(WorkspaceRule &rule);
void describeStftWorkspace(WorkspaceRule &rule);
/// Windows of spectral transforms.
void describeWindowWorkspace(WorkspaceRule &rule);

// The bytes that autograd keeps, where kernels keep copies or what they made.
void describeAttentionSaved(SavedRule &rule);
void describeConvolutionSaved(SavedRule &rule);
void describeDistanceSaved(SavedRule &rule);
void describeCovarianceSaved(SavedRule &rule);
void describeEinsumSaved(SavedRule &rule);
void describeLossSaved(SavedRule &rule);
void describeNormSaved(SavedRule &rule);
void describePoolSaved(SavedRule &rule);
void describeProductSaved(SavedRule &rule);
void describeRecurrentSaved(SavedRule &rule);
void describeSpectralSaved(SavedRule &rule);
void describeStftSaved(SavedRule &rule);

} // namespace koila::rules

#endif // KOILA_LIB_KERNELMODELS_WORKSPACERULES_H
