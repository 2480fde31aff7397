//===- LossModels.cpp - Kernel models of losses ---------------------------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/LossOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void kernels::addLossModels(KernelLibrary &library) {
  library.add<BinaryCrossEntropyOp, BinaryCrossEntropyWithLogitsOp,
              CosineEmbeddingLossOp, CrossEntropyLossOp, CtcLossOp,
              HingeEmbeddingLossOp, HuberLossOp, KlDivOp, L1LossOp,
              MarginRankingLossOp, MseLossOp, MultiMarginLossOp,
              MultilabelMarginLossOp, NllLoss2dOp, NllLossNdOp, NllLossOp,
              PoissonNllLossOp, SmoothL1LossOp, SoftMarginLossOp,
              TripletMarginLossOp>({rules::describeLossWorkspace,
                                    rules::describeLossSaved,
                                    rules::describeLossBackward});
}
