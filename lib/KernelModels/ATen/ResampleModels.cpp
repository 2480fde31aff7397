//===- ResampleModels.cpp - Kernel models of up- and downsampling ---------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/ResampleOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void kernels::addResampleModels(KernelLibrary &library) {
  library.add<AffineGridOp, GridSampler2dOp, GridSampler3dOp, GridSamplerAnyOp>(
      {rules::describeResampleWorkspace, nullptr, nullptr});
  library
      .add<UpsampleBicubic2dAaOp, UpsampleBicubic2dAaVecOp, UpsampleBicubic2dOp,
           UpsampleBicubic2dVecOp, UpsampleBilinear2dAaOp,
           UpsampleBilinear2dAaVecOp, UpsampleBilinear2dOp,
           UpsampleBilinear2dVecOp, UpsampleLinear1dOp, UpsampleLinear1dVecOp,
           UpsampleNearest1dOp, UpsampleNearest1dVecOp, UpsampleNearest2dOp,
           UpsampleNearest2dVecOp, UpsampleNearest3dOp, UpsampleNearest3dVecOp,
           UpsampleNearestExact1dOp, UpsampleNearestExact1dVecOp,
           UpsampleNearestExact2dOp, UpsampleNearestExact2dVecOp,
           UpsampleNearestExact3dOp, UpsampleNearestExact3dVecOp,
           UpsampleTrilinear3dOp, UpsampleTrilinear3dVecOp>(
          {rules::describeResampleWorkspace, nullptr,
           rules::describeResampleBackward});
}
