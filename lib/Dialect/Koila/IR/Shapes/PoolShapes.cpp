//===- PoolShapes.cpp - Rules of pools ------------------------------------===//

#include "../Rules/OperatorRules.h"
#include "../Rules/PoolRules.h"
#include "../Utils/Windows.h"

using namespace mlir;
using namespace koila;
using namespace koila::spatial;

static Value getSelf(ShapeRule &rule) { return rule.getOp()->getOperand(0); }

/// The results are alike; the second holds indices.
static void setResults(ShapeRule &rule, const TensorInfo &info) {
  rule.setResult(0, info);
  if (rule.getOp()->getNumResults() < 2)
    return;
  TensorInfo indices = info;
  indices.elementType = IntegerType::get(rule.getContext(), 64);
  rule.setResult(1, indices);
}

/// Refuses an extent of zero in one of the dims from `first` on.
static LogicalResult checkFilled(ShapeRule &rule, const TensorInfo &input,
                                 int64_t first) {
  for (int64_t dim = first; dim < input.getRank(); ++dim)
    if (input.dim(dim).isConstant(0))
      return rule.emitError() << "pools over an empty dim " << dim;
  return success();
}

/// What is pooled: a row of pixels stands for an image of height one.
static TensorInfo getImage(const TensorInfo &input, rules::PoolLayout layout) {
  return layout == rules::PoolLayout::AsImage
             ? unsqueeze(input, input.getRank() - 1)
             : input;
}

