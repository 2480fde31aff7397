//===- ClassLoss.cpp - What losses on classes hold inside -----------------===//
//
// Sources: native/LossMultiMargin.cpp, native/LossMultiLabelMargin.cpp,
// native/LossCTC.cpp.
//
//===----------------------------------------------------------------------===//

#include "../../Models.h"
#include "../Backward/AutogradReplay.h"
#include "../Backward/BackwardReplay.h"
#include "Loss.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"
#include "koila/Dialect/Koila/IR/LossOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;
using Result = OpReplay::Result;

namespace {
/// A loss on classes with numbers for its shapes.
struct ClassOperands {
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
  ClassOperands classes{(*tensors)[0], (*tensors)[1], std::nullopt};
  if (weight)
    classes.weight = tensors->back();
  return classes;
}

/// In rows, where they are not.
static void makeContiguous(OpReplay &steps, OpReplay::Tensors tensors) {
  for (const ConcreteTensor &tensor : tensors)
    allocateContiguous(steps, tensor);
}

//===----------------------------------------------------------------------===//
// Losses of rows
//===----------------------------------------------------------------------===//

static void describeMultiMargin(WorkspaceRule &rule) {
  auto of = getClasses(rule, cast<MultiMarginLossOp>(rule.getOp()).getWeight());
  if (!of || of->self.numElements() == 0)
    return;
  OpReplay steps(rule);
  makeContiguous(steps, {of->self, of->target});
  if (of->weight)
    makeContiguous(steps, *of->weight);
  steps.finish(0);
}

/// Marks of the targets, of which the least and the greatest are looked at
/// before they are read in rows.
static void describeMultilabelMargin(WorkspaceRule &rule) {
  auto of = getClasses(rule, /*weight=*/{});
  if (!of || of->self.numElements() == 0)
    return;
  OpReplay steps(rule);
  steps.allocate(countBytes(of->target, of->self.elementType));
  steps.allocateTemporary(getElementBytes(of->target.elementType) +
                          getCopyBytes(of->target) + getBlockBytes(of->target));
  makeContiguous(steps, {of->self, of->target});
  // The order of its blocks is not known.
  rule.setTransient(steps.getPeak());
}

//===----------------------------------------------------------------------===//
// ctc_loss; native/LossCTC.cpp
//===----------------------------------------------------------------------===//

/// The length of all targets, where they are full of one number that nobody
/// else can write.
static std::optional<int64_t> getLength(CtcLossOp op) {
  auto full = op.getTargetLengths().getDefiningOp<FullOp>();
  auto number = full ? dyn_cast<IntegerAttr>(full.getFillValue()) : nullptr;
  if (!number || !number.getType().isInteger(64) ||
      !llvm::all_of(full->getUsers(), llvm::IsaPred<CtcLossOp>))
    return std::nullopt;
  return number.getInt();
}

/// Else only data says how long the longest target is, but not longer than all.
static int64_t getLongest(CtcLossOp op, const ConcreteTensor &targets) {
  return getLength(op).value_or(targets.dims.empty() ? 1 : targets.dims.back());
}

static void setLongest(WorkspaceRule &rule) {
  if (!getLength(cast<CtcLossOp>(rule.getOp())))
    rule.setBound("how long the targets of ctc_loss are is decided by data");
}

/// Losses of samples, and the logarithms of all sums on the way to them, which
/// the gradient reads again.
static void describeCtc(WorkspaceRule &rule, SavedRule *saved) {
  auto op = cast<CtcLossOp>(rule.getOp());
  AutogradReplay steps(rule, saved);
  auto terms = readReals(steps, rule, op->getOperands());
  if (!terms)
    return;
  if (terms->front().dims.size() < 2)
    return rule.setInexact("a shape of ctc_loss is unknown");
  Term logs = (*terms)[0], targets = (*terms)[1];
  Type type = logs.elementType;
  Type integer = IntegerType::get(type.getContext(), 64);
  int64_t samples = logs.dims.size() == 3 ? logs.dims[1] : 1;
  int64_t reduction = loss::getReduction(rule);
  // Lengths in rows of int64, and targets of int64.
  for (size_t index : {2, 3})
    if (const Term &lengths = (*terms)[index];
        !lengths.elementType.isInteger(64) || !lengths.contiguous)
      steps.AllocationTrace::allocate(countBytes(lengths, integer));
  if (!targets.elementType.isInteger(64))
    targets = steps.allocate({targets.dims, integer});
  Term alphas = steps.allocate(
      {{samples, logs.dims[0], 2 * getLongest(op, targets) + 1}, type});
  Term losses = steps.allocate({{samples}, type});
  if (steps.wants(logs)) {
    steps.follow(logs, losses);
    for (const Term &term : {logs, targets, losses, alphas})
      steps.save(term);
  }
  steps.free(alphas);
  if (op.getZeroInfinity()) {
    Term zero = steps.allocate({{}, type});
    Term mask = steps.compute("eq.Scalar", losses, Result::Bool, Number::Float);
    Term chosen = steps.select(mask, zero, losses);
    steps.free({losses, mask, zero});
    losses = chosen;
  }
  if (reduction == 1) {
    Term given = steps.allocate({{samples}, type});
    Term counts = steps.compute("clamp_min", given);
    steps.free(given);
    losses = steps.compute("div.Tensor", {losses, counts}, Result::Float);
  }
  steps.finish(steps.reduce(losses, reduction));
  setLongest(rule);
}

/// The nodes of the reduction, of the losses that are not infinite, and of the
/// losses themselves. Each frees what arrived for it and what it has saved: the
/// lengths, which losses are infinite, then targets, losses and sums.
static void replayCtc(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<CtcLossOp>(rule.getOp());
  ConcreteTensor logs = steps.read(0), targets = steps.read(1);
  if (steps.wants(1) || logs.dims.size() < 2)
    return koila::detail::describeUnknownBackward(rule);
  Type type = logs.elementType;
  int64_t samples = logs.dims.size() == 3 ? logs.dims[1] : 1;
  int64_t reduction = loss::getReduction(rule);
  ConcreteTensor losses{{samples}, type};
  MadeTensor arrived(steps.getGradient(), {});
  if (reduction != 0)
    arrived = {expandTo(arrived, losses.dims), {}};
  int64_t releasable = rule.getReleasableBytes();
  auto drop = [&] {
    steps.freeOutside(std::exchange(releasable, 0));
    steps.free(arrived);
  };
  auto replace = [&](MadeTensor made) {
    drop();
    arrived = std::move(made);
  };
  // In the order in which they were made.
  size_t sums = targets.elementType.isInteger(64) ? 0 : 1;
  size_t mask = sums + 2, counts = mask + (op.getZeroInfinity() ? 1 : 0);
  if (reduction == 1) {
    replace(steps.compute(arrived, Number::Integer));
    replace(steps.compute({arrived, losses}));
    steps.freeKept(counts, losses.numBytes());
  }
  if (op.getZeroInfinity()) {
    MadeTensor zero = steps.makeNumber(losses);
    MadeTensor chosen = steps.mask(losses, arrived);
    steps.free(zero);
    replace(chosen);
    steps.freeKept(mask, samples);
  }
  steps.giveContiguous(0);
  ConcreteTensor made{{samples, logs.dims[0], 2 * getLongest(op, targets) + 1},
                      type};
  steps.allocateBriefly(made.numBytes());
  drop();
  steps.freeSaved(0);
  if (sums == 0)
    steps.freeSaved(1);
  else
    steps.freeKept(
        0, countBytes(targets, IntegerType::get(type.getContext(), 64)));
  steps.freeKept(sums + 1, losses.numBytes());
  steps.freeKept(sums, made.numBytes());
  setLongest(rule);
}

static void describeCtcBackward(BackwardRule &rule) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  replayCtc(rule, steps);
  steps.finish();
}

void kernels::addClassLossModels(KernelLibrary &library) {
  library.add<CtcLossOp>(
      {forwardOf<describeCtc>, savedOf<describeCtc>, describeCtcBackward});
  library.add<MultiMarginLossOp>(
      {.forward = describeMultiMargin,
       .backward = loss::describeMultiMarginBackward});
  library.add<MultilabelMarginLossOp>({.forward = describeMultilabelMargin});
}
