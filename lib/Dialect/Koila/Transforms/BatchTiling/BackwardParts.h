//===- BackwardParts.h - A backward pass of one tile in parts ---*- C++ -*-===//
//
// What autograd keeps of one tile may be too much even where the tile is one
// sample. The forward pass of the tile then runs without records up to its last
// part, and the backward pass in parts from the last to the first: each runs
// its forward pass again, from the tensors that were kept at its start.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BACKWARDPARTS_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BACKWARDPARTS_H

#include "CostEstimate.h"
#include "koila/Analysis/RequiresGradAnalysis.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"

namespace koila {

/// On an operation of the forward pass, the number of its part, from 0; those
/// without one are of the last.
inline constexpr llvm::StringLiteral kPartAttr = "koila.part";

/// Marks the parts of all backward passes of `function`, a step that is not
/// rewritten yet, such that autograd keeps for none more than `share` of what
/// it keeps for the largest backward pass, where there are such cuts.
RecomputeFigures markParts(mlir::FunctionOpInterface function,
                           const DimAnalysis &dims,
                           const RequiresGradAnalysis &gradients,
                           const CostEstimate &costs, double share);

/// Rewrites the backward passes of `function` that are marked, wherever they
/// stand, and removes the marks. One that cannot be rewritten so stays whole.
/// Returns whether any was.
bool splitParts(mlir::FunctionOpInterface function);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BACKWARDPARTS_H
