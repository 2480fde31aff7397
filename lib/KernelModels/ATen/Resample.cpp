//===- Resample.cpp - What interpolation holds inside ---------------------===//
//
// Sources: native/cpu/UpSampleKernel.cpp, native/GridSampler.cpp.
//
//===----------------------------------------------------------------------===//

#include "../WorkspaceRules.h"
#include "Backward/BackwardFormulas.h"
#include "Backward/BackwardReplay.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/ResampleOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// Of a row or column, as int64.
static constexpr int64_t kPlaceBytes = 8;

/// What the elements of a list of tensors have goes from the first on.
static void freeInOrder(AllocationTrace &trace,
                        ArrayRef<AllocationTrace::Block> blocks) {
  for (AllocationTrace::Block block : blocks)
    trace.free(block);
}

/// Every row and column of the result has its `points` places in the input,
/// as int64, and their weights.
static void describeTables(WorkspaceRule &rule, const ConcreteTensor &result,
                           int64_t points) {
  AllocationTrace trace;
  SmallVector<AllocationTrace::Block> tables;
  for (int64_t extent : ArrayRef(result.dims).drop_front(2))
    for (int64_t point = 0; point < points; ++point)
      for (int64_t size : {kPlaceBytes, getElementBytes(result.elementType)})
        tables.push_back(trace.allocate(extent * size));
  freeInOrder(trace, tables);
  rule.setTrace(std::move(trace));
}

/// A channels-last kernel, on copies where the tensors are not.
static void describeChannelsLast(WorkspaceRule &rule,
                                 const ConcreteTensor &input,
                                 const ConcreteTensor &result) {
  AllocationTrace trace;
  trace.allocate(getChannelsLastCopyBytes(input));
  trace.allocate(getChannelsLastCopyBytes(result));
  rule.setTrace(std::move(trace), 0);
}

/// nearest (one point) and linear (two points) interpolation of images.
/// Source: _use_vectorized_kernel_cond_2d.
static void describeImage(WorkspaceRule &rule, const ConcreteTensor &input,
                          const ConcreteTensor &result, int64_t points) {
  constexpr int64_t kMostSmall = 128, kFewChannels = 3;
  int64_t channels = input.dims[1];
  // One thread takes that kernel also for the three channels of colours
  // (measured).
  bool isColor =
      points == 2 && channels == kFewChannels && rule.getTarget().threads == 1;
  bool vectorized = (isChannelsLast(input) && channels > kFewChannels) ||
                    result.dims[2] + result.dims[3] <= kMostSmall || isColor;
  if (vectorized)
    return describeChannelsLast(rule, input, result);
  describeTables(rule, result, points);
}

static void describeVolume(WorkspaceRule &rule, const ConcreteTensor &input,
                           const ConcreteTensor &result, int64_t points) {
  if (isChannelsLast(input) && input.dims[1] > 3)
    return describeChannelsLast(rule, input, result);
  describeTables(rule, result, points);
}

/// The places of all points with a one, into which a line for each dim is
/// copied. Source: native/AffineGridGenerator.cpp.
static ConcreteTensor makePlaces(AllocationTrace &trace, Operation *op,
                                 const ConcreteTensor &grid) {
  bool aligned = op->getAttrOfType<BoolAttr>("align_corners").getValue();
  int64_t size = getElementBytes(grid.elementType);
  ConcreteTensor places = grid;
  places.contiguous = true;
  places.strides.reset();
  if (grid.dims.back() != 0)
    ++places.dims.back();
  trace.allocate(places.numBytes());
  // The columns first.
  for (int64_t extent :
       llvm::reverse(ArrayRef(grid.dims).drop_front().drop_back())) {
    int64_t line = std::max<int64_t>(extent, 1) * size;
    SmallVector<AllocationTrace::Block> lines{trace.allocate(line)};
    // The line is multiplied and divided by a number, a 0-dim tensor that is
    // cast.
    int64_t scales = !aligned && extent > 1 ? 2 : 0;
    for (int64_t scale = 0; scale < scales; ++scale) {
      auto number = trace.allocate(kPlaceBytes), cast = trace.allocate(size);
      lines.push_back(trace.allocate(line));
      trace.free(cast);
      trace.free(number);
    }
    freeInOrder(trace, lines);
  }
  return places;
}

/// Then a product with the matrices.
static void describeAffineGrid(WorkspaceRule &rule,
                               const ConcreteTensor &grid) {
  if (!grid.elementType.isF32() && !grid.elementType.isF64())
    return rule.setInexact("a grid of another type than float32 or float64");
  Value theta = rule.getOp()->getOperand(0);
  if (auto matrices = rule.tensor(theta); !matrices || !matrices->contiguous)
    return rule.setInexact("a grid of strided matrices");
  AllocationTrace trace;
  makePlaces(trace, rule.getOp(), grid);
  trace.allocate(grid.numBytes());
  rule.setTrace(std::move(trace), grid.numBytes());
}

/// The extent of the window of input that a row or column of the result reads.
/// Source: area_pixel_compute_scale in native/UpSample.h, and
/// _compute_index_ranges_weights in native/cpu/UpSampleKernel.cpp, whose
/// numbers are those of the tensor.
template <typename Number>
static int64_t getWindow(int64_t input, int64_t result, int64_t points,
                         bool alignsCorners, std::optional<double> factor) {
  Number scale = factor && *factor > 0 ? static_cast<Number>(1 / *factor)
                                       : static_cast<Number>(input) / result;
  if (alignsCorners)
    scale = result > 1 ? static_cast<Number>(input - 1) / (result - 1) : 0;
  Number reach = scale >= 1 ? points * Number(0.5) * scale : points * 0.5;
  return static_cast<int64_t>(std::ceil(reach)) * 2 + 1;
}

