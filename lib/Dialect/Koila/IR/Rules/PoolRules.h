//===- PoolRules.h - Rules of pools -----------------------------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_POOLRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_POOLRULES_H

#include "OperatorRules.h"
#include "WorkRules.h"
#include "koila/Dialect/Koila/IR/PoolOps.h"

namespace koila::rules {

/// The strides of a pool's result.
enum class PoolLayout {
  /// Dense row-major, whatever the input.
  RowMajor,
  /// Channels-last if the batched input is.
  AsInput,
  /// The same for a row of pixels, which is pooled as an image of height one.
  AsImage
};
struct Pool {
  int64_t spatialRank;
  PoolLayout layout;
};
enum class AdaptivePool {
  Max,
  Average,
  /// A single result per channel is the mean, which takes any tensor.
  AverageOrMean
};

/// A second result, the indices, is as the first and int64.
llvm::LogicalResult inferWindowPool(ShapeRule &rule, Pool pool);
llvm::LogicalResult inferAdaptivePool(ShapeRule &rule, Pool pool,
                                      AdaptivePool kind);
llvm::LogicalResult inferMaxUnpool(ShapeRule &rule, int64_t spatialRank);
/// Of an operator that works on the trailing dims of all its tensors, each
/// element of the other dims alone.
void inferPoolBatch(BatchRule &rule, int64_t spatialRank);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_POOLRULES_H
