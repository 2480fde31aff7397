//===- LossBackward.cpp - Gradients of losses -----------------------------===//
//
// Sources: native/Loss.cpp, FunctionsManual.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Loss/Loss.h"
#include "BackwardReplay.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;

/// Tensor::resize_() of a new tensor: its storage only grows.
static MadeTensor resize(BackwardReplay &steps, const MadeTensor &old,
                         ConcreteTensor resized) {
  resized.elementType = old.elementType;
  if (resized.numBytes() <= old.numBytes())
    return {resized, old.block};
  AllocationTrace::Block block =
      steps.AllocationTrace::allocate(resized.numBytes());
  steps.AllocationTrace::free(old.block);
  return {resized, block};
}

/// Zeros like `own`, an operand, which an iterator over it, the other one and
/// the gradient writes: computed in the type of all, and resized to the extents
/// that they have together. Sources: mse_loss_backward in native/Loss.cpp;
/// compute_types, resize_outputs and cast_outputs in TensorIterator.cpp.
static void giveZeros(BackwardRule &rule, BackwardReplay &steps,
                      unsigned operand, const ConcreteTensor &own,
                      const ConcreteTensor &other) {
  const ConcreteTensor &gradient = steps.getGradient();
  // Only its shape, type and strides count.
  ConcreteTensor together =
      BackwardReplay(rule).compute({own, other, gradient});
  Type computed = together.elementType;
  if (together.numElements() < own.numElements())
    return rule.setInexact("a gradient that is resized to none");
  bool isResized = together.dims != own.dims;
  MadeTensor made = steps.allocate(own);
  bool isCast = own.elementType != computed && !readsAnyType(rule);
  MadeTensor written = made;
  if (isCast)
    written = steps.allocate({own.dims, computed});
  TensorIteration iteration =
      loss::iterate(rule, {own, other, gradient}, computed);
  iteration.begin(steps);
  if (isResized)
    written = resize(steps, written, together);
  if (!isCast) {
    made = written;
  } else {
    if (isResized)
      made = resize(steps, made, together);
    steps.free(written);
  }
  iteration.end(steps);
  steps.give(operand, made);
}

/// mse_loss, smooth_l1_loss and huber_loss: one kernel for each gradient.
static void fillZeros(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0), target = steps.read(1);
  if (steps.wants(0))
    giveZeros(rule, steps, 0, self, target);
  if (steps.wants(1))
    giveZeros(rule, steps, 1, target, self);
}

/// (sigmoid(self) - target) * grad * weight, divided by the number of elements.
/// With weights of positives, t = pos_weight * target:
/// ((t + 1 - target) * sigmoid(self) - t) * grad.
static void describeLogits(BackwardRule &rule, BackwardReplay &steps) {
  auto loss = cast<BinaryCrossEntropyWithLogitsOp>(rule.getOp());
  ConcreteTensor self = steps.read(0), target = steps.read(1);
  auto isLikeSelf = [&](Value value) {
    auto tensor = rule.tensor(value);
    return tensor && tensor->elementType == self.elementType;
  };
  if (target.dims != self.dims || !isLikeSelf(loss.getTarget()) ||
      (steps.wants(1) && loss.getPosWeight()))
    return koila::detail::describeUnknownBackward(rule);
  auto divide = [&] {
    if (loss.getReduction() == 1 && !readsAnyType(rule))
      allocateInteger(steps, self.elementType);
  };
  for (Value weight : {loss.getWeight(), loss.getPosWeight()})
    if (weight && (!isLikeSelf(weight) || rule.wantsGradient(weight)))
      return koila::detail::describeUnknownBackward(rule);
  // One tensor, written by each step.
  if (loss.getPosWeight()) {
    MadeTensor weighted =
        steps.compute({*rule.tensor(loss.getPosWeight()), target});
    if (weighted.dims != self.dims)
      return koila::detail::describeUnknownBackward(rule);
    MadeTensor sum = steps.compute(weighted, Number::Integer);
    MadeTensor sigmoid = steps.compute(self);
    steps.give(0, sum);
    steps.free({weighted, sigmoid});
  } else if (steps.wants(0)) {
    steps.give(0, steps.compute(self));
  }
  divide();
  // -self * grad, for the target.
  if (!steps.wants(1))
    return;
  MadeTensor negated = steps.compute(self);
  steps.give(1, steps.compute({negated, steps.getGradient()}));
  steps.free(negated);
  divide();
}

/// A kernel, and logit(self) times the gradient for the target, each divided by
/// the number of elements.
static void describeEntropy(BackwardRule &rule, BackwardReplay &steps) {
  auto loss = cast<BinaryCrossEntropyOp>(rule.getOp());
  ConcreteTensor self = steps.read(0);
  if (steps.wants(1) && steps.read(1).dims != self.dims)
    return koila::detail::describeUnknownBackward(rule);
  for (unsigned operand : {0u, 1u}) {
    if (!steps.wants(operand))
      continue;
    steps.give(operand,
               operand == 0 ? steps.allocate(self) : steps.compute(self));
    if (loss.getReduction() == 1 && !readsAnyType(rule))
      allocateInteger(steps, self.elementType);
  }
}

/// target * z / (z + 1) * grad, where z = exp(-target * self)
static void describeSoftMargin(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0), target = steps.read(1);
  if (steps.wants(1) || target.dims != self.dims ||
      target.elementType != self.elementType)
    return koila::detail::describeUnknownBackward(rule);
  MadeTensor negated = steps.compute(target);
  MadeTensor product = steps.compute({negated, self});
  MadeTensor power = steps.compute(product);
  steps.free({negated, product});
  steps.give(0, steps.compute({target, power}));
  if (!readsAnyType(rule)) {
    allocateFloat(steps, self.elementType);
    allocateInteger(steps, self.elementType);
  }
  steps.free(power);
}

/// Zeros, of contiguous operands.
static void describeClasses(BackwardRule &rule, BackwardReplay &steps) {
  for (Value operand : rule.getOp()->getOperands())
    if (auto tensor = rule.tensor(operand); tensor && !tensor->contiguous)
      return koila::detail::describeUnknownBackward(rule);
  steps.giveContiguous(0);
}

/// Zeros, of which those of the targets are written. Source:
/// native/LossNLL.cpp, native/LossNLL2d.cpp.
static void describeLikelihood(BackwardRule &rule, BackwardReplay &steps) {
  steps.giveContiguous(0);
  std::optional<ConcreteTensor> weight;
  if (rule.getOp()->getNumOperands() > 2)
    weight = steps.read(2);
  loss::readInRows(steps, steps.read(0), steps.read(1), weight,
                   loss::getReduction(rule));
}

/// `describe` as the model `backward`.
static void replay(BackwardRule &rule,
                   void (*describe)(BackwardRule &, BackwardReplay &)) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  describe(rule, steps);
  steps.finish();
}

void loss::describeBinaryBackward(BackwardRule &rule) {
  replay(rule, describeEntropy);
}

void loss::describeBinaryWithLogitsBackward(BackwardRule &rule) {
  replay(rule, describeLogits);
}

void loss::describeKernelBackward(BackwardRule &rule) {
  replay(rule, fillZeros);
}

void loss::describeLikelihoodBackward(BackwardRule &rule) {
  replay(rule, describeLikelihood);
}

void loss::describeMultiMarginBackward(BackwardRule &rule) {
  replay(rule, describeClasses);
}

void loss::describeSoftMarginBackward(BackwardRule &rule) {
  replay(rule, describeSoftMargin);
}