/// Columns first, into a tensor of their own where rows follow; each dim has
/// four numbers and a window of weights for each row or column. Source:
/// separable_upsample_generic_Nd_kernel_impl in native/cpu/UpSampleKernel.cpp.
static void describeAntialias(WorkspaceRule &rule, const ConcreteTensor &input,
                              const ConcreteTensor &result, int64_t points,
                              bool alignsCorners,
                              ArrayRef<std::optional<double>> factors) {
  bool isSingle = result.elementType.isF32();
  if (!isSingle && !result.elementType.isF64())
    return rules::describeUnknownWorkspace(rule);
  AllocationTrace trace;
  int64_t between = 0;
  for (size_t dim : {3, 2}) {
    int64_t from = input.dims[dim], to = result.dims[dim];
    if (from == to)
      continue;
    if (dim == 3 && input.dims[2] != result.dims[2]) {
      between = input.numBytes() / from * to;
      trace.allocate(between);
    }
    auto window = isSingle ? getWindow<float> : getWindow<double>;
    int64_t weights =
        window(from, to, points, alignsCorners, factors[dim - 2]) *
        getElementBytes(result.elementType);
    SmallVector<AllocationTrace::Block> tables;
    for (int64_t size :
         {kPlaceBytes, kPlaceBytes, kPlaceBytes, weights, kPlaceBytes})
      tables.push_back(trace.allocate(to * size));
    freeInOrder(trace, tables);
  }
  trace.free(between);
  rule.setTrace(std::move(trace), 0);
}

template <typename ResizeToOp>
static void describeAntialiasTo(WorkspaceRule &rule,
                                const ConcreteTensor &input,
                                const ConcreteTensor &result, ResizeToOp op,
                                int64_t points) {
  auto read = [](std::optional<APFloat> scale) -> std::optional<double> {
    return scale ? std::optional(scale->convertToDouble()) : std::nullopt;
  };
  describeAntialias(rule, input, result, points, op.getAlignCorners(),
                    {read(op.getScalesH()), read(op.getScalesW())});
}

template <typename ResizeByOp>
static void describeAntialiasBy(WorkspaceRule &rule,
                                const ConcreteTensor &input,
                                const ConcreteTensor &result, ResizeByOp op,
                                int64_t points) {
  SmallVector<std::optional<double>> factors(2);
  if (auto given = op.getScaleFactors())
    factors.assign(given->begin(), given->end());
  describeAntialias(rule, input, result, points, op.getAlignCorners(), factors);
}

void rules::describeResampleWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto result = rule.tensor(op->getResult(0));
  if (!input || !result)
    return rule.setInexact("a shape of the operator is unknown");
  if (isa<AffineGridOp>(op))
    return describeAffineGrid(rule, *result);
  if (input->numElements() == 0 || result->numElements() == 0)
    return;
  bool isFloat = isa<FloatType>(result->elementType);
  llvm::TypeSwitch<Operation *>(op)
      .Case<GridSamplerAnyOp, GridSampler2dOp, GridSampler3dOp>([](auto) {})
      .Case<UpsampleBilinear2dAaOp>(
          [&](auto op) { describeAntialiasTo(rule, *input, *result, op, 2); })
      .Case<UpsampleBicubic2dAaOp>(
          [&](auto op) { describeAntialiasTo(rule, *input, *result, op, 4); })
      .Case<UpsampleBilinear2dAaVecOp>(
          [&](auto op) { describeAntialiasBy(rule, *input, *result, op, 2); })
      .Case<UpsampleBicubic2dAaVecOp>(
          [&](auto op) { describeAntialiasBy(rule, *input, *result, op, 4); })
      .Default([&](Operation *) {
        StringRef name = op->getName().stripDialect();
        if (!isFloat)
          return describeUnknownWorkspace(rule);
        int64_t points = name.contains("cubic")    ? 4
                         : name.contains("linear") ? 2
                                                   : 1;
        if (result->dims.size() == 4 && points < 4)
          return describeImage(rule, *input, *result, points);
        if (result->dims.size() == 5)
          return describeVolume(rule, *input, *result, points);
        describeTables(rule, *result, points);
      });
}

/// Zeros for the input, and a tensor for the places. Of matrices: a product of
/// the places with the gradient, transposed.
void rules::describeGridBackward(BackwardRule &rule) {
  BackwardReplay steps(rule);
  ConcreteTensor gradient = steps.getGradient(), first = steps.read(0);
  if (!isPlain(gradient.elementType))
    return koila::detail::describeUnknownBackward(rule);
  if (isa<AffineGridOp>(rule.getOp())) {
    if (!gradient.contiguous)
      return koila::detail::describeUnknownBackward(rule);
    ConcreteTensor places = makePlaces(steps, rule.getOp(), gradient);
    steps.give(0,
               transposeDims(steps.allocate(transposeDims(first, 1, 2)), 1, 2),
               /*isViewed=*/true);
    steps.free(places);
    return steps.finish();
  }
  int64_t temporary = 0;
  for (unsigned operand : {0u, 1u})
    if (steps.wants(operand))
      steps.giveContiguous(operand);
    else if (operand == 1)
      temporary = steps.read(1).numBytes();
  // The kernel for images reads rows of the gradient, that for volumes strides.
  // Source: grid_sampler_2d_backward_cpu_kernel_impl.
  if (gradient.dims.size() == 4 && !gradient.contiguous)
    temporary += gradient.numBytes();
  steps.allocateTemporary(temporary);
  steps.finish();
}
