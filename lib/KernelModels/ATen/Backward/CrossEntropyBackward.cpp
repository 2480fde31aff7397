//===- CrossEntropyBackward.cpp - Gradients of cross entropies ------------===//
//
// A cross entropy is an expression, and its gradient runs through the nodes of
// all parts, the last made first. Each node frees what it alone has saved, and
// the gradient that arrived for it. Sources: native/LossNLL.cpp;
// mul_tensor_backward, div_tensor_self_backward, sum_backward and the formulas
// of masked_fill, neg and nll_loss in derivatives.yaml.
//
//===----------------------------------------------------------------------===//

#include "../Loss/Loss.h"
#include "BackwardReplay.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;

namespace {
/// A call and its operands.
struct Call {
  Call(BackwardRule &rule, CrossEntropyLossOp op)
      : rule(rule), steps(rule), op(op), self(steps.read(0)),
        target(steps.read(1)), reduction(loss::getReduction(rule)) {
    if (op.getWeight())
      weight = steps.read(2);
  }

  int64_t getClassDim() const { return self.dims.size() == 1 ? 0 : 1; }
  /// The weight as it broadcasts over the classes.
  ConcreteTensor spreadWeight() const {
    ConcreteTensor spread{{}, weight->elementType};
    spread.dims.assign(self.dims.size(), 1);
    spread.dims[getClassDim()] = weight->dims.front();
    return spread;
  }
  /// One gradient for each sample, for all its classes alike.
  ConcreteTensor spreadClasses(const ConcreteTensor &gradient) const {
    ConcreteTensor one = unsqueeze(gradient, getClassDim());
    return expandTo(withStrides(one, one.strides), self.dims);
  }
  /// The node of a product or quotient with a number, the first that is run:
  /// the gradient that arrived is dropped.
  MadeTensor scale(Number number) {
    MadeTensor scaled = steps.compute(steps.getGradient(), number);
    steps.freeOutside(rule.getReleasableBytes());
    return scaled;
  }
  /// The node of an operand that ends.
  MadeTensor replace(const MadeTensor &old, MadeTensor made) {
    steps.free(old);
    return made;
  }
  /// The softmax, from the gradient of the logarithms.
  void finish(const ConcreteTensor &gradient) {
    steps.giveContiguous(0);
    steps.free(gradient);
    steps.finish();
  }

  BackwardRule &rule;
  BackwardReplay steps;
  CrossEntropyLossOp op;
  ConcreteTensor self, target;
  std::optional<ConcreteTensor> weight;
  int64_t reduction;
};
} // namespace

static constexpr int64_t kMean = 1;

/// Sources: nll_loss_backward_out_frame in native/LossNLL.cpp and
/// nll_loss2d_backward_out_frame in native/LossNLL2d.cpp.
void loss::readInRows(AllocationTrace &steps, const ConcreteTensor &self,
                      const ConcreteTensor &target,
                      const std::optional<ConcreteTensor> &weight,
                      int64_t reduction) {
  AllocationTrace::Block rows;
  if (weight)
    rows = allocateContiguous(steps, *weight);
  // What nll_loss_nd views as an image is in rows already.
  constexpr size_t kImageRank = 4;
  if (self.dims.size() == kImageRank && reduction != 0)
    steps.free(allocateContiguous(steps, target));
  steps.free(rows);
}

/// The gradients of the chosen logarithms. What that node keeps is gone after
/// it: the total weight of the targets, and targets and weights that were made
/// for it.
static MadeTensor choose(Call &of, llvm::function_ref<void()> freeArrived) {
  MadeTensor chosen = of.steps.allocate(of.self);
  loss::readInRows(of.steps, of.self, of.target, of.weight, of.reduction);
  freeArrived();
  // nll_loss_nd has copied the targets that it could not view as an image.
  size_t rank = of.self.dims.size();
  if (rank == 3 || rank > 4)
    of.steps.freeOutside(getCopyBytes(of.target));
  of.steps.freeSaved(1);
  if (of.weight)
    of.steps.freeSaved(2);
  of.steps.freeOutside(getElementBytes(of.self.elementType));
  return chosen;
}

