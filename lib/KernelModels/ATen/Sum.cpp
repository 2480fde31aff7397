//===- Sum.cpp - What a sum holds inside ----------------------------------===//

#include "Sum.h"
#include "koila/KernelModels/LeafKernels.h"

using namespace mlir;
using namespace koila;

void kernels::allocateSum(WorkspaceRule &rule, AllocationTrace &trace,
                          const ConcreteTensor &input,
                          const ConcreteTensor &result,
                          ArrayRef<bool> isReduced) {
  if (const LeafKernels *leaves = rule.getTarget().leaves)
    return leaves->sum(trace, rule, input, result, isReduced);
  rule.setInexact("no kernel model of a sum");
}

int64_t kernels::getSumBytes(WorkspaceRule &rule, const ConcreteTensor &input,
                             const ConcreteTensor &result,
                             ArrayRef<bool> isReduced) {
  ConcreteTensor summed = input;
  summed.elementType = result.elementType;
  AllocationTrace trace;
  allocateSum(rule, trace, summed, result, isReduced);
  return trace.getPeak();
}
