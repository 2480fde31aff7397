//===- ConvWorkspace.h - Hidden bytes of a CPU convolution ------*- C++ -*-===//
//
// What `aten::convolution` allocates inside itself on CPU beyond its output:
// copies in oneDNN's blocked layouts, scratchpads, im2col columns. The figure
// follows from which implementation oneDNN (or PyTorch) picks for the shape;
// docs/design/Workspaces.md states the rules and what they were measured on.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_CONVWORKSPACE_H
#define KOILA_KERNELMODELS_ONEDNN_CONVWORKSPACE_H

#include "koila/Interfaces/Rules.h"
#include <cstdint>
#include <optional>
#include <vector>

namespace koila {

/// What the strides of a tensor are. One of one channel or one pixel may be
/// both contiguous and channels-last.
struct TensorLayout {
  /// Whether `Tensor::suggest_memory_format()` answers ChannelsLast.
  bool suggestsChannelsLast = false;
  /// Whether `Tensor::contiguous()` copies nothing, to either layout.
  bool isChannelsLast = false, isContiguous = true;
};

/// One convolution, concrete extents. `input` is [N, C, spatial...]; `weight`
/// is [out, in/groups, kernel...], of a transposed one [in, out/groups,
/// kernel...]. `outputPadding` is of those alone.
struct ConvolutionShape {
  std::vector<int64_t> input, weight, stride, padding, dilation, outputPadding;
  int64_t groups = 1;
  bool transposed = false, hasBias = false;
  TensorLayout inputLayout, weightLayout;
  int64_t elementBytes = 4; // float32
  /// Of two bytes; bfloat16 else.
  bool isFloat16 = false;

  /// Whether PyTorch computes it, and its gradients, on channels-last tensors.
  bool isChannelsLast() const {
    return inputLayout.suggestsChannelsLast ||
           weightLayout.suggestsChannelsLast;
  }
};

/// The bytes beyond the output at the worst moment of the call. If not
/// `exact`, an upper bound.
struct Workspace {
  int64_t bytes;
  bool exact;
  /// What is allocated, in order; the output is left. None if that is not
  /// known.
  std::optional<AllocationTrace> trace = std::nullopt;
};

/// The hidden bytes of `shape` without gradients, torch 2.13 / oneDNN 3.12.
Workspace convolutionWorkspace(const ConvolutionShape &shape,
                               const WorkspaceTarget &target);

/// The most bytes of the gradients of `shape`, these included. `gradientCopy`:
/// of a copy of the result's gradient in the layout that the operands suggest,
/// 0 if it has that. If not `exact`, an upper bound.
Workspace convolutionBackwardWorkspace(const ConvolutionShape &shape,
                                       const WorkspaceTarget &target,
                                       bool wantsInput, bool wantsWeight,
                                       int64_t gradientCopy = 0);

} // namespace koila

#endif // KOILA_KERNELMODELS_ONEDNN_CONVWORKSPACE_H
