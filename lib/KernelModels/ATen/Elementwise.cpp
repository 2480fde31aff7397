//===- Elementwise.cpp - Composed elementwise operators -------------------===//
//
// What elementwise operators hold inside that call others. Sources:
// native/TensorCompare.cpp (where, isinf, isfinite), native/UnaryOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Models.h"
#include "OpReplay.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/PointwiseOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using rules::Elementwise;

/// Each number becomes a 0-dim tensor of the result's type, and the tensor is
/// cast to that type.
static void describeWhere(WorkspaceRule &rule, int64_t numbers, Value tensor) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  auto operand = rule.tensor(tensor);
  if (!result || (tensor && !operand))
    return rule.setInexact("a shape of the operator is unknown");
  AllocationTrace trace;
  SmallVector<AllocationTrace::Block, 2> blocks;
  for (int64_t number = 0; number < numbers; ++number)
    blocks.push_back(trace.allocate(getElementBytes(result->elementType)));
  if (operand)
    blocks.push_back(
        trace.allocate(getCastBytes(*operand, result->elementType)));
  trace.allocate(result->numBytes());
  for (AllocationTrace::Block block : llvm::reverse(blocks))
    trace.free(block);
  rule.setTrace(std::move(trace), result->numBytes());
}

static void describeWhereOther(WorkspaceRule &rule) {
  describeWhere(rule, /*numbers=*/1,
                cast<WhereScalarOtherOp>(rule.getOp()).getSelf());
}

static void describeWhereSelf(WorkspaceRule &rule) {
  describeWhere(rule, /*numbers=*/1,
                cast<WhereScalarSelfOp>(rule.getOp()).getOther());
}

static void describeWhereNumbers(WorkspaceRule &rule) {
  describeWhere(rule, /*numbers=*/2, /*tensor=*/{});
}

/// The first operand; none, and the rule says so, if it is unknown.
static std::optional<ConcreteTensor> getInput(WorkspaceRule &rule) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  if (!input)
    rule.setInexact("a shape of the operator is unknown");
  return input;
}

/// A copy in rows is filled.
template <typename OpT>
static void describeMaskedFill(WorkspaceRule &rule) {
  auto op = cast<OpT>(rule.getOp());
  auto input = getInput(rule), result = rule.tensor(op.getResult());
  if (input && !op.getTied() && result && result->dims == input->dims)
    rule.setTransient(getBlockBytes(*input));
}

/// A product with a number.
static void describeDegrees(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto result = rule.tensor(op->getResult(0));
  if (!input || !result)
    return rule.setInexact("a shape of the operator is unknown");
  OpReplay steps(rule);
  Type number = Float64Type::get(op->getContext());
  AllocationTrace::Block block = allocateNumber(steps, number);
  TensorIteration{{*input, getNumber(number)}, result->elementType}.replay(
      steps);
  steps.AllocationTrace::free(block);
  steps.finish(0);
}

/// isinf is abs(self) == inf; isfinite is that and self == self.
static void describeQuery(WorkspaceRule &rule) {
  auto input = getInput(rule);
  // Integers are not asked.
  if (!input || isa<IntegerType>(input->elementType))
    return;
  if (!isa<FloatType>(input->elementType))
    return rule.setInexact("a query of complex numbers");
  OpReplay steps(rule);
  MadeTensor size = steps.allocate(*input);
  MadeTensor answer =
      steps.compute(size, Elementwise::Bool, OpReplay::Number::Float);
  if (isa<IsfiniteOp>(rule.getOp())) {
    MadeTensor isNumber = steps.compute({*input, *input}, Elementwise::Bool);
    MadeTensor both = steps.compute({isNumber, answer});
    steps.free({isNumber, answer});
    answer = both;
  }
  steps.free(size);
  steps.finish(answer.numBytes());
}

/// A buffer as large as the result, and rows. Source: log_sigmoid_forward_cpu
/// in native/Activation.cpp.
static void describeLogSigmoid(WorkspaceRule &rule) {
  auto input = getInput(rule);
  if (!input)
    return;
  AllocationTrace trace;
  trace.allocate(input->numBytes());
  allocateContiguous(trace, *input);
  rule.setTrace(std::move(trace), 0);
}

/// That buffer.
static void saveLogSigmoid(SavedRule &rule) {
  auto self = rule.tensor(rule.getOp()->getOperand(0));
  if (!self)
    return rule.setInexact("the shape of the input is unknown");
  saveDifferentiated(rule);
  rule.keep(self->numBytes());
}

