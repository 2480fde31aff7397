//===- Pipelines.h - Pipelines of koila's passes ----------------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_PIPELINES_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_PIPELINES_H

#include "koila/Dialect/Koila/Transforms/Passes.h"
#include <optional>
#include <string>

namespace koila {

/// From import to what emission can write: shape inference and batch tiling,
/// with a check of the stage before and after each. The options are those of
/// `koila-tile-batch`. Fails where the promise of the options cannot be kept.
void buildCompilePipeline(mlir::OpPassManager &manager,
                          const TileBatchPassOptions &options = {});

/// Registers `koila-compile`, which takes the options of `koila-tile-batch`.
void registerKoilaPipelines();

/// Of the first pass in `manager` that has `mode=train`, its `loss=`, empty
/// without one; none if no pass trains. Who imports a program asks, since
/// import makes the training step that those passes analyse.
std::optional<std::string> findTrainingLoss(const mlir::OpPassManager &manager);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_PIPELINES_H
