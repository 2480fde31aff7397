//===- Norm.cpp - What normalisations of samples hold inside --------------===//
//
// Sources: native/layer_norm.cpp, native/group_norm.cpp,
// native/cpu/group_norm_kernel.cpp, native/WeightNorm.cpp.
//
//===----------------------------------------------------------------------===//

#include "Norm.h"
#include "../BackwardRules.h"
#include "../Models.h"
#include "Backward/AutogradReplay.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

int64_t kernels::getSumBytes(Type type) {
  return std::max<int64_t>(getElementBytes(type), 4);
}

int64_t kernels::getStatisticBytes(const WorkspaceRule &rule,
                                   const ConcreteTensor &input,
                                   ValueRange parameters) {
  int64_t bytes = getElementBytes(input.elementType);
  for (Value parameter : parameters)
    if (auto tensor = rule.tensor(parameter))
      bytes = std::max(bytes, getElementBytes(tensor->elementType));
  return bytes;
}

void kernels::keepStatistics(SavedRule &rule, const ConcreteTensor &input,
                             int64_t count, ValueRange parameters) {
  for (int statistic = 0; statistic < 2; ++statistic)
    rule.keep(count * getStatisticBytes(rule, input, parameters));
}

std::optional<ConcreteTensor> kernels::getNormInput(WorkspaceRule &rule) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  if (input && !input->dims.empty())
    return input;
  rule.setInexact("the shape of the input is unknown");
  return std::nullopt;
}

static void describeLayerNorm(WorkspaceRule &rule) {
  auto op = cast<LayerNormOp>(rule.getOp());
  auto input = rule.tensor(op.getInput());
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  int64_t rows = llvm::product_of(
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

static void saveLayerNorm(SavedRule &rule) {
  auto op = cast<LayerNormOp>(rule.getOp());
  auto input = getNormInput(rule);
  if (!input)
    return;
  saveDifferentiated(rule);
  int64_t rows = llvm::product_of(
      ArrayRef(input->dims).drop_back(op.getNormalizedShape().size()));
  keepStatistics(rule, *input, rows, {op.getWeight(), op.getBias()});
}

/// layer_norm whose statistics are results.
static void describeNativeLayerNorm(WorkspaceRule &rule) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  rule.setTransient(getCopyBytes(*input));
}

/// rsqrt(mean(x^2) + eps), times x, times the weight; half types are computed
/// in float32. Source: rms_norm_composite.
static void describeRmsNorm(WorkspaceRule &rule, SavedRule *saved,
                            BackwardRule *backward) {
  auto op = cast<RmsNormOp>(rule.getOp());
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
    backward ? backward->setPeak(backward->getPeak())
             : rule.setTransient(rule.getTransient());
}

static void describeGroupNorm(WorkspaceRule &rule) {
  auto op = cast<GroupNormOp>(rule.getOp());
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
    bool isLarge =
        llvm::product_of(ArrayRef(input->dims).drop_front(2)) >= kLarge;
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

static void saveGroupNorm(SavedRule &rule) {
  auto op = cast<GroupNormOp>(rule.getOp());
  auto input = getNormInput(rule);
  if (!input)
    return;
  saveDifferentiated(rule, [&](Value value) {
    return value == op.getInput() ? getSuggestedCopyBytes(*input) : 0;
  });
  int64_t groups = op.getNumGroups();
  keepStatistics(rule, *input, input->dims[0] * groups,
                 {op.getWeight(), op.getBias()});
}

/// Source: _weight_norm in native/WeightNorm.cpp. Along the first or last dim
/// one kernel leaves the norms; else the norms and their quotient are tensors.
static void describeWeightNorm(WorkspaceRule &rule, SavedRule *saved) {
  auto op = cast<WeightNormOp>(rule.getOp());
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
      for (const Term &term : {g, v, norms})
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

/// The norms, which become factors. Source: renorm_out in
/// native/Normalization.cpp.
static void describeRenorm(WorkspaceRule &rule) {
  auto op = cast<RenormOp>(rule.getOp());
  auto self = rule.tensor(op.getSelf());
  if (!self || self->dims.size() < 2)
    return rule.setInexact("the shape of the input is unknown");
  if (!self->elementType.isF32() && !self->elementType.isF64())
    return rule.setInexact("renorm of another type than float32 and float64");
  int64_t rank = self->dims.size(), dim = op.getDim();
  int64_t slices = self->dims[dim < 0 ? dim + rank : dim];
  AllocationTrace trace;
  if (!rules::isInPlace(op))
    trace.allocate(self->numBytes());
  int64_t left = trace.getLeft();
  trace.allocateTemporary(slices * getElementBytes(self->elementType));
  rule.setTrace(std::move(trace), left);
}

void kernels::addNormModels(KernelLibrary &library) {
  library.add<GroupNormOp>(
      {describeGroupNorm, saveGroupNorm, rules::describeGroupNormBackward});
  library.add<LayerNormOp>(
      {describeLayerNorm, saveLayerNorm, rules::describeLayerNormBackward});
  library.add<NativeLayerNormOp>({.forward = describeNativeLayerNorm});
  library.add<RenormOp>({.forward = describeRenorm});
  library.add<RmsNormOp>({forwardOf<describeRmsNorm>, savedOf<describeRmsNorm>,
                          backwardOf<describeRmsNorm>});
  library.add<WeightNormOp>({forwardOf<describeWeightNorm>,
                             savedOf<describeWeightNorm>,
                             rules::describeWeightNormBackward});
}
