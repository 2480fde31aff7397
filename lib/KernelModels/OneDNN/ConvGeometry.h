//===- ConvGeometry.h - A convolution as its kernels see it -----*- C++ -*-===//
//
// Private to lib/Analysis: a convolution's extents with derived quantities in
// oneDNN's terms.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_CONVGEOMETRY_H
#define KOILA_KERNELMODELS_ONEDNN_CONVGEOMETRY_H

#include "ConvWorkspace.h"

#include "llvm/Support/MathExtras.h"
#include <algorithm>

namespace koila::conv {

inline constexpr int64_t FloatBytes = 4;

/// llvm::alignTo, signed as extents are.
inline int64_t roundUp(int64_t value, int64_t to) {
  return static_cast<int64_t>(llvm::alignTo(value, to));
}

/// A scratchpad entry: 128 bytes extra for its alignment.
inline int64_t booked(int64_t bytes) { return bytes ? bytes + 128 : 0; }

inline constexpr int64_t Page = 4096;
/// One that begins on a page.
inline int64_t bookedPage(int64_t bytes) { return bytes ? bytes + Page : 0; }

/// A two-dimensional convolution; one dimension has height 1. The depth of a
/// three-dimensional one is 1 in the others.
struct Geometry {
  int64_t batch, groups, groupInput, groupOutput;
  int64_t inputH, inputW, outputH, outputW, kernelH, kernelW;
  int64_t strideH, strideW, paddingH, paddingW, dilationH, dilationW;
  int64_t inputD = 1, outputD = 1, kernelD = 1;
  int64_t strideD = 1, paddingD = 0, dilationD = 1;
  bool isVolume = false;
  bool hasBias;
  /// Computed as the gradient of a convolution, not as an operator of its own,
  /// which books its scratchpad once more.
  bool isGradient = false;
  /// Computed inside a primitive that books its scratchpad as an entry.
  bool isNested = false;
  int64_t threads;
  /// Floats of a vector: 16 with AVX-512, 8 with AVX2.
  int64_t lanes;
  /// Bytes of the caches of one core, 0 if unknown.
  int64_t l1Bytes, l2Bytes;
  /// oneDNN's kernels are for float32 alone.
  int64_t elementBytes = FloatBytes;

  /// What gemm kernels may unfold at most; with more they are refused, and the
  /// reference implementation follows. Source: init_conf in
  /// gemm_convolution_utils.cpp.
  int64_t mostUnfolded() const {
    constexpr int64_t kMost = 1 << 30;
    return std::min(kMost, 15 * threads *
                               (inputBytes() + weightBytes() + outputBytes()));
  }
  int64_t nested(int64_t scratchpad) const {
    return isNested ? booked(scratchpad) : scratchpad;
  }
  int64_t inputChannels() const { return groups * groupInput; }
  int64_t outputChannels() const { return groups * groupOutput; }
  int64_t inputArea() const { return inputD * inputH * inputW; }
  int64_t outputArea() const { return outputD * outputH * outputW; }
  int64_t kernelArea() const { return kernelD * kernelH * kernelW; }
  int64_t inputBytes() const {
    return batch * inputChannels() * inputArea() * elementBytes;
  }
  int64_t outputBytes() const {
    return batch * outputChannels() * outputArea() * elementBytes;
  }
  int64_t weightBytes() const {
    return outputChannels() * groupInput * kernelArea() * elementBytes;
  }

  /// One image or the weight has more elements than an int counts.
  bool isBeyondInt32() const {
    int64_t image = std::max(inputBytes(), outputBytes()) / batch;
    return std::max(image, weightBytes()) / elementBytes > INT32_MAX;
  }

  bool isStrided() const {
    return strideD != 1 || strideH != 1 || strideW != 1;
  }
  bool isDilated() const {
    return dilationD != 1 || dilationH != 1 || dilationW != 1;
  }
  bool isPadded() const {
    return paddingD != 0 || paddingH != 0 || paddingW != 0;
  }
  bool isPointwise() const { return kernelArea() == 1; }
  bool isDepthwise() const {
    return groups > 1 && groupInput == 1 && groupOutput == 1;
  }

