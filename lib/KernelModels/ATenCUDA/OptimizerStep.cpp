//===- OptimizerStep.cpp - What a step of an optimizer allocates ----------===//
//
// Sources: torch/optim/{sgd,adam,rmsprop,adagrad}.py: on CUDA the forms over
// lists of weights (foreach) are the default, whose lists end with the step,
// the last tensor first. Compared with a recorded GPU by
// test/oracle/cuda_oracle.py.
//
//===----------------------------------------------------------------------===//

#include "CUDALeafKernels.h"
#include "koila/KernelModels/Optimizer.h"

using namespace koila;
using llvm::ArrayRef;
using llvm::StringRef;

namespace {
class Step {
public:
  using Block = AllocationTrace::Block;
  using List = llvm::SmallVector<Block>;

  Step(ArrayRef<TrainedWeight> weights) : weights(weights) {}

  Block makeLike(const TrainedWeight &weight) {
    return trace.allocate(weight.bytes);
  }
  /// A tensor for each weight.
  List makeList() {
    return llvm::map_to_vector(
        weights, [&](const TrainedWeight &weight) { return makeLike(weight); });
  }
  void drop(const List &list) {
    for (Block block : llvm::reverse(list))
      trace.free(block);
  }
  /// The state of `count` tensors for each weight, which stays.
  void makeState(unsigned count) {
    for (const TrainedWeight &weight : weights)
      for (unsigned tensor = 0; tensor < count; ++tensor)
        makeLike(weight);
  }

  ArrayRef<TrainedWeight> weights;
  AllocationTrace trace;
};
} // namespace

/// One weight after the other: what a name holds goes when it is assigned anew.
static void runSgdOneByOne(Step &step, const Optimizer &optimizer,
                           bool isFirst) {
  for (const TrainedWeight &weight : step.weights) {
    Step::Block gradient;
    if (optimizer.addsDecay())
      gradient = step.makeLike(weight);
    if (optimizer.usesMomentum() && isFirst)
      step.makeLike(weight);
    if (optimizer.usesNesterov()) {
      Step::Block ahead = step.makeLike(weight);
      step.trace.free(gradient);
      gradient = ahead;
    }
    step.trace.free(gradient);
  }
}

static void runSgd(Step &step, const Optimizer &optimizer, bool isFirst) {
  if (!optimizer.usesForeach(/*byDefault=*/true))
    return runSgdOneByOne(step, optimizer, isFirst);
  Step::List decayed;
  if (optimizer.addsDecay())
    decayed = step.makeList();
  if (optimizer.usesMomentum() && isFirst)
    step.makeState(1);
  step.drop(decayed);
}

/// The root of what was averaged, and the quotient of that, which lives until
/// that of the next weight is there.
static void runAdamOneByOne(Step &step, bool addsDecay) {
  Step::Block before, decayed;
  for (const TrainedWeight &weight : step.weights) {
    step.trace.free(decayed);
    decayed = {};
    if (addsDecay)
      decayed = step.makeLike(weight);
    Step::Block root = step.makeLike(weight);
    Step::Block quotient = step.makeLike(weight);
    step.trace.free(root);
    step.trace.free(before);
    before = quotient;
  }
  step.trace.free(before);
  step.trace.free(decayed);
}

static void runAdam(Step &step, const Optimizer &optimizer, bool isFirst) {
  if (isFirst)
    step.makeState(2);
  // AdamW shrinks the weights themselves.
  bool addsDecay = optimizer.addsDecay() && optimizer.getName() != "adamw";
  if (!optimizer.usesForeach(/*byDefault=*/true))
    return runAdamOneByOne(step, addsDecay);
  // Decayed gradients go before roots are taken.
  if (addsDecay)
    step.drop(step.makeList());
  step.drop(step.makeList());
}

static void runRmsprop(Step &step, const Optimizer &optimizer, bool isFirst) {
  if (isFirst)
    step.makeState(1);
  Step::List decayed;
  if (optimizer.addsDecay())
    decayed = step.makeList();
  Step::List roots = step.makeList();
  // Names go in the order in which they were first assigned.
  step.drop(decayed);
  step.drop(roots);
}

/// Its state is made with the optimizer.
static void runAdagrad(Step &step, const Optimizer &optimizer) {
  Step::List decayed;
  if (optimizer.addsDecay())
    decayed = step.makeList();
  Step::List roots = step.makeList();
  Step::List numerators;
  if (!optimizer.addsDecay())
    numerators = step.makeList();
  step.drop(decayed);
  step.drop(roots);
  step.drop(numerators);
}

std::optional<AllocationTrace> cuda::traceStep(const Optimizer &optimizer,
                                               ArrayRef<TrainedWeight> weights,
                                               bool isFirst) {
  Step step(weights);
  StringRef name = optimizer.getName();
  bool isForeach = optimizer.usesForeach(/*byDefault=*/true);
  if (weights.empty())
    return step.trace;
  if (name == "sgd")
    runSgd(step, optimizer, isFirst);
  else if (name == "adam" || name == "adamw")
    runAdam(step, optimizer, isFirst);
  else if (name == "rmsprop" && isForeach)
    runRmsprop(step, optimizer, isFirst);
  else if (name == "adagrad" && isForeach)
    runAdagrad(step, optimizer);
  else
    return std::nullopt;
  return step.trace;
}
