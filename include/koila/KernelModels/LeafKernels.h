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

namespace blas {
class ProductKernels;
} // namespace blas

class LeafKernels {
public:
  virtual ~LeafKernels() = default;

  /// Whether an elementwise kernel reads operands of any type, and takes
  /// numbers as arguments. Else each becomes a tensor of the type in which it
  /// computes.
  virtual bool readsAnyType() const { return false; }
  /// Whether transposed matrices are copied through a block of their own.
  virtual bool copiesThroughBlocks() const { return false; }
  /// What Tensor::sum() over the dims of `isReduced` allocates beyond `result`,
  /// whose type `input` already has.
  virtual void sum(AllocationTrace &trace, WorkspaceRule &rule,
                   const ConcreteTensor &input, const ConcreteTensor &result,
                   llvm::ArrayRef<bool> isReduced) const = 0;
  /// The same of Tensor::mean() over all dims.
  virtual void mean(AllocationTrace &trace, WorkspaceRule &rule,
                    const ConcreteTensor &input,
                    const ConcreteTensor &result) const = 0;
  /// Products of matrices; null: none are known.
  virtual const blas::ProductKernels *getProducts() const { return nullptr; }
  /// One step of `optimizer`: what is left is the state that the first one
  /// makes. None where it is not known.
  virtual std::optional<AllocationTrace>
  traceStep(const Optimizer &optimizer, llvm::ArrayRef<TrainedWeight> weights,
            const WorkspaceTarget &target, bool isFirst) const = 0;
};

} // namespace koila

#endif // KOILA_KERNELMODELS_LEAFKERNELS_H
