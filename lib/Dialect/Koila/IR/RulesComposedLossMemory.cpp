//===- RulesComposedLossMemory.cpp - Losses that are expressions ----------===//
//
// Source: native/Loss.cpp. Temporaries of an expression live until its
// statement ends, local tensors until the operator does.
//
//===----------------------------------------------------------------------===//

#include "Composition.h"
#include "LossMemory.h"
#include "koila/Dialect/Koila/IR/KoilaLossOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;
using Number = Composition::Number;
using Result = Composition::Result;

namespace {
/// A loss with its operands.
struct Operands {
  WorkspaceRule &rule;
  SmallVector<ConcreteTensor> tensors;

  const ConcreteTensor &operator[](size_t index) const {
    return tensors[index];
  }
  /// The last step of a loss.
  void finish(Composition &steps, const ConcreteTensor &losses) const {
    steps.finish(
        steps.reduce(losses, loss::getReduction(rule)).numBytes());
  }
};
} // namespace

/// |self - target|
static void describeAbsolute(const Operands &of) {
  Composition steps(of.rule);
  ConcreteTensor difference = steps.compute({of[0], of[1]});
  of.finish(steps, steps.compute(difference));
}

static void describeBinaryWithLogits(const Operands &of,
                                     BinaryCrossEntropyWithLogitsOp op) {
  const ConcreteTensor &input = of[0], &target = of[1];
  Composition steps(of.rule);
  ConcreteTensor logs = steps.allocate(input);
  // log_sigmoid: a buffer, and rows.
  steps.pass(input.numBytes() + getCopyBytes(input) + getBlockBytes(input));
  std::optional<ConcreteTensor> logWeight;
  if (op.getPosWeight()) {
    const ConcreteTensor &positive = of.tensors.back();
    ConcreteTensor less =
        steps.compute(positive, Result::Common, Number::Integer);
    logWeight = steps.compute({less, target});
    steps.write(*logWeight, Number::Integer);
    steps.free(less);
    steps.write({logs, *logWeight});
    steps.free(*logWeight);
  }
  ConcreteTensor losses = steps.subtractFromNumber(target);
  steps.write({losses, input});
  steps.write({losses, logs});
  if (op.getWeight())
    steps.write({losses, of[2]});
  of.finish(steps, losses);
}

static void describeDivergence(const Operands &of, KlDivOp op) {
  const ConcreteTensor &self = of[0], &target = of[1];
  Composition steps(of.rule);
  ConcreteTensor losses;
  if (op.getLogTarget()) {
    ConcreteTensor difference = steps.compute({target, self});
    ConcreteTensor weight = steps.compute(target, Result::Float);
    losses = steps.compute({weight, difference});
    steps.free({difference, weight});
  } else {
    ConcreteTensor product = steps.compute({target, self});
    ConcreteTensor entropy = steps.compute({target, target}, Result::Float);
    losses = steps.compute({entropy, product});
    steps.free({product, entropy});
  }
  of.finish(steps, losses);
}

/// where(target != 1, margin - self, 0) + where(target != -1, self, 0)
static void describeHinge(const Operands &of) {
  const ConcreteTensor &self = of[0], &target = of[1];
  Composition steps(of.rule);
  ConcreteTensor zeros = steps.allocate(self);
  ConcreteTensor margin = steps.subtractFromNumber(self);
  auto choose = [&](const ConcreteTensor &chosen) {
    ConcreteTensor mask =
        steps.compute(target, Result::Bool, Number::Integer);
    ConcreteTensor where = steps.select(mask, chosen, zeros);
    steps.free(mask);
    return where;
  };
  ConcreteTensor negative = choose(margin);
  ConcreteTensor positive = choose(self);
  of.finish(steps, steps.compute({negative, positive}));
}

/// clamp_min_(-target * (input1 - input2) + margin, 0)
static void describeMarginRanking(const Operands &of) {
  Composition steps(of.rule);
  ConcreteTensor difference = steps.compute({of[0], of[1]});
  ConcreteTensor negative = steps.compute(of[2]);
  ConcreteTensor product = steps.compute({negative, difference});
  ConcreteTensor losses =
      steps.compute(product, Result::Common, Number::Float);
  steps.free({difference, negative, product});
  of.finish(steps, losses);
}

/// Stirling's approximation of log(target!), added to the losses.
static void addStirling(Composition &steps, const ConcreteTensor &target,
                        const ConcreteTensor &losses) {
  ConcreteTensor turns = steps.compute(target, Result::Common, Number::Float);
  ConcreteTensor logTurns = steps.compute(turns, Result::Float);
  ConcreteTensor half =
      steps.compute(logTurns, Result::Common, Number::Float);
  ConcreteTensor logs = steps.compute(target, Result::Float);
  ConcreteTensor product = steps.compute({target, logs});
  ConcreteTensor difference = steps.compute({product, target});
  ConcreteTensor stirling = steps.compute({difference, half});
  steps.free({turns, logTurns, half, logs, product, difference});
  ConcreteTensor mask = steps.compute(target, Result::Bool, Number::Integer);
  ConcreteTensor filled = steps.allocate(stirling);
  steps.write({losses, filled});
  steps.free({mask, filled, stirling});
}

