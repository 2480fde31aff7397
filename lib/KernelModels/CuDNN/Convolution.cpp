//===- Convolution.cpp - What convolutions allocate on a GPU --------------===//
//
// Sources: native/Convolution.cpp (which backend, what is contiguous),
// native/cudnn/ConvShared.cpp (the order of tensors). The workspace is what
// cuDNN asks for, which PyTorch does not know before.
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/BackwardReplay.h"
#include "../ATen/TensorBytes.h"
#include "CuDNNModels.h"
#include "koila/Dialect/Koila/IR/ConvolutionOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

namespace {
/// The tensors of one call.
struct Call {
  ConcreteTensor input, weight;
  /// Whether all are made channels-last. Source:
  /// cudnn_conv_suggest_memory_format in native/ConvUtils.h.
  bool isChannelsLast;

  /// A copy in the layout of the call; nothing if `tensor` has it.
  int64_t getCopyBytes(const ConcreteTensor &tensor) const {
    return isChannelsLast ? getChannelsLastCopyBytes(tensor)
                          : kernels::getCopyBytes(tensor);
  }
  ConcreteTensor layOut(ConcreteTensor tensor) const {
    tensor.contiguous = true;
    tensor.strides.reset();
    return isChannelsLast ? toChannelsLast(std::move(tensor)) : tensor;
  }
};
} // namespace

/// None, and the rule says so, if a shape is unknown.
static std::optional<Call> read(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto weight = rule.tensor(op->getOperand(1));
  if (!input || !weight || !input->getStrides() || !weight->getStrides()) {
    rule.setInexact("a shape of the convolution is unknown");
    return std::nullopt;
  }
  if (isa<ComplexType>(input->elementType)) {
    rule.setInexact("a convolution of complex numbers");
    return std::nullopt;
  }
  bool isChannelsLast =
      input->dims.size() >= 4 && !input->elementType.isF64() &&
      (suggestsChannelsLast(*input) || suggestsChannelsLast(*weight));
  return Call{*input, *weight, isChannelsLast};
}

/// One for each channel, which PyTorch's own kernel computes: it takes nothing.
/// Source: use_conv_depthwise and cudnn's conditions in native/Convolution.cpp.
static bool isDepthwise(const Call &call) {
  return call.input.dims.size() == 4 && call.weight.dims.size() == 4 &&
         call.weight.dims[1] == 1 && call.input.dims[1] > 1 &&
         call.weight.dims[0] % call.input.dims[1] == 0 &&
         !call.isChannelsLast && !call.input.elementType.isF16();
}

static void doubtWorkspace(WorkspaceRule &rule) {
  rule.addDoubt(Trust::Unknown,
                "the workspace of cuDNN for a convolution, which is not "
                "counted",
                "cudnnBackendGetAttribute(WORKSPACE_SIZE), on the card");
}

static void describeConvolution(WorkspaceRule &rule) {
  auto call = read(rule);
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!call || !result || result->numElements() == 0)
    return;
  AllocationTrace trace;
  AllocationTrace::Block input, weight;
  // Slices of a line are images of one row, which are views.
  input = trace.allocate(call->getCopyBytes(call->input));
  trace.allocate(result->numBytes());
  weight = trace.allocate(call->getCopyBytes(call->weight));
  if (!isDepthwise(*call))
    doubtWorkspace(rule);
  trace.free(weight);
  trace.free(input);
  rule.setTrace(std::move(trace), result->numBytes());
}

static void saveConvolution(SavedRule &rule) {
  auto call = read(rule);
  if (!call)
    return;
  saveDifferentiated(rule);
}

/// The gradient of the input, then that of the weight, and of the bias a sum.
static void describeBackward(BackwardRule &rule) {
  auto call = read(rule);
  if (!call || !rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  const ConcreteTensor &gradient = *rule.getGradient();
  bool isOwn = isDepthwise(*call);
  BackwardReplay steps(rule);
  AllocationTrace &trace = steps;
  bool isView = call->input.dims.size() == 3;
  AllocationTrace::Block copy = trace.allocate(call->getCopyBytes(gradient));
  if (!isOwn && (steps.wants(0) || steps.wants(1)))
    doubtWorkspace(rule);
  auto give = [&](unsigned operand, const ConcreteTensor &like) {
    if (!steps.wants(operand))
      return;
    MadeTensor made = steps.allocate(like);
    steps.give(operand, MadeTensor(call->layOut(made), made.block), isView);
  };
  // PyTorch's own kernel: that of the weight first (recorded).
  if (isOwn) {
    give(1, call->weight);
    give(0, call->input);
  } else {
    if (steps.wants(0)) {
      AllocationTrace::Block weight =
          trace.allocate(call->getCopyBytes(call->weight));
      give(0, call->input);
      trace.free(weight);
    }
    if (steps.wants(1)) {
      AllocationTrace::Block input =
          trace.allocate(call->getCopyBytes(call->input));
      give(1, call->weight);
      trace.free(input);
    }
  }
  bool hasBias = rule.getOp()->getNumOperands() > 2 && steps.wants(2);
  if (hasBias) {
    MadeTensor sum = steps.allocate(steps.read(2));
    SmallVector<bool> isReduced(gradient.dims.size(), true);
    size_t channels = gradient.dims.size() == call->weight.dims.size() ? 1 : 0;
    isReduced[channels] = false;
    allocateSum(rule, steps, gradient, sum, isReduced);
    steps.give(2, sum);
  }
  trace.free(copy);
  steps.finish();
}

void cudnn::addConvolutionModels(KernelLibrary &library) {
  library.add<Conv1dOp, Conv1dPaddingOp, Conv2dOp, Conv2dPaddingOp, Conv3dOp,
              Conv3dPaddingOp, ConvTranspose1dOp, ConvTranspose2dOp,
              ConvTranspose3dOp, ConvolutionDeprecatedOp, ConvolutionModeOp,
              ConvolutionOp, PlainConvolutionOp>(
      {describeConvolution, saveConvolution, describeBackward});
}
