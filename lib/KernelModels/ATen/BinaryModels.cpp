//===- BinaryModels.cpp - Kernel models of tensors that broadcast ---------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void kernels::addBinaryModels(KernelLibrary &library) {
  library.add<IscloseOp, MaskedFillScalarOp, MaskedFillTensorOp, WhereScalarOp,
              WhereScalarOtherOp, WhereScalarSelfOp>(
      {rules::describeComposedWorkspace, nullptr, nullptr});
}