static void describePoisson(const Operands &of, PoissonNllLossOp op) {
  const ConcreteTensor &input = of[0], &target = of[1];
  Composition steps(of.rule);
  ConcreteTensor losses;
  if (op.getLogInput()) {
    ConcreteTensor product = steps.compute({target, input});
    ConcreteTensor exponential = steps.compute(input, Result::Float);
    losses = steps.compute({exponential, product});
    steps.free({product, exponential});
  } else {
    ConcreteTensor shifted =
        steps.compute(input, Result::Common, Number::Float);
    ConcreteTensor logs = steps.compute(shifted, Result::Float);
    ConcreteTensor product = steps.compute({target, logs});
    losses = steps.compute({input, product});
    steps.free({shifted, logs, product});
  }
  if (op.getFull())
    addStirling(steps, target, losses);
  of.finish(steps, losses);
}

static void describeCosine(const Operands &of) {
  const ConcreteTensor &target = of[2];
  int64_t dim = target.dims.size();
  Composition steps(of.rule);
  auto multiply = [&](const ConcreteTensor &lhs, const ConcreteTensor &rhs,
                      bool shifts) {
    ConcreteTensor product = steps.compute({lhs, rhs});
    ConcreteTensor sum = steps.sum(product, dim);
    if (!shifts) {
      steps.free(product);
      return sum;
    }
    ConcreteTensor shifted =
        steps.compute(sum, Result::Common, Number::Float);
    steps.free({product, sum});
    return shifted;
  };
  ConcreteTensor products = multiply(of[0], of[1], false);
  ConcreteTensor squares = multiply(of[0], of[0], true);
  ConcreteTensor otherSquares = multiply(of[1], of[1], true);
  ConcreteTensor divisor = steps.compute({squares, otherSquares});
  ConcreteTensor cosines = steps.compute({products, divisor}, Result::Float);
  ConcreteTensor zeros = steps.allocate(cosines);
  ConcreteTensor positive = steps.subtractFromNumber(cosines);
  ConcreteTensor negative =
      steps.compute(cosines, Result::Common, Number::Float);
  auto choose = [&](const ConcreteTensor &chosen) {
    ConcreteTensor mask =
        steps.compute(target, Result::Bool, Number::Integer);
    ConcreteTensor where = steps.select(mask, chosen, zeros);
    steps.free(mask);
    return where;
  };
  ConcreteTensor chosen = choose(positive), others = choose(negative);
  of.finish(steps, steps.compute({chosen, others}));
}

static void describeTriplet(const Operands &of, TripletMarginLossOp op) {
  if (op.getP().isZero())
    return of.rule.setInexact("a norm that counts elements");
  Composition steps(of.rule);
  ConcreteTensor near = steps.computeDistance(of[0], of[1], false);
  ConcreteTensor far = steps.computeDistance(of[0], of[2], false);
  if (op.getSwap()) {
    ConcreteTensor swapped = steps.computeDistance(of[1], of[2], false);
    ConcreteTensor least = steps.compute({far, swapped});
    steps.free({far, swapped});
    far = least;
  }
  ConcreteTensor margin = steps.compute(near, Result::Common, Number::Float);
  ConcreteTensor difference = steps.compute({margin, far});
  ConcreteTensor losses = steps.compute(difference);
  steps.free({margin, difference});
  of.finish(steps, losses);
}

void loss::describeComposed(WorkspaceRule &rule) {
  auto tensors = getRealTensors(rule, rule.getOp()->getOperands(),
                                isa<BinaryCrossEntropyWithLogitsOp>(
                                    rule.getOp()));
  if (!tensors)
    return;
  Operands of{rule, std::move(*tensors)};
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<L1LossOp>([&](auto) { describeAbsolute(of); })
      .Case<BinaryCrossEntropyWithLogitsOp>(
          [&](auto op) { describeBinaryWithLogits(of, op); })
      .Case<KlDivOp>([&](auto op) { describeDivergence(of, op); })
      .Case<HingeEmbeddingLossOp>([&](auto) { describeHinge(of); })
      .Case<MarginRankingLossOp>([&](auto) { describeMarginRanking(of); })
      .Case<PoissonNllLossOp>([&](auto op) { describePoisson(of, op); })
      .Case<CosineEmbeddingLossOp>([&](auto) { describeCosine(of); })
      .Case<TripletMarginLossOp>([&](auto op) { describeTriplet(of, op); })
      .Default([&](Operation *) { rules::describeUnknownWorkspace(rule); });
}
