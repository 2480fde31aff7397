//===- Softmax.cpp - What softmax holds inside on a GPU -------------------===//
//
// Source: native/cuda/SoftMax.cu.
//
//===----------------------------------------------------------------------===//

#include "../ATen/TensorBytes.h"
#include "../BackwardRules.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// After the result a copy in rows; a half type becomes float32 in the kernel.
static void describeSoftmax(WorkspaceRule &rule) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  auto output = rule.tensor(rule.getOp()->getResult(0));
  if (!input || !output)
    return rule.setInexact("a shape of softmax is unknown");
  bool isWidened = isHalf(input->elementType) && output->elementType.isF32();
  AllocationTrace trace;
  AllocationTrace::Block cast =
      trace.allocate(isWidened ? 0 : getCastBytes(*input, output->elementType));
  trace.allocate(output->numBytes());
  if (cast.isEmpty())
    trace.allocateTemporary(getCopyBytes(*input));
  else if (!input->contiguous && !isDense(*input))
    rule.setInexact("softmax of strided rows that are cast");
  trace.free(cast);
  rule.setTrace(std::move(trace), output->numBytes());
}

void cuda::addSoftmaxModels(KernelLibrary &library) {
  library.add<LogSoftmaxIntOp, RawLogSoftmaxOp, RawSoftmaxOp, SoftmaxIntOp>(
      {.forward = describeSoftmax, .backward = rules::describeSoftmaxBackward});
}
