//===- PointwiseModels.cpp - Kernel models of operators of one tensor -----===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/PointwiseOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

/// A buffer as large as the input. Source: log_sigmoid_forward_cpu in
/// native/Activation.cpp.
static void saveLogSigmoid(SavedRule &rule) {
  auto self = rule.tensor(rule.getOp()->getOperand(0));
  if (!self)
    return rule.setInexact("the shape of the input is unknown");
  saveDifferentiated(rule);
  rule.keep(self->numBytes());
}

/// The slopes that were drawn.
static void saveSlopes(SavedRule &rule) {
  saveDifferentiated(rule);
  if (auto self = rule.tensor(rule.getOp()->getOperand(0)))
    rule.keep(self->numBytes());
}

void kernels::addPointwiseModels(KernelLibrary &library) {
  library.add<Deg2radOp, IsfiniteOp, IsinfOp, Rad2degOp>(
      {rules::describeComposedWorkspace, nullptr, nullptr});
  library.add<GluOp, PreluOp>({allocateNothing, nullptr, nullptr});
  library.add<LogSigmoidOp>(
      {rules::describeComposedWorkspace, saveLogSigmoid, nullptr});
  library.add<RreluOp>({rules::describeComposedWorkspace, saveSlopes, nullptr});
}
