//===- BatchNorm.cpp - What normalisations of channels hold inside --------===//
//
// Source: native/Normalization.cpp.
//
//===----------------------------------------------------------------------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "Norm.h"
#include "OpReplay.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// Whether the channels of a contiguous tensor are more than single elements.
static bool hasManyPixels(const ConcreteTensor &input) {
  return llvm::product_of(ArrayRef(input.dims).drop_front(2)) > 1;
}

bool kernels::normalisesRows(const ConcreteTensor &input) {
  return !input.contiguous || !hasManyPixels(input);
}

void kernels::allocateRowSums(AllocationTrace &trace,
                              const ConcreteTensor &input, int64_t threads,
                              bool hasWeight, bool isTraining) {
  int64_t vector = input.dims[1] * getSumBytes(input.elementType);
  SmallVector<AllocationTrace::Block, 3> vectors;
  int missing = isHalf(input.elementType) ? 3 : !hasWeight + !isTraining;
  for (int made = 0; made < missing; ++made)
    vectors.push_back(trace.allocate(vector));
  trace.allocateTemporary(2 * threads * vector);
  for (AllocationTrace::Block made : llvm::reverse(vectors))
    trace.free(made);
}

namespace {
/// batch_norm of dense channels in numbers.
struct DenseBatchNorm {
  int64_t channels;
  /// Bytes of one number: of a statistic, a scale, and a sum.
  int64_t statistic, scale, sum;
  bool isTraining;
  /// Of the sums of all threads; 0: there are none.
  int64_t threadSums = 0;

  /// After the result; gives what the statistics of a training were. Source:
  /// batch_norm_cpu in native/Normalization.cpp.
  std::array<AllocationTrace::Block, 2> replay(AllocationTrace &trace) const {
    AllocationTrace::Block mean, deviation;
    if (isTraining) {
      mean = trace.allocate(channels * statistic);
      deviation = trace.allocate(channels * statistic);
      allocatePair(trace, sum, threadSums);
    }
    allocatePair(trace, scale, 0);
    trace.free(mean);
    trace.free(deviation);
    return {mean, deviation};
  }

private:
  /// Two vectors for a moment, and `more` bytes.
  void allocatePair(AllocationTrace &trace, int64_t bytes, int64_t more) const {
    AllocationTrace::Block first = trace.allocate(channels * bytes);
    AllocationTrace::Block second = trace.allocate(channels * bytes);
    trace.allocateTemporary(more);
    trace.free(second);
    trace.free(first);
  }
};
} // namespace

/// Of a sum of a channel: float16 is added up in float32 (measured).
static int64_t getNormSumBytes(const ConcreteTensor &input, int64_t statistic) {
  return input.elementType.isF16() ? 4 : statistic;
}

/// Where channels lie innermost each thread has sums. Half types take another
/// kernel, for any number of rows.
static void setRowSums(DenseBatchNorm &norm, const ConcreteTensor &input,
                       int64_t threads) {
  if (isHalf(input.elementType))
    norm.threadSums = threads * norm.channels * 4;
  else if (input.numElements() / norm.channels > threads)
    norm.threadSums = threads * norm.channels * norm.sum;
}

/// Of channels that are not dense: those vectors are made that are not given,
/// and numbers stand for a weight and a bias. Source:
/// batch_norm_cpu_transform_input_template in native/Normalization.cpp.
static void replayStridedBatchNorm(OpReplay &trace, BatchNormOp op,
                                   const ConcreteTensor &vector) {
  Type type = vector.elementType;
  SmallVector<AllocationTrace::Block, 2> numbers;
  auto allocateNumbers = [&] {
    for (Value parameter : {op.getWeight(), op.getBias()})
      if (!parameter)
        numbers.push_back(trace.allocate(getElementBytes(type)));
    for (AllocationTrace::Block number : llvm::reverse(numbers))
      trace.free(number);
  };
  if (op.getTraining()) {
    MadeTensor mean = trace.allocate(vector);
    allocateInteger(trace, type);
    MadeTensor deviation = trace.allocate(vector);
    allocateNumbers();
    return trace.free({mean, deviation});
  }
  // 1 / sqrt(variance + eps)
  MadeTensor shifted =
      trace.compute(vector, OpReplay::Result::Common, OpReplay::Number::Float);
  MadeTensor root = trace.compute(shifted);
  MadeTensor deviation = trace.compute(root);
  trace.free({root, shifted});
  allocateNumbers();
  trace.free(deviation);
}

