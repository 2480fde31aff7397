//===- BackwardSegments.h - A backward pass in segments ---------*- C++ -*-===//
//
// Where samples are mixed on the way to the loss, no tile can run the whole
// backward pass. The step is then written as a forward pass that records
// nothing, and a backward pass in segments: each runs its part of the program
// again, from tensors that are there, and differentiates it alone.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BACKWARDSEGMENTS_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BACKWARDSEGMENTS_H

#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringRef.h"

namespace koila {

/// On the operations of one segment, its number: they run in the same loops,
/// once.
inline constexpr llvm::StringLiteral kSegmentAttr = "koila.segment";
/// Beside it: the segment mixes samples, and runs on the whole batch.
inline constexpr llvm::StringLiteral kWholeSegmentAttr = "koila.whole_segment";
/// On the gradient of what segments read without the batch: the number of the
/// last of them.
inline constexpr llvm::StringLiteral kAfterSegmentAttr = "koila.after_segment";

/// On a sum over the batch: it is the gradient of what has no batch, which
/// tiles may add up as autograd does.
inline constexpr llvm::StringLiteral kGradientSumAttr = "koila.gradient_sum";

/// On operations on the way to the loss, an integer: the level of those of the
/// forward pass, and behind all levels the segments in their order.
inline constexpr llvm::StringLiteral kStepAttr = "koila.step";

/// Writes the training step `function`, whose batch is `batchSymbol`, as one
/// forward pass without records and one backward pass in segments. Fails, after
/// an error and before anything changes, where it cannot be written so.
llvm::FailureOr<RecomputeFigures>
splitBackward(mlir::FunctionOpInterface function, llvm::StringRef batchSymbol,
              std::optional<RecomputeBudget> budget);

/// Removes the marks of segments.
void removeSegmentMarks(mlir::FunctionOpInterface function);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BACKWARDSEGMENTS_H
