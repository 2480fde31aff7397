//===- RulesClassLossMemory.cpp - What losses on classes hold inside ------===//
//
// Sources: native/LossMultiMargin.cpp, native/LossMultiLabelMargin.cpp,
// native/LossCTC.cpp.
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
};
} // namespace

static std::optional<ClassOperands> getClasses(WorkspaceRule &rule,
                                               Value weight) {
  auto tensors = getRealTensors(
      rule, rule.getOp()->getOperands().take_front(weight ? 3 : 2),
      /*needsStrides=*/true);
  if (!tensors)
    return std::nullopt;
  ClassOperands classes{rule, (*tensors)[0], (*tensors)[1], std::nullopt};
  if (weight)
    classes.weight = tensors->back();
  return classes;
}

/// In rows, where they are not.
static void makeRows(Composition &steps, Composition::Tensors tensors) {
  for (const ConcreteTensor &tensor : tensors)
    steps.copyRows(tensor);
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
  steps.pass(getElementBytes(of.target.elementType) + getCopyBytes(of.target) +
             getBlockBytes(of.target));
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
    steps.allocate(countBytes(given, IntegerType::get(type.getContext(), 64)));
  }
  ConcreteTensor alphas =
      steps.allocate({{samples, logs.dims[0], 2 * longest + 1}, type});
  ConcreteTensor losses = steps.allocate({{samples}, type});
  steps.free(alphas);
  if (op.getZeroInfinity()) {
    ConcreteTensor mask = steps.compute(losses, Result::Bool, Number::Float);
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
