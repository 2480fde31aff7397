//===- NormBackward.cpp - Gradients of normalisations ---------------------===//
//
// Sources: native/Normalization.cpp, native/layer_norm.cpp and its kernel,
// native/group_norm.cpp, native/SoftMax.cpp.
//
//===----------------------------------------------------------------------===//

#include "../../BackwardRules.h"
#include "../Norm.h"
#include "BackwardReplay.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// One vector for each parameter that wants a gradient.
static void giveParameters(BackwardRule &rule, BackwardReplay &steps,
                           ValueRange parameters) {
  for (Value parameter : parameters)
    for (OpOperand &operand : rule.getOp()->getOpOperands())
      if (parameter && operand.get() == parameter &&
          steps.wants(operand.getOperandNumber()))
        steps.giveContiguous(operand.getOperandNumber());
}

static void describeBatchNorm(BackwardRule &rule, BackwardReplay &steps) {
  auto norm = cast<BatchNormOp>(rule.getOp());
  ConcreteTensor input = steps.read(0), gradient = steps.getGradient();
  // In the memory format that the input suggests, whatever its strides are.
  bool isOther =
      input.getStrides() && !input.contiguous && !suggestsChannelsLast(input);
  auto makeGradient = [&] {
    return isOther ? steps.allocate(input) : steps.makeLike(input);
  };
  MadeTensor first;
  if (steps.wants(0))
    first = makeGradient();
  giveParameters(rule, steps, {norm.getWeight(), norm.getBias()});
  // One kernel where both have the same dense layout; else the reciprocal
  // deviations are computed first (measured, as what the kernel holds).
  bool isDense = (input.contiguous && gradient.contiguous) ||
                 (isChannelsLast(input) && isChannelsLast(gradient));
  if (isHalf(input.elementType) && !isDense)
    return koila::detail::describeUnknownBackward(rule);
  if (!isDense) {
    if (norm.getTraining() && !steps.wants(0) && input.dims[1] == 1)
      rule.setInexact("the statistics' gradient of a batch that is not dense");
    if (steps.wants(0))
      steps.give(0, first);
    // The sum of the gradient, which over all elements may be one of parts.
    int64_t sum = input.dims[1] * getElementBytes(input.elementType);
    return input.dims[1] == 1 ? steps.allocateTemporary(sum)
                              : steps.allocateBriefly(sum);
  }
  // The kernel's own takes the place of the first.
  if (steps.wants(0)) {
    MadeTensor second = makeGradient();
    steps.free(first);
    steps.give(0, second);
  }
  // Whichever of the parameters are trained (measured on 1 to 3 threads).
  if (kernels::normalisesRows(input))
    kernels::allocateRowSums(steps, input, rule.getTarget().threads,
                             bool(norm.getWeight()), norm.getTraining());
}

/// Rows of the input and of the gradient; sums of each thread for the
/// parameters.
static void describeLayerNorm(BackwardRule &rule, BackwardReplay &steps) {
  auto norm = cast<LayerNormOp>(rule.getOp());
  ConcreteTensor input = steps.read(0);
  ConcreteTensor gradient = steps.getGradient();
  steps.contiguous(input);
  if (steps.wants(0))
    steps.giveContiguous(0);
  giveParameters(rule, steps, {norm.getWeight(), norm.getBias()});
  steps.contiguous(gradient);
  int64_t columns = 1;
  for (int64_t extent :
       ArrayRef(input.dims).take_back(norm.getNormalizedShape().size()))
    columns *= extent;
  bool hasSums = (norm.getWeight() && rule.wantsGradient(norm.getWeight())) ||
                 (norm.getBias() && rule.wantsGradient(norm.getBias()));
  if (hasSums)
    steps.allocateBriefly(2 * rule.getTarget().threads * columns *
                          getElementBytes(input.elementType));
  steps.freeContiguous(gradient);
  steps.freeContiguous(input);
}

