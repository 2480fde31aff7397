//===- AttentionModels.cpp - Kernel models of attention, recurrent layers -===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void kernels::addAttentionModels(KernelLibrary &library) {
  library.add<GruCellOp, LstmCellOp, RnnReluCellOp, RnnTanhCellOp>(
      {rules::describeRecurrentWorkspace, rules::describeRecurrentSaved,
       nullptr});
  library.add<GruDataOp, GruInputOp, LstmDataOp, LstmInputOp, RnnReluDataOp,
              RnnReluInputOp, RnnTanhDataOp, RnnTanhInputOp>(
      {rules::describeRecurrentWorkspace, rules::describeRecurrentSaved,
       rules::describeRecurrentBackward});
  library.add<NativeMultiHeadAttentionOp, ScaledDotProductAttentionMathOp,
              ScaledDotProductFlashAttentionForCpuOp, ToPaddedTensorOp>(
      {rules::describeAttentionWorkspace, nullptr, nullptr});
  library.add<NestedTensorFromMaskOp, TransformerEncoderLayerFwdOp>(
      {rules::describeAttentionWorkspace, rules::describeAttentionSaved,
       nullptr});
  library.add<PackPaddedSequenceOp, PadPackedSequenceOp>(
      {rules::describeRecurrentWorkspace, nullptr, nullptr});
  library.add<ScaledDotProductAttentionOp>({rules::describeAttentionWorkspace,
                                            rules::describeAttentionSaved,
                                            rules::describeAttentionBackward});
}
