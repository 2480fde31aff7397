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

void BatchNormOp::describeWorkspace(WorkspaceRule &rule) {
  auto input = rule.tensor(getInput());
  if (!input || input->dims.size() < 2)
    return rule.setInexact("the shape of the input is unknown");
  int64_t channels = input->dims[1];
  int64_t statistic =
      getStatisticBytes(rule, *input, {getWeight(), getRunningMean()});
  if (channels == 1 && !input->contiguous)
    return rule.setInexact("batch_norm of one channel that is not contiguous");
  // An empty batch takes another path with four vectors (measured).
  if (input->numElements() == 0) {
    if (isHalf(input->elementType) || getTraining())
      rule.setInexact("batch_norm of an empty batch");
    return rule.setTransient((isHalf(input->elementType) ? 4 : 8) * 2 *
                             channels);
  }
  // Scale and shift of each channel; with other strides three vectors.
  bool isDense = input->contiguous || isChannelsLast(*input);
  int64_t vectors = isDense ? 2 * channels * getSumBytes(input->elementType)
                            : 3 * channels * statistic;
  if (isHalf(input->elementType) && !getWeight() && !isDense)
    return rule.setInexact("batch_norm of a half type without a weight");
  if (!getTraining())
    return rule.setTransient(vectors);
  // Mean and reciprocal deviation stay to the end.
  int64_t results = 2 * channels * statistic;
  if (!isDense && isHalf(input->elementType))
    return rule.setInexact("statistics of a half type that is not dense");
  // Numbers stand for a weight and a bias that are not there (measured).
  if (!isDense)
    return rule.setTransient(results + (!getWeight() + !getBias()) * statistic);
  // Mean and sum of squares; where channels lie innermost, also each thread's.
  int64_t sums = results;
  if (kernels::normalisesRows(*input)) {
    int64_t threads = rule.getTarget().threads;
    // Half types take another kernel, for any number of rows; float16 is added
    // up in float32 (measured).
    int64_t sum = input->elementType.isF16() ? 4 : statistic;
    sums = 2 * channels * sum;
    if (isHalf(input->elementType))
      sums += threads * channels * 4;
    else if (input->numElements() / channels > threads)
      sums += threads * channels * sum;
  }
  rule.setTransient(results + std::max(vectors, sums));
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
  // Nothing but what they are (measured).
  if (!isDense)
    return rule.setTransient(0);
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
  // Of the repeated statistics that it writes the means are copied back, when
  // less is held than while batch_norm runs.
  AllocationTrace trace;
  for (Value parameter :
       {op.getWeight(), op.getBias(), op.getRunningMean(), op.getRunningVar()})
    if (auto tensor = rule.tensor(parameter)) {
      trace.allocate(channels * getElementBytes(tensor->elementType));
      trace.allocateTemporary(getRepeatBytes(/*rank=*/1));
    }
  trace.allocate(getCopyBytes(*input) + input->numBytes());
  if (op.getUseInputStats())
    trace.allocate(2 * channels *
                   getStatisticBytes(rule, *input, {op.getWeight()}));
  trace.allocate(2 * channels * getSumBytes(input->elementType));
  rule.setTransient(trace.getPeak() - input->numBytes());
}

//===----------------------------------------------------------------------===//
// layer_norm, rms_norm, group_norm
//===----------------------------------------------------------------------===//

void LayerNormOp::describeWorkspace(WorkspaceRule &rule) {
  auto input = rule.tensor(getInput());
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  int64_t rows =
      getProduct(ArrayRef(input->dims).drop_back(getNormalizedShape().size()));
  AllocationTrace trace;
  trace.makeContiguous(*input);
  for (Value parameter : {getWeight(), getBias()})
    if (auto tensor = rule.tensor(parameter))
      trace.makeContiguous(*tensor);
  // Mean and reciprocal deviation of each row.
  trace.allocate(2 * rows *
                 getStatisticBytes(rule, *input, {getWeight(), getBias()}));
  trace.allocate(input->numBytes());
  rule.setTransient(trace.getPeak() - input->numBytes());
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
  steps.allocateTemporary(getMeanBytes(rule, squares, mean));
  steps.record("mean.dim", squares, mean);
  steps.write("add_.Scalar", mean, OpReplay::Number::Float);
  Term root = steps.compute("rsqrt", mean);
  steps.free({squares, mean});
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
  int64_t sum = getSumBytes(input->elementType), inside = 0;
  if (suggestsChannelsLast(*input)) {
    // Scale and shift of each channel of each sample; of large images each
    // thread has its own, and the groups have sums.
    constexpr int64_t kLarge = 1024;
    bool isLarge = getProduct(ArrayRef(input->dims).drop_front(2)) >= kLarge;
    inside = 2 * samples * channels * sum;
    if (isLarge)
      inside = inside * rule.getTarget().threads + 2 * samples * groups * sum;
  }
  int64_t statistic =
      getStatisticBytes(rule, *input, {op.getWeight(), op.getBias()});
  rule.setTransient(getSuggestedCopyBytes(*input) + inside +
                    2 * samples * groups * statistic);
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
  rule.keep(2 * count * getStatisticBytes(rule, input, parameters));
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
  // A cast first, then a copy of what is not contiguous.
  int64_t bytes = getCastBytes(*input, output->elementType);
  if (!input->contiguous) {
    auto strides = input->getStrides();
    if (bytes > 0 && !strides)
      return rule.setInexact("strides that a cast may keep are unknown");
    // A cast keeps the strides of dense dims, any others it orders.
    if (bytes > 0 && !isDense(*input))
      return rule.setTransient(bytes);
    input->elementType = output->elementType;
    bytes += input->numBytes() + getBlockBytes(*input);
  }
  rule.setTransient(bytes);
}
