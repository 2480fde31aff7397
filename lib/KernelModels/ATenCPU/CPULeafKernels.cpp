//===- CPULeafKernels.cpp - Kernels of the CPU without an operation -------===//

#include "CPULeafKernels.h"
#include "../ATen/TensorBytes.h"
#include "koila/KernelModels/LeafKernels.h"
#include "koila/KernelModels/Optimizer.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// Whether the dims that are reduced make more than one when those that lie one
/// behind the other are taken together; no answer where that depends on strides
/// that are not known. Source: reorder_dimensions and coalesce_dimensions in
/// TensorIterator.cpp.
static std::optional<bool> reducesApart(const ConcreteTensor &input,
                                        ArrayRef<bool> isReduced) {
  auto strides = input.getStrides();
  SmallVector<std::pair<int64_t, int64_t>> dims;
  for (auto [dim, extent] : llvm::enumerate(input.dims))
    if (isReduced[dim] && extent != 1)
      dims.push_back({strides ? (*strides)[dim] : 0, extent});
  if (dims.size() > 1 && !strides)
    return std::nullopt;
  llvm::stable_sort(dims, llvm::less_first());
  for (size_t index = 1; index < dims.size(); ++index)
    if (dims[index - 1].first * dims[index - 1].second != dims[index].first)
      return true;
  return false;
}

/// Whether a sum goes by way of copies in float32. Says so where strides that
/// are not known decide it. Source: should_use_acc_buffer in
/// native/ReduceOps.cpp.
static bool sumsInFloat(WorkspaceRule &rule, const ConcreteTensor &input,
                        const ConcreteTensor &result,
                        ArrayRef<bool> isReduced) {
  if (!isHalf(result.elementType) || input.numElements() == 0)
    return false;
  auto isApart = reducesApart(input, isReduced);
  if (!isApart)
    rule.setInexact("a sum over dims of which the strides are unknown");
  return isApart.value_or(false);
}

static void allocateSum(WorkspaceRule &rule, AllocationTrace &trace,
                        const ConcreteTensor &input,
                        const ConcreteTensor &result,
                        ArrayRef<bool> isReduced) {
  AllocationTrace::Block cast =
      trace.allocate(getCastBytes(input, result.elementType));
  if (sumsInFloat(rule, input, result, isReduced)) {
    ConcreteTensor sum = result;
    sum.elementType = Float32Type::get(result.elementType.getContext());
    AllocationTrace::Block buffer = trace.allocate(sum.numBytes());
    AllocationTrace::Block wide =
        trace.allocate(getCastBytes(input, sum.elementType));
    trace.allocateTemporary(getPartialBytes(rule, input, sum));
    trace.free(wide);
    trace.free(buffer);
  } else {
    trace.allocateTemporary(getPartialBytes(rule, input, result));
  }
  trace.free(cast);
}

static void allocateMean(WorkspaceRule &rule, AllocationTrace &trace,
                         const ConcreteTensor &input,
                         const ConcreteTensor &result) {
  // Half types are summed in float32, and only the quotient is narrowed.
  ConcreteTensor sum = result;
  AllocationTrace::Block wide;
  if (isHalf(result.elementType)) {
    sum.elementType = Float32Type::get(result.elementType.getContext());
    wide = trace.allocate(sum.numBytes());
  }
  AllocationTrace::Block cast =
      trace.allocate(getCastBytes(input, sum.elementType));
  trace.allocateTemporary(getPartialBytes(rule, input, sum));
  trace.free(cast);
  allocateInteger(trace, sum.elementType);
  trace.free(wide);
}

namespace {
class CPULeafKernels : public LeafKernels {
public:
  bool copiesThroughBlocks() const override { return true; }
  void sum(AllocationTrace &trace, WorkspaceRule &rule,
           const ConcreteTensor &input, const ConcreteTensor &result,
           ArrayRef<bool> isReduced) const override {
    ::allocateSum(rule, trace, input, result, isReduced);
  }
  void mean(AllocationTrace &trace, WorkspaceRule &rule,
            const ConcreteTensor &input,
            const ConcreteTensor &result) const override {
    ::allocateMean(rule, trace, input, result);
  }
  std::optional<AllocationTrace> traceStep(const Optimizer &optimizer,
                                           ArrayRef<TrainedWeight> weights,
                                           const WorkspaceTarget &target,
                                           bool isFirst) const override {
    AllocationTrace trace;
    trace.lump(isFirst ? optimizer.getFirstStepBytes(weights, target.threads)
                       : optimizer.getStepBytes(weights, target.threads));
    return trace;
  }
};
} // namespace

std::unique_ptr<LeafKernels> kernels::makeCPULeafKernels() {
  return std::make_unique<CPULeafKernels>();
}