static void describeBatchNorm(WorkspaceRule &rule) {
  auto op = cast<BatchNormOp>(rule.getOp());
  auto input = rule.tensor(op.getInput());
  if (!input || input->dims.size() < 2)
    return rule.setInexact("the shape of the input is unknown");
  int64_t channels = input->dims[1];
  int64_t statistic =
      getStatisticBytes(rule, *input, {op.getWeight(), op.getRunningMean()});
  if (channels == 1 && !input->contiguous)
    return rule.setInexact("batch_norm of one channel that is not contiguous");
  OpReplay trace(rule);
  // Statistics are made all the same. Source: _batch_norm_impl_index in
  // native/Normalization.cpp.
  if (input->numElements() == 0) {
    if (isHalf(input->elementType) || op.getTraining())
      rule.setInexact("batch_norm of an empty batch");
    int64_t vector = (isHalf(input->elementType) ? 4 : 8) * channels;
    AllocationTrace::Block mean = trace.allocate(vector);
    AllocationTrace::Block deviation = trace.allocate(vector);
    trace.free(mean);
    trace.free(deviation);
    return rule.setTrace(std::move(trace));
  }
  bool isDense = input->contiguous || isChannelsLast(*input);
  if (!isDense && isHalf(input->elementType))
    return rule.setInexact("batch_norm of a half type that is not dense");
  if (!isDense) {
    replayStridedBatchNorm(trace, op, {{channels}, input->elementType});
    return rule.setTrace(std::move(trace));
  }
  DenseBatchNorm norm{channels, statistic, getSumBytes(input->elementType),
                      getNormSumBytes(*input, statistic), op.getTraining()};
  if (normalisesRows(*input))
    setRowSums(norm, *input, rule.getTarget().threads);
  norm.replay(trace);
  rule.setTrace(std::move(trace));
}

static void saveBatchNorm(SavedRule &rule) {
  auto op = cast<BatchNormOp>(rule.getOp());
  auto input = getNormInput(rule);
  if (input && saveDifferentiated(rule).savesInner)
    keepStatistics(rule, *input, input->dims[1],
                   {op.getWeight(), op.getRunningMean()});
}

/// As while batch_norm takes them, and what they are stays.
static void describeBatchNormStats(WorkspaceRule &rule) {
  auto op = cast<BatchNormUpdateStatsOp>(rule.getOp());
  auto input = rule.tensor(op.getInput());
  if (!input || input->dims.size() < 2)
    return rule.setInexact("the shape of the input is unknown");
  int64_t channels = input->dims[1];
  int64_t vector = channels * getElementBytes(input->elementType);
  bool isDense = input->contiguous || isChannelsLast(*input);
  bool isRow = normalisesRows(*input);
  if (input->numElements() == 0 || input->elementType.isF16() ||
      (isHalf(input->elementType) && (isRow || !isDense)) ||
      (!isDense && channels == 1))
    return rule.setInexact("statistics of a batch that is empty, of float16, "
                           "of rows of bfloat16, or not dense");
  // Nothing but what they are, and a number between them (measured).
  if (!isDense) {
    OpReplay trace(rule);
    trace.allocate(vector);
    allocateInteger(trace, input->elementType);
    trace.allocate(vector);
    return rule.setTrace(std::move(trace));
  }
  int64_t threads = rule.getTarget().threads;
  int64_t sums = 2 * vector;
  if (isRow && input->numElements() / channels > threads)
    sums += threads * vector;
  rule.setTransient(sums);
}

/// Source: batch_norm_backward_cpu_template in native/Normalization.cpp.
static void describeBatchNormBackward(WorkspaceRule &rule) {
  auto op = cast<NativeBatchNormBackwardOp>(rule.getOp());
  auto input = rule.tensor(op.getInput());
  auto gradient = rule.tensor(op.getGradOut());
  if (!input || !gradient || input->dims.size() < 2)
    return rule.setInexact("the shape of the input is unknown");
  int64_t channels = input->dims[1];
  int64_t vector = channels * getElementBytes(input->elementType);
  bool areDense =
      (input->contiguous || isChannelsLast(*input)) &&
      (gradient->contiguous || isChannelsLast(*gradient)) &&
      suggestsChannelsLast(*input) == suggestsChannelsLast(*gradient);
  if (isHalf(input->elementType) && !areDense)
    return rule.setInexact("a gradient of batch_norm of a half type that is "
                           "not dense");
  // Of a single channel the sum is one of all elements, by several threads.
  if (!areDense && channels == 1)
    return rule.setInexact("a gradient of batch_norm of one channel that is "
                           "not dense");
  // The sum of the gradient.
  if (!areDense)
    return rule.setTransient(vector);
  AllocationTrace sums;
  if (normalisesRows(*input))
    allocateRowSums(sums, *input, rule.getTarget().threads,
                    bool(op.getWeight()), op.getTrain());
  // The input's gradient is made a second time before the first one goes.
  rule.setTransient(
      std::max(op.getOutputMask()[0] ? input->numBytes() : 0, sums.getPeak()));
}