/// A tensor for the noise. In training it is drawn, and rows are read; else the
/// slope is computed of two 0-dim tensors. Source: rrelu_with_noise_out_cpu in
/// native/Activation.cpp.
static void describeRrelu(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = getInput(rule);
  if (!input)
    return;
  OpReplay steps(rule);
  MadeTensor noise = steps.allocate(*input), result = steps.allocate(*input);
  if (cast<RreluOp>(op).getTraining()) {
    steps.AllocationTrace::free(allocateContiguous(steps, *input));
    steps.free(noise);
    return steps.finish(result.numBytes());
  }
  auto lower = dyn_cast_or_null<TypedAttr>(op->getAttr("lower"));
  auto upper = dyn_cast_or_null<TypedAttr>(op->getAttr("upper"));
  if (!lower || !upper || lower.getType().isInteger(1) ||
      upper.getType().isInteger(1))
    return rule.setInexact("the slopes of rrelu are computed");
  MadeTensor least = steps.allocate({{}, lower.getType()});
  MadeTensor most = steps.allocate({{}, upper.getType()});
  MadeTensor sum = steps.compute({least, most});
  MadeTensor slope =
      steps.compute(sum, Elementwise::Float, OpReplay::Number::Integer);
  steps.free({sum, slope, most, least, noise});
  steps.finish(result.numBytes());
}

/// The slopes that were drawn.
static void saveSlopes(SavedRule &rule) {
  saveDifferentiated(rule);
  if (auto self = rule.tensor(rule.getOp()->getOperand(0)))
    rule.keep(self->numBytes());
}

/// |self - other| <= atol + |rtol * other|, where that is finite, or equal.
static void describeIsclose(WorkspaceRule &rule) {
  auto op = cast<IscloseOp>(rule.getOp());
  // No gradient passes, but its steps may be recorded.
  if (rule.isRecording())
    return rule.setInexact("what autograd keeps between the steps of isclose");
  auto tensors = getRealTensors(rule, {op.getSelf(), op.getOther()});
  if (!tensors)
    return;
  const ConcreteTensor &self = (*tensors)[0], &other = (*tensors)[1];
  if (!isa<FloatType>(self.elementType) ||
      (op.getRtol().isZero() && op.getAtol().isZero()) || op.getEqualNan())
    return rule.setInexact("isclose of integers, of no tolerance or of NaN");
  using Number = OpReplay::Number;
  OpReplay steps(rule);
  ConcreteTensor close = steps.compute(*tensors, Elementwise::Bool);
  ConcreteTensor scaled =
      steps.compute(other, Elementwise::Common, Number::Float);
  ConcreteTensor size = steps.compute(scaled);
  steps.compute(size, Elementwise::Common, Number::Float);
  steps.free({scaled, size});
  ConcreteTensor difference = steps.compute({self, other});
  ConcreteTensor actual = steps.compute(difference);
  steps.free(difference);
  // isfinite
  steps.compute(actual);
  steps.compute(actual, Elementwise::Bool, Number::Float);
  steps.allocate(close);
  steps.allocate(close);
  steps.finish(close.numBytes());
}

void kernels::addSelectModels(KernelLibrary &library) {
  library.add<GluOp, PreluOp>({.forward = allocateNothing});
  library.add<IsfiniteOp, IsinfOp>({.forward = describeQuery});
  library.add<WhereScalarOp>({.forward = describeWhereNumbers});
  library.add<WhereScalarOtherOp>({.forward = describeWhereOther});
  library.add<WhereScalarSelfOp>({.forward = describeWhereSelf});
}

void kernels::addComposedElementwiseModels(KernelLibrary &library) {
  addSelectModels(library);
  library.add<Deg2radOp, Rad2degOp>({.forward = describeDegrees});
  library.add<IscloseOp>({.forward = describeIsclose});
  library.add<LogSigmoidOp>(
      {.forward = describeLogSigmoid, .saved = saveLogSigmoid});
  library.add<MaskedFillScalarOp>(
      {.forward = describeMaskedFill<MaskedFillScalarOp>});
  library.add<MaskedFillTensorOp>(
      {.forward = describeMaskedFill<MaskedFillTensorOp>});
  library.add<RreluOp>({.forward = describeRrelu, .saved = saveSlopes});
}
