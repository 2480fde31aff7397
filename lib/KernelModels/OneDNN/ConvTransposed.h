//===- ConvTransposed.h - Transposed convolutions in oneDNN -----*- C++ -*-===//
//
// Private to lib/Analysis.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_CONVTRANSPOSED_H
#define KOILA_KERNELMODELS_ONEDNN_CONVTRANSPOSED_H

#include "ConvGeometry.h"

#include <array>
#include <optional>

namespace koila::conv {

/// One spatial dim. The convolution whose gradient it is goes from `output` to
/// `input`.
struct Axis {
  int64_t input, output, kernel, stride, padding, dilation;

  int64_t extent() const { return dilation * (kernel - 1) + 1; }
  int64_t endPadding() const {
    return (input - 1) * stride + extent() - output - padding;
  }
  /// The padding behind the input that windows of the output reach, of the
  /// convolution that goes from `input` to `output`.
  int64_t weightEndPadding() const {
    return std::max<int64_t>(0, (output - 1) * stride + extent() - input -
                                    padding);
  }
  /// The input with the positions of the kernel that begin before it, or end
  /// after it.
  int64_t padded() const {
    int64_t before = std::max<int64_t>(0, extent() - 1 - padding) / stride;
    int64_t after = std::max<int64_t>(0, extent() - 1 - endPadding()) / stride;
    return input + before + after;
  }
};

/// Depth, height and width.
std::array<Axis, 3> getAxes(const Geometry &g);

/// The convolution with the kernel turned around that computes one of unit
/// strides, with as much padding as the kernel reached beyond that one's; none
/// where it would be less than none.
std::optional<Geometry> turnKernel(Geometry g);

/// A bias is added to a result beside the one of `result` bytes.
int64_t biasScratchpad(const Geometry &g, int64_t result);

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Whether jit:avx512_core unrolls the convolution in blocks of `block`
/// channels.
TriBool fitsTransposedUnroll(const Geometry &g, int64_t block);
/// No dim is both strided and dilated, and no window lies in the padding.
bool fitsTransposedDirect(const Geometry &g);
/// The channels of its blocks, 0 if they do not divide those of a group.
int64_t transposedBlock(const Geometry &g, bool channelsLast);
Workspace transposedDirect(const Geometry &g, bool channelsLast, int64_t block);

/// jit_dw: one filter per channel.
Workspace transposedDepthwise(const Geometry &g, bool channelsLast);
/// jit_1x1, of one group and unit strides.
Workspace transposedPointwise(const Geometry &g);
/// gemm: columns that are added up into the result.
Workspace transposedGemm(const Geometry &g, bool channelsLast);

/// The gradient of the input of a convolution with AVX2, or a transposed one;
/// mostly a bound for channels-last tensors.
Workspace narrowTransposed(const Geometry &g, bool channelsLast);

//===----------------------------------------------------------------------===//
// brgconv_strided
//===----------------------------------------------------------------------===//

/// The input with the rows around it that a phase of the kernel reaches.
struct StridedExtents {
  int64_t paddedD, paddedH, paddedW;
  /// Whether the stride does not divide the columns of the result.
  bool isUneven;
};

/// What brgconv_strided computes at a time; `channels` are those of the
/// weight's blocks, `kernelD` and `kernelH` the rows of the kernel.
struct StridedBlocks {
  int64_t channels = 0;
  int64_t blockD = 0, blockH = 0, blockW = 0, kernelD = 0, kernelH = 0;
  float score = 0;
};

/// The blocks oneDNN chooses with these caches; none if it finds none that is
/// worth it.
std::optional<StridedBlocks> findStridedBlocks(const Geometry &g,
                                               const StridedExtents &extents,
                                               int64_t l1Bytes,
                                               int64_t l2Bytes);

/// brgconv_strided, if it serves the convolution; not exact where the caches
/// decide that or the blocks.
std::optional<Workspace> transposedStrided(const Geometry &g,
                                           bool channelsLast);

} // namespace koila::conv

#endif // KOILA_KERNELMODELS_ONEDNN_CONVTRANSPOSED_H
