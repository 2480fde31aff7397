//===- Reduction.h - Reductions that other operators run --------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_REDUCTION_H
#define KOILA_KERNELMODELS_ATEN_REDUCTION_H

#include "TensorBytes.h"

namespace koila::reduction {

/// Tensor::aminmax() of all elements.
void allocateExtremes(AllocationTrace &trace, const ConcreteTensor &tensor);

} // namespace koila::reduction

#endif // KOILA_KERNELMODELS_ATEN_REDUCTION_H
