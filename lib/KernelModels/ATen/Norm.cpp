//===- Norm.cpp - What a normalisation holds inside -----------------------===//
//
// Sources: native/Normalization.cpp, native/layer_norm.cpp,
// native/group_norm.cpp, native/cpu/group_norm_kernel.cpp, native/SoftMax.cpp.
//
//===----------------------------------------------------------------------===//

#include "Norm.h"
#include "../WorkspaceRules.h"
#include "Backward/AutogradReplay.h"
#include "Backward/BackwardFormulas.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "koila/Interfaces/BackwardRule.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// Of a type in which half types are summed.
static int64_t getSumBytes(Type type) {
  return std::max<int64_t>(getElementBytes(type), 4);
}

/// Of a statistic: as the parameters are, which may be float32 for half types.
static int64_t getStatisticBytes(const WorkspaceRule &rule,
                                 const ConcreteTensor &input,
                                 ValueRange parameters) {
  int64_t bytes = getElementBytes(input.elementType);
  for (Value parameter : parameters)
    if (auto tensor = rule.tensor(parameter))
      bytes = std::max(bytes, getElementBytes(tensor->elementType));
  return bytes;
}

static int64_t getProduct(ArrayRef<int64_t> extents) {
  int64_t product = 1;
  for (int64_t extent : extents)
    product *= extent;
  return product;
}

/// Whether the channels of a contiguous tensor are more than single elements.
static bool hasManyPixels(const ConcreteTensor &input) {
  return getProduct(ArrayRef(input.dims).drop_front(2)) > 1;
}

bool kernels::normalisesRows(const ConcreteTensor &input) {
  return !input.contiguous || !hasManyPixels(input);
}

int64_t kernels::getRowSumBytes(const ConcreteTensor &input, int64_t threads,
                                bool hasWeight, bool isTraining) {
  int64_t vectors =
      2 * threads + (isHalf(input.elementType) ? 3 : !hasWeight + !isTraining);
  return vectors * input.dims[1] * getSumBytes(input.elementType);
}

//===----------------------------------------------------------------------===//
// batch_norm, instance_norm
//===----------------------------------------------------------------------===//

namespace {
/// batch_norm of dense channels in numbers.
struct DenseBatchNorm {
  int64_t channels;
  /// Bytes of one number: of a statistic, a scale, and a sum.
  int64_t statistic, scale, sum;
  bool isTraining;
  /// Of the sums of all threads; 0: there are none.
  int64_t threadSums = 0;

