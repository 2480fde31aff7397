//===- HalfConv.h - Convolutions of half types in oneDNN --------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_HALFCONV_HALFCONV_H
#define KOILA_KERNELMODELS_ONEDNN_HALFCONV_HALFCONV_H

#include "../ConvWeightGrad.h"

#include "llvm/ADT/StringRef.h"
#include <optional>

namespace koila::conv {

inline constexpr int64_t HalfBytes = 2;

/// What oneDNN has for a half type.
struct HalfKernels {
  /// Tiles for this type, and the kernels of AVX-512 for it.
  bool hasTiles = false, hasVectors = false;
  /// bfloat16 else.
  bool isFloat16 = false;
  /// Terms that an instruction sums up.
  int64_t pairs = 2;
};

/// What a kernel holds beside its input and result, which are rows of channels.
struct HalfBuffers {
  int64_t weight, scratchpad;
  bool exact;
};

/// Whether kernels that copy their input take such a scratchpad beside tensors
/// of these bytes.
inline bool isScratchpadTaken(const Geometry &g, int64_t scratchpad,
                              int64_t weight) {
  constexpr int64_t kMost = int64_t(32) << 30, kMostTimes = 64;
  return scratchpad <=
         std::min(kMost, kMostTimes * g.threads *
                             (g.inputBytes() + weight + g.outputBytes()));
}

/// brg_conv, and brgconv_1x1 of pointwise kernels without padding. `isTurned`
/// convolves with the kernel turned around, as gradients do.
std::optional<HalfBuffers>
findHalfBrgemm(const Geometry &g, const HalfKernels &kernels, bool isTurned);
/// The channels of a group once strides have become such.
int64_t getFoldedInputs(const Geometry &g, const HalfKernels &kernels);
std::optional<HalfBuffers> findHalfPointwise(const Geometry &g,
                                             const HalfKernels &kernels);

/// brgconv_strided, of a gradient with strides: `g` goes from the gradient of
/// the result to that of the input.
std::optional<HalfBuffers> findHalfStrided(const Geometry &g,
                                           const HalfKernels &kernels);

/// brgconv_bwd_w, with tiles.
std::optional<WeightGradient> findHalfWeightGradient(const Geometry &g,
                                                     const HalfKernels &kernels,
                                                     bool channelsLast);

/// What oneDNN's kernels for a half type are on `isa`.
HalfKernels findHalfKernels(llvm::StringRef isa, bool isFloat16);

/// Of tensors of one layout, without their copies: a convolution, a transposed
/// one, and the gradients, which count.
Workspace halfConvolution(const Geometry &g, const HalfKernels &kernels,
                          bool channelsLast);
Workspace halfTransposed(const Geometry &g, const HalfKernels &kernels,
                         bool channelsLast);
Workspace halfBackward(const Geometry &g, const HalfKernels &kernels,
                       bool isTransposed, bool channelsLast, bool wantsInput,
                       bool wantsWeight);

} // namespace koila::conv

#endif // KOILA_KERNELMODELS_ONEDNN_HALFCONV_HALFCONV_H
