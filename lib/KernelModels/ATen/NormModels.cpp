//===- NormModels.cpp - Kernel models of norms, softmax, dropout ----------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "Dropout.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

static void softmax(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  rules::describeSoftmaxWorkspace(rule, op->getOperand(0), op->getResult(0));
}

void kernels::addNormModels(KernelLibrary &library) {
  library
      .add<AlphaDropoutOp, DropoutOp, FeatureAlphaDropoutOp, FeatureDropoutOp>(
          {kernels::describeDropout, kernels::describeDropoutSaved,
           kernels::describeDropoutBackward});
  library.add<BatchNormOp>({rules::describeBatchNormWorkspace,
                            rules::describeNormSaved,
                            rules::describeNormBackward});
  library.add<BatchNormUpdateStatsOp, NativeBatchNormBackwardOp,
              NativeLayerNormOp, RenormOp>(
      {rules::describeNormWorkspace, nullptr, nullptr});
  library.add<CdistForwardOp, CdistOp, CosineSimilarityOp, PairwiseDistanceOp,
              PdistOp>({rules::describeDistanceWorkspace,
                        rules::describeDistanceSaved, nullptr});
  library.add<GroupNormOp, InstanceNormOp, RmsNormOp, WeightNormOp>(
      {rules::describeNormWorkspace, rules::describeNormSaved,
       rules::describeNormBackward});
  library.add<LayerNormOp>({rules::describeLayerNormWorkspace,
                            rules::describeNormSaved,
                            rules::describeNormBackward});
  library.add<LogSoftmaxIntOp, RawLogSoftmaxOp, RawSoftmaxOp, SoftmaxIntOp>(
      {softmax, nullptr, rules::describeNormBackward});
}
