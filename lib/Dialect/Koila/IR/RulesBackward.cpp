//===- RulesBackward.cpp - Rules of the backward pass ---------------------===//

#include "koila/Dialect/Koila/IR/KoilaLossOps.h"

using namespace mlir;
using namespace koila;

LogicalResult BackwardOp::inferShapes(ShapeRule &rule) {
  TensorInfo self = rule.tensor(getSelf()),
             gradient = rule.tensor(getGradient());
  if (self.elementType && isa<IntegerType>(self.elementType))
    return rule.emitError() << "a gradient of " << self.elementType;
  if (!self.hasRank())
    return success();
  if (!getGradient()) {
    for (DimExpr dim : *self.dims)
      if (proveEqual(dim, rule.constant(1)) == Proof::No)
        return rule.emitError()
               << "the loss has extent " << dim.str()
               << "; only of one element there is a gradient; name a "
                  "loss of it, for example loss=cross_entropy";
    return success();
  }
  if (gradient.hasRank() && gradient.getRank() != self.getRank())
    return rule.emitError() << "a gradient of rank " << gradient.getRank()
                            << " for a tensor of rank " << self.getRank();
  return success();
}

void BackwardOp::inferBatch(BatchRule &) {}

void BackwardOp::describeStorage(StorageRule &) {}

/// What it allocates is what the records of its program do: an analysis runs
/// them.
void BackwardOp::describeWorkspace(WorkspaceRule &) {}
