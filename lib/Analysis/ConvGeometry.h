//===- ConvGeometry.h - A convolution as its kernels see it -----*- C++ -*-===//
//
// Private to lib/Analysis: a convolution's extents with derived quantities in
// oneDNN's terms.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_ANALYSIS_CONVGEOMETRY_H
#define KOILA_LIB_ANALYSIS_CONVGEOMETRY_H

#include "koila/Analysis/ConvWorkspace.h"

#include <algorithm>

namespace koila::conv {

inline constexpr int64_t FloatBytes = 4;

inline int64_t ceilDiv(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}
inline int64_t roundUp(int64_t value, int64_t to) {
  return ceilDiv(value, to) * to;
}

/// A two-dimensional convolution; one dimension has height 1. The depth of a
/// three-dimensional one is 1 in the others.
struct Geometry {
  int64_t batch, groups, groupInput, groupOutput;
  int64_t inputH, inputW, outputH, outputW, kernelH, kernelW;
  int64_t strideH, strideW, paddingH, paddingW, dilationH, dilationW;
  int64_t inputD = 1, outputD = 1, kernelD = 1;
  int64_t strideD = 1, paddingD = 0, dilationD = 1;
  bool hasBias;
  int64_t threads;
  /// Floats of a vector: 16 with AVX-512, 8 with AVX2.
  int64_t lanes;
  /// Bytes of the caches of one core, 0 if unknown.
  int64_t l1Bytes, l2Bytes;
  /// oneDNN's kernels are for float32 alone.
  int64_t elementBytes = FloatBytes;

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

  int64_t extentD() const { return dilationD * (kernelD - 1) + 1; }
  int64_t extentH() const { return dilationH * (kernelH - 1) + 1; }
  int64_t extentW() const { return dilationW * (kernelW - 1) + 1; }
  /// No window lies in the padding alone. The jit kernels refuse such ones.
  /// Padding is symmetric, so the far end needs no test of its own.
  bool kernelMeetsInput() const {
    return extentD() > paddingD && extentH() > paddingH &&
           extentW() > paddingW;
  }
};

enum class Answer { No, Unknown, Yes };

/// Whether jit:avx512_core, working on `block` channels at a time, can unroll
/// the width of `g` and keep its code small.
Answer fitsDirectUnroll(const Geometry &g, int64_t block);

/// The bytes of the columns gemm unfolds into, all threads together; an upper
/// bound if not exact.
Workspace gemmColumns(const Geometry &g);

/// The vector width jit:avx512_core works with on contiguous tensors, 0 if it
/// refuses the channels. Only an ungrouped convolution may pad its channels.
int64_t directBlock(const Geometry &g);

/// The bytes spent on making both tensors channels-last. The flags say which
/// is already.
int64_t channelsLastCopies(const Geometry &g, bool input, bool weight);

/// A oneDNN convolution of channels-last tensors, without those copies.
Workspace channelsLastOneDnn(const Geometry &g);

/// Whether oneDNN computes the convolution as an inner product: the kernel is
/// as large as the image (ip_convolution.cpp).
bool isInnerProduct(const Geometry &g);

/// A bound for the scratchpad of that inner product.
int64_t innerProductScratchpad(const Geometry &g);

} // namespace koila::conv

#endif // KOILA_LIB_ANALYSIS_CONVGEOMETRY_H