/// Rows of the gradient, and two sums of each channel of each sample.
static void describeGroupNorm(BackwardRule &rule, BackwardReplay &steps) {
  auto norm = cast<GroupNormOp>(rule.getOp());
  ConcreteTensor input = steps.read(0), gradient = steps.getGradient();
  // The gradient is read in the order of the input.
  bool isOfImages = suggestsChannelsLast(input) && !input.contiguous;
  if (isOfImages && input.dims.size() != 4)
    return koila::detail::describeUnknownBackward(rule);
  int64_t copied = isOfImages ? getChannelsLastCopyBytes(gradient) : 0;
  if (isOfImages)
    steps.AllocationTrace::allocate(copied);
  else
    steps.contiguous(gradient);
  if (steps.wants(0))
    steps.give(0, isOfImages ? toChannelsLast(steps.allocate(input))
                             : steps.allocate(input));
  giveParameters(rule, steps, {norm.getWeight(), norm.getBias()});
  int64_t sum = std::max<int64_t>(4, getElementBytes(input.elementType));
  int64_t sums = input.dims[0] * input.dims[1] * sum;
  AllocationTrace::Block both[] = {steps.AllocationTrace::allocate(sums),
                                   steps.AllocationTrace::allocate(sums)};
  // Of large images each thread has its own, and the groups have sums. Source:
  // GroupNormBackwardKernelImplChannelsLast.
  constexpr int64_t kLarge = 2048;
  if (isOfImages && input.dims[2] * input.dims[3] >= kLarge) {
    AllocationTrace::Block own =
        steps.AllocationTrace::allocate(2 * sums * rule.getTarget().threads);
    steps.allocateBriefly(2 * input.dims[0] * norm.getNumGroups() * sum);
    steps.AllocationTrace::free(own);
  }
  for (AllocationTrace::Block block : llvm::reverse(both))
    steps.AllocationTrace::free(block);
  if (isOfImages)
    steps.free(copied);
  else
    steps.freeContiguous(gradient);
}

/// Rows of the gradient and of the result.
static void describeSoftmax(BackwardRule &rule, BackwardReplay &steps) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result || result->elementType != steps.read(0).elementType)
    return koila::detail::describeUnknownBackward(rule);
  ConcreteTensor gradient = steps.getGradient();
  steps.giveContiguous(0);
  steps.contiguous(gradient);
  steps.contiguous(*result);
  steps.freeContiguous(gradient);
  steps.freeContiguous(*result);
}

/// What the node of batch_norm has goes before those of the repetitions run:
/// the gradient, the input or its copy, the weight, and both statistics. The
/// copy is made after the weight is repeated. Not of given statistics, whose
/// order is not known.
static void releaseInstanceNorm(BackwardRule &rule, BackwardReplay &steps,
                                const ConcreteTensor &channels) {
  auto norm = cast<InstanceNormOp>(rule.getOp());
  if (norm.getRunningMean())
    return;
  int64_t copied = getCopyBytes(steps.read(0));
  size_t copy = norm.getWeight() ? 1 : 0, mean = copy + (copied > 0 ? 1 : 0);
  steps.freeOutside(rule.getReleasableBytes());
  steps.freeSaved(0);
  steps.freeKept(copy, copied);
  if (norm.getWeight())
    steps.freeKept(0, channels.numBytes());
  for (size_t kept : {mean, mean + 1})
    steps.freeKept(kept, channels.numBytes());
}

