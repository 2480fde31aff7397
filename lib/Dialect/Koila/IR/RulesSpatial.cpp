//===- RulesSpatial.cpp - Rules of convolutions and pools -----------------===//

#include "koila/Analysis/ConvWorkspace.h"
#include "koila/Dialect/Koila/IR/KoilaConvolutionOps.h"
#include "koila/Dialect/Koila/IR/KoilaPoolOps.h"

using namespace mlir;
using namespace koila;

/// Entry `index` of an `int[n]` list that may hold a single value for all.
static int64_t listEntry(ArrayRef<int64_t> list, int64_t index,
                         int64_t fallback) {
  if (list.empty())
    return fallback;
  return list.size() == 1 ? list[0] : list[index];
}

static LogicalResult checkList(ShapeRule &rule, ArrayRef<int64_t> list,
                               int64_t rank, StringRef name, int64_t least) {
  if (list.size() > 1 && static_cast<int64_t>(list.size()) != rank)
    return rule.emitError() << name << " has " << list.size() << " entries for "
                            << rank << " spatial dims";
  for (int64_t entry : list)
    if (entry < least)
      return rule.emitError() << name << " " << entry << " is below " << least;
  return success();
}

/// The result's layout follows the input, or a channels-last weight.
static TensorInfo withLayout(ArrayRef<DimExpr> dims, Type type,
                             const TensorInfo &input) {
  if (input.isChannelsLast() == Proof::Yes)
    return TensorInfo::channelsLast(dims, type);
  TensorInfo info = TensorInfo::contiguous(dims, type);
  if (input.isContiguous() != Proof::Yes)
    info.strides.reset();
  return info;
}

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

