//===- Pool.cpp - What a pool holds inside --------------------------------===//
//
// Sources: native/Pooling.cpp, native/AdaptiveAveragePooling.cpp and the
// kernels in native/cpu.
//
//===----------------------------------------------------------------------===//

#include "../Models.h"
#include "Backward/PoolBackward.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/PoolOps.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// As an image of height one, `[N, C, L]` as `[N, C, 1, L]`.
static ConcreteTensor asImage(const ConcreteTensor &line) {
  return unsqueeze(line, static_cast<int64_t>(line.dims.size()) - 1);
}

/// max_pool calls max_pool_with_indices, and drops the int64 indices.
static int64_t getIndexBytes(const ConcreteTensor &result) {
  return countBytes(result,
                    IntegerType::get(result.elementType.getContext(), 64));
}

namespace {
/// A pool with numbers for its shapes.
struct Pooled : InputAndResult {
  /// Whether one element is left of each of the last `rank` dims.
  bool isMean(size_t rank) const {
    return llvm::all_of(ArrayRef(result.dims).take_back(rank),
                        [](int64_t extent) { return extent == 1; });
  }
  /// An adaptive average of nothing reads nothing.
  bool isOfNothing() const {
    return result.numElements() == 0 && input.numElements() != 0;
  }
};
} // namespace

