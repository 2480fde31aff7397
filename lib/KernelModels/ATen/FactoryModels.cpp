//===- FactoryModels.cpp - Kernel models of new tensors -------------------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

/// The storage reaches to the last element, whatever lies between.
static void allocateStrided(WorkspaceRule &rule) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result || !result->contiguous)
    rule.setInexact("the storage of other strides has another size");
}

void kernels::addFactoryModels(KernelLibrary &library) {
  library.add<ArangeEndOp, ArangeStartOp, ArangeStartStepOp, EmptyLikeOp,
              EmptyOp, EmptyPermutedOp, EyeMOp, EyeSquareOp, FullLikeOp, FullOp,
              LinspaceOp, LogspaceOp, NewEmptyOp, NewFullOp, NewOnesOp,
              NewZerosOp, NormalFloatFloatOp, OnesLikeOp, OnesOp, RandLikeOp,
              RandOp, RandintLikeLowOp, RandintLikeOp, RandintLowOp, RandintOp,
              RandnLikeOp, RandnOp, ScalarTensorOp, TrilIndicesOp,
              TriuIndicesOp, ZerosLikeOp, ZerosOp>(
      {allocateNothing, nullptr, nullptr});
  library.add<AsTensorBoolOp, AsTensorFloatOp, AsTensorIntOp, AsTensorListOp,
              TensorBoolOp, TensorFloatOp, TensorIntOp, TensorListOp>(
      {rules::describeNumberTensorWorkspace, nullptr, nullptr});
  library.add<BartlettWindowOp, BartlettWindowPeriodicOp, BlackmanWindowOp,
              BlackmanWindowPeriodicOp, HammingWindowAlphaBetaOp,
              HammingWindowAlphaOp, HammingWindowOp, HammingWindowPeriodicOp,
              HannWindowOp, HannWindowPeriodicOp, KaiserWindowBetaOp,
              KaiserWindowOp, KaiserWindowPeriodicOp>(
      {rules::describeWindowWorkspace, nullptr, nullptr});
  library.add<BernoulliOp, BernoulliPOp, BernoulliTensorOp, CauchyOp,
              ExponentialOp, GeometricOp, LogNormalOp, MultinomialOp,
              NormalFloatTensorOp, NormalOp, NormalTensorFloatOp,
              NormalTensorTensorOp, PoissonOp, RandomFromOp, RandomOp,
              RandomToOp, RandpermOp, UniformOp>(
      {rules::describeRandomWorkspace, nullptr, nullptr});
  library.add<EmptyStridedOp, NewEmptyStridedOp>(
      {allocateStrided, nullptr, nullptr});
}
