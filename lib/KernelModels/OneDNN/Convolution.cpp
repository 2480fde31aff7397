//===- Convolution.cpp - What a convolution holds inside ------------------===//

#include "../../Dialect/Koila/IR/Utils/Windows.h"
#include "../ATen/TensorBytes.h"
#include "../WorkspaceRules.h"
#include "ConvolutionCall.h"
#include "koila/Dialect/Koila/IR/ConvolutionOps.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

/// Entry `index` of an `int[n]` list that may hold a single value for all.
static int64_t listEntry(Operation *op, StringRef name, int64_t index,
                         int64_t fallback) {
  auto attr = op->getAttrOfType<DenseI64ArrayAttr>(name);
  if (!attr || attr.empty())
    return fallback;
  return attr.size() == 1 ? attr[0] : attr[index];
}

/// Whether the sums and products of the figures stay far from the end of
/// int64, whichever buffers there are.
static bool isCountable(const ConvolutionShape &shape, int64_t threads) {
  constexpr int64_t kMost = int64_t(1) << 52;
  // Copies pad channels to blocks of at most 64.
  constexpr int64_t kBlock = 64;
  auto fits = [](ArrayRef<int64_t> factors) {
    int64_t product = 1;
    for (int64_t factor : factors)
      if (factor < 0 || factor > spatial::MostEntry ||
          llvm::MulOverflow(product, std::max<int64_t>(factor, 1), product) ||
          product > kMost)
        return false;
    return true;
  };
  for (int64_t extent : llvm::concat<const int64_t>(shape.input, shape.weight))
    if (!fits({extent}))
      return false;
  SmallVector<int64_t> input, weight, output, columns;
  int64_t batch = shape.input[0], channels = shape.input[1] + kBlock;
  int64_t results = shape.weight[0];
  if (shape.transposed && !fits({shape.weight[1], shape.groups}))
    return false;
  if (shape.transposed)
    results = shape.weight[1] * shape.groups;
  input = {batch, channels};
  weight = {shape.weight[0] + kBlock, shape.weight[1] + kBlock};
  output = {batch, results + kBlock};
  columns = {std::max(batch, threads), std::max(channels, results + kBlock)};
  for (size_t index = 0; index < shape.stride.size(); ++index) {
    int64_t in = shape.input[index + 2], kernel = shape.weight[index + 2];
    int64_t padding = shape.padding[index], dilation = shape.dilation[index];
    int64_t stride = shape.stride[index];
    if (!fits({padding}) || !fits({dilation, kernel}) || !fits({in, stride}))
      return false;
    int64_t out = (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
    if (shape.transposed)
      out = in * stride + dilation * kernel + shape.outputPadding[index];
    input.push_back(in + 2 * padding);
    weight.push_back(kernel);
    output.push_back(out);
    columns.append({kernel, std::max(in, out)});
  }
  return fits(input) && fits(weight) && fits(output) && fits(columns);
}

static TensorLayout getLayout(const ConcreteTensor &tensor) {
  TensorLayout layout;
  layout.suggestsChannelsLast = kernels::suggestsChannelsLast(tensor);
  layout.isChannelsLast = kernels::isChannelsLast(tensor);
  layout.isContiguous = kernels::getCopyBytes(tensor) == 0;
  return layout;
}

static ConcreteTensor makeContiguous(ConcreteTensor tensor) {
  tensor.contiguous = true;
  tensor.strides = std::nullopt;
  return tensor;
}

/// Pads `input` by one at the end of each of the dims in `odd`, as a symmetric
/// padding needs it. The copy is in the layout that the input suggests.
/// Source: convolution_same in native/Convolution.cpp.
static TensorLayout padEnds(ConcreteTensor &input, ArrayRef<int64_t> odd) {
  bool channelsLast = kernels::suggestsChannelsLast(input);
  for (auto [index, extent] : llvm::enumerate(odd))
    input.dims[index + 2] += extent;
  input = makeContiguous(input);
  TensorLayout layout = getLayout(input);
  if (channelsLast)
    layout = {true, true, layout.isChannelsLast};
  return layout;
}

/// Reads the strides, paddings and so on; none where they are too large.
static std::optional<SmallVector<int64_t>>
readWindows(Operation *op, ConvolutionShape &shape) {
  auto mode = op->getAttrOfType<StringAttr>("padding");
  bool same = mode && mode.getValue() == "same";
  SmallVector<int64_t> odd;
  for (size_t index = 0; index + 2 < shape.weight.size(); ++index) {
    int64_t dilation = listEntry(op, "dilation", index, 1);
    int64_t padding = listEntry(op, "padding", index, 0);
    if (same &&
        (llvm::MulOverflow(dilation, shape.weight[index + 2] - 1, padding) ||
         padding < 0))
      return std::nullopt;
    odd.push_back(same ? padding % 2 : 0);
    shape.stride.push_back(listEntry(op, "stride", index, 1));
    shape.padding.push_back(same ? padding / 2 : padding);
    shape.dilation.push_back(dilation);
    shape.outputPadding.push_back(listEntry(op, "output_padding", index, 0));
  }
  return odd;
}

std::optional<conv::Call> conv::readCall(WorkspaceRule &rule,
                                         rules::ConvolutionKind kind) {
  Operation *op = rule.getOp();
  return readCall(rule, kind, op->getOperand(0), op->getOperand(1),
                  op->getNumOperands() > 2);
}

std::optional<conv::Call> conv::readCall(WorkspaceRule &rule,
                                         rules::ConvolutionKind kind,
                                         Value inputValue, Value weightValue,
                                         bool hasBias) {
  Operation *op = rule.getOp();
  auto refuse = [&](StringRef why) {
    rule.setInexact(why);
    return std::nullopt;
  };
  auto input = rule.tensor(inputValue);
  auto weight = rule.tensor(weightValue);
  if (!input || !weight || !input->getStrides() || !weight->getStrides())
    return refuse("a shape of the convolution is unknown");
  auto transposed = op->getAttrOfType<BoolAttr>("transposed");
  Call call;
  ConvolutionShape &shape = call.shape;
  shape.transposed = transposed ? transposed.getValue() : kind.transposed;
  if (!isa<FloatType>(input->elementType) ||
      getElementBytes(input->elementType) < 2)
    return refuse("no workspace rule for a convolution of another type than "
                  "float64, float32, bfloat16 or float16");
  // PyTorch runs an unbatched input as a batch of one.
  if (input->dims.size() + 1 == weight->dims.size())
    input = kernels::unsqueeze(*input, 0);
  if (input->dims.size() != weight->dims.size() || input->dims.size() < 3)
    return refuse("the ranks of the convolution do not fit");
  shape.weight.assign(weight->dims.begin(), weight->dims.end());
  auto odd = readWindows(op, shape);
  if (!odd)
    return refuse("the convolution is too large to count");
  shape.inputLayout = getLayout(*input);
  if (llvm::is_contained(*odd, 1)) {
    shape.inputLayout = padEnds(*input, *odd);
    call.copies.push_back(input->numBytes());
    call.isPadded = true;
  }
  shape.input.assign(input->dims.begin(), input->dims.end());
  // One dim becomes two, of which the input is made contiguous before.
  if (input->dims.size() == 3) {
    call.copies.push_back(kernels::getCopyBytes(*input));
    if (!input->contiguous)
      input = makeContiguous(*input);
    shape.inputLayout = getLayout(kernels::unsqueeze(*input, 2));
    weight = kernels::unsqueeze(*weight, 2);
  }
  shape.weightLayout = getLayout(*weight);
  // Strides of dims of one may say so.
  if (input->dims.size() == 3 && (shape.inputLayout.suggestsChannelsLast ||
                                  shape.weightLayout.suggestsChannelsLast))
    return refuse("a convolution over one dim of channels-last tensors");
  auto groups = op->getAttrOfType<IntegerAttr>("groups");
  shape.groups = groups ? groups.getInt() : 1;
  shape.hasBias = hasBias;
  shape.elementBytes = getElementBytes(input->elementType);
  shape.isFloat16 = input->elementType.isF16();
  call.target.threads = rule.getTarget().threads;
  call.target.isa = rule.getTarget().isa;
  call.target.l1Bytes = rule.getTarget().l1Bytes;
  call.target.l2Bytes = rule.getTarget().l2Bytes;
  if (!isCountable(shape, call.target.threads))
    return refuse("the convolution is too large to count");
  return call;
}

void rules::describeConvolutionWorkspace(WorkspaceRule &rule,
                                         ConvolutionKind kind) {
  auto call = conv::readCall(rule, kind);
  if (!call)
    return;
  Workspace workspace = convolutionWorkspace(call->shape, call->target);
  if (workspace.exact && workspace.trace) {
    AllocationTrace trace;
    for (int64_t copy : call->copies)
      trace.allocate(copy);
    kernels::append(trace, *workspace.trace);
    rule.setTrace(std::move(trace), workspace.trace->getLeft());
  } else {
    rule.setTransient(workspace.bytes + llvm::sum_of(call->copies));
  }
  if (auto kept = conv::getResultStorage(call->shape, call->target))
    rule.setStorageBytes(rule.getOp()->getResult(0), *kept);
  if (!workspace.exact)
    rule.setBound("the convolution's workspace is an upper bound for this "
                  "case on '" +
                  call->target.isa + "'");
}

void rules::describeConvolutionSaved(SavedRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto weight = rule.tensor(op->getOperand(1));
  if (!input || !weight)
    return rule.setInexact("a shape of the convolution is unknown");
  if (input->dims.size() + 1 == weight->dims.size())
    input = kernels::unsqueeze(*input, 0);
  ConvolutionShape shape;
  shape.weight.assign(weight->dims.begin(), weight->dims.end());
  auto odd = readWindows(op, shape);
  if (!odd)
    return rule.setInexact("the convolution is too large to count");
  // What is padded first is kept in the place of the input.
  int64_t padded = 0;
  if (llvm::is_contained(*odd, 1)) {
    padEnds(*input, *odd);
    padded = input->numBytes();
  }
  saveDifferentiated(rule, [&](Value value) {
    return value == op->getOperand(0) ? padded : 0;
  });
}
