//===- RulesClassLossMemory.cpp - What losses on classes hold inside ------===//
//
// Sources: native/LossNLL.cpp, native/LossNLL2d.cpp,
// native/LossMultiMargin.cpp, native/LossMultiLabelMargin.cpp.
//
//===----------------------------------------------------------------------===//

#include "Composition.h"
#include "LossMemory.h"
#include "koila/Dialect/Koila/IR/KoilaLossOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;
using Number = Composition::Number;
using Result = Composition::Result;

namespace {
/// A loss on classes with numbers for its shapes.
struct ClassOperands {
  WorkspaceRule &rule;
  ConcreteTensor self, target;
  std::optional<ConcreteTensor> weight;
  int64_t reduction;

  int64_t getClassDim() const { return self.dims.size() == 1 ? 0 : 1; }
};
} // namespace

static std::optional<ClassOperands> getClasses(WorkspaceRule &rule,
                                               Value weight) {
  auto tensors = getRealTensors(
      rule, rule.getOp()->getOperands().take_front(weight ? 3 : 2),
      /*needsStrides=*/true);
  if (!tensors)
    return std::nullopt;
  ClassOperands classes{rule, (*tensors)[0], (*tensors)[1], std::nullopt,
                        loss::getReduction(rule)};
  if (weight)
    classes.weight = tensors->back();
  return classes;
}

//===----------------------------------------------------------------------===//
// nll_loss, nll_loss2d, nll_loss_nd
//===----------------------------------------------------------------------===//

/// In rows, where they are not.
static void makeRows(Composition &steps, Composition::Tensors tensors) {
  for (const ConcreteTensor &tensor : tensors)
    steps.copyRows(tensor);
}

static void freeRows(Composition &steps, Composition::Tensors tensors) {
  for (const ConcreteTensor &tensor : tensors)
    steps.Footprint::free(getCopyBytes(tensor));
}

/// One loss for each sample, or their mean or sum. What is added up is read in
/// rows. The sum of the weights, which the gradient needs, goes at the end.
static ConcreteTensor addLikelihood(Composition &steps,
                                    const ClassOperands &of) {
  size_t rank = of.self.dims.size();
  bool isReduced = of.reduction != 0 || rank == 1;
  ConcreteTensor result{{}, of.self.elementType};
  if (!isReduced)
    result = dropDim(of.self, of.getClassDim(), /*keepdim=*/false);
  // nll_loss_nd views the input as an image.
  bool isViewed = rank == 3 || rank > 4;
  if (isViewed)
    makeRows(steps, {of.self, of.target});
  result = steps.allocate(result);
  int64_t totalWeight = getElementBytes(of.self.elementType);
  steps.allocate(totalWeight);
  SmallVector<ConcreteTensor> read;
  if (of.weight)
    read.push_back(*of.weight);
  if (isReduced && !isViewed)
    read.append({of.self, of.target});
  makeRows(steps, read);
  freeRows(steps, read);
  steps.Footprint::free(totalWeight);
  if (isViewed)
    freeRows(steps, {of.self, of.target});
  return result;
}

//===----------------------------------------------------------------------===//
// cross_entropy_loss
//===----------------------------------------------------------------------===//

static ConcreteTensor addLogSoftmax(Composition &steps,
                                    const ConcreteTensor &self) {
  ConcreteTensor logs = steps.allocate(self);
  steps.pass(getCopyBytes(self) + getBlockBytes(self));
  return logs;
}

/// The weight with dims of one, as it broadcasts over the classes.
static ConcreteTensor spread(const ClassOperands &of) {
  ConcreteTensor weight = *of.weight;
  SmallVector<int64_t> dims(of.self.dims.size(), 1);
  dims[of.getClassDim()] = weight.dims.front();
  weight.dims = dims;
  return weight;
}

/// -(log_softmax(self) * target * weight), summed.
static void describeProbabilities(const ClassOperands &of, double smoothing) {
  Composition steps(of.rule);
  ConcreteTensor logs = addLogSoftmax(steps, of.self), target = of.target;
  if (smoothing > 0) {
    ConcreteTensor less =
        steps.compute(target, Result::Common, Number::Float);
    target = steps.compute(less, Result::Common, Number::Float);
    steps.free(less);
  }
  ConcreteTensor product = steps.compute({logs, target});
  if (of.weight)
    product = steps.compute({product, spread(of)});
  ConcreteTensor sum = of.reduction == 0
                           ? steps.sum(product, of.getClassDim())
                           : steps.sum(product);
  ConcreteTensor losses = steps.compute(sum);
  if (of.reduction == 1 && of.self.numElements() > 0)
    losses = steps.compute(losses, Result::Common, Number::Integer);
  steps.finish(losses.numBytes());
}