/// The nodes of the losses of all classes alike, down to the logarithms. With
/// weights the result is a tensor of its own, else a view of one value for each
/// sample; `held` is what is freed with it.
static ConcreteTensor spreadSmooth(Call &of, MadeTensor gradient,
                                   int64_t &held) {
  BackwardReplay &steps = of.steps;
  Type type = of.self.elementType;
  if (of.reduction == kMean) {
    // How many targets count, or what they weigh, has been saved.
    ConcreteTensor count{
        {}, of.weight ? type : IntegerType::get(type.getContext(), 64)};
    gradient = of.replace(gradient, steps.compute({gradient, count}));
    steps.freeOutside(count.numBytes());
  }
  // A copy in rows, for the samples that are ignored, and their mask.
  MadeTensor filled = steps.allocate({of.target.dims, type});
  steps.free(gradient);
  ConcreteTensor mask{of.target.dims, IntegerType::get(type.getContext(), 1)};
  steps.freeOutside(mask.numBytes());
  MadeTensor negated = of.replace(filled, steps.compute(filled));
  held = negated.numBytes();
  ConcreteTensor spread = of.spreadClasses(negated);
  if (!of.weight)
    return spread;
  spread = steps.compute({spread, of.spreadWeight()});
  steps.free(negated);
  held = spread.numBytes();
  return spread;
}

static void describeSmooth(Call &of) {
  BackwardReplay &steps = of.steps;
  MadeTensor others = steps.compute(steps.getGradient(), Number::Float);
  int64_t held = 0;
  ConcreteTensor spread = spreadSmooth(of, of.scale(Number::Float), held);
  MadeTensor chosen = choose(of, [&] { steps.free(others); });
  // The engine adds in place what is a tensor of its own.
  if (isDense(spread) && of.weight) {
    steps.free(chosen);
    return of.finish(spread);
  }
  MadeTensor sum = steps.compute({spread, chosen});
  steps.AllocationTrace::free(held);
  steps.free(chosen);
  of.finish(sum);
}

/// -(log_softmax(self) * target * weight), summed.
static void describeProbabilities(Call &of, bool isSmooth) {
  BackwardReplay &steps = of.steps;
  MadeTensor held(steps.getGradient(), {});
  bool isMean = of.reduction == kMean;
  if (isMean)
    held = of.scale(Number::Integer);
  MadeTensor negated = steps.compute(held);
  if (isMean)
    steps.free(held);
  else
    steps.freeOutside(of.rule.getReleasableBytes());
  held = negated;
  ConcreteTensor gradient = negated;
  gradient = of.reduction == 0 ? of.spreadClasses(gradient)
                               : expandTo(gradient, of.self.dims);
  auto multiply = [&](const ConcreteTensor &factor) {
    MadeTensor product = steps.compute({gradient, factor});
    steps.free(held);
    gradient = held = product;
  };
  if (of.weight) {
    multiply(of.spreadWeight());
    steps.freeSaved(2);
  }
  multiply(of.target);
  // Smooth targets are kept after the logarithms.
  if (isSmooth)
    steps.freeKept(1, countBytes(of.target, of.self.elementType));
  else
    steps.freeSaved(1);
  of.finish(gradient);
}

void loss::describeCrossEntropyBackward(BackwardRule &rule) {
  auto op = cast<CrossEntropyLossOp>(rule.getOp());
  auto isUnknown = [&](unsigned operand) {
    return rule.wantsOperand(operand) || !rule.tensor(op->getOperand(operand));
  };
  if (!rule.getGradient() || !rule.tensor(op.getSelf()) || isUnknown(1) ||
      (op.getWeight() && isUnknown(2)))
    return koila::detail::describeUnknownBackward(rule);
  Call of(rule, op);
  bool isSmooth = op.getLabelSmoothing().convertToDouble() != 0;
  bool hasProbabilities = of.self.dims == of.target.dims;
  if (!isSmooth && !hasProbabilities)
    return of.finish(
        choose(of, [&] { of.steps.freeOutside(rule.getReleasableBytes()); }));
  if (!of.self.contiguous || of.self.numElements() == 0 ||
      (of.weight && of.weight->elementType != of.self.elementType) ||
      (hasProbabilities && of.target.elementType != of.self.elementType))
    return koila::detail::describeUnknownBackward(rule);
  if (hasProbabilities)
    return describeProbabilities(of, isSmooth);
  describeSmooth(of);
}
