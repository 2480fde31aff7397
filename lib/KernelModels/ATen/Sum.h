//===- Sum.h - What a sum holds inside --------------------------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_SUM_H
#define KOILA_KERNELMODELS_ATEN_SUM_H

#include "TensorBytes.h"
#include "llvm/ADT/ArrayRef.h"

namespace koila::kernels {

/// What Tensor::sum() over the dims of `isReduced` holds beyond `result`, whose
/// type the input already has. Says so where strides that are not known matter.
int64_t getSumBytes(WorkspaceRule &rule, const ConcreteTensor &input,
                    const ConcreteTensor &result,
                    llvm::ArrayRef<bool> isReduced);
/// The same in the order of its steps, after a cast of the input.
void allocateSum(WorkspaceRule &rule, AllocationTrace &trace,
                 const ConcreteTensor &input, const ConcreteTensor &result,
                 llvm::ArrayRef<bool> isReduced);

} // namespace koila::kernels

#endif // KOILA_KERNELMODELS_ATEN_SUM_H