/// The repeated parameters, but for the bias, are those of batch_norm.
static void saveInstanceNorm(SavedRule &rule, const ConcreteTensor &input,
                             ArrayRef<AllocationTrace::Block> statistics) {
  auto op = cast<InstanceNormOp>(rule.getOp());
  // Blocks of what is kept are as large as others that are not.
  if (op.getRunningMean())
    rule.setTransient(rule.getTransient());
  int64_t channels = input.dims[0] * input.dims[1];
  DifferentiationFacts facts =
      saveDifferentiated(rule, [&](Value value) -> int64_t {
        if (value == op.getInput())
          return getCopyBytes(input);
        auto parameter = rule.tensor(value);
        return parameter ? channels * getElementBytes(parameter->elementType)
                         : 0;
      });
  if (!facts.savesInner)
    return;
  if (op.getRunningMean())
    return keepStatistics(rule, input, channels, op.getWeight());
  for (AllocationTrace::Block block : statistics)
    rule.keep(block);
}

/// batch_norm of all channels of all samples, with repeated parameters.
static void describeInstanceNorm(WorkspaceRule &rule, SavedRule *saved) {
  auto op = cast<InstanceNormOp>(rule.getOp());
  auto input = rule.tensor(op.getInput());
  if (!input || input->dims.size() < 3)
    return rule.setInexact("the shape of the input is unknown");
  if (!hasManyPixels(*input))
    return rule.setInexact("instance_norm of single elements");
  if (isHalf(input->elementType) && !op.getUseInputStats())
    return rule.setInexact("instance_norm of a half type by given statistics");
  if (isHalf(input->elementType) && (op.getBias() && !op.getWeight()))
    return rule.setInexact("instance_norm of a half type with a bias alone");
  if (isHalf(input->elementType) && op.getRunningMean())
    return rule.setInexact("instance_norm of a half type that has statistics");
  int64_t channels = input->dims[0] * input->dims[1];
  AllocationTrace trace;
  SmallVector<AllocationTrace::Block, 4> repeated;
  for (Value parameter :
       {op.getWeight(), op.getBias(), op.getRunningMean(), op.getRunningVar()})
    if (auto tensor = rule.tensor(parameter)) {
      repeated.push_back(
          trace.allocate(channels * getElementBytes(tensor->elementType)));
      allocateRepeat(trace, /*rank=*/1);
    }
  AllocationTrace::Block copy = allocateContiguous(trace, *input);
  trace.allocate(input->numBytes());
  int64_t statistic = getStatisticBytes(rule, *input, {op.getWeight()});
  std::array<AllocationTrace::Block, 2> statistics =
      DenseBatchNorm{channels, statistic, getSumBytes(input->elementType),
                     getNormSumBytes(*input, statistic), op.getUseInputStats()}
          .replay(trace);
  // Of the repeated statistics that it writes the means are copied back.
  if (op.getUseInputStats())
    for (Value statistics : {op.getRunningMean(), op.getRunningVar()})
      if (auto tensor = rule.tensor(statistics)) {
        AllocationTrace::Block mean = trace.allocate(tensor->numBytes());
        allocateInteger(trace, tensor->elementType);
        trace.free(mean);
      }
  trace.free(copy);
  for (AllocationTrace::Block parameter : llvm::reverse(repeated))
    trace.free(parameter);
  rule.setTrace(std::move(trace), input->numBytes());
  if (saved)
    saveInstanceNorm(*saved, *input, statistics);
}

void kernels::addBatchNormModels(KernelLibrary &library) {
  library.add<BatchNormOp>(
      {describeBatchNorm, saveBatchNorm, rules::describeBatchNormBackward});
  library.add<BatchNormUpdateStatsOp>({.forward = describeBatchNormStats});
  library.add<InstanceNormOp>({forwardOf<describeInstanceNorm>,
                               savedOf<describeInstanceNorm>,
                               rules::describeInstanceNormBackward});
  library.add<NativeBatchNormBackwardOp>(
      {.forward = describeBatchNormBackward});
}
