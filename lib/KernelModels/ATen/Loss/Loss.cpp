//===- Loss.cpp - What an elementwise loss holds inside -------------------===//
//
// Losses with a kernel of their own. Source: native/Loss.cpp. Where they are
// reduced the result often is a tensor of all losses that was made smaller: its
// storage stays as large.
//
//===----------------------------------------------------------------------===//

#include "Loss.h"
#include "../../Models.h"
#include "../OpReplay.h"
#include "../Sum.h"
#include "koila/Dialect/Koila/IR/LossOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;
using Result = OpReplay::Result;

int64_t loss::getReduction(WorkspaceRule &rule) {
  return rule.getOp()->getAttrOfType<IntegerAttr>("reduction").getInt();
}

TensorIteration loss::iterate(const WorkspaceRule &rule,
                              ArrayRef<ConcreteTensor> operands, Type computed,
                              int64_t resultBytes) {
  TensorIteration iteration{{}, computed, resultBytes};
  if (!readsAnyType(rule))
    iteration.operands.append(operands.begin(), operands.end());
  return iteration;
}

/// The operands in numbers; none, and the rule says so, if one is unknown or
/// complex.
static std::optional<SmallVector<ConcreteTensor>>
getTensors(WorkspaceRule &rule, bool needsStrides = false) {
  return getRealTensors(rule, rule.getOp()->getOperands(), needsStrides);
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
static void describeKernel(WorkspaceRule &rule) {
  auto tensors = getTensors(rule);
  if (!tensors)
    return;
  const ConcreteTensor &self = (*tensors)[0], &target = (*tensors)[1];
  int64_t reduction = loss::getReduction(rule);
  OpReplay steps(rule);
  // Only its shape and type count.
  ConcreteTensor result = OpReplay(rule).compute({self, target});
  if (!isa<FloatType>(result.elementType))
    return rule.setInexact("a loss of integers");
  TensorIteration outer = loss::iterate(rule, {self, target},
                                        result.elementType, result.numBytes());
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
      allocateSum(rule, steps, result, one,
                  SmallVector<bool>(result.dims.size(), true));
    inner.end(steps);
    steps.AllocationTrace::free(inner.result);
    rule.setStorageBytes(rule.getOp()->getResult(0), kept);
  }
  outer.end(steps);
  steps.finish(kept);
}

/// The tensor of losses is like the input, and resized where the target is
/// larger.
static void describeHuber(WorkspaceRule &rule) {
  auto tensors = getTensors(rule);
  if (!tensors)
    return;
  const ConcreteTensor &self = (*tensors)[0], &target = (*tensors)[1];
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
  TensorIteration iteration = loss::iterate(rule, {self, target}, computed);
  if (!readsAnyType(rule))
    iteration.writtenBytes = getCastBytes(self, computed);
  iteration.begin(steps);
  if (grows && losses.numBytes() > made.numBytes()) {
    MadeTensor grown = steps.allocate(losses);
    steps.free(made);
    made = grown;
  } else if (grows && losses.numBytes() < made.numBytes()) {
    return rule.setInexact("losses that are resized to none");
  } else if (grows) {
    made = {losses, made.block};
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

static void describeBinary(WorkspaceRule &rule) {
  auto op = cast<BinaryCrossEntropyOp>(rule.getOp());
  auto tensors = getTensors(rule);
  if (!tensors)
    return;
  OpReplay steps(rule);
  MadeTensor losses = steps.allocate(tensors->front());
  if (Value value = op.getWeight()) {
    auto weight = rule.tensor(value);
    if (!weight)
      return rule.setInexact("the shape of the weight is unknown");
    steps.write({losses, *weight});
  }
  finishShrunk(rule, steps, losses);
}

/// log1p(exp(-self * target)), written step by step over -self.
static void describeSoftMargin(WorkspaceRule &rule) {
  auto tensors = getTensors(rule);
  if (!tensors)
    return;
  const ConcreteTensor &self = (*tensors)[0], &target = (*tensors)[1];
  OpReplay steps(rule);
  MadeTensor losses = steps.allocate(self);
  steps.write({losses, target});
  finishShrunk(rule, steps, losses);
}

/// An expression that has a derivative of its own: no step is recorded.
static void describeBinaryWithLogits(WorkspaceRule &rule) {
  auto op = cast<BinaryCrossEntropyWithLogitsOp>(rule.getOp());
  auto tensors = getTensors(rule, /*needsStrides=*/true);
  if (!tensors)
    return;
  const ConcreteTensor &input = (*tensors)[0], &target = (*tensors)[1];
  OpReplay steps(rule);
  MadeTensor logs = steps.allocate(input);
  // log_sigmoid on the CPU: a buffer, and rows.
  if (!readsAnyType(rule)) {
    AllocationTrace::Block buffer =
        steps.AllocationTrace::allocate(input.numBytes());
    steps.AllocationTrace::free(allocateContiguous(steps, input));
    steps.AllocationTrace::free(buffer);
  }
  std::optional<MadeTensor> logWeight;
  if (op.getPosWeight()) {
    const ConcreteTensor &positive = tensors->back();
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
    steps.write({losses, (*tensors)[2]});
  int64_t reduction = loss::getReduction(rule);
  MadeTensor result = steps.reduce(losses, reduction);
  if (reduction != 0)
    steps.free(losses);
  steps.free(logs);
  steps.finish(result.numBytes());
}

void kernels::addLossModels(KernelLibrary &library) {
  library.add<BinaryCrossEntropyOp>(
      {.forward = describeBinary, .backward = loss::describeBinaryBackward});
  library.add<BinaryCrossEntropyWithLogitsOp>(
      {.forward = describeBinaryWithLogits,
       .backward = loss::describeBinaryWithLogitsBackward});
  library.add<HuberLossOp>(
      {.forward = describeHuber, .backward = loss::describeKernelBackward});
  library.add<MseLossOp, SmoothL1LossOp>(
      {.forward = describeKernel, .backward = loss::describeKernelBackward});
  library.add<SoftMarginLossOp>({.forward = describeSoftMargin,
                                 .backward = loss::describeSoftMarginBackward});
}
