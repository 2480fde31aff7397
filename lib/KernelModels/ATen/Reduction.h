//===- Reduction.h - Reductions that are expressions ------------*- C++ -*-===//
//
// Private to lib/KernelModels: the parts of describeReductionWorkspace.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_REDUCTION_H
#define KOILA_KERNELMODELS_ATEN_REDUCTION_H

#include "TensorBytes.h"

namespace koila::reduction {

/// Tensor::aminmax() of all elements.
void allocateExtremes(AllocationTrace &trace, const ConcreteTensor &tensor);

/// quantile and nanquantile; `saved` is told what autograd keeps.
void describeQuantile(WorkspaceRule &rule, SavedRule *saved = nullptr);

} // namespace koila::reduction

#endif // KOILA_KERNELMODELS_ATEN_REDUCTION_H
