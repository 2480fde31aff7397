//===- ComposedLoss.cpp - Losses that are expressions ---------------------===//
//
// Source: native/Loss.cpp. Temporaries of an expression live until its
// statement ends, local tensors until the operator does; what autograd saves
// stays.
//
//===----------------------------------------------------------------------===//

#include "../../Models.h"
#include "../Backward/AutogradReplay.h"
#include "Loss.h"
#include "koila/Dialect/Koila/IR/LossOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = AutogradReplay::Number;
using Result = AutogradReplay::Result;

namespace {
/// A loss with its operands.
struct Operands {
  WorkspaceRule &rule;
  AutogradReplay &steps;
  SmallVector<Term> tensors;

  const Term &operator[](size_t index) const { return tensors[index]; }
  /// The last step of a loss.
  void finish(const Term &losses) const {
    steps.finish(steps.reduce(losses, loss::getReduction(rule)));
  }
};
} // namespace

/// |self - target|
static void describeAbsolute(const Operands &of) {
  AutogradReplay &steps = of.steps;
  Term difference = steps.compute("sub.Tensor", {of[0], of[1]});
  of.finish(steps.compute("abs", difference));
}

static void describeDivergence(const Operands &of) {
  auto op = cast<KlDivOp>(of.rule.getOp());
  const Term &self = of[0], &target = of[1];
  AutogradReplay &steps = of.steps;
  Term losses;
  if (op.getLogTarget()) {
    Term difference = steps.compute("sub.Tensor", {target, self});
    Term weight = steps.compute("exp", target, Result::Float);
    losses = steps.compute("mul.Tensor", {weight, difference});
    steps.free({weight, difference});
  } else {
    Term product = steps.compute("mul.Tensor", {target, self});
    Term entropy =
        steps.compute("xlogy.Tensor", {target, target}, Result::Float);
    losses = steps.compute("sub.Tensor", {entropy, product});
    steps.free({entropy, product});
  }
  of.finish(losses);
}

/// where(target != 1, margin - self, 0) + where(target != -1, self, 0)
static void describeHinge(const Operands &of) {
  const Term &self = of[0], &target = of[1];
  AutogradReplay &steps = of.steps;
  Term zeros = steps.allocate(self);
  Term margin = steps.subtractFromNumber(self);
  steps.write("clamp_min_", margin);
  auto choose = [&](const Term &chosen) {
    Term mask =
        steps.compute("ne.Scalar", target, Result::Bool, Number::Integer);
    Term where = steps.select(mask, chosen, zeros);
    steps.free(mask);
    return where;
  };
  Term negative = choose(margin);
  Term positive = choose(self);
  of.finish(steps.compute("add.Tensor", {negative, positive}));
}

/// clamp_min_(-target * (input1 - input2) + margin, 0)
static void describeMarginRanking(const Operands &of) {
  AutogradReplay &steps = of.steps;
  Term difference = steps.compute("sub.Tensor", {of[0], of[1]});
  Term negative = steps.compute("neg", of[2]);
  Term product = steps.compute("mul.Tensor", {negative, difference});
  Term losses =
      steps.compute("add.Scalar", product, Result::Common, Number::Float);
  steps.free({product, negative, difference});
  steps.write("clamp_min_", losses);
  of.finish(losses);
}

/// Stirling's approximation of log(target!), added to the losses.
static void addStirling(AutogradReplay &steps, const Term &target,
                        const Term &losses) {
  Term turns =
      steps.compute("mul.Scalar", target, Result::Common, Number::Float);
  Term logTurns = steps.compute("log", turns, Result::Float);
  Term half =
      steps.compute("mul.Scalar", logTurns, Result::Common, Number::Float);
  Term logs = steps.compute("log", target, Result::Float);
  Term product = steps.compute("mul.Tensor", {target, logs});
  Term difference = steps.compute("sub.Tensor", {product, target});
  Term stirling = steps.compute("add.Tensor", {difference, half});
  steps.free({difference, product, logs, half, logTurns, turns});
  Term mask = steps.compute("le.Scalar", target, Result::Bool, Number::Integer);
  Term filled = steps.allocate(stirling);
  steps.record("masked_fill.Scalar", {stirling, mask}, filled);
  steps.write("add_.Tensor", {losses, filled});
  steps.free({filled, mask, stirling});
}

