//===- Softmax.cpp - What softmax holds inside ----------------------------===//
//
// Source: native/SoftMax.cpp.
//
//===----------------------------------------------------------------------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// A cast first; after the result a copy of what is not contiguous.
static void describeSoftmax(WorkspaceRule &rule) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  auto output = rule.tensor(rule.getOp()->getResult(0));
  if (!input || !output)
    return rule.setInexact("a shape of softmax is unknown");
  AllocationTrace trace;
  int64_t castBytes = getCastBytes(*input, output->elementType);
  AllocationTrace::Block cast = trace.allocate(castBytes);
  trace.allocate(output->numBytes());
  if (!input->contiguous && castBytes > 0 && !input->getStrides())
    return rule.setInexact("strides that a cast may keep are unknown");
  // A cast keeps the strides of dense dims, any others it orders.
  if (castBytes == 0 || isDense(*input)) {
    input->elementType = output->elementType;
    trace.free(allocateContiguous(trace, *input));
  }
  trace.free(cast);
  rule.setTrace(std::move(trace), output->numBytes());
}

void kernels::addSoftmaxModels(KernelLibrary &library) {
  library.add<LogSoftmaxIntOp, RawLogSoftmaxOp, RawSoftmaxOp, SoftmaxIntOp>(
      {.forward = describeSoftmax, .backward = rules::describeSoftmaxBackward});
}
