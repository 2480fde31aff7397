//===- IndexBackward.cpp - Gradients of reads by indices ------------------===//
//
// Zeros of the shape that was read, into which the gradient is added. Sources:
// FunctionsManual.cpp, native/Embedding.cpp, native/cpu/IndexKernel.cpp.
//
//===----------------------------------------------------------------------===//

#include "../BackwardRules.h"
#include "BackwardReplay.h"
#include "Embedding.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// The sums over what was repeated: dims that were added first, one after the
/// other. Source: repeat_backward.
static void sumRepeated(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0), sum = steps.getGradient();
  bool isFirst = true;
  auto replace = [&](ConcreteTensor by) {
    by = steps.allocate(by);
    if (!isFirst)
      steps.free(sum);
    isFirst = false;
    sum = by;
  };
  while (sum.dims.size() > self.dims.size())
    replace(dropDim(sum, 0, /*keepdim=*/false));
  if (sum.dims != self.dims)
    replace(self);
  if (isFirst)
    return rule.forwardGrad(0);
  steps.give(0, sum);
}

/// The gradient itself, and what was read of it for what was written.
static void readWritten(BackwardRule &rule, BackwardReplay &steps,
                        unsigned source) {
  if (steps.wants(0))
    rule.forwardGrad(0);
  if (steps.wants(source))
    steps.giveContiguous(source);
}

void rules::describeIndexBackward(BackwardRule &rule) {
  if (!rule.getGradient() || isa<ComplexType>(rule.getGradient()->elementType))
    return koila::detail::describeUnknownBackward(rule);
  ConcreteTensor gradient = *rule.getGradient();
  auto giveUp = [&] { koila::detail::describeUnknownBackward(rule); };
  for (StringRef name : {"sparse", "sparse_grad"})
    if (auto flag = rule.getOp()->getAttrOfType<BoolAttr>(name);
        flag && flag.getValue())
      return giveUp();
  if (isa<EmbeddingBagOp, EmbeddingBagPaddingOp>(rule.getOp()))
    return indexing::describeBagBackward(rule);
  BackwardReplay steps(rule);
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<EmbeddingOp>([&](auto) {
        ConcreteTensor indices = steps.read(1);
        steps.contiguous(indices);
        steps.contiguous(gradient);
        steps.giveContiguous(0);
        steps.freeContiguous(gradient);
        steps.freeContiguous(indices);
      })
      .Case<IndexSelectOp, GatherOp>([&](auto op) {
        if (auto index = rule.tensor(op.getIndex());
            !index || !index->contiguous)
          return giveUp();
        steps.giveContiguous(0);
      })
      .Case<IndexTensorOp, IndexHackedTwinOp>([&](auto op) {
        // Where a mask is true is found again.
        if (int64_t places; indexing::describeSelection(
                rule, op->getOperands().drop_front(), places)) {
          steps.giveContiguous(0);
          steps.allocateTemporary(places);
          return;
        }
        for (Value operand : op->getOperands().drop_front())
          if (auto index = rule.tensor(operand);
              !index || !index->elementType.isInteger(64))
            return giveUp();
        steps.giveContiguous(0);
      })
      .Case<ScatterAddOp>([&](auto) { readWritten(rule, steps, 2); })
      .Case<IndexAddOp>([&](IndexAddOp op) {
        auto alpha = dyn_cast<IntegerAttr>(op.getAlphaAttr());
        if (!alpha || alpha.getInt() != 1)
          return giveUp();
        readWritten(rule, steps, 2);
      })
      .Case<RepeatOp>([&](auto) { sumRepeated(rule, steps); })
      .Case<PadOp, ConstantPadNdOp, ReflectionPad1dOp, ReflectionPad2dOp,
            ReflectionPad3dOp, ReplicationPad1dOp, ReplicationPad2dOp,
            ReplicationPad3dOp, PixelShuffleOp, PixelUnshuffleOp>([&](auto op) {
        auto mode = op->template getAttrOfType<StringAttr>("mode");
        if (!gradient.contiguous || (mode && mode.getValue() == "circular"))
          return giveUp();
        steps.giveContiguous(0);
      })
      .Case<FlipOp>([&](auto) { steps.give(0, steps.allocate(gradient)); })
      // One dim after the other.
      .Case<RollOp>([&](RollOp op) {
        if (op.getDims().empty() || op.getDims().size() > 2 ||
            !gradient.contiguous)
          return giveUp();
        steps.give(0, steps.allocate(gradient));
        if (op.getDims().size() > 1)
          steps.allocateTemporary(gradient.numBytes());
      })
      .Case<TrilOp, TriuOp>([&](auto) {
        if (!gradient.contiguous)
          return giveUp();
        steps.give(0, steps.allocate(gradient));
      })
      .Default([&](Operation *) { giveUp(); });
  steps.finish();
}
