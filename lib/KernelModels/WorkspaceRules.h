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

/// A conjugate that PyTorch leaves to those who read it.
void describeConjugateWorkspace(WorkspaceRule &rule);
void describeConvolutionWorkspace(WorkspaceRule &rule, ConvolutionKind kind);
/// Casts and copies of `source`.
void describeCopyWorkspace(WorkspaceRule &rule, mlir::Value source);
/// Of the operator for its gradients.
void describeConvolutionBackwardWorkspace(WorkspaceRule &rule);
void describeEinsumWorkspace(WorkspaceRule &rule);
void describeJoinWorkspace(WorkspaceRule &rule);
void describePadWorkspace(WorkspaceRule &rule);
/// A copy into rows, where the strides do not allow a view.
void describeReshapeWorkspace(WorkspaceRule &rule, mlir::Value self);
/// Fourier transforms and their frequencies.
void describeSpectralWorkspace(WorkspaceRule &rule);

// The bytes that autograd keeps, where kernels keep copies or what they made.
void describeConvolutionSaved(SavedRule &rule);
void describeEinsumSaved(SavedRule &rule);
void describeSpectralSaved(SavedRule &rule);

} // namespace koila::rules

#endif // KOILA_LIB_KERNELMODELS_WORKSPACERULES_H
