//===- CPULeafKernels.cpp - Kernels of the CPU without an operation -------===//

#include "CPULeafKernels.h"
#include "../ATen/Sum.h"
#include "koila/KernelModels/LeafKernels.h"
#include "koila/KernelModels/Optimizer.h"

using namespace mlir;
using namespace koila;

namespace {
class CPULeafKernels : public LeafKernels {
public:
  void sum(AllocationTrace &trace, WorkspaceRule &rule,
           const ConcreteTensor &input, const ConcreteTensor &result,
           ArrayRef<bool> isReduced) const override {
    kernels::allocateSum(rule, trace, input, result, isReduced);
  }
  int64_t getStepBytes(const Optimizer &optimizer,
                       ArrayRef<TrainedWeight> weights,
                       const WorkspaceTarget &target,
                       bool isFirst) const override {
    return isFirst ? optimizer.getFirstStepBytes(weights, target.threads)
                   : optimizer.getStepBytes(weights, target.threads);
  }
};
} // namespace

std::unique_ptr<LeafKernels> kernels::makeCPULeafKernels() {
  return std::make_unique<CPULeafKernels>();
}
