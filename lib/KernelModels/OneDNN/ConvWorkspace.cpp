//===- ConvWorkspace.cpp - Hidden bytes of a CPU convolution --------------===//
//
// Which implementation serves a float32 convolution, and which buffers it
// allocates. docs/design/Workspaces.md says the same in prose.
//
//===----------------------------------------------------------------------===//

#include "ConvWorkspace.h"
#include "../ATen/TensorBytes.h"
#include "ConvGeometry.h"
#include "ConvolutionCall.h"
#include "HalfConv/HalfConv.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>
#include <cassert>
#include <optional>

using namespace koila;
using namespace koila::conv;

//===----------------------------------------------------------------------===//
// PyTorch's own kernels
//===----------------------------------------------------------------------===//

/// Whether PyTorch hands the convolution to oneDNN (ConvParams::use_mkldnn).
static bool usesOneDnn(const Geometry &g, const ConvolutionShape &shape) {
  if (shape.transposed)
    for (size_t axis = 0; axis < shape.outputPadding.size(); ++axis)
      if (shape.outputPadding[axis] >=
          shape.stride[std::min(axis, shape.stride.size() - 1)])
        return false;
  // A plain pointwise convolution of a small batch on one thread is a matrix
  // product already.
  if (!g.isStrided() && !g.isDilated() && g.batch < 16 && g.kernelH == 1 &&
      g.kernelW == 1 && g.threads <= 1)
    return false;
  // A single small image is left to im2col unless its kernel is large. Of a
  // volume the last extent is not counted.
  int64_t pixels = g.isVolume ? g.inputD * g.inputH : g.inputH * g.inputW;
  return g.groups > 1 || (g.kernelH > 3 && g.kernelW > 3) || g.batch > 1 ||
         g.batch * g.inputChannels() * pixels > 20480;
}

/// Group after group: `computeGroup` leaves the result of one, and all are then
/// joined by a concatenation. A group's channels are contiguous in one image
/// only; else they are copied. Source: _convolution in native/Convolution.cpp.
static void
allocateGroups(AllocationTrace &trace, const Geometry &g, bool slices,
               llvm::function_ref<AllocationTrace::Block()> computeGroup) {
  if (g.groups == 1) {
    computeGroup();
    return;
  }
  llvm::SmallVector<AllocationTrace::Block> results;
  for (int64_t group = 0; group < g.groups; ++group) {
    auto input = trace.allocate(slices ? g.inputBytes() / g.groups : 0);
    results.push_back(computeGroup());
    trace.free(input);
  }
  trace.allocate(g.outputBytes());
  for (AllocationTrace::Block result : results)
    trace.free(result);
}

/// im2col and a matrix product.
static Workspace slowConvolution(const Geometry &g, bool channelsLast) {
  int64_t columns =
      g.groupInput * g.kernelArea() * g.outputArea() * g.elementBytes;
  bool reads =
      g.isPointwise() && !g.isStrided() && !g.isPadded() && !g.isDilated();
  AllocationTrace trace;
  auto unfoldBatch = [&](int64_t unfolded, int64_t output) {
    auto block = trace.allocate(unfolded);
    auto result = trace.allocate(output);
    trace.free(block);
    return result;
  };
  auto computeGroup = [&] {
    int64_t output = g.outputBytes() / g.groups;
    // slow_conv2d unfolds the batch before it allocates the output; a pointwise
    // kernel reads the input as it is.
    if (!g.isDilated())
      return unfoldBatch(reads ? 0 : g.batch * columns, output);
    // slow_conv_dilated2d unfolds one image at a time, after its output.
    auto result = trace.allocate(output);
    trace.allocateTemporary(columns);
    return result;
  };
  // slow_conv3d takes all groups at once, and unfolds whatever the kernel is.
  if (g.groups > 1 && g.isVolume && !g.isDilated())
    unfoldBatch(g.batch * g.groups * columns, g.outputBytes());
  else
    allocateGroups(trace, g, g.batch > 1 || channelsLast, computeGroup);
  return {trace.getTransient(), true, std::move(trace)};
}