/// None, and the rule says so, if a shape is unknown.
static std::optional<Pooled> getPooled(WorkspaceRule &rule) {
  auto of = readInputAndResult(rule);
  return of ? std::optional(Pooled{*of}) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Maxima
//===----------------------------------------------------------------------===//

/// The indices, and the input in another layout.
static void traceMaxima(WorkspaceRule &rule, const ConcreteTensor &result,
                        int64_t copy) {
  AllocationTrace trace;
  trace.allocate(getIndexBytes(result));
  trace.allocate(copy);
  rule.setTrace(std::move(trace), 0);
}

static void describeMaxPool(WorkspaceRule &rule) {
  if (auto pooled = getPooled(rule))
    traceMaxima(rule, pooled->result, getSuggestedCopyBytes(pooled->input));
}

static void saveMaxPool(SavedRule &rule) {
  auto pooled = getPooled(rule);
  if (!pooled)
    return;
  saveDifferentiated(rule);
  rule.keep(getIndexBytes(pooled->result));
}

/// Rows, without indices.
static void describeMaxPool1d(WorkspaceRule &rule) {
  auto pooled = getPooled(rule);
  if (!pooled)
    return;
  AllocationTrace trace;
  allocateContiguous(trace, pooled->input);
  rule.setTrace(std::move(trace), 0);
}

/// By way of two dims, which without a gradient it is not. Then the result may
/// have channels last, which its shape does not say: what follows from the
/// strides is not known block by block.
static void saveMaxPool1d(SavedRule &rule) {
  auto pooled = getPooled(rule);
  if (!pooled)
    return;
  saveDifferentiated(rule);
  ConcreteTensor image = asImage(pooled->input);
  traceMaxima(rule, pooled->result, getSuggestedCopyBytes(image));
  if (!pooled->input.contiguous && suggestsChannelsLast(image))
    rule.setTransient(rule.getTransient());
  rule.keep(getIndexBytes(pooled->result));
}

static void describeMaxUnpool(WorkspaceRule &rule) {
  auto pooled = getPooled(rule);
  auto indices = rule.tensor(rule.getOp()->getOperand(1));
  if (!pooled)
    return;
  if (!indices)
    return rule.setInexact("the shape of the indices is unknown");
  AllocationTrace trace;
  trace.allocate(getSuggestedCopyBytes(pooled->input));
  trace.allocate(getSuggestedCopyBytes(*indices));
  rule.setTrace(std::move(trace), 0);
}

//===----------------------------------------------------------------------===//
// Copies of the input
//===----------------------------------------------------------------------===//

static void copyLine(WorkspaceRule &rule) {
  if (auto pooled = getPooled(rule))
    rule.setTransient(getSuggestedCopyBytes(asImage(pooled->input)));
}

static void copyImage(WorkspaceRule &rule) {
  if (auto pooled = getPooled(rule))
    rule.setTransient(getSuggestedCopyBytes(pooled->input));
}

/// Without a batch, four dims are no image in channels-last.
static void copyVolume(WorkspaceRule &rule) {
  if (auto pooled = getPooled(rule))
    rule.setTransient(pooled->input.dims.size() == 4
                          ? getCopyBytes(pooled->input)
                          : getSuggestedCopyBytes(pooled->input));
}

//===----------------------------------------------------------------------===//
// Adaptive averages
//===----------------------------------------------------------------------===//

/// The kernel for images.
static void describePlainAdaptive(WorkspaceRule &rule) {
  auto pooled = getPooled(rule);
  if (pooled && !pooled->isOfNothing())
    rule.setTransient(getSuggestedCopyBytes(pooled->input));
}

/// A mean where one element of each of `Rank` dims is left. Else lines and
/// images are copied; the kernel for volumes reads any strides.
template <size_t Rank>
static void describeAdaptive(WorkspaceRule &rule) {
  auto pooled = getPooled(rule);
  if (!pooled || (Rank < 3 && pooled->isOfNothing()))
    return;
  const auto &[input, result] = *pooled;
  if (!pooled->isMean(Rank))
    return rule.setTransient(Rank == 1   ? getSuggestedCopyBytes(asImage(input))
                             : Rank == 2 ? getSuggestedCopyBytes(input)
                                         : 0);
  if (isa<ComplexType>(result.elementType))
    return rule.setInexact("a mean of complex numbers");
  AllocationTrace trace;
  allocateMean(rule, trace, input, result);
  rule.setTrace(std::move(trace));
}

/// A mean reads nothing again.
template <size_t Rank>
static void saveAdaptive(SavedRule &rule) {
  if (auto pooled = getPooled(rule); pooled && !pooled->isMean(Rank))
    saveDifferentiated(rule);
}

void kernels::addAdaptiveAverageModels(KernelLibrary &library) {
  library.add<AdaptiveAvgPool1dOp>(
      {describeAdaptive<1>, saveAdaptive<1>,
       rules::describeLineAdaptiveAveragesBackward});
  library.add<AdaptiveAvgPool2dOp>(
      {describeAdaptive<2>, saveAdaptive<2>,
       rules::describeImageAdaptiveAveragesBackward});
  library.add<AdaptiveAvgPool3dOp>(
      {describeAdaptive<3>, saveAdaptive<3>,
       rules::describeVolumeAdaptiveAveragesBackward});
}

void kernels::addPoolModels(KernelLibrary &library) {
  addAdaptiveAverageModels(library);
  library.add<AdaptiveMaxPool1dOp>(
      {.forward = copyLine,
       .backward = rules::describeLineAdaptiveMaximaBackward});
  library.add<AdaptiveMaxPool2dOp>(
      {.forward = copyImage,
       .backward = rules::describeImageAdaptiveMaximaBackward});
  library.add<AdaptiveMaxPool3dOp>(
      {.forward = allocateNothing,
       .backward = rules::describeVolumePoolBackward});
  library.add<AvgPool1dOp>(
      {.forward = copyLine, .backward = rules::describeLineAveragesBackward});
  library.add<AvgPool2dOp>(
      {.forward = copyImage, .backward = rules::describeImageAveragesBackward});
  library.add<AvgPool3dOp>(
      {.forward = copyVolume, .backward = rules::describeVolumePoolBackward});
  library.add<MaxPool1dOp>(
      {describeMaxPool1d, saveMaxPool1d, rules::describeLineMaximaBackward});
  library.add<MaxPool1dWithIndicesOp>(
      {.forward = copyLine, .backward = rules::describeLineMaximaBackward});
  library.add<MaxPool2dOp>(
      {describeMaxPool, saveMaxPool, rules::describeImageMaximaBackward});
  library.add<MaxPool2dWithIndicesOp>(
      {.forward = copyImage, .backward = rules::describeImageMaximaBackward});
  library.add<MaxPool3dOp>(
      {describeMaxPool, saveMaxPool, rules::describeVolumePoolBackward});
  library.add<MaxPool3dWithIndicesOp>(
      {.forward = copyImage, .backward = rules::describeVolumePoolBackward});
  library.add<MaxUnpool2dOp, MaxUnpool3dOp>({.forward = describeMaxUnpool});
  library.add<PlainAdaptiveAvgPool2dOp>({.forward = describePlainAdaptive});
  library.add<PlainAdaptiveAvgPool3dOp>({.forward = allocateNothing});
}
