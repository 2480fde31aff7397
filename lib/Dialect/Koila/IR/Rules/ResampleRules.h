//===- ResampleRules.h - Rules of resizing and sampling ---------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_RESAMPLERULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_RESAMPLERULES_H

#include "OperatorRules.h"
#include "koila/Dialect/Koila/IR/ResampleOps.h"

namespace koila::rules {

llvm::LogicalResult inferResize(ShapeRule &rule, int64_t spatialRank);
void inferResizeBatch(BatchRule &rule, int64_t spatialRank);

/// With 0 the input says how many spatial dims there are.
llvm::LogicalResult inferGridSampler(ShapeRule &rule, int64_t spatialRank);
void inferGridSamplerBatch(BatchRule &rule);
llvm::LogicalResult inferAffineGrid(ShapeRule &rule);
void inferAffineGridBatch(BatchRule &rule);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_RESAMPLERULES_H
