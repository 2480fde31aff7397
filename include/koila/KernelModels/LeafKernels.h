//===- LeafKernels.h - Kernels that no operation stands for -----*- C++ -*-===//
//
// Formulas of ATen and the autograd engine call kernels for which the program
// has no operation: a sum over dims that were broadcast, the step of an
// optimizer. What these allocate is the target's as well.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_LEAFKERNELS_H
#define KOILA_KERNELMODELS_LEAFKERNELS_H

#include "koila/Interfaces/Rules.h"
#include "llvm/ADT/ArrayRef.h"

namespace koila {

class Optimizer;
struct TrainedWeight;

class LeafKernels {
public:
  virtual ~LeafKernels() = default;

  /// What Tensor::sum() over the dims of `isReduced` allocates beyond `result`,
  /// whose type `input` already has.
  virtual void sum(AllocationTrace &trace, WorkspaceRule &rule,
                   const ConcreteTensor &input, const ConcreteTensor &result,
                   llvm::ArrayRef<bool> isReduced) const = 0;
  /// The bytes of one step of `optimizer` at its worst moment; of the first one
  /// also those of the state that it makes.
  virtual int64_t getStepBytes(const Optimizer &optimizer,
                               llvm::ArrayRef<TrainedWeight> weights,
                               const WorkspaceTarget &target,
                               bool isFirst) const = 0;
};

} // namespace koila

#endif // KOILA_KERNELMODELS_LEAFKERNELS_H