/// A product with the weight gives columns, which are added up into the result.
/// Source: NaiveConvolutionTranspose2d.cpp.
static Workspace slowTransposed(const Geometry &g, bool channelsLast) {
  int64_t columns =
      g.batch * g.groupOutput * g.kernelArea() * g.inputArea() * g.elementBytes;
  AllocationTrace trace;
  allocateGroups(trace, g, g.batch > 1 || channelsLast, [&] {
    auto result = trace.allocate(g.outputBytes() / g.groups);
    trace.allocateTemporary(columns);
    return result;
  });
  return {trace.getTransient(), true, std::move(trace)};
}

/// The same of volumes: sample by sample, the bias multiplied by ones. The
/// result begins as large as the input, and is replaced if that is too small.
/// Source: NaiveConvolutionTranspose3d.cpp.
static Workspace slowTransposedVolume(const Geometry &g) {
  int64_t columns =
      g.groupOutput * g.kernelArea() * g.inputArea() * g.elementBytes;
  int64_t output = g.outputBytes() / g.groups;
  AllocationTrace trace;
  allocateGroups(trace, g, g.batch > 1, [&] {
    auto result = trace.allocate(g.inputBytes() / g.groups);
    if (output > g.inputBytes() / g.groups) {
      auto larger = trace.allocate(output);
      trace.free(result);
      result = larger;
    }
    auto block = trace.allocate(columns);
    trace.allocateTemporary(g.hasBias ? g.outputArea() * g.elementBytes : 0);
    trace.free(block);
    return result;
  });
  return {trace.getTransient(), true, std::move(trace)};
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

/// Brings a convolution of one to three dimensions into Geometry.
static Geometry makeGeometry(const ConvolutionShape &shape,
                             const WorkspaceTarget &target) {
  // PyTorch inserts a height of one into a one-dimensional convolution. The
  // axes are height and width; of three dimensions the depth is axis -1.
  int64_t rank = static_cast<int64_t>(shape.input.size()) - 2;
  auto at = [rank](const std::vector<int64_t> &values, size_t offset,
                   int64_t axis, int64_t inserted) {
    int64_t place = axis + rank - 2;
    if (place < 0)
      return inserted;
    // A single value stands for all axes.
    return values.size() == offset + 1 ? values.back() : values[offset + place];
  };
  Geometry g;
  g.batch = shape.input[0];
  g.groups = shape.groups;
  g.groupInput = shape.input[1] / shape.groups;
  g.groupOutput =
      shape.transposed ? shape.weight[1] : shape.weight[0] / shape.groups;
  g.inputH = at(shape.input, 2, 0, 1);
  g.inputW = at(shape.input, 2, 1, 1);
  g.kernelH = at(shape.weight, 2, 0, 1);
  g.kernelW = at(shape.weight, 2, 1, 1);
  g.strideH = at(shape.stride, 0, 0, 1);
  g.strideW = at(shape.stride, 0, 1, 1);
  g.paddingH = at(shape.padding, 0, 0, 0);
  g.paddingW = at(shape.padding, 0, 1, 0);
  g.dilationH = at(shape.dilation, 0, 0, 1);
  g.dilationW = at(shape.dilation, 0, 1, 1);
  g.isVolume = rank == 3;
  if (rank == 3) {
    g.inputD = at(shape.input, 2, -1, 1);
    g.kernelD = at(shape.weight, 2, -1, 1);
    g.strideD = at(shape.stride, 0, -1, 1);
    g.paddingD = at(shape.padding, 0, -1, 0);
    g.dilationD = at(shape.dilation, 0, -1, 1);
  }
  auto result = [&](int64_t axis, int64_t input, int64_t extent,
                    int64_t padding, int64_t stride) {
    if (shape.transposed)
      return (input - 1) * stride - 2 * padding + extent +
             at(shape.outputPadding, 0, axis, 0);
    return (input + 2 * padding - extent) / stride + 1;
  };
  if (g.isVolume)
    g.outputD = result(-1, g.inputD, g.extentD(), g.paddingD, g.strideD);
  g.outputH = result(0, g.inputH, g.extentH(), g.paddingH, g.strideH);
  g.outputW = result(1, g.inputW, g.extentW(), g.paddingW, g.strideW);
  g.hasBias = shape.hasBias;
  g.threads = std::max<int64_t>(1, target.threads);
  g.lanes = target.isa.starts_with("avx512") ? 16 : 8;
  g.l1Bytes = target.l1Bytes;
  g.l2Bytes = target.l2Bytes;
  g.elementBytes = shape.elementBytes;
  return g;
}

/// More than any implementation was seen to take: every tensor copied into
/// blocks of sixteen channels, twice, and all images unfolded.
static int64_t upperBound(const ConvolutionShape &shape, int64_t threads) {
  int64_t batch = shape.input[0], area = 1, outputArea = 1, kernel = 1;
  for (size_t axis = 0, rank = shape.input.size() - 2; axis < rank; ++axis) {
    auto at = [axis](const std::vector<int64_t> &values) {
      return values[std::min(axis, values.size() - 1)];
    };
    int64_t in = shape.input[axis + 2], k = shape.weight[axis + 2];
    area *= in;
    kernel *= k;
    int64_t reach =
        in + 2 * at(shape.padding) - at(shape.dilation) * (k - 1) - 1;
    if (shape.transposed)
      outputArea *= in * at(shape.stride) + at(shape.dilation) * k +
                    at(shape.outputPadding);
    else
      outputArea *= reach / at(shape.stride) + 1;
  }
  int64_t groups = shape.groups,
          results =
              shape.transposed ? shape.weight[1] * groups : shape.weight[0],
          groupInput = roundUp(shape.input[1] / groups, 16),
          groupOutput = roundUp(results / groups, 16),
          outputChannels = roundUp(results, 16);
  int64_t input = batch * roundUp(shape.input[1], 16) * area;
  int64_t output = batch * outputChannels * outputArea;
  int64_t weight = roundUp(groups, 16) * groupInput * groupOutput * kernel;
  int64_t columns = std::max(threads, batch) *
                    std::max(shape.input[1], results) * kernel * outputArea;
  int64_t elements = 2 * (input + output + weight) + columns + outputChannels;
  // A bias is added beside the result; brgemm pads a sample for each thread by
  // up to twice the kernel, and begins its buffers on pages.
  if (shape.transposed)
    elements += 2 * output + threads * (8 * shape.input[1] * outputArea +
                                        outputChannels * outputArea +
                                        10 * kernel + 12 * 4096);
  return elements * shape.elementBytes + 4096;
}

/// What is not in the layout of the computation is copied to it.
static Copies getCopies(const Geometry &g, const ConvolutionShape &shape,
                        bool channelsLast) {
  auto copies = [channelsLast](const TensorLayout &layout) {
    return !(channelsLast ? layout.isChannelsLast : layout.isContiguous);
  };
  return {copies(shape.inputLayout) ? g.inputBytes() : 0,
          copies(shape.weightLayout) ? g.weightBytes() : 0};
}

/// The copies come first, and go last.
static Workspace withCopies(const Copies &copies, Workspace found) {
  found.bytes += copies.sum();
  if (!found.trace)
    return found;
  AllocationTrace trace;
  auto input = trace.allocate(copies.input);
  auto weight = trace.allocate(copies.weight);
  kernels::append(trace, *found.trace);
  trace.free(weight);
  trace.free(input);
  found.trace = std::move(trace);
  return found;
}

//===----------------------------------------------------------------------===//
// Half types
//===----------------------------------------------------------------------===//

/// Whether PyTorch hands a half type to oneDNN, as it does wherever the
/// processor has vectors of it. Source: ConvParams::use_mkldnn.
static bool halfUsesOneDnn(const ConvolutionShape &shape,
                           const HalfKernels &kernels) {
  if (shape.transposed)
    for (size_t axis = 0; axis < shape.outputPadding.size(); ++axis)
      if (shape.outputPadding[axis] >=
          shape.stride[std::min(axis, shape.stride.size() - 1)])
        return false;
  return kernels.hasVectors;
}

/// The worst of the caches that may be, `compute` having the rest.
static Workspace
overCaches(Geometry g,
           llvm::function_ref<Workspace(const Geometry &)> compute) {
  std::optional<Workspace> found;
  forEachCache(g, [&](int64_t l1Bytes, int64_t l2Bytes) {
    Geometry own = g;
    own.l1Bytes = l1Bytes;
    own.l2Bytes = l2Bytes;
    Workspace one = compute(own);
    bool differs = found && found->bytes != one.bytes;
    if (!found || one.bytes > found->bytes)
      found = Workspace{one.bytes, one.exact && (!found || found->exact),
                        std::move(one.trace)};
    if (differs || !one.exact)
      found->exact = false;
  });
  return *found;
}

/// Sums of half types may be kept in float32.
static Workspace boundHalf(ConvolutionShape shape, int64_t threads) {
  shape.elementBytes = FloatBytes;
  return {upperBound(shape, threads), false};
}

static Workspace halfWorkspace(const ConvolutionShape &shape,
                               const WorkspaceTarget &target) {
  Geometry g = makeGeometry(shape, target);
  HalfKernels kernels = findHalfKernels(target.isa, shape.isFloat16);
  if (g.outputD <= 0 || g.outputH <= 0 || g.outputW <= 0 || g.groupInput <= 0 ||
      g.groupOutput <= 0 || g.isBeyondInt32() ||
      !halfUsesOneDnn(shape, kernels))
    return boundHalf(shape, g.threads);
  bool channelsLast = shape.isChannelsLast();
  Workspace found = overCaches(g, [&](const Geometry &own) {
    return shape.transposed ? halfTransposed(own, kernels, channelsLast)
                            : halfConvolution(own, kernels, channelsLast);
  });
  return withCopies(getCopies(g, shape, channelsLast), std::move(found));
}

static Workspace halfBackwardWorkspace(const ConvolutionShape &shape,
                                       const WorkspaceTarget &target,
                                       bool wantsInput, bool wantsWeight) {
  Geometry g = makeGeometry(shape, target);
  HalfKernels kernels = findHalfKernels(target.isa, shape.isFloat16);
  if (g.outputD <= 0 || g.outputH <= 0 || g.outputW <= 0 || g.groupInput <= 0 ||
      g.groupOutput <= 0 || g.isBeyondInt32() ||
      !halfUsesOneDnn(shape, kernels))
    return {4 * boundHalf(shape, g.threads).bytes, false};
  bool channelsLast = shape.isChannelsLast();
  Workspace found = overCaches(g, [&](const Geometry &own) {
    return halfBackward(own, kernels, shape.transposed, channelsLast,
                        wantsInput, wantsWeight);
  });
  return {found.bytes + getCopies(g, shape, channelsLast).sum(), found.exact};
}

//===----------------------------------------------------------------------===//
// Entry
//===----------------------------------------------------------------------===//

Workspace koila::convolutionWorkspace(const ConvolutionShape &shape,
                                      const WorkspaceTarget &target) {
  assert(shape.input.size() == shape.weight.size() && shape.input.size() > 2);
  int64_t threads = std::max<int64_t>(1, target.threads);
  for (int64_t extent : shape.input)
    if (extent == 0) // ConvBackend::Empty and MkldnnEmpty compute nothing.
      return {0, true};
  if (shape.elementBytes == HalfBytes && shape.input.size() <= 5)
    return halfWorkspace(shape, target);
  const std::string &isa = target.isa;
  bool avx2 = isa.starts_with("avx2"), avx512 = isa.starts_with("avx512_core");
  bool isDouble = shape.elementBytes == 2 * FloatBytes;
  bool isFloat = shape.elementBytes == FloatBytes && (avx2 || avx512);
  if (shape.input.size() > 5 || !(isFloat || isDouble))
    return {upperBound(shape, threads), false};

  Geometry g = makeGeometry(shape, target);
  if (g.outputD <= 0 || g.outputH <= 0 || g.outputW <= 0 || g.groupOutput <= 0)
    // The call throws, or has a transposed result of no elements.
    return {shape.transposed ? upperBound(shape, threads) : 0, false};
  bool channelsLast = shape.isChannelsLast();
  bool isNative = isDouble || !usesOneDnn(g, shape);
  if (isNative && g.isVolume) // PyTorch has no such kernels for volumes.
    channelsLast = false;
  Copies copies = getCopies(g, shape, channelsLast);
  if (isNative && shape.transposed)
    return withCopies(copies, g.isVolume ? slowTransposedVolume(g)
                                         : slowTransposed(g, channelsLast));
  if (isNative)
    return withCopies(copies, slowConvolution(g, channelsLast));
  // jit steps aside, or is not known. Instruction sets after AVX-512 take the
  // same path with float32: their own kernels want lower precision (init_jcp in
  // jit_brgemm_conv_utils.cpp). Where that was measured is in Workspaces.json.
  if (g.isBeyondInt32() || (!avx512 && channelsLast))
    return {upperBound(shape, threads) + copies.sum(), false};
  Workspace found = shape.transposed ? transposedOneDnn(g, channelsLast)
                    : channelsLast   ? channelsLastOneDnn(g)
                                     : contiguousOneDnn(g);
  return withCopies(copies, std::move(found));
}

std::optional<int64_t> conv::getResultStorage(const ConvolutionShape &shape,
                                              const WorkspaceTarget &target) {
  if (!shape.transposed || shape.groups != 1 || shape.input.size() != 5 ||
      llvm::is_contained(shape.input, 0))
    return std::nullopt;
  Geometry g = makeGeometry(shape, target);
  bool isOneDnn =
      shape.elementBytes == HalfBytes
          ? halfUsesOneDnn(shape, findHalfKernels(target.isa, shape.isFloat16))
          : shape.elementBytes == FloatBytes && usesOneDnn(g, shape);
  if (isOneDnn || g.outputBytes() <= 0 || g.outputBytes() >= g.inputBytes())
    return std::nullopt;
  return g.inputBytes();
}

Workspace koila::convolutionBackwardWorkspace(const ConvolutionShape &shape,
                                              const WorkspaceTarget &target,
                                              bool wantsInput, bool wantsWeight,
                                              int64_t gradientCopy) {
  int64_t threads = std::max<int64_t>(1, target.threads);
  // Two further convolutions, each with copies of what it makes.
  auto bound = [&]() -> Workspace {
    return {4 * upperBound(shape, threads) + gradientCopy, false};
  };
  if (shape.elementBytes == HalfBytes && shape.input.size() <= 5 &&
      !llvm::is_contained(shape.input, 0)) {
    Workspace found =
        halfBackwardWorkspace(shape, target, wantsInput, wantsWeight);
    return {found.bytes + gradientCopy, found.exact};
  }
  bool isFloat = shape.elementBytes == FloatBytes;
  bool isDouble = shape.elementBytes == 2 * FloatBytes;
  llvm::StringRef isa = target.isa;
  bool avx2 = isa.starts_with("avx2"), avx512 = isa.starts_with("avx512_core");
  if (llvm::is_contained(shape.input, 0) || shape.input.size() > 5 ||
      !((isFloat && (avx2 || avx512)) || isDouble))
    return bound();
  bool channelsLast = shape.isChannelsLast();
  Geometry g = makeGeometry(shape, target);
  if (g.outputD <= 0 || g.outputH <= 0 || g.outputW <= 0 || g.groupInput <= 0 ||
      g.groupOutput <= 0 || g.isBeyondInt32())
    return bound();
  Copies copies = getCopies(g, shape, channelsLast);
  copies.gradient = gradientCopy;
  bool isNative = isDouble || !usesOneDnn(g, shape);
  if (!isNative && !avx512 && channelsLast && shape.transposed)
    return bound();
  Workspace found = {0, false};
  if (!isNative)
    found = oneDnnBackward(g, shape.transposed, channelsLast, wantsInput,
                           wantsWeight);
  else
    found = slowBackward(g, shape.transposed, channelsLast, wantsInput,
                         wantsWeight, copies);
  if (!found.exact && !found.bytes)
    return bound();
  if (!isNative)
    found.bytes += copies.sum();
  return found;
}
