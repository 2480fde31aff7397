//===- PoolModels.cpp - Kernel models of pooling --------------------------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/PoolOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void kernels::addPoolModels(KernelLibrary &library) {
  library.add<AdaptiveAvgPool1dOp, AdaptiveAvgPool2dOp, AdaptiveAvgPool3dOp,
              AdaptiveMaxPool1dOp, AdaptiveMaxPool2dOp, AdaptiveMaxPool3dOp,
              AvgPool1dOp, AvgPool2dOp, AvgPool3dOp, MaxPool1dOp,
              MaxPool1dWithIndicesOp, MaxPool2dOp, MaxPool2dWithIndicesOp,
              MaxPool3dOp, MaxPool3dWithIndicesOp, PlainAdaptiveAvgPool2dOp,
              PlainAdaptiveAvgPool3dOp>({rules::describePoolWorkspace,
                                         rules::describePoolSaved,
                                         rules::describePoolBackward});
  library.add<MaxUnpool2dOp, MaxUnpool3dOp>(
      {rules::describePoolWorkspace, nullptr, nullptr});
}
