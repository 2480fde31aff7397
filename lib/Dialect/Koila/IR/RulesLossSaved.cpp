//===- RulesLossSaved.cpp - What autograd keeps of losses -----------------===//
//
// Losses that PyTorch composes of others. Sources: native/LossNLL.cpp,
// native/Loss.cpp; the parts by derivatives.yaml.
//
//===----------------------------------------------------------------------===//

#include "Footprint.h"
#include "koila/Dialect/Koila/IR/KoilaLossOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;

/// nll_loss_forward leaves the sum of the weights, one number.
static void keepTotalWeight(SavedRule &rule, const ConcreteTensor &self) {
  rule.keep(getElementBytes(self.elementType));
}

/// What nll_loss_nd makes contiguous, unless there are no pixels or two dims of them, is
/// kept as a copy.
static void saveForClasses(SavedRule &rule, const ConcreteTensor &self,
                           Value value) {
  auto tensor = rule.tensor(value);
  bool isReshaped = self.dims.size() == 3 || self.dims.size() > 4;
  int64_t copy = tensor && isReshaped ? footprint::getCopyBytes(*tensor) : 0;
  if (copy > 0)
    rule.keep(copy);
  else
    rule.save(value);
}

/// The logarithms of the probabilities, and what nll_loss keeps.
static void saveCrossEntropy(SavedRule &rule, CrossEntropyLossOp op) {
  auto self = rule.tensor(op.getSelf()), target = rule.tensor(op.getTarget());
  if (!self || !target)
    return rule.setInexact("a shape of the loss is unknown");
  if (isa<FloatType>(target->elementType) ||
      op.getLabelSmoothing().convertToDouble() != 0)
    return rule.setInexact(
        "what autograd keeps of smoothed labels or of probabilities");
  rule.keep(self->numBytes());
  saveForClasses(rule, *self, op.getTarget());
  rule.save(op.getWeight());
  keepTotalWeight(rule, *self);
}

void rules::describeLossSaved(SavedRule &rule) {
  Operation *op = rule.getOp();
  auto self = rule.tensor(op->getOperand(0));
  if (!self)
    return rule.setInexact("a shape of the loss is unknown");
  llvm::TypeSwitch<Operation *>(op)
      .Case<CrossEntropyLossOp>([&](auto loss) { saveCrossEntropy(rule, loss); })
      .Case<NllLossNdOp>([&](auto loss) {
        saveForClasses(rule, *self, loss.getSelf());
        saveForClasses(rule, *self, loss.getTarget());
        rule.save(loss.getWeight());
        keepTotalWeight(rule, *self);
      })
      .Case<NllLossOp, NllLoss2dOp>([&](auto loss) {
        rule.save(loss.getSelf());
        rule.save(loss.getTarget());
        rule.save(loss.getWeight());
        keepTotalWeight(rule, *self);
      })
      .Default([&](Operation *) { describeSaved(rule); });
}
