//===- LossBackward.cpp - Gradients of losses -----------------------------===//
//
// Sources: native/Loss.cpp, FunctionsManual.cpp.
//
//===----------------------------------------------------------------------===//

#include "../BackwardRules.h"
#include "BackwardReplay.h"
#include "Loss.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;

/// Zeros of the shape of the input, filled by one kernel.
static void fillZeros(BackwardReplay &steps) {
  for (unsigned operand : {0u, 1u})
    if (steps.wants(operand))
      steps.giveContiguous(operand);
}

/// The gradients of a mean or sum, of an absolute value and of a difference.
static void describeL1(BackwardRule &rule, BackwardReplay &steps,
                       int64_t reduction) {
  ConcreteTensor self = steps.read(0), gradient = steps.getGradient();
  if (steps.wants(1) || steps.read(1).dims != self.dims)
    return koila::detail::describeUnknownBackward(rule);
  ConcreteTensor spread = expandTo(gradient, self.dims);
  if (reduction == 1)
    spread = steps.compute(spread, Number::Integer);
  ConcreteTensor sign = steps.compute(self);
  steps.give(0, steps.compute({spread, sign}));
  steps.free(sign);
  if (reduction == 1)
    steps.free(spread);
}

/// (sigmoid(self) - target) * grad, divided by the number of elements.
static void describeLogits(BackwardRule &rule, BackwardReplay &steps,
                           BinaryCrossEntropyWithLogitsOp loss) {
  ConcreteTensor self = steps.read(0);
  if (steps.wants(1) || loss.getWeight() || loss.getPosWeight())
    return koila::detail::describeUnknownBackward(rule);
  if (steps.read(1).dims != self.dims ||
      steps.read(1).elementType != self.elementType)
    return koila::detail::describeUnknownBackward(rule);
  // One tensor, written by each step.
  steps.give(0, steps.compute(self));
  if (loss.getReduction() == 1)
    steps.allocateTemporary(getIntegerBytes(self.elementType));
}

void rules::describeLossBackward(BackwardRule &rule) {
  Operation *op = rule.getOp();
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  if (isa<CrossEntropyLossOp>(op))
    return loss::describeCrossEntropyBackward(rule);
  BackwardReplay steps(rule);
  auto reduction = op->getAttrOfType<IntegerAttr>("reduction");
  llvm::TypeSwitch<Operation *>(op)
      .Case<MseLossOp, SmoothL1LossOp, HuberLossOp>(
          [&](auto) { fillZeros(steps); })
      .Case<L1LossOp>([&](auto) {
        describeL1(rule, steps, reduction ? reduction.getInt() : 1);
      })
      .Case<BinaryCrossEntropyOp>([&](auto) {
        if (steps.wants(1))
          return koila::detail::describeUnknownBackward(rule);
        steps.giveContiguous(0);
        if (reduction && reduction.getInt() == 1)
          steps.allocateTemporary(getIntegerBytes(steps.read(0).elementType));
      })
      .Case<BinaryCrossEntropyWithLogitsOp>(
          [&](auto loss) { describeLogits(rule, steps, loss); })
      .Case<NllLossNdOp, NllLossOp, NllLoss2dOp>(
          [&](auto) { steps.giveContiguous(0); })
      .Case<CtcLossOp>([&](auto) { loss::describeCtcBackward(rule, steps); })
      .Default(
          [&](Operation *) { koila::detail::describeUnknownBackward(rule); });
  steps.finish();
}
