//===- Resample.cpp - What interpolation holds inside ---------------------===//
//
// Sources: native/cpu/UpSampleKernel.cpp, native/GridSampler.cpp.
//
//===----------------------------------------------------------------------===//

#include "../BackwardRules.h"
#include "Backward/BackwardModels.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/ResampleOps.h"
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
static void describeAffineGrid(WorkspaceRule &rule) {
  auto matrices = rule.tensor(rule.getOp()->getOperand(0));
  auto grid = rule.tensor(rule.getOp()->getResult(0));
  if (!matrices || !grid)
    return rule.setInexact("a shape of the operator is unknown");
  if (!grid->elementType.isF32() && !grid->elementType.isF64())
    return rule.setInexact("a grid of another type than float32 or float64");
  if (!matrices->contiguous)
    return rule.setInexact("a grid of strided matrices");
  AllocationTrace trace;
  makePlaces(trace, rule.getOp(), *grid);
  trace.allocate(grid->numBytes());
  rule.setTrace(std::move(trace), grid->numBytes());
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
    return rule.setInexact("an interpolation without aliasing of another type "
                           "than float32 and float64");
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

/// None if nothing is computed, or if a shape is unknown, and then the rule
/// says so.
static std::optional<InputAndResult> getInterpolation(WorkspaceRule &rule) {
  auto of = readInputAndResult(rule);
  if (of && of->input.numElements() != 0 && of->result.numElements() != 0)
    return of;
  return std::nullopt;
}

/// To a size, of `points` elements along each dim.
template <typename OpT, int64_t Points>
static void describeAntialiasTo(WorkspaceRule &rule) {
  auto op = cast<OpT>(rule.getOp());
  auto of = getInterpolation(rule);
  auto read = [](std::optional<APFloat> scale) -> std::optional<double> {
    return scale ? std::optional(scale->convertToDouble()) : std::nullopt;
  };
  if (of)
    describeAntialias(rule, of->input, of->result, Points, op.getAlignCorners(),
                      {read(op.getScalesH()), read(op.getScalesW())});
}

/// By factors.
template <typename OpT, int64_t Points>
static void describeAntialiasBy(WorkspaceRule &rule) {
  auto op = cast<OpT>(rule.getOp());
  auto of = getInterpolation(rule);
  SmallVector<std::optional<double>> factors(2);
  if (auto given = op.getScaleFactors())
    factors.assign(given->begin(), given->end());
  if (of)
    describeAntialias(rule, of->input, of->result, Points, op.getAlignCorners(),
                      factors);
}

/// Of `Points` elements along each dim: nearest (1), linear (2), cubic (4).
template <int64_t Points>
static void describeInterpolation(WorkspaceRule &rule) {
  auto of = getInterpolation(rule);
  if (!of)
    return;
  const auto &[input, result] = *of;
  if (!isa<FloatType>(result.elementType))
    return rule.setInexact("an interpolation of integers");
  if (result.dims.size() == 4 && Points < 4)
    return describeImage(rule, input, result, Points);
  if (result.dims.size() == 5)
    return describeVolume(rule, input, result, Points);
  describeTables(rule, result, Points);
}

/// A product of the places with the gradient, transposed.
static void describeMatrixGradient(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor gradient = steps.getGradient(), first = steps.read(0);
  if (!isPlain(gradient.elementType) || !gradient.contiguous)
    return koila::detail::describeUnknownBackward(rule);
  ConcreteTensor places = makePlaces(steps, rule.getOp(), gradient);
  steps.give(0, transposeDims(steps.allocate(transposeDims(first, 1, 2)), 1, 2),
             /*isViewed=*/true);
  steps.free(places);
}

/// Zeros for the input, and a tensor for the places.
static void describeSampleGradient(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor gradient = steps.getGradient();
  if (!isPlain(gradient.elementType))
    return koila::detail::describeUnknownBackward(rule);
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
}

void kernels::addResampleModels(KernelLibrary &library) {
  library.add<AffineGridOp>({.forward = describeAffineGrid,
                             .backward = ofGradient<describeMatrixGradient>});
  library.add<GridSampler2dOp, GridSampler3dOp, GridSamplerAnyOp>(
      {.forward = allocateNothing,
       .backward = ofGradient<describeSampleGradient>});
  auto backward = rules::describeResampleBackward;
  library.add<UpsampleBicubic2dAaOp>(
      {.forward = describeAntialiasTo<UpsampleBicubic2dAaOp, 4>,
       .backward = backward});
  library.add<UpsampleBicubic2dAaVecOp>(
      {.forward = describeAntialiasBy<UpsampleBicubic2dAaVecOp, 4>,
       .backward = backward});
  library.add<UpsampleBicubic2dOp, UpsampleBicubic2dVecOp>(
      {.forward = describeInterpolation<4>, .backward = backward});
  library.add<UpsampleBilinear2dAaOp>(
      {.forward = describeAntialiasTo<UpsampleBilinear2dAaOp, 2>,
       .backward = backward});
  library.add<UpsampleBilinear2dAaVecOp>(
      {.forward = describeAntialiasBy<UpsampleBilinear2dAaVecOp, 2>,
       .backward = backward});
  library.add<UpsampleBilinear2dOp, UpsampleBilinear2dVecOp, UpsampleLinear1dOp,
              UpsampleLinear1dVecOp, UpsampleTrilinear3dOp,
              UpsampleTrilinear3dVecOp>(
      {.forward = describeInterpolation<2>, .backward = backward});
  library
      .add<UpsampleNearest1dOp, UpsampleNearest1dVecOp, UpsampleNearest2dOp,
           UpsampleNearest2dVecOp, UpsampleNearest3dOp, UpsampleNearest3dVecOp,
           UpsampleNearestExact1dOp, UpsampleNearestExact1dVecOp,
           UpsampleNearestExact2dOp, UpsampleNearestExact2dVecOp,
           UpsampleNearestExact3dOp, UpsampleNearestExact3dVecOp>(
          {.forward = describeInterpolation<1>, .backward = backward});
}