/// The result whose leading dims are those of `input`, the last `pooled`.
static TensorInfo makeResult(const TensorInfo &input, ArrayRef<DimExpr> pooled,
                             rules::PoolLayout layout) {
  SmallVector<DimExpr> dims(*input.dims);
  dims.truncate(input.getRank() - pooled.size());
  TriBool channelsLast = layout == rules::PoolLayout::RowMajor
                             ? TriBool::No
                             : suggestsChannelsLast(getImage(input, layout));
  bool image = layout == rules::PoolLayout::AsImage;
  if (image)
    dims.push_back(DimExpr::constant(dims.front().getContext(), 1));
  dims.append(pooled.begin(), pooled.end());
  // Only a batched image or volume can be channels-last.
  if (dims.size() != pooled.size() + 2 + image)
    channelsLast = TriBool::No;
  TensorInfo result = makeImage(dims, input.elementType, channelsLast);
  return image ? squeeze(result, dims.size() - 2) : result;
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

namespace {
/// One spatial dim of a window; null entries are unknown.
struct Window {
  DimExpr kernel, stride, padding, dilation;

  bool isKnown() const { return kernel && stride && padding && dilation; }
};
} // namespace

/// Source: pooling_output_shape in aten/src/ATen/native/Pool.h.
static DimExpr getExtent(DimExpr in, const Window &window, bool ceilMode) {
  if (!window.isKnown())
    return {};
  DimExpr reach = window.dilation * (window.kernel - 1);
  DimExpr span = in + window.padding * 2 - reach - 1;
  if (!ceilMode)
    return span.floorDiv(window.stride) + 1;
  DimExpr out = (span + window.stride - 1).floorDiv(window.stride) + 1;
  // The last window starts inside the input or its left padding.
  return out.min((in + window.padding - 1).floorDiv(window.stride) + 1);
}

LogicalResult rules::inferWindowPool(ShapeRule &rule, Pool pool) {
  Operation *op = rule.getOp();
  TensorInfo input = rule.tensor(getSelf(rule));
  int64_t rank = pool.spatialRank;
  TensorInfo result;
  result.elementType = input.elementType;
  setResults(rule, result);
  auto divisor = op->getAttrOfType<IntegerAttr>("divisor_override");
  if (divisor && divisor.getInt() == 0)
    return rule.emitError() << "divisor_override is zero";
  auto kernel = readEntries(rule, "kernel_size", rank, 1);
  if (failed(kernel))
    return failure();
  auto stride = readEntries(rule, "stride", rank, 1, *kernel);
  auto padding = readEntries(rule, "padding", rank, 0);
  if (failed(stride) || failed(padding))
    return failure();
  SmallVector<DimExpr> dilation(rank, rule.constant(1));
  if (rule.hasArgument("dilation")) {
    auto entries = readEntries(rule, "dilation", rank, 1);
    if (failed(entries))
      return failure();
    dilation = *entries;
  }
  if (failed(checkRank(rule, input, rank + 1, rank + 2)))
    return failure();
  for (auto [window, pad] : llvm::zip_equal(*kernel, *padding))
    if (window && pad && proveAtMost(pad * 2, window) == TriBool::No)
      return rule.emitError()
             << "padding " << pad.str() << " is more than half of kernel_size "
             << window.str();
  if (!input.hasRank())
    return success();
  bool batched = input.getRank() == rank + 2;
  if (failed(checkFilled(rule, input, batched)))
    return failure();
  // max_pool3d takes the strides of one volume for those of images
  // (max_pool3d_kernel in aten/src/ATen/native/cpu/MaxPoolKernel.cpp).
  if (rank == 3 && !batched && pool.layout == PoolLayout::AsInput &&
      suggestsChannelsLast(input) == TriBool::Yes)
    return rule.emitError() << "takes no volume without batch whose strides "
                            << "are channels-last";
  auto ceilMode = op->getAttrOfType<BoolAttr>("ceil_mode");
  SmallVector<DimExpr> pooled;
  for (int64_t index = 0; index < rank; ++index) {
    DimExpr in = input.dim(input.getRank() - rank + index);
    DimExpr size = (*kernel)[index];
    // pool3d_shape_check in aten/src/ATen/native/Pool.h forgets the padding.
    if (isa<AvgPool3dOp>(op) && size && proveAtMost(size, in) == TriBool::No)
      return rule.emitError() << "the window is larger than the input in "
                              << "spatial dim " << index;
    Window window = {size, (*stride)[index], (*padding)[index],
                     dilation[index]};
    DimExpr out = getExtent(in, window, ceilMode && ceilMode.getValue());
    if (auto extent = out ? out.getConstant() : std::nullopt;
        extent && *extent < 1)
      return rule.emitError() << "the window is larger than the padded input "
                              << "in spatial dim " << index;
    pooled.push_back(out);
  }
  setResults(rule, makeResult(input, pooled, pool.layout));
  return success();
}

//===----------------------------------------------------------------------===//
// Results of a given size
//===----------------------------------------------------------------------===//

/// The mean over the last dims, which stay with an extent of one. Also of
/// volumes, and of row-major layout otherwise.
static TensorInfo makeMean(const TensorInfo &input, ArrayRef<DimExpr> pooled,
                           rules::PoolLayout layout) {
  return makeResult(input, pooled,
                    layout == rules::PoolLayout::RowMajor
                        ? rules::PoolLayout::AsInput
                        : layout);
}

LogicalResult rules::inferAdaptivePool(ShapeRule &rule, Pool pool,
                                       AdaptivePool kind) {
  TensorInfo input = rule.tensor(getSelf(rule));
  int64_t rank = pool.spatialRank;
  TensorInfo result;
  result.elementType = input.elementType;
  setResults(rule, result);
  auto sizes = readSizes(rule, "output_size", rank, 0);
  if (failed(sizes))
    return failure();
  // An average over everything is computed as the mean, which is content with
  // as many dims as it reduces and with empty ones.
  bool mean = kind == AdaptivePool::AverageOrMean &&
              llvm::all_of(*sizes, [](DimExpr size) {
                return size && size.isConstant(1);
              });
  bool free = mean && rank > 1;
  if (failed(checkRank(rule, input, free ? rank : rank + 1,
                       free ? INT64_MAX : rank + 2)))
    return failure();
  if (!input.hasRank())
    return success();
  if (mean) {
    rule.setResult(0, makeMean(input, *sizes, pool.layout));
    return success();
  }
  // Averages over images look at the pooled dims, the others at all but the
  // first.
  bool images = kind != AdaptivePool::Max && rank < 3;
  if (failed(checkFilled(rule, input, images ? input.getRank() - rank : 1)))
    return failure();
  setResults(rule, makeResult(input, *sizes, pool.layout));
  return success();
}

//===----------------------------------------------------------------------===//
// The way back
//===----------------------------------------------------------------------===//

LogicalResult rules::inferMaxUnpool(ShapeRule &rule, int64_t rank) {
  TensorInfo input = rule.tensor(getSelf(rule));
  TensorInfo indices = rule.tensor(rule.getOp()->getOperand(1));
  TensorInfo result;
  result.elementType = input.elementType;
  rule.setResult(0, result);
  auto sizes = readSizes(rule, "output_size", rank, 0);
  if (failed(sizes))
    return failure();
  if (rule.hasArgument("stride")) {
    auto stride = readSizes(rule, "stride", rank, 1);
    auto padding = readSizes(rule, "padding", rank, -MostEntry);
    if (failed(stride) || failed(padding))
      return failure();
  }
  if (indices.elementType && !indices.elementType.isSignlessInteger(64))
    return rule.emitError()
           << "the indices are " << indices.elementType << ", not i64";
  if (failed(checkRank(rule, input, rank + 1, rank + 2)))
    return failure();
  if (input.hasRank() && indices.hasRank()) {
    bool differ = input.getRank() != indices.getRank();
    for (int64_t dim = 0; !differ && dim < input.getRank(); ++dim)
      differ = proveEqual(input.dim(dim), indices.dim(dim)) == TriBool::No;
    if (differ)
      return rule.emitError() << "the indices have another shape than the "
                              << "tensor";
  }
  if (!input.hasRank())
    return success();
  if (failed(checkFilled(rule, input, 1)))
    return failure();
  PoolLayout layout = rank == 2 ? PoolLayout::AsInput : PoolLayout::RowMajor;
  rule.setResult(0, makeResult(input, *sizes, layout));
  return success();
}

//===----------------------------------------------------------------------===//
// Batch
//===----------------------------------------------------------------------===//

void rules::inferPoolBatch(BatchRule &rule, int64_t spatialRank) {
  Operation *op = rule.getOp();
  BatchFact fact = rule.fact(op->getOperand(0));
  if (argumentsFollowBatch(rule))
    return rule.mix("the size of a pool depends on the number of samples");
  if (isa<MaxUnpool2dOp, MaxUnpool3dOp>(op) &&
      !(rule.fact(op->getOperand(1)) == fact))
    return rule.mix("the tensor and the indices do not have the batch in one "
                    "place");
  inferTrailingBatch(rule, op->getOperand(0), spatialRank);
  if (op->getNumResults() == 2)
    rule.setResult(1, rule.getResults().front());
}
