//===- Resample.cpp - What interpolation allocates on a GPU ---------------===//
//
// Sources: native/cuda/UpSample*.cu: one kernel, which reads the input where it
// is and adds to a gradient of zeros.
//
//===----------------------------------------------------------------------===//

#include "../ATen/TensorBytes.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/ResampleOps.h"
#include "koila/Interfaces/BackwardRule.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

static void describeResample(WorkspaceRule &rule) {
  auto resampled = readInputAndResult(rule);
  if (!resampled)
    return;
  const ConcreteTensor &input = resampled->input;
  if (!input.contiguous && !isChannelsLast(input))
    rule.setInexact("an interpolation of strided images on CUDA");
}

static void describeResampleBackward(BackwardRule &rule) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  if (!rule.getGradient() || !rule.getGradient()->contiguous || !input ||
      !input->contiguous)
    return koila::detail::describeUnknownBackward(rule);
  cuda::giveNew(rule);
}

void cuda::addResampleModels(KernelLibrary &library) {
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
          {.forward = describeResample, .backward = describeResampleBackward});
}
