//===- Loss.cpp - What an elementwise loss holds inside -------------------===//
//
// Losses with a kernel of their own. Source: native/Loss.cpp. Where they are
// reduced the result often is a tensor of all losses that was made smaller: its
// storage stays as large.
//
//===----------------------------------------------------------------------===//

#include "Loss.h"
#include "../../WorkspaceRules.h"
#include "../OpReplay.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;
using Result = OpReplay::Result;

int64_t loss::getReduction(WorkspaceRule &rule) {
  return rule.getOp()->getAttrOfType<IntegerAttr>("reduction").getInt();
}

bool loss::isCrossEntropy(Operation *op) {
  return isa<NllLossOp, NllLoss2dOp, NllLossNdOp, CrossEntropyLossOp>(op);
}

bool loss::isComposed(Operation *op) {
  return isa<L1LossOp, KlDivOp, HingeEmbeddingLossOp, MarginRankingLossOp,
             PoissonNllLossOp, CosineEmbeddingLossOp, TripletMarginLossOp>(op);
}

/// The storage of `losses` after Tensor::resize_({}): it only grows.
static int64_t shrink(OpReplay &steps, const ConcreteTensor &losses) {
  int64_t element = getElementBytes(losses.elementType);
  if (losses.numElements() > 0)
    return losses.numBytes();
  steps.allocate(element);
  return element;
}

/// mse_loss, smooth_l1_loss. A reduction makes the tensor of losses twice: one
/// becomes the result, for the other the operands are cast again.
static void describeKernel(WorkspaceRule &rule, const ConcreteTensor &self,
                           const ConcreteTensor &target) {
  int64_t reduction = loss::getReduction(rule);
  OpReplay steps(rule);
  // Only its shape and type count.
  ConcreteTensor result = OpReplay(rule).compute({self, target});
  if (!isa<FloatType>(result.elementType))
    return rule.setInexact("a loss of integers");
  TensorIteration outer{{self, target}, result.elementType, result.numBytes()};
  outer.begin(steps);
  int64_t kept = result.numBytes();
  if (reduction != 0) {
    TensorIteration inner = outer;
    inner.casts.clear();
    inner.begin(steps);
    kept = shrink(steps, result);
    // The reduction writes the result that is there.
    ConcreteTensor one{{}, result.elementType};
    if (reduction == 1)
      allocateMean(rule, steps, result, one);
    else
      steps.allocateTemporary(getPartialBytes(rule, result, one));
    inner.end(steps);
    steps.AllocationTrace::free(inner.result);
    rule.setStorageBytes(rule.getOp()->getResult(0), kept);
  }
  outer.end(steps);
  steps.finish(kept);
}

/// The tensor of losses is like the input, and resized where the target is
/// larger.
static void describeHuber(WorkspaceRule &rule, const ConcreteTensor &self,
                          const ConcreteTensor &target) {
  int64_t reduction = loss::getReduction(rule);
  OpReplay steps(rule);
  // What the operands give together; only its shape and type count.
  ConcreteTensor losses = OpReplay(rule).compute({self, target});
  bool grows = losses.dims != self.dims;
  Type computed = losses.elementType;
  if (grows && computed != self.elementType)
    return rule.setInexact("huber_loss of another type that is resized");
  losses.elementType = self.elementType;
  MadeTensor made = steps.allocate(self);
  // The operands stay cast.
  TensorIteration iteration{{self, target}, computed};
  iteration.writtenBytes = getCastBytes(self, computed);
  iteration.begin(steps);
  if (grows) {
    MadeTensor grown = steps.allocate(losses);
    steps.free(made);
    made = grown;
  }
  MadeTensor result = steps.reduce(made, reduction);
  iteration.end(steps);
  if (reduction != 0)
    steps.free(made);
  steps.finish(result.numBytes());
}

/// The tensor of losses is shrunk to their mean or sum.
static void finishShrunk(WorkspaceRule &rule, OpReplay &steps,
                         const MadeTensor &losses) {
  int64_t reduction = loss::getReduction(rule);
  if (reduction == 0)
    return steps.finish(losses.numBytes());
  MadeTensor reduced = steps.reduce(losses, reduction);
  int64_t kept = shrink(steps, losses);
  steps.free(reduced);
  rule.setStorageBytes(rule.getOp()->getResult(0), kept);
  steps.finish(kept);
}

