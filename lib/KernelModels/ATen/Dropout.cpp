//===- Dropout.cpp - What dropout allocates -------------------------------===//
//
// Source: aten/src/ATen/native/Dropout.cpp, _dropout_impl: noise of zeros and
// ones, scaled, and a product with it. The fused kernel is not for the CPU.
//
//===----------------------------------------------------------------------===//

#include "koila/Dialect/Koila/IR/Dropout.h"
#include "../BackwardRules.h"
#include "../Models.h"
#include "Backward/BackwardReplay.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using rules::Dropout;

/// None outside of training.
static std::optional<Dropout> getDropout(Operation *op) {
  using Found = std::optional<Dropout>;
  return llvm::TypeSwitch<Operation *, Found>(op)
      .Case<DropoutOp, AlphaDropoutOp, FeatureDropoutOp, FeatureAlphaDropoutOp>(
          [](auto op) -> Found {
            return op.drops() ? Found(op.getDropout()) : std::nullopt;
          });
}

static void describeForward(WorkspaceRule &rule, const Dropout &dropout) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto result = rule.tensor(op->getResult(0));
  if (!input || !result)
    return rule.setInexact("a shape of the operator is unknown");
  if (input->numElements() == 0)
    return;
  OpReplay steps(rule);
  ConcreteTensor shape = *input;
  if (dropout.p == 1)
    shape = {{}, input->elementType};
  else if (dropout.feature)
    for (int64_t &extent : llvm::drop_begin(shape.dims, 2))
      extent = 1;
  MadeTensor noise = steps.allocate(shape), shift;
  if (dropout.p != 1 && dropout.alpha) {
    // (noise - 1) * number + number
    shift = steps.compute(noise, OpReplay::Result::Common,
                          OpReplay::Number::Integer);
    steps.write(shift, OpReplay::Number::Float);
    steps.write(shift, OpReplay::Number::Float);
  }
  if (dropout.p != 1)
    steps.write(noise, OpReplay::Number::Float);
  bool isInPlace = rules::isInPlace(op);
  if (isInPlace)
    steps.write({*input, noise});
  else
    steps.compute({*input, noise});
  steps.free({noise, shift});
  steps.finish(isInPlace ? 0 : result->numBytes());
}

static void describeSaved(SavedRule &rule, const Dropout &dropout) {
  if (!saveDifferentiated(rule).savesInner)
    return;
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  auto noise = input ? dropout.getNoise(*input) : std::nullopt;
  if (!noise)
    return rule.setInexact("what autograd keeps of this dropout is not known");
  rule.keep(noise->numBytes());
}

static void describeBackward(BackwardRule &rule, const Dropout &dropout) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  auto noise = input ? dropout.getNoise(*input) : std::nullopt;
  if (!rule.getGradient() || !noise)
    return rule.setInexact("the gradient of this dropout is not known");
  BackwardReplay steps(rule);
  steps.give(0, steps.compute({steps.getGradient(), *noise}));
  steps.finish();
}

/// The mask, a product with it, and a product in place.
static void describeNative(WorkspaceRule &rule) {
  auto op = cast<NativeDropoutOp>(rule.getOp());
  auto input = rule.tensor(op.getInput());
  auto mask = rule.tensor(op.getMask());
  if (!input || !mask)
    return rule.setInexact("a shape of the operator is unknown");
  if (input->numElements() == 0 || !op.getTrain().value_or(true))
    return;
  OpReplay steps(rule);
  MadeTensor drawn = steps.allocate(*mask);
  MadeTensor product = steps.compute({*input, drawn});
  steps.write(product, OpReplay::Number::Float);
  steps.finish(drawn.numBytes() + product.numBytes());
}

void kernels::describeDropoutForward(WorkspaceRule &rule) {
  if (auto dropout = getDropout(rule.getOp()))
    describeForward(rule, *dropout);
}

void kernels::saveDropout(SavedRule &rule) {
  if (auto dropout = getDropout(rule.getOp()))
    describeSaved(rule, *dropout);
}

void kernels::describeDropoutBackward(BackwardRule &rule) {
  if (auto dropout = getDropout(rule.getOp()))
    describeBackward(rule, *dropout);
  else
    rules::describeBackward(rule);
}

void kernels::addDropoutModels(KernelLibrary &library) {
  library
      .add<AlphaDropoutOp, DropoutOp, FeatureAlphaDropoutOp, FeatureDropoutOp>(
          {describeDropoutForward, saveDropout, describeDropoutBackward});
  library.add<NativeDropoutOp>({.forward = describeNative});
}
