//===- CopyModels.cpp - Kernel models of copies and casts -----------------===//

#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

static void copyFirst(WorkspaceRule &rule) {
  rules::describeCopyWorkspace(rule, rule.getOp()->getOperand(0));
}

static void copySource(WorkspaceRule &rule) {
  rules::describeCopyWorkspace(rule, cast<CopyOp>(rule.getOp()).getSrc());
}

void kernels::addCopyModels(KernelLibrary &library) {
  library
      .add<AsTensorOp, CloneTensorOp, ContiguousOp, CpuOp, LiftFreshCopyOp,
           LiftFreshOp, ToCopyOp, ToDeviceOp, ToDtypeLayoutOp, ToDtypeOp,
           ToOtherOp, ToPrimDeviceOp, ToPrimDtypeOp, ToPrimOtherOp, TypeAsOp>(
          {copyFirst});
  library.add<BoolTensorOp, ConjPhysicalOp, EqualOp, FillScalarOp, FillTensorOp,
              FloatImplicitOp, FloatTensorOp, IntImplicitOp, IntTensorOp,
              IsComplexOp, IsFloatingPointOp, IsNonzeroOp, IsSignedOp, ItemOp,
              ScalarImplicitOp, ZeroOp>({allocateNothing});
  library.add<ConjOp, ResolveConjOp, ResolveNegOp>(
      {rules::describeConjugateWorkspace});
  library.add<CopyOp>({copySource});
}
