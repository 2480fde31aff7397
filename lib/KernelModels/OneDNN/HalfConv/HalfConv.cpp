//===- HalfConv.cpp - Convolutions of half types in oneDNN ----------------===//
//
// Which kernel serves a convolution of bfloat16 or float16, and what it copies.
// PyTorch hands all of them to oneDNN where the processor has instructions for
// the type. Source: oneDNN 3.12, cpu/cpu_convolution_list.cpp and
// cpu_deconvolution_list.cpp.
//
//===----------------------------------------------------------------------===//

#include "HalfConv.h"
#include "../ConvTransposed.h"

using namespace koila;
using namespace koila::conv;

HalfKernels conv::findHalfKernels(llvm::StringRef isa, bool isFloat16) {
  HalfKernels kernels;
  kernels.isFloat16 = isFloat16;
  bool hasTiles = isa.starts_with("avx512_core_amx");
  if (isFloat16) {
    kernels.hasTiles = isa == "avx512_core_amx_fp16";
    kernels.hasVectors = hasTiles || isa == "avx512_core_fp16";
    kernels.pairs = kernels.hasTiles ? 2 : 1;
  } else {
    kernels.hasTiles = hasTiles;
    kernels.hasVectors =
        hasTiles || isa == "avx512_core_fp16" || isa == "avx512_core_bf16";
  }
  return kernels;
}

namespace {
/// The buffers of a kernel: rows of channels, or blocks of sixteen.
struct Kernel {
  bool isBlocked = false;
  int64_t source = 0, weight = 0, result = 0, scratchpad = 0;
  bool exact = true;

  Kernel(const HalfBuffers &rows)
      : weight(rows.weight), scratchpad(rows.scratchpad), exact(rows.exact) {}
  Kernel() = default;
};
} // namespace

static int64_t blockBytes(int64_t batch, int64_t channels, int64_t area) {
  return batch * roundUp(channels, 16) * area * HalfBytes;
}

/// Without AMX, for a kernel that only those have.
static HalfKernels withoutTiles(HalfKernels kernels) {
  kernels.hasTiles = false;
  if (kernels.isFloat16)
    kernels.pairs = 1;
  return kernels;
}

