//===- ConvolutionCall.h - A convolution with its numbers -------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ONEDNN_CONVOLUTIONCALL_H
#define KOILA_KERNELMODELS_ONEDNN_CONVOLUTIONCALL_H

#include "ConvWorkspace.h"
#include "koila/Dialect/Koila/IR/ConvolutionOps.h"

namespace koila::conv {

struct Call {
  ConvolutionShape shape;
  WorkspaceTarget target;
  /// Of the input, made before the convolution.
  llvm::SmallVector<int64_t, 2> copies;
  /// Whether the input is padded first, as `padding="same"` may need it.
  bool isPadded = false;
};

/// What `rule` knows of a convolution of `input`, whose strides and so on are
/// attributes of its operation; none, after the rule says why, if that is too
/// little.
std::optional<Call> readCall(WorkspaceRule &rule, rules::ConvolutionKind kind,
                             mlir::Value input, mlir::Value weight,
                             bool hasBias);
/// The same of an operation that is one.
std::optional<Call> readCall(WorkspaceRule &rule, rules::ConvolutionKind kind);

/// The bytes that stay of the result, which may begin as large as the input;
/// none: those of its elements.
std::optional<int64_t> getResultStorage(const ConvolutionShape &shape,
                                        const WorkspaceTarget &target);

} // namespace koila::conv

#endif // KOILA_KERNELMODELS_ONEDNN_CONVOLUTIONCALL_H