static void describeBinary(WorkspaceRule &rule, BinaryCrossEntropyOp op,
                           const ConcreteTensor &self) {
  OpReplay steps(rule);
  MadeTensor losses = steps.allocate(self);
  if (Value value = op.getWeight()) {
    auto weight = rule.tensor(value);
    if (!weight)
      return rule.setInexact("the shape of the weight is unknown");
    steps.write({losses, *weight});
  }
  finishShrunk(rule, steps, losses);
}

/// log1p(exp(-self * target)), written step by step over -self.
static void describeSoftMargin(WorkspaceRule &rule, const ConcreteTensor &self,
                               const ConcreteTensor &target) {
  OpReplay steps(rule);
  MadeTensor losses = steps.allocate(self);
  steps.write({losses, target});
  finishShrunk(rule, steps, losses);
}

/// An expression that has a derivative of its own: no step is recorded.
static void describeBinaryWithLogits(WorkspaceRule &rule,
                                     BinaryCrossEntropyWithLogitsOp op,
                                     OpReplay::Tensors of) {
  const ConcreteTensor &input = of[0], &target = of[1];
  OpReplay steps(rule);
  MadeTensor logs = steps.allocate(input);
  // log_sigmoid: a buffer, and rows.
  AllocationTrace::Block buffer =
      steps.AllocationTrace::allocate(input.numBytes());
  steps.AllocationTrace::free(allocateContiguous(steps, input));
  steps.AllocationTrace::free(buffer);
  std::optional<MadeTensor> logWeight;
  if (op.getPosWeight()) {
    const ConcreteTensor &positive = of.back();
    MadeTensor less = steps.compute(positive, Result::Common, Number::Integer);
    logWeight = steps.compute({less, target});
    steps.write(*logWeight, Number::Integer);
    steps.free(less);
    steps.write({logs, *logWeight});
    steps.free(*logWeight);
  }
  MadeTensor losses = steps.subtractFromNumber(target);
  steps.write({losses, input});
  steps.write({losses, logs});
  if (op.getWeight())
    steps.write({losses, of[2]});
  int64_t reduction = loss::getReduction(rule);
  MadeTensor result = steps.reduce(losses, reduction);
  if (reduction != 0)
    steps.free(losses);
  steps.free(logs);
  steps.finish(result.numBytes());
}

void rules::describeLossSaved(SavedRule &rule) {
  if (loss::isCrossEntropy(rule.getOp()))
    return loss::describeCrossEntropy(rule, &rule);
  if (loss::isComposed(rule.getOp()))
    return loss::describeComposed(rule, &rule);
  if (isa<CtcLossOp>(rule.getOp()))
    return loss::describeCtc(rule, &rule);
  koila::detail::describeSaved(rule);
}

void rules::describeLossWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  if (loss::isCrossEntropy(op))
    return loss::describeCrossEntropy(rule);
  if (loss::isComposed(op))
    return loss::describeComposed(rule);
  if (isa<CtcLossOp>(op))
    return loss::describeCtc(rule);
  if (isa<MultiMarginLossOp, MultilabelMarginLossOp>(op))
    return loss::describeClasses(rule);
  auto tensors = getRealTensors(rule, op->getOperands(),
                                isa<BinaryCrossEntropyWithLogitsOp>(op));
  if (!tensors)
    return;
  const ConcreteTensor &self = (*tensors)[0], &target = (*tensors)[1];
  llvm::TypeSwitch<Operation *>(op)
      .Case<MseLossOp, SmoothL1LossOp>(
          [&](auto) { describeKernel(rule, self, target); })
      .Case<HuberLossOp>([&](auto) { describeHuber(rule, self, target); })
      .Case<BinaryCrossEntropyOp>(
          [&](auto binary) { describeBinary(rule, binary, self); })
      .Case<BinaryCrossEntropyWithLogitsOp>([&](auto binary) {
        describeBinaryWithLogits(rule, binary, *tensors);
      })
      .Case<SoftMarginLossOp>(
          [&](auto) { describeSoftMargin(rule, self, target); });
}
