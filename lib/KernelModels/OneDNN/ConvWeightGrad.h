//===- ConvWeightGrad.h - oneDNN's gradient of a weight ---------*- C++ -*-===//
//
// Private to lib/Analysis.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_CONVWEIGHTGRAD_H
#define KOILA_KERNELMODELS_ONEDNN_CONVWEIGHTGRAD_H

#include "ConvGeometry.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace koila::conv {

/// The bytes that the gradient of a weight is computed of and in.
struct WeightGradient {
  /// Copies of the input and of the gradient; 0: read as they are.
  int64_t source = 0, gradient = 0;
  /// The weight in the kernel's layout.
  int64_t weight = 0, scratchpad = 0;
  bool exact = true;
};

/// The more of `found`, what the gradient of an input of `input` bytes holds,
/// and what that of the weight of `g` holds afterwards beside those.
Workspace joinWeightGradient(Workspace found, WeightGradient kernel,
                             const Geometry &g, bool isTransposed,
                             bool channelsLast, int64_t input);

/// The kernel oneDNN takes, on contiguous or on channels-last tensors.
WeightGradient weightGradient(const Geometry &g, bool channelsLast);

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

/// In how many parts threads split the samples with their rows or pixels, and
/// the blocks of channels. Each part of the samples but one has a weight of its
/// own, which are added up.
struct Shares {
  int64_t samples = 1, outputs = 1, inputs = 1;

  int64_t all() const { return samples * outputs * inputs; }
};

/// What the threads that share a group may split, and what that costs.
struct ShareCosts {
  int64_t mostSamples, outputBlocks, inputBlocks;
  llvm::function_ref<int64_t(const Shares &)> memory;
  /// None: memory decides alone.
  llvm::function_ref<int64_t(const Shares &)> compute;
};

/// The shares that oneDNN takes for `threads`. Source: balance in
/// jit_avx512_common_conv_kernel.cpp and jit_avx512_common_1x1_conv_kernel.cpp.
Shares findShares(int64_t threads, const ShareCosts &costs);

/// The parts in which a depthwise kernel splits channels-last tensors. Source:
/// partition_nthr_nxc in jit_uni_dw_conv_kernel_utils.cpp.
int64_t findDepthwiseThreads(const Geometry &g);

/// The flags with which `count` groups of threads wait for each other.
int64_t barriers(int64_t count);

/// `jobs` sums, each of `elements` over `terms`, split among `threads` which
/// have `mostElements` of buffers. Source: cpu_reducer.cpp.
int64_t reducerScratchpad(int64_t threads, int64_t elements, int64_t jobs,
                          int64_t terms, int64_t mostElements);

/// The same where the first thread of a group has a buffer, too.
int64_t planeReducerScratchpad(int64_t threads, int64_t elements, int64_t jobs,
                               int64_t terms, int64_t mostElements);

} // namespace koila::conv

#endif // KOILA_KERNELMODELS_ONEDNN_CONVWEIGHTGRAD_H
