//===- CUDALeafKernels.cpp - Kernels of a GPU without an operation --------===//

#include "CUDALeafKernels.h"
#include "../ATen/TensorBytes.h"
#include "../CuBLAS/Products.h"
#include "Reduce.h"

using namespace mlir;
using namespace koila;

namespace {
class CUDALeafKernels : public LeafKernels {
public:
  /// gpu_kernel_with_scalars and unrolled loads with casts: CUDALoops.cuh.
  bool readsAnyType() const override { return true; }
  void sum(AllocationTrace &trace, WorkspaceRule &rule,
           const ConcreteTensor &input, const ConcreteTensor &result,
           ArrayRef<bool> isReduced) const override {
    // Half types are summed in float32 as they are; others are cast first.
    // Source: make_reduction_from_out_ty in native/ReduceOpsUtils.h.
    bool isWidened = isHalf(input.elementType) && result.elementType.isF32();
    AllocationTrace::Block cast = trace.allocate(
        isWidened ? 0 : kernels::getCastBytes(input, result.elementType));
    ConcreteTensor summed = input;
    if (!cast.isEmpty())
      summed.elementType = result.elementType;
    cuda::allocateReduction(trace, rule, summed, isReduced,
                            cuda::getSumAccumulator(result.elementType));
    trace.free(cast);
  }
  void mean(AllocationTrace &trace, WorkspaceRule &rule,
            const ConcreteTensor &input,
            const ConcreteTensor &result) const override {
    auto isReduced = cuda::findReduced(input, result);
    if (!isReduced)
      return rule.setInexact("a mean over dims that are not known");
    sum(trace, rule, input, result, *isReduced);
  }
  const blas::ProductKernels *getProducts() const override { return &products; }
  std::optional<AllocationTrace> traceStep(const Optimizer &optimizer,
                                           ArrayRef<TrainedWeight> weights,
                                           const WorkspaceTarget &,
                                           bool isFirst) const override {
    return cuda::traceStep(optimizer, weights, isFirst);
  }

private:
  cuda::CuBLASProducts products;
};
} // namespace

std::unique_ptr<LeafKernels> cuda::makeLeafKernels() {
  return std::make_unique<CUDALeafKernels>();
}