  int64_t extentD() const { return dilationD * (kernelD - 1) + 1; }
  int64_t extentH() const { return dilationH * (kernelH - 1) + 1; }
  int64_t extentW() const { return dilationW * (kernelW - 1) + 1; }
  /// No window lies in the padding alone. The jit kernels refuse such ones.
  /// Padding is symmetric, so the far end needs no test of its own.
  bool kernelMeetsInput() const {
    return extentD() > paddingD && extentH() > paddingH && extentW() > paddingW;
  }
};

/// Caches of one core that are common; a figure is exact if they all agree.
inline constexpr int64_t L2Sizes[] = {512 << 10, 1 << 20, 1280 << 10, 2 << 20};
inline constexpr int64_t L1Sizes[] = {32 << 10, 48 << 10};

/// Calls `visit` with each size the cache may have.
template <size_t count, typename Visitor>
void forEachSize(int64_t known, const int64_t (&possible)[count],
                 Visitor visit) {
  if (known)
    return visit(known);
  for (int64_t size : possible)
    visit(size);
}

/// Calls `visit` with each pair of sizes the first two caches may have.
template <typename Visitor>
void forEachCache(const Geometry &g, Visitor visit) {
  forEachSize(g.l1Bytes, L1Sizes, [&](int64_t l1Bytes) {
    forEachSize(g.l2Bytes, L2Sizes,
                [&](int64_t l2Bytes) { visit(l1Bytes, l2Bytes); });
  });
}

/// Whether jit:avx512_core, working on `block` channels at a time, can unroll
/// the width of `g` and keep its code small.
TriBool fitsDirectUnroll(const Geometry &g, int64_t block);

/// The bytes of the columns gemm unfolds into, all threads together; an upper
/// bound if not exact.
Workspace gemmColumns(const Geometry &g);

/// The vector width jit:avx512_core works with on contiguous tensors, 0 if it
/// refuses the channels. Only an ungrouped convolution may pad its channels.
int64_t directBlock(const Geometry &g);

/// The bytes of a copy whose channels are padded to a multiple of `block`.
int64_t blocked(int64_t batch, int64_t channels, int64_t block, int64_t area);

/// The buffers of one oneDNN convolution on contiguous tensors, all alive
/// while it runs. `result` is then copied to the contiguous output, the others
/// being freed.
Workspace blockedPeak(const Geometry &g, int64_t scratchpad, int64_t source,
                      int64_t weight, int64_t result, bool exact = true);

/// The buffers of one on channels-last tensors, which writes its output itself.
Workspace inPlacePeak(const Geometry &g, int64_t scratchpad, int64_t weight,
                      bool exact);

/// The same of one that works on rows of channels.
Workspace rowsPeak(const Geometry &g, int64_t scratchpad, int64_t weight,
                   bool exact = true);

/// The copy of a contiguous input to rows of channels.
int64_t rowsSource(const Geometry &g);

/// A oneDNN convolution of contiguous tensors.
Workspace contiguousOneDnn(const Geometry &g);

/// A oneDNN convolution of channels-last tensors, without their copies.
Workspace channelsLastOneDnn(const Geometry &g);

/// brgemm's list of matrix products, one page per thread if they are few.
int64_t batchScratchpad(const Geometry &g, int64_t products);

/// The same by brgemm.
Workspace channelsLastBrgemm(const Geometry &g);

/// A oneDNN transposed convolution, `g` having its own input and output.
Workspace transposedOneDnn(const Geometry &g, bool channelsLast);

/// The transposed convolution that computes the gradient of the input.
Geometry transposed(const Geometry &g);

/// Whether jit_1x1 serves the convolution.
bool fitsPointwise(const Geometry &g);

/// Bytes of copies in the layout of the computation.
struct Copies {
  int64_t input = 0, weight = 0;
  /// Of the gradient of the result.
  int64_t gradient = 0;

  int64_t sum() const { return input + weight + gradient; }
};

/// The gradients by oneDNN, of tensors of one layout; the new gradients count.
Workspace oneDnnBackward(const Geometry &g, bool isTransposed,
                         bool channelsLast, bool wantsInput, bool wantsWeight);
/// The same by PyTorch's own kernels, with the copies.
Workspace slowBackward(const Geometry &g, bool isTransposed, bool channelsLast,
                       bool wantsInput, bool wantsWeight, const Copies &copies);

/// Whether oneDNN computes the convolution as an inner product: the kernel is
/// as large as the image (ip_convolution.cpp).
bool isInnerProduct(const Geometry &g);

/// A bound for the scratchpad of that inner product.
int64_t innerProductScratchpad(const Geometry &g);

} // namespace koila::conv

#endif // KOILA_KERNELMODELS_ONEDNN_CONVGEOMETRY_H