/// That of batch_norm over the channels of all samples; the gradients of
/// repeated parameters are summed.
static void describeInstanceNorm(BackwardRule &rule, BackwardReplay &steps) {
  auto norm = cast<InstanceNormOp>(rule.getOp());
  ConcreteTensor input = steps.read(0), gradient = steps.getGradient();
  if (input.dims.size() < 3 || !gradient.contiguous)
    return koila::detail::describeUnknownBackward(rule);
  ConcreteTensor all = input;
  all.contiguous = true;
  all.strides.reset();
  all.dims.erase(all.dims.begin() + 1);
  all.dims.front() = 1;
  all.dims.insert(all.dims.begin() + 1, input.dims[0] * input.dims[1]);
  if (kernels::normalisesRows(all))
    return koila::detail::describeUnknownBackward(rule);
  ConcreteTensor channels{{all.dims[1]}, input.elementType};
  MadeTensor first;
  if (steps.wants(0))
    first = steps.allocate(input);
  SmallVector<unsigned, 2> trained;
  for (Value parameter : {norm.getWeight(), norm.getBias()})
    for (OpOperand &operand : norm->getOpOperands())
      if (parameter && operand.get() == parameter &&
          steps.wants(operand.getOperandNumber()))
        trained.push_back(operand.getOperandNumber());
  SmallVector<MadeTensor, 2> repeated;
  for (size_t count = trained.size(); count > 0; --count)
    repeated.push_back(steps.allocate(channels));
  if (steps.wants(0)) {
    MadeTensor second = steps.allocate(input);
    steps.free(first);
    steps.give(0, second, /*isViewed=*/true);
  }
  releaseInstanceNorm(rule, steps, channels);
  for (auto [operand, gradient] :
       llvm::zip(llvm::reverse(trained), llvm::reverse(repeated))) {
    // What was repeated once is not summed.
    if (input.dims.front() == 1) {
      steps.give(operand, gradient);
      continue;
    }
    steps.giveContiguous(operand);
    steps.free(gradient);
  }
}

/// Gradients of both. Along the last dim, rows of sums for each thread, and two
/// more. Source: native/cpu/WeightNormKernel.cpp.
static void describeWeightNorm(BackwardRule &rule, BackwardReplay &steps) {
  auto norm = cast<WeightNormOp>(rule.getOp());
  ConcreteTensor direction = steps.read(0), length = steps.read(1);
  int64_t rank = direction.dims.size(), dim = norm.getDim();
  bool isLast = dim == rank - 1 && dim != 0;
  if ((dim != 0 && !isLast) || !direction.contiguous || !length.contiguous ||
      (isLast && rule.getTarget().threads > 1))
    return koila::detail::describeUnknownBackward(rule);
  steps.contiguous(steps.getGradient());
  for (unsigned operand : {0u, 1u}) {
    if (steps.wants(operand)) {
      steps.giveContiguous(operand);
      continue;
    }
    return koila::detail::describeUnknownBackward(rule);
  }
  constexpr int64_t kRows = 3;
  if (isLast)
    steps.allocateTemporary(kRows * direction.dims.back() *
                            getElementBytes(direction.elementType));
  steps.freeContiguous(steps.getGradient());
}

/// `describe` as the model `backward`, of half types only if it knows them.
static void replay(BackwardRule &rule, bool knowsHalf,
                   void (*describe)(BackwardRule &, BackwardReplay &)) {
  if (!rule.getGradient() || !rule.tensor(rule.getOp()->getOperand(0)) ||
      (isHalf(rule.getGradient()->elementType) && !knowsHalf))
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  describe(rule, steps);
  steps.finish();
}

void rules::describeBatchNormBackward(BackwardRule &rule) {
  replay(rule, /*knowsHalf=*/true, describeBatchNorm);
}

void rules::describeGroupNormBackward(BackwardRule &rule) {
  replay(rule, /*knowsHalf=*/true, describeGroupNorm);
}

void rules::describeInstanceNormBackward(BackwardRule &rule) {
  replay(rule, /*knowsHalf=*/false, describeInstanceNorm);
}

void rules::describeLayerNormBackward(BackwardRule &rule) {
  replay(rule, /*knowsHalf=*/true, describeLayerNorm);
}

void rules::describeSoftmaxBackward(BackwardRule &rule) {
  replay(rule, /*knowsHalf=*/true, describeSoftmax);
}

void rules::describeWeightNormBackward(BackwardRule &rule) {
  replay(rule, /*knowsHalf=*/false, describeWeightNorm);
}