/// The losses of the classes, and those of all classes alike.
static void describeSmoothed(const ClassOperands &of) {
  if (of.weight && of.reduction == 1)
    return of.rule.setInexact(
        "how many targets are not ignored is decided by data");
  Composition steps(of.rule);
  ClassOperands inner = of;
  inner.self = addLogSoftmax(steps, of.self);
  ConcreteTensor losses = addLikelihood(steps, inner);
  ConcreteTensor terms = inner.self;
  if (of.weight)
    terms = steps.compute({terms, spread(of)});
  ConcreteTensor sum = steps.sum(terms, of.getClassDim());
  ConcreteTensor smooth = steps.compute(sum);
  steps.free(sum);
  if (of.weight)
    steps.free(terms);
  ConcreteTensor ignored =
      steps.compute(of.target, Result::Bool, Number::Integer);
  ConcreteTensor rest = smooth;
  if (of.reduction == 1) {
    ConcreteTensor counted = steps.compute(ignored);
    ConcreteTensor count = steps.sum(counted);
    ConcreteTensor total = steps.sum(smooth);
    rest = steps.compute({total, count}, Result::Float);
    steps.free({counted, count, total});
  } else if (of.reduction == 2) {
    rest = steps.sum(smooth);
  }
  ConcreteTensor scaled =
      steps.compute(rest, Result::Common, Number::Float);
  ConcreteTensor others =
      steps.compute(losses, Result::Common, Number::Float);
  steps.finish(steps.compute({others, scaled}).numBytes());
}

static void describeCrossEntropy(const ClassOperands &of,
                                 CrossEntropyLossOp op) {
  double smoothing = op.getLabelSmoothing().convertToDouble();
  if (of.self.dims == of.target.dims)
    return describeProbabilities(of, smoothing);
  if (smoothing > 0)
    return describeSmoothed(of);
  Composition steps(of.rule);
  ClassOperands inner = of;
  inner.self = addLogSoftmax(steps, of.self);
  steps.finish(addLikelihood(steps, inner).numBytes());
}

//===----------------------------------------------------------------------===//
// Losses of rows
//===----------------------------------------------------------------------===//

static void describeMultiMargin(const ClassOperands &of) {
  if (of.self.numElements() == 0)
    return;
  Composition steps(of.rule);
  makeRows(steps, {of.self, of.target});
  if (of.weight)
    makeRows(steps, *of.weight);
  steps.finish(0);
}

/// Marks of the targets, of which the least and the greatest are looked at
/// before they are read in rows.
static void describeMultilabelMargin(const ClassOperands &of) {
  if (of.self.numElements() == 0)
    return;
  Composition steps(of.rule);
  steps.allocate(countBytes(of.target, of.self.elementType));
  steps.pass(getElementBytes(of.target.elementType) +
             getCopyBytes(of.target) + getBlockBytes(of.target));
  makeRows(steps, {of.self, of.target});
  steps.finish(0);
}

//===----------------------------------------------------------------------===//
// ctc_loss; native/LossCTC.cpp
//===----------------------------------------------------------------------===//

/// Only data says how long the longest target is, but not longer than all.
static void describeCtc(WorkspaceRule &rule, CtcLossOp op) {
  auto tensors = getRealTensors(rule, op->getOperands());
  if (!tensors || tensors->front().dims.size() < 2)
    return rule.setInexact("a shape of ctc_loss is unknown");
  const ConcreteTensor &logs = tensors->front(), &targets = (*tensors)[1];
  const ConcreteTensor &lengths = tensors->back();
  Type type = logs.elementType;
  int64_t samples = logs.dims.size() == 3 ? logs.dims[1] : 1;
  int64_t longest = targets.dims.empty() ? 1 : targets.dims.back();
  int64_t reduction = loss::getReduction(rule);
  Composition steps(rule);
  for (size_t index : {2, 3}) {
    const ConcreteTensor &given = (*tensors)[index];
    steps.allocate(countBytes(
        given, IntegerType::get(type.getContext(), 64)));
  }
  ConcreteTensor alphas =
      steps.allocate({{samples, logs.dims[0], 2 * longest + 1}, type});
  ConcreteTensor losses = steps.allocate({{samples}, type});
  steps.free(alphas);
  if (op.getZeroInfinity()) {
    ConcreteTensor mask =
        steps.compute(losses, Result::Bool, Number::Float);
    steps.allocate(getElementBytes(type));
    losses = steps.select(mask, losses, losses);
  }
  if (reduction == 1) {
    ConcreteTensor counts = steps.compute(lengths);
    losses = steps.compute({losses, counts}, Result::Float);
  }
  steps.finish(steps.reduce(losses, reduction).numBytes());
  rule.setBound("how long the targets of ctc_loss are is decided by data");
}

void loss::describeClasses(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  llvm::TypeSwitch<Operation *>(op)
      .Case<NllLossOp, NllLoss2dOp, NllLossNdOp>([&](auto nll) {
        auto classes = getClasses(rule, nll.getWeight());
        if (!classes)
          return;
        Composition steps(rule);
        steps.finish(addLikelihood(steps, *classes).numBytes());
      })
      .Case<CrossEntropyLossOp>([&](auto entropy) {
        if (auto classes = getClasses(rule, entropy.getWeight()))
          describeCrossEntropy(*classes, entropy);
      })
      .Case<MultiMarginLossOp>([&](auto margin) {
        if (auto classes = getClasses(rule, margin.getWeight()))
          describeMultiMargin(*classes);
      })
      .Case<MultilabelMarginLossOp>([&](auto) {
        if (auto classes = getClasses(rule, {}))
          describeMultilabelMargin(*classes);
      })
      .Case<CtcLossOp>([&](auto ctc) { describeCtc(rule, ctc); })
      .Default([&](Operation *) { rules::describeUnknownWorkspace(rule); });
}
