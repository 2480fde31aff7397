//===- CrossEntropy.cpp - What cross entropies hold inside ----------------===//
//
// Sources: native/LossNLL.cpp, native/LossNLL2d.cpp.
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
/// A loss on classes and its operands.
struct Operands {
  WorkspaceRule &rule;
  AutogradReplay &steps;
  Term self, target;
  std::optional<Term> weight;
  int64_t reduction;

  int64_t getClassDim() const { return self.dims.size() == 1 ? 0 : 1; }
  /// The weight with dims of one, as it broadcasts over the classes.
  Term spreadWeight() const {
    SmallVector<int64_t> dims(self.dims.size(), 1);
    dims[getClassDim()] = weight->dims.front();
    return AutogradReplay::view(*weight, dims);
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// nll_loss, nll_loss2d, nll_loss_nd
//===----------------------------------------------------------------------===//

/// One loss for each sample, or their mean or sum. What is added up is read in
/// rows.
static Term addLikelihood(const Operands &of, const Term &self) {
  AutogradReplay &steps = of.steps;
  size_t rank = self.dims.size();
  bool isReduced = of.reduction != 0 || rank == 1;
  ConcreteTensor shape{{}, self.elementType};
  if (!isReduced)
    shape = dropDim(self, of.getClassDim(), /*keepdim=*/false);
  // nll_loss_nd views the input as an image.
  bool isViewed = rank == 3 || rank > 4;
  Term read = isViewed ? steps.contiguous(self) : self;
  Term target = isViewed ? steps.contiguous(of.target) : of.target;
  SmallVector<AllocationTrace::Block> copies;
  auto readInRows = [&](const Term &term) {
    copies.push_back(allocateContiguous(of.rule, steps, term));
  };
  Term totalWeight;
  auto weigh = [&] {
    totalWeight = steps.allocate({{}, self.elementType});
    if (of.weight)
      readInRows(*of.weight);
  };
  // Images have their own kernel, which makes the result after the weights.
  bool weighsFirst = isViewed || rank == 4;
  if (weighsFirst)
    weigh();
  Term result = steps.allocate(shape);
  if (!weighsFirst)
    weigh();
  if (isReduced && !isViewed) {
    readInRows(read);
    readInRows(target);
  }
  for (AllocationTrace::Block copy : llvm::reverse(copies))
    steps.AllocationTrace::free(copy);
  if (steps.wants(self)) {
    steps.follow(self, result);
    for (const Term &term : {read, target, totalWeight})
      steps.save(term);
    if (of.weight)
      steps.save(*of.weight);
  }
  steps.free(totalWeight);
  steps.free(target);
  if (read.storage != self.storage)
    steps.free(read);
  return result;
}

//===----------------------------------------------------------------------===//
// cross_entropy_loss
//===----------------------------------------------------------------------===//

static Term addLogSoftmax(const Operands &of) {
  Term logs = of.steps.allocate(of.self);
  of.steps.AllocationTrace::free(
      allocateContiguous(of.rule, of.steps, of.self));
  of.steps.record("_log_softmax", of.self, logs);
  return logs;
}

/// -(log_softmax(self) * target * weight), summed.
static Term addProbabilities(const Operands &of, double smoothing) {
  AutogradReplay &steps = of.steps;
  Term logs = addLogSoftmax(of), target = of.target;
  if (smoothing > 0) {
    Term less =
        steps.compute("mul.Scalar", target, Result::Common, Number::Float);
    target = steps.compute("add.Scalar", less, Result::Common, Number::Float);
    steps.free(less);
  }
  Term product = steps.compute("mul.Tensor", {logs, target});
  if (of.weight)
    product = steps.compute("mul.Tensor", {product, of.spreadWeight()});
  Term sum = of.reduction == 0 ? steps.sum(product, of.getClassDim())
                               : steps.sum(product);
  Term losses = steps.compute("neg", sum);
  if (of.reduction == 1 && of.self.numElements() > 0)
    losses =
        steps.compute("div.Scalar", losses, Result::Common, Number::Integer);
  return losses;
}

/// Their sum, over the sum of the weights of all targets that count. Data alone
/// says how many do, at most all.
static Term addWeightedMean(const Operands &of, const Term &smooth,
                            const Term &counted) {
  AutogradReplay &steps = of.steps;
  if (readsAnyType(of.rule))
    of.rule.setInexact("a weighted mean over targets that data select");
  Term targets =
      steps.allocate({{of.target.numElements()}, of.target.elementType});
  // A count; over threads also where each of them goes. Source:
  // masked_select_out_impl_cpu in native/TensorAdvancedIndexing.cpp.
  constexpr int64_t kCountBytes = 8;
  steps.allocateTemporary(of.rule.getTarget().threads > 1
                              ? 2 * kCountBytes * of.target.numElements()
                              : kCountBytes);
  Term weights =
      steps.allocate({{of.target.numElements()}, of.weight->elementType});
  Term weight = steps.sum(weights);
  Term total = steps.sum(smooth);
  // The total wants a gradient, the weight none.
  Term mean = steps.compute("div.Tensor", {total, weight}, Result::Float);
  steps.free({counted, targets, weights, weight, total});
  of.rule.setBound("how many targets are not ignored is decided by data");
  return mean;
}

/// The losses of all classes alike, without those of ignored samples.
static Term addSmooth(const Operands &of, const Term &logs) {
  AutogradReplay &steps = of.steps;
  Term terms = logs;
  if (of.weight)
    terms = steps.compute("mul.Tensor", {logs, of.spreadWeight()});
  Term sum = steps.sum(terms, of.getClassDim());
  Term smooth = steps.compute("neg", sum);
  steps.free(sum);
  if (of.weight)
    steps.free(terms);
  Term ignored =
      steps.compute("eq.Scalar", of.target, Result::Bool, Number::Integer);
  steps.record("masked_fill_.Scalar", {smooth, ignored}, smooth);
  if (of.reduction != 1)
    return steps.reduce(smooth, of.reduction);
  Term counted = steps.compute("logical_not", ignored);
  if (of.weight)
    return addWeightedMean(of, smooth, counted);
  Term count = steps.sum(counted);
  Term total = steps.sum(smooth);
  Term mean = steps.compute("div.Tensor", {total, count}, Result::Float);
  steps.free({total, count, counted});
  return mean;
}

static void describe(const Operands &of, double smoothing) {
  AutogradReplay &steps = of.steps;
  if (of.self.dims == of.target.dims)
    return steps.finish(addProbabilities(of, smoothing));
  Term logs = addLogSoftmax(of);
  Term losses = addLikelihood(of, logs);
  if (smoothing == 0)
    return steps.finish(losses);
  Term scaled = steps.compute("mul.Scalar", addSmooth(of, logs), Result::Common,
                              Number::Float);
  Term others =
      steps.compute("mul.Scalar", losses, Result::Common, Number::Float);
  steps.finish(steps.compute("add.Tensor", {others, scaled}));
}

static void describeCrossEntropy(WorkspaceRule &rule, SavedRule *saved) {
  Operation *op = rule.getOp();
  auto entropy = dyn_cast<CrossEntropyLossOp>(op);
  AutogradReplay steps(rule, saved);
  auto terms = readReals(steps, rule, op->getOperands(), /*needsStrides=*/true);
  if (!terms)
    return;
  Operands of{rule,        steps,        (*terms)[0],
              (*terms)[1], std::nullopt, loss::getReduction(rule)};
  if (terms->size() > 2)
    of.weight = (*terms)[2];
  if (entropy)
    return describe(of, entropy.getLabelSmoothing().convertToDouble());
  steps.finish(addLikelihood(of, of.self));
}

void kernels::addCrossEntropyModels(KernelLibrary &library) {
  library.add<CrossEntropyLossOp>({forwardOf<describeCrossEntropy>,
                                   savedOf<describeCrossEntropy>,
                                   loss::describeCrossEntropyBackward});
  library.add<NllLoss2dOp, NllLossNdOp, NllLossOp>(
      {forwardOf<describeCrossEntropy>, savedOf<describeCrossEntropy>,
       loss::describeLikelihoodBackward});
}
