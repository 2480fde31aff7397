//===- GenericListInference.h - Operators on lists of anything --*- C++ -*-===//

#ifndef KOILA_ANALYSIS_SHAPE_GENERICLISTINFERENCE_H
#define KOILA_ANALYSIS_SHAPE_GENERICLISTINFERENCE_H

#include "koila/Analysis/MetaKernelShapes.h"
#include "mlir/IR/Attributes.h"
#include "llvm/Support/JSON.h"

namespace koila::detail {

/// If `op` is an operator on lists of anything whose elements and numbers are
/// known, sets what its results hold and returns true.
bool inferGenericListElements(TorchOpaqueOp op, ShapeRule &rule,
                              const MetaKernelShapeSource &source);

/// Runs `op`, an operator on lists or dicts of anything, on numbers that stand
/// for the elements. Of `arguments` a dict is `{"dict": [[key, number], ...]}`.
/// The answer has `results`, and as `arguments` what they hold afterwards;
/// there an element is `{"element": number}`, a tuple `{"tuple": [...]}`, and a
/// dict `{"dict": [key, value, key, value, ...]}`. None if it raises.
std::optional<llvm::json::Object> moveElements(TorchOpaqueOp op,
                                               llvm::json::Array arguments);

} // namespace koila::detail

#endif // KOILA_ANALYSIS_SHAPE_GENERICLISTINFERENCE_H