LogicalResult rules::inferConvolution(ShapeRule &rule,
                                      const Convolution &conv) {
  TensorInfo input = rule.tensor(conv.input), weight = rule.tensor(conv.weight);
  TensorInfo result;
  result.elementType = input.elementType;
  if (input.elementType && weight.elementType &&
      input.elementType != weight.elementType)
    return rule.emitError() << "input is " << input.elementType
                            << ", the weight is " << weight.elementType;
  int64_t rank = conv.spatialRank;
  if (rank < 1 || rank > 3)
    return rule.emitError() << "convolves over 1, 2 or 3 spatial dims, got "
                            << rank << " strides";
  if (failed(checkList(rule, conv.stride, rank, "stride", 1)) ||
      failed(checkList(rule, conv.padding, rank, "padding", 0)) ||
      failed(checkList(rule, conv.dilation, rank, "dilation", 1)))
    return failure();
  if (conv.groups < 1)
    return rule.emitError() << "groups " << conv.groups << " is below 1";
  if (conv.transposed || !input.hasRank() || !weight.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  bool batched = input.getRank() == rank + 2;
  if (!batched && (input.getRank() != rank + 1 || !conv.allowsUnbatched))
    return rule.emitError()
           << "expects an input of rank " << rank + 2
           << (conv.allowsUnbatched
                   ? " (or " + std::to_string(rank + 1) + " without batch)"
                   : std::string())
           << ", got " << input.getRank();
  if (weight.getRank() != rank + 2)
    return rule.emitError() << "expects a weight of rank " << rank + 2
                            << ", got " << weight.getRank();
  auto channels = input.dim(batched ? 1 : 0).getConstant();
  auto perGroup = weight.dim(1).getConstant();
  auto outChannels = weight.dim(0).getConstant();
  if (channels && perGroup && *channels != *perGroup * conv.groups)
    return rule.emitError() << "the weight takes " << *perGroup * conv.groups
                            << " channels, the input has " << *channels;
  if (outChannels && *outChannels % conv.groups != 0)
    return rule.emitError() << *outChannels << " output channels do not divide "
                            << "into " << conv.groups << " groups";
  TensorInfo bias = rule.tensor(conv.bias);
  if (bias.hasRank() && outChannels) {
    auto count = bias.getRank() == 1 ? bias.dim(0).getConstant()
                                     : std::optional<int64_t>(-1);
    if (count && *count != *outChannels)
      return rule.emitError() << "the bias does not have one element for each "
                              << "of " << *outChannels << " output channels";
  }
  SmallVector<DimExpr> dims;
  if (batched)
    dims.push_back(input.dim(0));
  dims.push_back(weight.dim(0));
  for (int64_t index = 0; index < rank; ++index) {
    DimExpr in = input.dim(index + (batched ? 2 : 1));
    DimExpr kernel = weight.dim(index + 2);
    int64_t stride = listEntry(conv.stride, index, 1);
    int64_t padding = listEntry(conv.padding, index, 0);
    int64_t dilation = listEntry(conv.dilation, index, 1);
    DimExpr span = in + 2 * padding - (kernel - 1) * dilation - 1;
    if (auto extent = span.getConstant(); extent && *extent < 0)
      return rule.emitError() << "the kernel is larger than the padded input "
                              << "in spatial dim " << index;
    dims.push_back(span.floorDiv(stride) + 1);
  }
  result = weight.isChannelsLast() == Proof::Yes &&
                   input.isContiguous() == Proof::Yes && batched
               ? TensorInfo::channelsLast(dims, input.elementType)
               : withLayout(dims, input.elementType, input);
  rule.setResult(0, result);
  return success();
}

void rules::inferConvolutionBatch(BatchRule &rule, const Convolution &conv) {
  if (!rule.fact(conv.weight).isFree() || !rule.fact(conv.bias).isFree())
    return rule.mix("the weight of a convolution depends on the batch");
  TensorInfo input = rule.tensor(conv.input);
  if (!input.hasRank() || input.getRank() != conv.spatialRank + 2)
    return rule.mix("the batch is not dim 0 of a batched input");
  BatchFact fact = rule.fact(conv.input);
  if (fact.dim != 0)
    return rule.mix("the batch is a channel or spatial dim of a convolution");
  rule.setResult(0, fact);
}

void rules::describeConvolutionWorkspace(WorkspaceRule &rule,
                                         const Convolution &conv) {
  auto input = rule.tensor(conv.input), weight = rule.tensor(conv.weight);
  if (!input || !weight)
    return rule.setInexact("a shape of the convolution is unknown");
  if (conv.transposed || !input->elementType.isF32())
    return rule.setInexact("no workspace rule for a transposed or non-float32 "
                           "convolution");
  ConvolutionShape shape;
  shape.input.assign(input->dims.begin(), input->dims.end());
  shape.weight.assign(weight->dims.begin(), weight->dims.end());
  // PyTorch runs an unbatched input as a batch of one.
  if (input->dims.size() + 1 == weight->dims.size())
    shape.input.insert(shape.input.begin(), 1);
  for (int64_t index = 0; index < conv.spatialRank; ++index) {
    shape.stride.push_back(listEntry(conv.stride, index, 1));
    shape.padding.push_back(listEntry(conv.padding, index, 0));
    shape.dilation.push_back(listEntry(conv.dilation, index, 1));
  }
  shape.groups = conv.groups;
  shape.hasBias = static_cast<bool>(conv.bias);
  shape.inputChannelsLast = input->channelsLast;
  shape.weightChannelsLast = weight->channelsLast;
  CpuTarget target;
  target.threads = rule.getTarget().threads;
  target.isa = rule.getTarget().isa;
  target.l1Bytes = rule.getTarget().l1Bytes;
  target.l2Bytes = rule.getTarget().l2Bytes;
  Workspace workspace = convolutionWorkspace(shape, target);
  rule.setTransient(workspace.bytes);
  if (!workspace.exact)
    rule.setInexact("the convolution's workspace is an upper bound for this "
                    "case on '" +
                    target.isa + "'");
  else if (!input->contiguous && !input->channelsLast)
    rule.setInexact("the input of the convolution is not contiguous");
}

//===----------------------------------------------------------------------===//
// Pools
//===----------------------------------------------------------------------===//

LogicalResult
rules::inferWindowPool(ShapeRule &rule, Value self, ArrayRef<int64_t> kernel,
                       ArrayRef<int64_t> stride, ArrayRef<int64_t> padding,
                       ArrayRef<int64_t> dilation, bool ceilMode) {
  TensorInfo input = rule.tensor(self);
  TensorInfo result;
  result.elementType = input.elementType;
  if (kernel.empty())
    return rule.emitError() << "needs a kernel_size";
  if (failed(checkList(rule, kernel, 2, "kernel_size", 1)) ||
      failed(checkList(rule, stride, 2, "stride", 1)) ||
      failed(checkList(rule, padding, 2, "padding", 0)) ||
      failed(checkList(rule, dilation, 2, "dilation", 1)))
    return failure();
  if (!input.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  if (input.getRank() != 3 && input.getRank() != 4)
    return rule.emitError() << "expects rank 3 or 4, got " << input.getRank();
  for (int64_t dim = input.getRank() - 3; dim < input.getRank(); ++dim)
    if (input.dim(dim).isConstant(0))
      return rule.emitError() << "pools over an empty dim " << dim;
  SmallVector<DimExpr> dims(input.dims->begin(), input.dims->end() - 2);
  for (int64_t index = 0; index < 2; ++index) {
    int64_t window = listEntry(kernel, index, 1);
    int64_t step = listEntry(stride, index, window);
    int64_t pad = listEntry(padding, index, 0);
    int64_t dilate = listEntry(dilation, index, 1);
    if (pad * 2 > dilate * (window - 1) + 1)
      return rule.emitError() << "padding " << pad
                              << " is more than half of kernel_size " << window;
    DimExpr in = input.dim(input.getRank() - 2 + index);
    DimExpr span = in + 2 * pad - dilate * (window - 1) - 1;
    DimExpr out = (span + (ceilMode ? step - 1 : 0)).floorDiv(step) + 1;
    auto extent = out.getConstant();
    if (ceilMode && !extent) {
      rule.setResult(0, result); // The correction below needs a number.
      return success();
    }
    // The last window must start inside the input or its left padding.
    if (ceilMode && (*extent - 1) * step >= *in.getConstant() + pad)
      out = out - 1;
    if (auto final = out.getConstant(); final && *final < 1)
      return rule.emitError() << "the window is larger than the padded input "
                              << "in spatial dim " << index;
    dims.push_back(out);
  }
  rule.setResult(0, withLayout(dims, input.elementType, input));
  return success();
}

LogicalResult rules::inferAdaptivePool(ShapeRule &rule, Value self,
                                       ArrayRef<int64_t> outputSize) {
  TensorInfo input = rule.tensor(self);
  TensorInfo result;
  result.elementType = input.elementType;
  if (outputSize.size() != 2)
    return rule.emitError()
           << "output_size needs two entries, got " << outputSize.size();
  for (int64_t size : outputSize)
    if (size < 0)
      return rule.emitError() << "output_size " << size << " is negative";
  if (!input.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  if (input.getRank() != 3 && input.getRank() != 4)
    return rule.emitError() << "expects rank 3 or 4, got " << input.getRank();
  SmallVector<DimExpr> dims(input.dims->begin(), input.dims->end() - 2);
  for (int64_t size : outputSize)
    dims.push_back(rule.constant(size));
  rule.setResult(0, withLayout(dims, input.elementType, input));
  return success();
}

void rules::inferTrailingBatch(BatchRule &rule, Value self, int64_t trailing) {
  TensorInfo input = rule.tensor(self);
  BatchFact fact = rule.fact(self);
  if (!input.hasRank() || input.getRank() <= trailing || fact.dim != 0)
    return rule.mix("the batch is a channel or spatial dim of a pool");
  rule.setResult(0, fact);
}

void rules::describeMaxPoolWorkspace(WorkspaceRule &rule, Value self,
                                     Value result) {
  auto output = rule.tensor(result);
  if (!output)
    return rule.setInexact("the shape of the result is unknown");
  // max_pool2d calls max_pool2d_with_indices, whose int64 indices are dropped
  // (aten/src/ATen/native/Pooling.cpp).
  rule.setTransient(output->numElements() * 8);
}

void rules::describePoolWorkspace(WorkspaceRule &, Value) {}

void rules::describeAdaptivePoolWorkspace(WorkspaceRule &rule, Value self,
                                          ArrayRef<int64_t> outputSize) {
  auto input = rule.tensor(self);
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  if (!llvm::all_of(outputSize, [](int64_t size) { return size == 1; }))
    return;
  auto output = rule.tensor(rule.getOp()->getResult(0));
  if (!output)
    return rule.setInexact("the shape of the result is unknown");
  rule.setTransient(getMeanTransient(rule, *input, *output));
  if (input->elementType.isF64())
    rule.setTransient(16);
  if (isa<Float16Type, BFloat16Type>(input->elementType))
    // Computed in float32, the sum and then the mean.
    rule.setTransient(4 * output->numElements() +
                      std::max(4 * input->numElements(), rule.getTransient()));
  if (!input->elementType.isF32() && !input->elementType.isF64())
    rule.setInexact("adaptive_avg_pool2d of another type than float32 or "
                    "float64");
}

int64_t rules::getMeanTransient(const WorkspaceRule &rule,
                                const ConcreteTensor &input,
                                const ConcreteTensor &result) {
  // The divisor: a 0-dim tensor of eight bytes and its cast. A reduction to
  // one element over threads keeps a partial result each (measured; see
  // docs/Workspaces.md).
  constexpr int64_t kDivisorBytes = 12, kParallelElements = 32768;
  int64_t threads = rule.getTarget().threads;
  if (result.numElements() == 1 && threads > 1 &&
      input.numElements() >= kParallelElements)
    return std::max<int64_t>(kDivisorBytes, 4 * threads);
  return kDivisorBytes;
}
