//===- Dropout.h - What dropout allocates -----------------------*- C++ -*-===//
//
// Private to lib/KernelModels: the models of a dropout, which is the identity
// outside of training.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_DROPOUT_H
#define KOILA_KERNELMODELS_ATEN_DROPOUT_H

#include "koila/Interfaces/BackwardRule.h"

namespace koila::kernels {

void describeDropout(WorkspaceRule &rule);
void describeDropoutSaved(SavedRule &rule);
void describeDropoutBackward(BackwardRule &rule);

} // namespace koila::kernels

#endif // KOILA_KERNELMODELS_ATEN_DROPOUT_H
