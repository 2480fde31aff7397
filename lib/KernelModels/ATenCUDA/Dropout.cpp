//===- Dropout.cpp - What dropout allocates on a GPU ----------------------===//
//
// Sources: native/Dropout.cpp (is_fused_kernel_acceptable),
// native/cuda/Dropout.cu: one kernel draws a mask of bools and multiplies.
//
//===----------------------------------------------------------------------===//

#include "koila/Dialect/Koila/IR/Dropout.h"
#include "../ATen/Backward/BackwardReplay.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// The mask of the fused kernel; none where it does not run.
static std::optional<ConcreteTensor> getMask(const WorkspaceRule &rule) {
  auto op = dyn_cast<DropoutOp>(rule.getOp());
  if (!op || !op.drops() || op.getTied())
    return std::nullopt;
  double p = op.getDropout().p;
  auto input = rule.tensor(op->getOperand(0));
  if (!input || p == 0 || p == 1 || input->numElements() == 0)
    return std::nullopt;
  input->elementType = IntegerType::get(rule.getOp()->getContext(), 1);
  return input;
}

static void describeFused(WorkspaceRule &rule) {
  auto mask = getMask(rule);
  if (!mask)
    return describeDropoutForward(rule);
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result)
    return rule.setInexact("a shape of dropout is unknown");
  AllocationTrace trace;
  AllocationTrace::Block drawn = trace.allocate(mask->numBytes());
  trace.allocate(result->numBytes());
  trace.free(drawn);
  rule.setTrace(std::move(trace), result->numBytes());
}

static void saveFused(SavedRule &rule) {
  auto mask = getMask(rule);
  if (!mask)
    return kernels::saveDropout(rule);
  if (saveDifferentiated(rule).savesInner)
    rule.keep(mask->numBytes());
}

static void describeFusedBackward(BackwardRule &rule) {
  auto mask = getMask(rule);
  if (!mask || !rule.getGradient())
    return kernels::describeDropoutBackward(rule);
  BackwardReplay steps(rule);
  steps.give(0, steps.compute({steps.getGradient(), *mask}, {},
                              OpReplay::Result::Common));
  steps.finish();
}

static void describeNative(WorkspaceRule &rule) {
  auto op = cast<NativeDropoutOp>(rule.getOp());
  auto input = rule.tensor(op.getInput());
  auto mask = rule.tensor(op.getMask());
  if (!input || !mask)
    return rule.setInexact("a shape of dropout is unknown");
  if (input->numElements() == 0 || !op.getTrain().value_or(true))
    return;
  AllocationTrace trace;
  trace.allocate(mask->numBytes());
  trace.allocate(input->numBytes());
  rule.setTrace(std::move(trace));
}

void cuda::addDropoutModels(KernelLibrary &library) {
  library
      .add<AlphaDropoutOp, DropoutOp, FeatureAlphaDropoutOp, FeatureDropoutOp>(
          {describeFused, saveFused, describeFusedBackward});
  library.add<NativeDropoutOp>({.forward = describeNative});
}