  /// After the result. Source: batch_norm_cpu in native/Normalization.cpp.
  void replay(AllocationTrace &trace) const {
    AllocationTrace::Block mean, deviation;
    if (isTraining) {
      mean = trace.allocate(channels * statistic);
      deviation = trace.allocate(channels * statistic);
      allocatePair(trace, sum, threadSums);
    }
    allocatePair(trace, scale, 0);
    trace.free(mean);
    trace.free(deviation);
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

void rules::describeBatchNormWorkspace(WorkspaceRule &rule) {
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
  if (kernels::normalisesRows(*input))
    setRowSums(norm, *input, rule.getTarget().threads);
  norm.replay(trace);
  rule.setTrace(std::move(trace));
}

/// As while batch_norm takes them, and what they are stays.
static void describeBatchNormStats(WorkspaceRule &rule,
                                   BatchNormUpdateStatsOp op) {
  auto input = rule.tensor(op.getInput());
  if (!input || input->dims.size() < 2)
    return rule.setInexact("the shape of the input is unknown");
  int64_t channels = input->dims[1];
  int64_t vector = channels * getElementBytes(input->elementType);
  bool isDense = input->contiguous || isChannelsLast(*input);
  bool isRow = kernels::normalisesRows(*input);
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
static void describeBatchNormBackward(WorkspaceRule &rule,
                                      NativeBatchNormBackwardOp op) {
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
  int64_t sums = 0;
  if (kernels::normalisesRows(*input))
    sums = kernels::getRowSumBytes(*input, rule.getTarget().threads,
                                   bool(op.getWeight()), op.getTrain());
  // The input's gradient is made a second time before the first one goes.
  rule.setTransient(
      std::max(op.getOutputMask()[0] ? input->numBytes() : 0, sums));
}

/// batch_norm of all channels of all samples, with repeated parameters.
static void describeInstanceNorm(WorkspaceRule &rule, InstanceNormOp op) {
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
}

//===----------------------------------------------------------------------===//
// layer_norm, rms_norm, group_norm
//===----------------------------------------------------------------------===//

void rules::describeLayerNormWorkspace(WorkspaceRule &rule) {
  auto op = cast<LayerNormOp>(rule.getOp());
  auto input = rule.tensor(op.getInput());
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  int64_t rows = getProduct(
      ArrayRef(input->dims).drop_back(op.getNormalizedShape().size()));
  AllocationTrace trace;
  SmallVector<AllocationTrace::Block, 3> copies;
  for (Value operand : {op.getInput(), op.getWeight(), op.getBias()})
    if (auto tensor = rule.tensor(operand))
      copies.push_back(allocateContiguous(trace, *tensor));
  trace.allocate(input->numBytes());
  // Mean and reciprocal deviation of each row.
  int64_t statistic =
      rows * getStatisticBytes(rule, *input, {op.getWeight(), op.getBias()});
  AllocationTrace::Block mean = trace.allocate(statistic);
  AllocationTrace::Block deviation = trace.allocate(statistic);
  for (AllocationTrace::Block copy : llvm::reverse(copies))
    trace.free(copy);
  trace.free(mean);
  trace.free(deviation);
  rule.setTrace(std::move(trace), input->numBytes());
}

/// rsqrt(mean(x^2) + eps), times x, times the weight; half types are computed
/// in float32. Source: rms_norm_composite.
static void describeRmsNorm(WorkspaceRule &rule, SavedRule *saved,
                            BackwardRule *backward, RmsNormOp op) {
  SmallVector<Value, 2> operands{op.getInput()};
  if (op.getWeight())
    operands.push_back(op.getWeight());
  AutogradReplay steps(rule, saved, backward);
  auto terms = readReals(steps, rule, operands);
  if (!terms)
    return;
  Term self = terms->front(), input = self;
  Type type = self.elementType;
  bool isCast = isHalf(type);
  if (op.getWeight() && terms->back().elementType != type)
    return rule.setInexact("rms_norm of several types");
  // Where nothing is kept, the copy takes the place of a factor.
  if (!self.contiguous && (isCast || !op.getWeight() || rule.isRecording()))
    return rule.setInexact("rms_norm of strided rows may copy its result");
  if (isCast) {
    input.elementType = Float32Type::get(type.getContext());
    input = steps.allocate(input);
    steps.record("_to_copy", self, input);
  }
  Term squares = steps.compute("pow.Tensor_Scalar", input);
  Term mean = squares;
  for (int64_t &extent :
       MutableArrayRef(mean.dims).take_back(op.getNormalizedShape().size()))
    extent = 1;
  mean = steps.allocate(mean);
  allocateMean(rule, steps, squares, mean);
  steps.record("mean.dim", squares, mean);
  steps.write("add_.Scalar", mean, OpReplay::Number::Float);
  Term root = steps.compute("rsqrt", mean);
  steps.free({mean, squares});
  Term result = steps.compute("mul.Tensor", {input, root});
  if (op.getWeight()) {
    Term scaled = steps.compute("mul.Tensor", {result, terms->back()});
    steps.free(result);
    result = scaled;
  }
  if (isCast) {
    steps.free(input);
    Term narrow = result;
    narrow.elementType = type;
    narrow = steps.allocate(narrow);
    steps.record("_to_copy", result, narrow);
    steps.free(result);
    result = narrow;
  }
  steps.free(root);
  steps.finish(result);
  // Whether the copy is made depends on the strides of the product.
  if (!self.contiguous)
    rule.setTransient(rule.getTransient());
}

void rules::describeRmsNormBackward(BackwardRule &rule) {
  describeRmsNorm(rule, /*saved=*/nullptr, &rule,
                  cast<RmsNormOp>(rule.getOp()));
}

static void describeGroupNorm(WorkspaceRule &rule, GroupNormOp op) {
  auto input = rule.tensor(op.getInput());
  if (!input || input->dims.size() < 2)
    return rule.setInexact("the shape of the input is unknown");
  int64_t samples = input->dims[0], channels = input->dims[1];
  int64_t groups = op.getNumGroups();
  int64_t sum = getSumBytes(input->elementType);
  int64_t statistic =
      getStatisticBytes(rule, *input, {op.getWeight(), op.getBias()});
  AllocationTrace trace;
  AllocationTrace::Block copy = trace.allocate(getSuggestedCopyBytes(*input));
  // Without a copy it is there before all that is told.
  if (!copy.isEmpty())
    trace.allocate(input->numBytes());
  AllocationTrace::Block mean = trace.allocate(samples * groups * statistic);
  AllocationTrace::Block deviation =
      trace.allocate(samples * groups * statistic);
  if (suggestsChannelsLast(*input)) {
    // Scale and shift of each channel of each sample; of large images each
    // thread has its own, and the groups have sums.
    constexpr int64_t kLarge = 1024;
    bool isLarge = getProduct(ArrayRef(input->dims).drop_front(2)) >= kLarge;
    int64_t threads = isLarge ? rule.getTarget().threads : 1;
    AllocationTrace::Block scales =
        trace.allocate(2 * samples * channels * sum * threads);
    if (isLarge)
      trace.allocateTemporary(2 * samples * groups * sum);
    trace.free(scales);
  }
  trace.free(mean);
  trace.free(deviation);
  trace.free(copy);
  rule.setTrace(std::move(trace));
}

/// Source: _weight_norm in native/WeightNorm.cpp. Along the first or last dim
/// one kernel leaves the norms; else the norms and their quotient are tensors.
static void describeWeightNorm(WorkspaceRule &rule, SavedRule *saved,
                               WeightNormOp op) {
  AutogradReplay steps(rule, saved);
  auto terms = readReals(steps, rule, {op.getV(), op.getG()},
                         /*needsStrides=*/true);
  if (!terms || terms->front().dims.empty())
    return rule.setInexact("a shape of the operator is unknown");
  Term v = terms->front(), g = terms->back();
  if (v.elementType != g.elementType ||
      (!v.elementType.isF32() && !v.elementType.isF64()))
    return rule.setInexact("_weight_norm of these element types");
  int64_t rank = v.dims.size(), dim = op.getDim();
  if (dim < -1 || g.numElements() != (dim == -1 ? 1 : v.dims[dim]))
    return rule.setInexact("_weight_norm of norms of another shape");
  v = steps.contiguous(v);
  g = steps.contiguous(g);
  if (dim == 0 || dim == rank - 1) {
    Term result = steps.allocate(v), norms = steps.allocate(g);
    // Sums of each thread. Source: native/cpu/WeightNormKernel.cpp.
    if (dim > 0)
      steps.allocateTemporary(rule.getTarget().threads * g.numBytes());
    steps.follow({v, g}, result);
    if (steps.wants(result))
      for (const Term &term : {v, g, norms})
        steps.save(term);
    return steps.finish(result);
  }
  // norm_except_dim brings the dim to the front.
  Term read = dim == -1 ? v : steps.allocate(v);
  steps.follow(v, read);
  Term norms = steps.allocate(g);
  steps.record("norm.ScalarOpt_dim", read, norms);
  if (dim != -1)
    steps.free(read);
  Term quotient = steps.compute("div.Tensor", {g, norms});
  steps.finish(steps.compute("mul.Tensor", {v, quotient}));
}

void rules::describeNormWorkspace(WorkspaceRule &rule) {
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<RmsNormOp>([&](auto op) {
        describeRmsNorm(rule, /*saved=*/nullptr, /*backward=*/nullptr, op);
      })
      .Case<WeightNormOp>(
          [&](auto op) { describeWeightNorm(rule, nullptr, op); })
      .Case<GroupNormOp>([&](auto op) { describeGroupNorm(rule, op); })
      .Case<InstanceNormOp>([&](auto op) { describeInstanceNorm(rule, op); })
      .Case<BatchNormUpdateStatsOp>(
          [&](auto op) { describeBatchNormStats(rule, op); })
      .Case<NativeBatchNormBackwardOp>(
          [&](auto op) { describeBatchNormBackward(rule, op); })
      .Case<NativeLayerNormOp>([&](auto op) {
        auto input = rule.tensor(op.getInput());
        if (!input)
          return rule.setInexact("the shape of the input is unknown");
        rule.setTransient(getCopyBytes(*input));
      })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}

//===----------------------------------------------------------------------===//
// What autograd keeps
//===----------------------------------------------------------------------===//

/// Mean and reciprocal deviation of `count` rows or groups.
static void keepStatistics(SavedRule &rule, const ConcreteTensor &input,
                           int64_t count, ValueRange parameters) {
  for (int statistic = 0; statistic < 2; ++statistic)
    rule.keep(count * getStatisticBytes(rule, input, parameters));
}

void rules::describeNormSaved(SavedRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  if (!input || input->dims.empty())
    return rule.setInexact("the shape of the input is unknown");
  llvm::TypeSwitch<Operation *>(op)
      .Case<WeightNormOp>(
          [&](auto norm) { describeWeightNorm(rule, &rule, norm); })
      .Case<RmsNormOp>([&](auto norm) {
        describeRmsNorm(rule, &rule, /*backward=*/nullptr, norm);
      })
      .Case<BatchNormOp>([&](BatchNormOp norm) {
        if (saveDifferentiated(rule).savesInner)
          keepStatistics(rule, *input, input->dims[1],
                         {norm.getWeight(), norm.getRunningMean()});
      })
      .Case<LayerNormOp>([&](LayerNormOp norm) {
        saveDifferentiated(rule);
        keepStatistics(
            rule, *input,
            getProduct(ArrayRef(input->dims)
                           .drop_back(norm.getNormalizedShape().size())),
            {norm.getWeight(), norm.getBias()});
      })
      .Case<GroupNormOp>([&](GroupNormOp norm) {
        saveDifferentiated(rule, [&](Value value) {
          return value == norm.getInput() ? getSuggestedCopyBytes(*input) : 0;
        });
        keepStatistics(rule, *input,
                       input->dims[0] *
                           static_cast<int64_t>(norm.getNumGroups()),
                       {norm.getWeight(), norm.getBias()});
      })
      // The repeated parameters, but for the bias, are those of batch_norm.
      .Case<InstanceNormOp>([&](InstanceNormOp norm) {
        if (input->dims.size() < 3)
          return rule.setInexact("the shape of the input is unknown");
        // Blocks of what is kept are as large as others that are not.
        if (norm.getBias() || norm.getRunningMean())
          rule.setTransient(rule.getTransient());
        int64_t channels = input->dims[0] * input->dims[1];
        DifferentiationFacts facts =
            saveDifferentiated(rule, [&](Value value) -> int64_t {
              if (value == norm.getInput())
                return getCopyBytes(*input);
              auto parameter = rule.tensor(value);
              return parameter
                         ? channels * getElementBytes(parameter->elementType)
                         : 0;
            });
        if (facts.savesInner)
          keepStatistics(rule, *input, channels, norm.getWeight());
      })
      .Default([&](Operation *) { koila::detail::describeSaved(rule); });
}

//===----------------------------------------------------------------------===//
// softmax
//===----------------------------------------------------------------------===//

void rules::describeSoftmaxWorkspace(WorkspaceRule &rule, Value self,
                                     Value result) {
  auto input = rule.tensor(self), output = rule.tensor(result);
  if (!input || !output)
    return rule.setInexact("a shape of softmax is unknown");
  // A cast first; after the result a copy of what is not contiguous.
  AllocationTrace trace;
  int64_t castBytes = getCastBytes(*input, output->elementType);
  AllocationTrace::Block cast = trace.allocate(castBytes);
  trace.allocate(output->numBytes());
  if (!input->contiguous && castBytes > 0 && !input->getStrides())
    return rule.setInexact("strides that a cast may keep are unknown");
  // A cast keeps the strides of dense dims, any others it orders.
  if (castBytes == 0 || isDense(*input)) {
    input->elementType = output->elementType;
    trace.free(allocateContiguous(trace, *input));
  }
  trace.free(cast);
  rule.setTrace(std::move(trace), output->numBytes());
}
