//===- KoilaViewOps.h - Views -*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAVIEWOPS_H
#define KOILA_DIALECT_KOILA_IR_KOILAVIEWOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"

namespace koila::rules {

/// Sizes of an operator; none if their number is unknown.
using Sizes = std::optional<llvm::SmallVector<DimExpr>>;

/// Per dim of the result the dim of the operand, or what is wrong with the
/// arguments.
struct DimOrder {
  llvm::SmallVector<int64_t> dims;
  std::string error;
};
using GetDimOrder = llvm::function_ref<DimOrder(int64_t rank)>;

DimOrder orderPermute(int64_t rank, llvm::ArrayRef<int64_t> dims);
llvm::LogicalResult inferPermuted(ShapeRule &rule, mlir::Value self,
                                  GetDimOrder getOrder);
void inferPermutedBatch(BatchRule &rule, mlir::Value self,
                        GetDimOrder getOrder);

llvm::LogicalResult inferSlice(ShapeRule &rule, mlir::Value self, int64_t dim);
void inferSliceBatch(BatchRule &rule, mlir::Value self);

llvm::LogicalResult inferExpand(ShapeRule &rule, mlir::Value self,
                                const Sizes &sizes);
/// `other` is an operand whose extents are the sizes; null if they are the
/// argument `size`.
void inferExpandBatch(BatchRule &rule, mlir::Value self, mlir::Value other);

/// All results are views of `self`.
void describeViews(StorageRule &rule, mlir::Value self);

/// An error that says which dim is out of range.
llvm::LogicalResult emitDimOutOfRange(const ShapeRule &rule, int64_t dim,
                                      int64_t rank);
/// A result of unknown rank with the element type of `info`.
void setUnknownRank(ShapeRule &rule, const TensorInfo &info);

/// Whether all values are zero or more, given that extents are. The value of
/// an integer that nothing is known of may be negative.
bool isNonNegative(DimExpr expr);

} // namespace koila::rules

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/KoilaViewOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_KOILAVIEWOPS_H
