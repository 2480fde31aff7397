//===- ResampleOps.h - Up- and downsampling, sampling at a grid -*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_RESAMPLEOPS_H
#define KOILA_DIALECT_KOILA_IR_RESAMPLEOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"

namespace koila::rules {

llvm::LogicalResult inferResize(ShapeRule &rule, int64_t spatialRank);
void inferResizeBatch(BatchRule &rule, int64_t spatialRank);

/// With 0 the input says how many spatial dims there are.
llvm::LogicalResult inferGridSampler(ShapeRule &rule, int64_t spatialRank);
void inferGridSamplerBatch(BatchRule &rule);
llvm::LogicalResult inferAffineGrid(ShapeRule &rule);
void inferAffineGridBatch(BatchRule &rule);

} // namespace koila::rules

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ResampleOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_RESAMPLEOPS_H
