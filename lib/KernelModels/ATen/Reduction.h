//===- Reduction.h - Reductions that are expressions ------------*- C++ -*-===//
//
// Private to lib/KernelModels: the parts of describeReductionWorkspace.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_REDUCTION_H
#define KOILA_KERNELMODELS_ATEN_REDUCTION_H

#include "koila/Interfaces/Rules.h"

namespace koila::reduction {

/// quantile and nanquantile; `saved` is told what autograd keeps.
void describeQuantile(WorkspaceRule &rule, SavedRule *saved = nullptr);

} // namespace koila::reduction

#endif // KOILA_KERNELMODELS_ATEN_REDUCTION_H