static void describePoisson(const Operands &of) {
  auto op = cast<PoissonNllLossOp>(of.rule.getOp());
  const Term &input = of[0], &target = of[1];
  AutogradReplay &steps = of.steps;
  Term losses;
  if (op.getLogInput()) {
    Term product = steps.compute("mul.Tensor", {target, input});
    Term exponential = steps.compute("exp", input, Result::Float);
    losses = steps.compute("sub.Tensor", {exponential, product});
    steps.free({exponential, product});
  } else {
    Term shifted =
        steps.compute("add.Scalar", input, Result::Common, Number::Float);
    Term logs = steps.compute("log", shifted, Result::Float);
    Term product = steps.compute("mul.Tensor", {target, logs});
    losses = steps.compute("sub.Tensor", {input, product});
    steps.free({product, logs, shifted});
  }
  if (op.getFull())
    addStirling(steps, target, losses);
  of.finish(losses);
}

static void describeCosine(const Operands &of) {
  const Term &target = of[2];
  int64_t dim = target.dims.size();
  AutogradReplay &steps = of.steps;
  auto multiply = [&](const Term &lhs, const Term &rhs, bool shifts) {
    Term product = steps.compute("mul.Tensor", {lhs, rhs});
    Term sum = steps.sum(product, dim);
    if (!shifts) {
      steps.free(product);
      return sum;
    }
    Term shifted =
        steps.compute("add.Scalar", sum, Result::Common, Number::Float);
    steps.free({sum, product});
    return shifted;
  };
  Term products = multiply(of[0], of[1], false);
  Term squares = multiply(of[0], of[0], true);
  Term otherSquares = multiply(of[1], of[1], true);
  Term divisor = steps.compute("mul.Tensor", {squares, otherSquares});
  steps.write("sqrt_", divisor);
  Term cosines =
      steps.compute("div.Tensor", {products, divisor}, Result::Float);
  Term zeros = steps.allocate(cosines);
  Term positive = steps.subtractFromNumber(cosines);
  Term negative =
      steps.compute("sub.Scalar", cosines, Result::Common, Number::Float);
  steps.write("clamp_min_", negative);
  auto choose = [&](const Term &chosen) {
    Term mask =
        steps.compute("eq.Scalar", target, Result::Bool, Number::Integer);
    Term where = steps.select(mask, chosen, zeros);
    steps.free(mask);
    return where;
  };
  Term chosen = choose(positive), others = choose(negative);
  of.finish(steps.compute("add.Tensor", {chosen, others}));
}

static void describeTriplet(const Operands &of) {
  auto op = cast<TripletMarginLossOp>(of.rule.getOp());
  if (op.getP().isZero())
    return of.rule.setInexact("a norm that counts elements");
  AutogradReplay &steps = of.steps;
  Term near = steps.computeDistance(of[0], of[1], false);
  Term far = steps.computeDistance(of[0], of[2], false);
  if (op.getSwap()) {
    Term swapped = steps.computeDistance(of[1], of[2], false);
    Term least = steps.compute("minimum", {far, swapped});
    steps.free({far, swapped});
    far = least;
  }
  Term margin =
      steps.compute("add.Scalar", near, Result::Common, Number::Float);
  Term difference = steps.compute("sub.Tensor", {margin, far});
  Term losses = steps.compute("clamp_min", difference);
  steps.free({difference, margin});
  of.finish(losses);
}

/// `saved` is told what autograd keeps of a loss, `backward` what its gradients
/// take.
template <void (*Describe)(const Operands &)>
static void replay(WorkspaceRule &rule, SavedRule *saved,
                   BackwardRule *backward) {
  AutogradReplay steps(rule, saved, backward);
  if (auto terms = readReals(steps, rule, rule.getOp()->getOperands()))
    Describe({rule, steps, std::move(*terms)});
}

template <void (*Describe)(const Operands &)>
static constexpr KernelModel getModel() {
  return {forwardOf<replay<Describe>>, savedOf<replay<Describe>>,
          backwardOf<replay<Describe>>};
}

void kernels::addComposedLossModels(KernelLibrary &library) {
  library.add<CosineEmbeddingLossOp>(getModel<describeCosine>());
  library.add<HingeEmbeddingLossOp>(getModel<describeHinge>());
  library.add<KlDivOp>(getModel<describeDivergence>());
  library.add<L1LossOp>(getModel<describeAbsolute>());
  library.add<MarginRankingLossOp>(getModel<describeMarginRanking>());
  library.add<PoissonNllLossOp>(getModel<describePoisson>());
  library.add<TripletMarginLossOp>(getModel<describeTriplet>());
}
