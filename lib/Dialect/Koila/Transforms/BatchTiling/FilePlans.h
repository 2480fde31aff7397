//===- FilePlans.h - Plans for other budgets --------------------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_FILEPLANS_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_FILEPLANS_H

#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "koila/Dialect/Koila/Transforms/FilePlans.h"

namespace koila {

/// Puts plans for other budgets into `module`, which has been tiled by budget:
/// `original` is what it was before. Their reports all have the figures of all
/// plans.
void addPlans(mlir::ModuleOp module, mlir::ModuleOp original,
              const TilingOptions &options);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_FILEPLANS_H
