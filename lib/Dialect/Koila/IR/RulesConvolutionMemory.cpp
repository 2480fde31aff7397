//===- RulesConvolutionMemory.cpp - What a convolution holds inside -------===//

#include "Footprint.h"
#include "RulesSpatial.h"
#include "koila/Analysis/ConvWorkspace.h"
#include "koila/Dialect/Koila/IR/KoilaConvolutionOps.h"
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
  input = {batch, channels};
  weight = {shape.weight[0] + kBlock, shape.weight[1] + kBlock};
  output = {batch, shape.weight[0] + kBlock};
  columns = {std::max(batch, threads), channels};
  for (size_t index = 0; index < shape.stride.size(); ++index) {
    int64_t in = shape.input[index + 2], kernel = shape.weight[index + 2];
    int64_t padding = shape.padding[index], dilation = shape.dilation[index];
    if (!fits({padding}) || !fits({dilation, kernel}))
      return false;
    int64_t out = (in + 2 * padding - dilation * (kernel - 1) - 1) /
                      shape.stride[index] +
                  1;
    input.push_back(in + 2 * padding);
    weight.push_back(kernel);
    output.push_back(out);
    columns.append({kernel, out});
  }
  return fits(input) && fits(weight) && fits(output) && fits(columns);
}

/// What is neither contiguous nor channels-last is copied first, and so is
/// what is not in the layout of the other (which the figure has).
static int64_t getStridedBytes(const ConcreteTensor &input,
                               const ConcreteTensor &weight) {
  bool inputLast = footprint::suggestsChannelsLast(input), weightLast = footprint::suggestsChannelsLast(weight);
  int64_t bytes = 0;
  if (inputLast || !weightLast)
    bytes += footprint::getSuggestedCopyBytes(input);
  if (weightLast || !inputLast)
    bytes += footprint::getSuggestedCopyBytes(weight);
  return bytes;
}

void rules::describeConvolutionWorkspace(WorkspaceRule &rule,
                                         ConvolutionKind kind) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto weight = rule.tensor(op->getOperand(1));
  if (!input || !weight)
    return rule.setInexact("a shape of the convolution is unknown");
  auto transposed = op->getAttrOfType<BoolAttr>("transposed");
  if ((transposed ? transposed.getValue() : kind.transposed) ||
      (!input->elementType.isF32() && !input->elementType.isF64()))
    return rule.setInexact("no workspace rule for a transposed convolution or "
                           "for one of another type than float32 or float64");
  ConvolutionShape shape;
  shape.input.assign(input->dims.begin(), input->dims.end());
  shape.weight.assign(weight->dims.begin(), weight->dims.end());
  // PyTorch runs an unbatched input as a batch of one.
  if (input->dims.size() + 1 == weight->dims.size())
    shape.input.insert(shape.input.begin(), 1);
  if (shape.input.size() != shape.weight.size() || shape.input.size() < 3)
    return rule.setInexact("the ranks of the convolution do not fit");
  auto mode = op->getAttrOfType<StringAttr>("padding");
  bool same = mode && mode.getValue() == "same";
  for (size_t index = 0; index + 2 < shape.weight.size(); ++index) {
    int64_t dilation = listEntry(op, "dilation", index, 1);
    int64_t padding = listEntry(op, "padding", index, 0), odd = 0;
    if (same && (llvm::MulOverflow(dilation, shape.weight[index + 2] - 1,
                                   padding) ||
                 padding < 0))
      return rule.setInexact("the convolution is too large to count");
    if (same) {
      odd = padding % 2;
      padding /= 2;
    }
    if (odd)
      return rule.setInexact("no workspace rule for padding 'same' that is "
                             "larger on one side");
    shape.stride.push_back(listEntry(op, "stride", index, 1));
    shape.padding.push_back(padding);
    shape.dilation.push_back(dilation);
  }
  auto groups = op->getAttrOfType<IntegerAttr>("groups");
  shape.groups = groups ? groups.getInt() : 1;
  shape.hasBias = op->getNumOperands() > 2;
  shape.elementBytes = getElementBytes(input->elementType);
  bool inputLast = footprint::suggestsChannelsLast(*input);
  bool weightLast = footprint::suggestsChannelsLast(*weight);
  // What is dense in the layout of the other is not copied to it.
  shape.inputChannelsLast =
      inputLast || (weightLast && footprint::isChannelsLast(*input));
  shape.weightChannelsLast =
      weightLast || (inputLast && footprint::isChannelsLast(*weight));
  if (input->dims.size() > 4 &&
      (shape.inputChannelsLast || shape.weightChannelsLast))
    return rule.setInexact("no workspace rule for channels-last volumes");
  CpuTarget target;
  target.threads = rule.getTarget().threads;
  target.isa = rule.getTarget().isa;
  target.l1Bytes = rule.getTarget().l1Bytes;
  target.l2Bytes = rule.getTarget().l2Bytes;
  if (!isCountable(shape, target.threads))
    return rule.setInexact("the convolution is too large to count");
  Workspace workspace = convolutionWorkspace(shape, target);
  rule.setTransient(workspace.bytes + getStridedBytes(*input, *weight));
  if (!workspace.exact)
    rule.setBound("the convolution's workspace is an upper bound for this "
                  "case on '" +
                  target.isa + "'");
}
