//===- ViewRules.h - Rules of views -----------------------------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_VIEWRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_VIEWRULES_H

#include "OperatorRules.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"

namespace koila::rules {

/// Sizes of an operator; none if their number is unknown. A null size is
/// unknown.
using Sizes = std::optional<llvm::SmallVector<DimExpr>>;

// Dims in another order, more or fewer of them (ViewDimsShapes.cpp).

/// Per dim of the result the dim of the operand, -1 for a new one; or what is
/// wrong with the arguments.
struct DimMap {
  llvm::SmallVector<int64_t> dims;
  std::string error;
  /// Dims of the operand that are not there where their extent is one.
  llvm::SmallVector<int64_t> squeezed;
};
using GetDimMap = llvm::function_ref<DimMap(const TensorInfo &info)>;

DimMap mapAll(const TensorInfo &info);
DimMap mapPermute(const TensorInfo &info, llvm::ArrayRef<int64_t> dims);
DimMap mapTranspose(const TensorInfo &info, int64_t dim0, int64_t dim1);
DimMap mapMatrixTranspose(const TensorInfo &info);
DimMap mapMatricesTransposed(const TensorInfo &info);
/// The same, and a tensor without dims as it is.
DimMap mapAdjoint(const TensorInfo &info);
DimMap mapReversed(const TensorInfo &info);
DimMap mapMove(const TensorInfo &info, llvm::ArrayRef<int64_t> source,
               llvm::ArrayRef<int64_t> destination);
DimMap mapUnsqueeze(const TensorInfo &info, int64_t dim);
DimMap mapSqueeze(const TensorInfo &info);
DimMap mapSqueeze(const TensorInfo &info, llvm::ArrayRef<int64_t> dims);
DimMap mapSelect(const TensorInfo &info, int64_t dim);
/// New dims before a vector, and after whatever has too few.
DimMap mapAtLeast(const TensorInfo &info, int64_t least);

llvm::LogicalResult inferMapped(ShapeRule &rule, mlir::Value self,
                                GetDimMap getMap);
void inferMappedBatch(BatchRule &rule, mlir::Value self, GetDimMap getMap);
llvm::LogicalResult inferLazyConj(ShapeRule &rule, mlir::Value self);
llvm::LogicalResult inferAtLeast(ShapeRule &rule, mlir::ValueRange tensors,
                                 int64_t least);
void inferAtLeastBatch(BatchRule &rule, mlir::ValueRange tensors,
                       int64_t least);
llvm::LogicalResult inferSelect(ShapeRule &rule, mlir::Value self, int64_t dim);
llvm::LogicalResult inferUnbind(ShapeRule &rule, mlir::Value self, int64_t dim);

// Parts of a dim (ViewSliceShapes.cpp).

llvm::LogicalResult inferSlice(ShapeRule &rule, mlir::Value self, int64_t dim);
llvm::LogicalResult inferNarrow(ShapeRule &rule, mlir::Value self, int64_t dim);
void inferSliceBatch(BatchRule &rule, mlir::Value self);

/// Extents of the parts of a dim; none if they are not known.
using Lengths = llvm::FailureOr<Sizes>;
llvm::LogicalResult inferSplit(ShapeRule &rule, mlir::Value self, int64_t dim,
                               llvm::function_ref<Lengths(DimExpr)> getLengths);
/// What looks at `dim` as a whole mixes samples there.
void inferSplitBatch(BatchRule &rule, mlir::Value self, int64_t dim);
Lengths splitBySize(ShapeRule &rule, DimExpr extent, DimExpr size);
Lengths splitBySizes(ShapeRule &rule, DimExpr extent, const Sizes &sizes);
Lengths splitByChunks(ShapeRule &rule, DimExpr extent, DimExpr chunks);
Lengths splitBySections(ShapeRule &rule, DimExpr extent, DimExpr sections);

// Views with strides of their own (ViewStridedShapes.cpp).

llvm::LogicalResult inferUnfold(ShapeRule &rule, mlir::Value self, int64_t dim,
                                int64_t size, int64_t step);
llvm::LogicalResult inferDiagonal(ShapeRule &rule, mlir::Value self,
                                  int64_t offset, int64_t dim1, int64_t dim2);
void inferDiagonalBatch(BatchRule &rule, mlir::Value self, int64_t dim1,
                        int64_t dim2);
/// Reads the arguments `size` and `stride`.
llvm::LogicalResult inferAsStrided(ShapeRule &rule, mlir::Value self);
void inferAsStridedBatch(BatchRule &rule, mlir::Value self);

// Repetition without a copy (ViewExpandShapes.cpp).

llvm::LogicalResult inferExpand(ShapeRule &rule, mlir::Value self,
                                const Sizes &sizes);
llvm::LogicalResult inferBroadcastTensors(ShapeRule &rule,
                                          mlir::ValueRange tensors);
/// `other` is an operand whose extents are the sizes; null if they are the
/// argument `size`.
void inferExpandBatch(BatchRule &rule, mlir::Value self, mlir::Value other);

// Other extents over the same elements (ViewReshapeShapes.cpp).

enum class ReshapeLayout {
  /// An error where the strides do not allow a view.
  View,
  /// A copy where they do not.
  ViewOrCopy,
  /// A copy of what is not contiguous.
  Contiguous
};
llvm::LogicalResult inferReshape(ShapeRule &rule, mlir::Value self,
                                 const Sizes &sizes, ReshapeLayout layout);
/// Reads the sizes from the argument of that name.
llvm::LogicalResult inferReshape(ShapeRule &rule, mlir::Value self,
                                 llvm::StringRef sizes, ReshapeLayout layout);
/// Reads the argument `sizes`.
llvm::LogicalResult inferUnflatten(ShapeRule &rule, mlir::Value self,
                                   int64_t dim);
/// `other` is an operand whose extents are the sizes, or null.
void inferReshapeBatch(BatchRule &rule, mlir::Value self, mlir::Value other);
/// All results are views of `self`.
void describeViews(StorageRule &rule, mlir::Value self);
void describeRavelStorage(StorageRule &rule, mlir::Value self);

// Other element types, and integers (ViewShapes.cpp).

llvm::LogicalResult inferViewDtype(ShapeRule &rule, mlir::Value self,
                                   int64_t dtype);
llvm::LogicalResult inferViewAsReal(ShapeRule &rule, mlir::Value self);
llvm::LogicalResult inferViewAsComplex(ShapeRule &rule, mlir::Value self);
llvm::LogicalResult inferComplexPart(ShapeRule &rule, mlir::Value self,
                                     bool imaginary);
void inferTypeViewBatch(BatchRule &rule, mlir::Value self);
llvm::LogicalResult inferSizes(ShapeRule &rule, mlir::Value self);
llvm::LogicalResult inferSizeInt(ShapeRule &rule, mlir::Value self,
                                 int64_t dim);
void inferSizeIntBatch(BatchRule &rule, mlir::Value self, int64_t dim);
void inferNumelBatch(BatchRule &rule, mlir::Value self);

// Shared (ViewSupport.cpp).

llvm::LogicalResult emitDimOutOfRange(const ShapeRule &rule, int64_t dim,
                                      int64_t rank);
/// All results have an unknown rank, and the element type of `info`.
void setUnknownRank(ShapeRule &rule, const TensorInfo &info);
/// Whether an argument that is no tensor follows the batch; asks all of them.
bool hasBatchArgument(BatchRule &rule);
/// The symbol that is the number of samples; empty if there is none.
llvm::StringRef getBatchName(mlir::Operation *op);
/// Puts in the values of symbols that have only one.
DimExpr substituteFixed(mlir::Operation *op, DimExpr expr);
TensorInfo substituteFixed(mlir::Operation *op, TensorInfo info);
/// Whether a symbolic extent can equal the number only at some value of a
/// symbol that the user left open, so that tracing wrote the number.
bool isBakedIn(mlir::Operation *op, DimExpr extent, int64_t number);
/// Whether all values are zero or more, given that extents are. The value of
/// an integer that nothing is known of may be negative.
bool isNonNegative(DimExpr expr);
/// The smaller one, without min() where it is known which.
DimExpr getSmaller(DimExpr lhs, DimExpr rhs);
/// No less than zero, without max() where the sign is known.
DimExpr clampToZero(DimExpr expr);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_VIEWRULES_H