static Workspace getPeak(const Geometry &g, const Kernel &kernel,
                         bool channelsLast) {
  if (channelsLast)
    return inPlacePeak(g, g.nested(kernel.scratchpad), kernel.weight,
                       kernel.exact);
  if (kernel.isBlocked) {
    Workspace found = blockedPeak(g, kernel.scratchpad, kernel.source,
                                  kernel.weight, kernel.result, kernel.exact);
    // What is not known may be of rows.
    if (!kernel.exact)
      found.bytes = std::max(found.bytes, 2 * g.outputBytes());
    return found;
  }
  return rowsPeak(g, kernel.scratchpad, kernel.weight, kernel.exact);
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

/// Whether depthwise images go to jit_dw, in blocks of sixteen channels, or to
/// gemm with columns of one channel. (Of rows of channels, gemm has all of
/// them.) Source: cpu_convolution_list.cpp, and what ONEDNN_VERBOSE shows.
static bool isByChannels(const Geometry &g, bool channelsLast) {
  constexpr int64_t kWidest = 3; // of jit_dw, for gradients of weights
  return g.isDepthwise() && !g.isVolume &&
         (!channelsLast ||
          (!g.isDilated() && g.kernelH <= kWidest && g.kernelW <= kWidest &&
           g.strideH <= g.kernelH && g.strideW <= g.kernelW));
}

/// What those hold: copies in blocks, columns, sums, and the weight twice.
static Kernel boundDepthwise(const Geometry &g) {
  int64_t channels = roundUp(g.groups, 16), kernel = g.kernelArea();
  int64_t columns = kernel * std::max(g.outputArea(), g.inputArea());
  int64_t sums = 16 * (g.outputArea() + g.inputArea());
  Kernel bound;
  bound.isBlocked = true;
  bound.exact = false;
  bound.source = blockBytes(g.batch, g.groups, g.inputArea());
  bound.result = blockBytes(g.batch, g.groups, g.outputArea());
  bound.weight = channels * kernel * HalfBytes;
  bound.scratchpad =
      g.threads * ((HalfBytes + FloatBytes) * columns +
                   FloatBytes * (sums + channels * (kernel + 1)) + 2 * Page) +
      2 * bound.weight + FloatBytes * channels + 2 * Page;
  return bound;
}

/// What any kernel may hold: copies in blocks, the weight in the widest ones,
/// the input with its padding, columns, sums, and lists of products.
static Kernel boundKernel(const Geometry &g, bool channelsLast) {
  if (isByChannels(g, channelsLast))
    return boundDepthwise(g);
  int64_t outputs =
      roundUp(g.groupOutput, std::min<int64_t>(64, roundUp(g.groupOutput, 16)));
  int64_t inputs = roundUp(g.groupInput, 32), kernel = g.kernelArea();
  Kernel bound;
  bound.isBlocked = true;
  bound.exact = false;
  bound.source = blockBytes(g.batch, g.inputChannels(), g.inputArea());
  bound.result = blockBytes(g.batch, g.outputChannels(), g.outputArea());
  bound.weight = g.groups * outputs * inputs * kernel * HalfBytes;
  auto padded = [](int64_t input, int64_t output, int64_t extent,
                   int64_t padding, int64_t stride) {
    constexpr int64_t kMostTogether = 32;
    return std::max(input + 2 * padding,
                    std::min(output, kMostTogether) * stride) +
           2 * extent;
  };
  int64_t area =
      padded(g.inputD, g.outputD, g.extentD(), g.paddingD, g.strideD) *
      padded(g.inputH, g.outputH, g.extentH(), g.paddingH, g.strideH) *
      padded(g.inputW, g.outputW, g.extentW(), g.paddingW, g.strideW);
  int64_t image =
      area * g.groups * std::max(inputs, roundUp(g.groupInput * g.kernelW, 32));
  int64_t columns = g.groupInput * kernel * g.outputH * g.outputW;
  int64_t sums = roundUp(g.groupOutput, 64) * g.outputArea() +
                 g.groupInput * g.inputArea();
  bound.scratchpad = g.threads * (HalfBytes * (image * g.kernelH + columns) +
                                  FloatBytes * (2 * sums + columns) +
                                  kernel * 40 + 16 * Page) +
                     2 * bound.weight + FloatBytes * g.outputChannels() +
                     16 * Page;
  return bound;
}

//===----------------------------------------------------------------------===//
// Convolutions
//===----------------------------------------------------------------------===//

static bool isPlainPointwise(const Geometry &g) {
  return g.isPointwise() && !g.isPadded();
}

/// Shapes that oneDNN leaves to kernels without tiles. Source: init_jcp in
/// jit_brgemm_conv_utils.cpp.
static bool isSmallForTiles(const Geometry &g, int64_t inputs) {
  constexpr int64_t kSmallArea = 4, kMostChannels = 512;
  int64_t l1Bytes = g.l1Bytes * 7 / 8;
  int64_t most = isPlainPointwise(g) ? l1Bytes / 2 : l1Bytes;
  bool isSmall = g.outputArea() <= kSmallArea && inputs <= kMostChannels &&
                 g.batch * g.groups * inputs * g.groupOutput <= most;
  constexpr int64_t kLargeSide = 128, kFewChannels = 32;
  bool isLargeVolume = g.isVolume && inputs * g.groupOutput <= kFewChannels &&
                       g.outputD >= kLargeSide && g.outputH >= kLargeSide &&
                       g.outputW >= kLargeSide;
  constexpr int64_t kSlowSide = 150;
  bool isSlow = !isPlainPointwise(g) && inputs == g.groupOutput &&
                (inputs == 128 || inputs == 256) && g.outputH == kSlowSide &&
                g.outputW == kSlowSide;
  return isSmall || isLargeVolume || isSlow;
}

/// brg_conv and brgconv_1x1 with tiles.
static std::optional<Kernel> tiled(const Geometry &g,
                                   const HalfKernels &kernels, bool isTurned) {
  if (!kernels.hasTiles)
    return std::nullopt;
  if (!kernels.isFloat16 &&
      (g.isDepthwise() ||
       isSmallForTiles(g,
                       isTurned ? g.groupInput : getFoldedInputs(g, kernels))))
    return std::nullopt;
  auto found = isPlainPointwise(g) ? findHalfPointwise(g, kernels)
                                   : findHalfBrgemm(g, kernels, isTurned);
  if (!found)
    return std::nullopt;
  return Kernel(*found);
}

/// The same without. Of bfloat16 they take channels-last tensors alone, and no
/// groups of few channels.
static std::optional<Kernel> vectored(const Geometry &g,
                                      const HalfKernels &kernels, bool isTurned,
                                      bool channelsLast) {
  if (!kernels.hasVectors)
    return std::nullopt;
  HalfKernels own = withoutTiles(kernels);
  if (!own.isFloat16) {
    bool isGrouped = g.groups > 1 && g.groupInput <= 16 &&
                     g.groupInput % 4 == 0 && g.groupOutput % 4 == 0;
    if (!channelsLast || g.isDepthwise() || isGrouped)
      return std::nullopt;
  }
  auto found = isPlainPointwise(g) ? findHalfPointwise(g, own)
                                   : findHalfBrgemm(g, own, isTurned);
  if (!found)
    return std::nullopt;
  return Kernel(*found);
}

/// brdgmm_dw, and jit_dw of an image.
static std::optional<Kernel>
depthwise(const Geometry &g, const HalfKernels &kernels, bool channelsLast) {
  if (!g.isDepthwise() || !kernels.hasVectors)
    return std::nullopt;
  Kernel found;
  found.weight = roundUp(g.groups, 16) * g.kernelArea() * HalfBytes;
  bool isFree = channelsLast || g.isVolume || kernels.isFloat16;
  if (!g.isDilated() && isFree)
    return found;
  // How far the kernel unrolls columns; some rows fall on the same lines of a
  // cache.
  int64_t most = std::min<int64_t>(6, g.outputW);
  if (channelsLast && g.groups * g.inputW * HalfBytes % 1024 == 0)
    most = std::min<int64_t>(most, g.outputW > 7 ? 7 : 4);
  if (g.isVolume || !g.kernelMeetsInput() || g.paddingW > most)
    return std::nullopt;
  int64_t channels = channelsLast ? g.groups : roundUp(g.groups, 16);
  found.scratchpad = g.hasBias ? booked(channels * FloatBytes) : 0;
  found.isBlocked = !channelsLast;
  found.source = blockBytes(g.batch, g.groups, g.inputArea());
  found.result = blockBytes(g.batch, g.groups, g.outputArea());
  return found;
}

static Kernel forwardKernel(const Geometry &g, const HalfKernels &kernels,
                            bool channelsLast) {
  if (isInnerProduct(g))
    return boundKernel(g, channelsLast);
  if (auto found = depthwise(g, kernels, channelsLast))
    return *found;
  if (auto found = tiled(g, kernels, false))
    return *found;
  // jit:avx512_core_amx is between them.
  bool isSure = !kernels.hasTiles || kernels.isFloat16 || g.isDepthwise();
  auto found = vectored(g, kernels, false, channelsLast);
  if (found && isSure)
    return *found;
  return boundKernel(g, channelsLast);
}

Workspace conv::halfConvolution(const Geometry &g, const HalfKernels &kernels,
                                bool channelsLast) {
  return getPeak(g, forwardKernel(g, kernels, channelsLast), channelsLast);
}

//===----------------------------------------------------------------------===//
// Gradients of inputs, and transposed convolutions
//===----------------------------------------------------------------------===//

/// jit:avx512_core_amx. Source: jit_avx512_core_amx_bwd_data_kernel_t.
static std::optional<Kernel>
tiledDirect(const Geometry &g, const HalfKernels &kernels, bool isOperator) {
  auto isBoth = [](int64_t dilation, int64_t stride) {
    return dilation != 1 && stride != 1;
  };
  if (!kernels.hasTiles || isBoth(g.dilationD, g.strideD) || g.isDepthwise())
    return std::nullopt;
  for (const Axis &axis : getAxes(g)) {
    // Of the convolution whose gradient it is.
    int64_t end = (axis.input - 1) * axis.stride + axis.extent() - axis.output -
                  axis.padding;
    if (axis.padding >= axis.extent() || end >= axis.extent())
      return std::nullopt;
  }
  int64_t inputs = g.groupInput, outputs = g.groupOutput;
  if (g.groups == 1) {
    inputs = roundUp(inputs, 16);
    outputs = roundUp(outputs, 16);
  }
  if (inputs % 16 != 0 || outputs % 16 != 0)
    return std::nullopt;
  constexpr int64_t kTile = 16, kRowsAtOnce = 10, kPalette = 64;
  int64_t width = std::min(kTile, g.outputW);
  int64_t parts = llvm::divideCeilSigned(g.outputW, width);
  if (g.outputW % parts == 0)
    width = g.outputW / parts;
  int64_t channels = outputs / 16 % 2 == 0 ? 2 : 1;
  int64_t lines = g.outputH > 1 && (parts <= 1 || g.outputH % 2 == 0) ? 2 : 1;
  int64_t rows = roundUp(std::min(g.outputH, kRowsAtOnce), lines);
  int64_t copied = roundUp(inputs, 32) * g.kernelD * (rows + g.extentH() - 1) *
                   (2 * width + g.extentW() - 1);
  Kernel found;
  found.weight =
      g.groups * roundUp(inputs, 32) * outputs * g.kernelArea() * HalfBytes;
  found.scratchpad =
      booked(g.threads * copied * HalfBytes) +
      booked(g.threads * lines * channels * kTile * 16 * FloatBytes) +
      bookedPage(g.threads * kPalette);
  if (isOperator && g.hasBias && outputs != g.groupOutput)
    found.scratchpad += booked(outputs * HalfBytes);
  return found;
}

/// Of a gradient; `g` goes from the gradient of the result to the input's.
static Kernel gradientKernel(const Geometry &g, const HalfKernels &kernels,
                             bool channelsLast) {
  if (g.isStrided() == false && isInnerProduct(transposed(g)))
    return boundKernel(g, channelsLast);
  if (auto turned = turnKernel(g))
    if (auto found = tiled(*turned, kernels, true)) {
      found->scratchpad = booked(found->scratchpad);
      return *found;
    }
  if (kernels.hasTiles)
    if (auto found = findHalfStrided(g, kernels))
      return Kernel(*found);
  if (auto found = tiledDirect(g, kernels, false))
    return *found;
  if (auto turned = turnKernel(g))
    if (auto found = vectored(*turned, kernels, true, channelsLast)) {
      found->scratchpad = booked(found->scratchpad);
      return *found;
    }
  if (kernels.hasVectors)
    if (auto found = findHalfStrided(g, withoutTiles(kernels)))
      return Kernel(*found);
  return boundKernel(g, channelsLast);
}

Workspace conv::halfTransposed(const Geometry &g, const HalfKernels &kernels,
                               bool channelsLast) {
  std::optional<Kernel> kernel;
  bool isEven = g.outputD % g.strideD == 0 && g.outputH % g.strideH == 0 &&
                g.outputW % g.strideW == 0;
  auto brgemm = [&](const HalfKernels &own) -> std::optional<Kernel> {
    if (g.isStrided()) {
      if (!isEven)
        return std::nullopt;
      auto found = findHalfStrided(g, own);
      if (!found)
        return std::nullopt;
      return Kernel(*found);
    }
    auto turned = turnKernel(g);
    if (!turned)
      return std::nullopt;
    return own.hasTiles ? tiled(*turned, own, true)
                        : vectored(*turned, own, true, channelsLast);
  };
  if (kernels.hasTiles)
    kernel = brgemm(kernels);
  if (kernel) {
    kernel->scratchpad = booked(kernel->scratchpad);
  } else {
    kernel = tiledDirect(g, kernels, true);
    if (!kernel) {
      kernel = brgemm(withoutTiles(kernels));
      if (kernel)
        kernel->scratchpad = booked(kernel->scratchpad);
    }
  }
  if (!kernel) {
    // Any kernel, with sums of the result if there is a bias.
    kernel = boundKernel(g, channelsLast);
    kernel->scratchpad +=
        2 * FloatBytes *
        blockBytes(g.batch, g.outputChannels(), g.outputArea());
  }
  return getPeak(g, *kernel, channelsLast);
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

static WeightGradient
weightKernel(const Geometry &g, const HalfKernels &kernels, bool channelsLast) {
  bool isSure = !isInnerProduct(g);
  if (isSure)
    if (auto found = findHalfWeightGradient(g, kernels, channelsLast))
      return *found;
  // The reference reads tensors as they are.
  if (kernels.isFloat16 && !kernels.hasTiles && isSure)
    return {0, 0, g.weightBytes(), 0, true};
  Kernel bound = boundKernel(g, channelsLast);
  WeightGradient found;
  found.exact = false;
  found.source = bound.source;
  found.gradient = bound.result;
  if (isByChannels(g, channelsLast)) {
    if (channelsLast) // jit_dw reads rows as they are.
      found.source = found.gradient = 0;
    found.weight = bound.weight;
    found.scratchpad = bound.scratchpad;
    return found;
  }
  int64_t kernel = g.kernelArea();
  int64_t weight = g.groups * roundUp(g.groupOutput, 16) *
                   roundUp(g.groupInput, 32) * kernel;
  found.weight = weight * HalfBytes;
  found.scratchpad =
      bound.scratchpad +
      g.threads * (2 * (bound.source + bound.result) +
                   FloatBytes * (weight + 4 * g.outputChannels()));
  return found;
}

Workspace conv::halfBackward(const Geometry &g, const HalfKernels &kernels,
                             bool isTransposed, bool channelsLast,
                             bool wantsInput, bool wantsWeight) {
  Geometry other = transposed(g);
  int64_t input = wantsInput ? g.inputBytes() : 0;
  Workspace found = {0, true};
  if (wantsInput) {
    Workspace first;
    if (isTransposed) {
      other.isGradient = false;
      other.isNested = true;
      first = halfConvolution(other, kernels, channelsLast);
      other = transposed(g);
    } else {
      first = getPeak(other, gradientKernel(other, kernels, channelsLast),
                      channelsLast);
    }
    found = {first.bytes + input, first.exact};
  }
  if (!wantsWeight)
    return found;
  Geometry weighed = isTransposed ? other : g;
  weighed.hasBias = g.hasBias && !isTransposed;
  return joinWeightGradient(found, weightKernel(weighed, kernels, channelsLast),
                            g, isTransposed, channelsLast, input);
}
