//===- IndexRules.h - Rules of indexing, joining, padding -------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_INDEXRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_INDEXRULES_H

#include "OperatorRules.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"

namespace koila {
/// An expression in the text of an error.
inline mlir::InFlightDiagnostic &&operator<<(mlir::InFlightDiagnostic &&error,
                                             DimExpr expr) {
  return std::move(error) << expr.str();
}
} // namespace koila

namespace koila::indexing {

// What the rules of this family share (IndexShapes.cpp).

/// Row-major; none of the strides is known if one needs an extent that data
/// decides.
TensorInfo packed(llvm::ArrayRef<DimExpr> dims, mlir::Type type);
/// As at::empty with the memory format that PyTorch suggests for `like`.
TensorInfo packedLike(llvm::ArrayRef<DimExpr> dims, mlir::Type type,
                      const TensorInfo &like);
/// Whether PyTorch takes the strides for channels last, of rank 4 or 5.
TriBool suggestsChannelsLast(const TensorInfo &info);
/// A tensor of which nothing but the element type is known.
TensorInfo unranked(mlir::Type type);
/// One and the same type for all, every operand with dims; null if unknown.
mlir::Type promoteAll(llvm::ArrayRef<TensorInfo> operands);
llvm::LogicalResult wrapDim(ShapeRule &rule, int64_t dim, int64_t rank,
                            int64_t &wrapped);
/// Refuses indices that are no int64, or int32 where that is allowed.
llvm::LogicalResult checkIndexType(ShapeRule &rule, const TensorInfo &index,
                                   bool allowsInt32 = true);
llvm::LogicalResult checkSameType(ShapeRule &rule, const TensorInfo &self,
                                  const TensorInfo &other);
/// Whether there are rows for every batch but none at all; what data decides
/// may be zero.
bool isPositive(DimExpr extent);
/// Refuses to take `count` rows out of a dim that has none.
llvm::LogicalResult checkSelects(ShapeRule &rule, DimExpr extent,
                                 DimExpr count);
llvm::LogicalResult broadcastDims(ShapeRule &rule, llvm::ArrayRef<DimExpr> lhs,
                                  llvm::ArrayRef<DimExpr> rhs,
                                  llvm::SmallVectorImpl<DimExpr> &result);
/// Refuses extents that do not broadcast to `dims`.
llvm::LogicalResult checkExpands(ShapeRule &rule, const TensorInfo &info,
                                 llvm::ArrayRef<DimExpr> dims);
/// The number of elements; null if the rank is unknown.
DimExpr countElements(ShapeRule &rule, const TensorInfo &info);
/// The result of an operator that writes into a copy of `self`, or into `self`
/// where the operation is tied.
enum class Copy { Packed, Preserved };
llvm::LogicalResult setWritten(ShapeRule &rule, mlir::Value self, Copy copy);
/// Says that samples are mixed, of all results, having asked for every operand.
void mixSamples(BatchRule &rule, const llvm::Twine &reason);
/// Keeps the batch of `self` in its dim, unless that is one of `dims`, which
/// count from the end if negative; `what` says what is done over them.
void keepBatchOutside(BatchRule &rule, mlir::Value self,
                      llvm::ArrayRef<int64_t> dims, llvm::StringRef what);

// Joining (JoinShapes.cpp).

/// How operands are made to fit before they are joined.
enum class Join { Cat, Stack, Horizontal, Vertical, Depth, Column };
llvm::LogicalResult inferJoin(ShapeRule &rule, mlir::ValueRange tensors,
                              Join kind, int64_t dim);
void inferJoinBatch(BatchRule &rule, mlir::ValueRange tensors, Join kind,
                    int64_t dim);
llvm::LogicalResult inferBlockDiag(ShapeRule &rule, mlir::ValueRange tensors);
llvm::LogicalResult inferMeshgrid(ShapeRule &rule, mlir::ValueRange tensors,
                                  llvm::StringRef indexing);
void inferMeshgridBatch(BatchRule &rule, mlir::ValueRange tensors,
                        llvm::StringRef indexing);
llvm::LogicalResult inferCartesianProduct(ShapeRule &rule,
                                          mlir::ValueRange tensors);

// Rows by one tensor of indices (IndexShapes.cpp).

llvm::LogicalResult inferIndexSelect(ShapeRule &rule, mlir::Value self,
                                     int64_t dim, mlir::Value index);
void inferIndexSelectBatch(BatchRule &rule, mlir::Value self, int64_t dim,
                           mlir::Value index);
llvm::LogicalResult inferGather(ShapeRule &rule, mlir::Value self, int64_t dim,
                                mlir::Value index);
llvm::LogicalResult inferTakeAlongDim(ShapeRule &rule, mlir::Value self,
                                      mlir::Value indices,
                                      std::optional<int64_t> dim);
/// Also for gather, whose operands need not broadcast.
void inferTakeAlongDimBatch(BatchRule &rule, mlir::Value self,
                            mlir::Value indices, std::optional<int64_t> dim);
llvm::LogicalResult inferTake(ShapeRule &rule, mlir::Value self,
                              mlir::Value index);
llvm::LogicalResult inferEmbedding(ShapeRule &rule, mlir::Value weight,
                                   mlir::Value indices);
/// The result has a row of its own for each row of `rows`, which reads of
/// `table` what it likes.
void inferLookupBatch(BatchRule &rule, mlir::Value rows, mlir::Value table);

// Writing (ScatterShapes.cpp).

/// `src` is null where a number is written; `modes` are the names `reduce` may
/// have.
llvm::LogicalResult inferScatter(ShapeRule &rule, mlir::Value self, int64_t dim,
                                 mlir::Value index, mlir::Value src,
                                 llvm::StringRef reduce = {},
                                 llvm::ArrayRef<llvm::StringRef> modes = {});
llvm::LogicalResult inferIndexAdd(ShapeRule &rule, mlir::Value self,
                                  int64_t dim, mlir::Value index,
                                  mlir::Value source);
llvm::LogicalResult inferIndexCopy(ShapeRule &rule, mlir::Value self,
                                   int64_t dim, mlir::Value index,
                                   mlir::Value source);
llvm::LogicalResult inferIndexFill(ShapeRule &rule, mlir::Value self,
                                   int64_t dim, mlir::Value index,
                                   mlir::Value value);
/// Every operand of `along` has the batch in the dim of `self`, which is not
/// `dim`; those of `free` have none.
void inferWriteBatch(BatchRule &rule, mlir::Value self, int64_t dim,
                     llvm::ArrayRef<mlir::Value> along,
                     llvm::ArrayRef<mlir::Value> free);

// Several tensors of indices (AdvancedIndexShapes.cpp).

/// Where `mask` is false there is no operand; no mask: one for each.
llvm::LogicalResult inferIndex(ShapeRule &rule, mlir::Value self,
                               mlir::ValueRange indices,
                               llvm::ArrayRef<bool> mask);
void inferIndexBatch(BatchRule &rule, mlir::Value self,
                     mlir::ValueRange indices, llvm::ArrayRef<bool> mask);
llvm::LogicalResult inferIndexPut(ShapeRule &rule, mlir::Value self,
                                  mlir::ValueRange indices,
                                  llvm::ArrayRef<bool> mask,
                                  mlir::Value values);
void inferIndexPutBatch(BatchRule &rule, mlir::Value self,
                        mlir::ValueRange indices, llvm::ArrayRef<bool> mask,
                        mlir::Value values);

// Masks (DataDependentShapeShapes.cpp).

llvm::LogicalResult inferMaskedSelect(ShapeRule &rule, mlir::Value self,
                                      mlir::Value mask);
llvm::LogicalResult inferMaskedScatter(ShapeRule &rule, mlir::Value self,
                                       mlir::Value mask, mlir::Value source);
llvm::LogicalResult inferNonzero(ShapeRule &rule, mlir::Value self);
llvm::LogicalResult inferNonzeroNumpy(ShapeRule &rule, mlir::Value self);
llvm::LogicalResult inferBincount(ShapeRule &rule, mlir::Value self,
                                  mlir::Value weights);

// Other orders of rows (PermuteRepeatShapes.cpp).

llvm::LogicalResult inferFlip(ShapeRule &rule, mlir::Value self,
                              llvm::ArrayRef<int64_t> dims, int64_t minRank);
llvm::LogicalResult inferRoll(ShapeRule &rule, mlir::Value self,
                              llvm::ArrayRef<int64_t> dims);
llvm::LogicalResult inferRot90(ShapeRule &rule, mlir::Value self, int64_t k,
                               llvm::ArrayRef<int64_t> dims);
void inferRot90Batch(BatchRule &rule, mlir::Value self, int64_t k,
                     llvm::ArrayRef<int64_t> dims);
/// `padded`: as tile, whose list may be shorter than the rank.
llvm::LogicalResult inferRepeat(ShapeRule &rule, mlir::Value self,
                                llvm::StringRef list, bool padded);
void inferRepeatBatch(BatchRule &rule, mlir::Value self, llvm::StringRef list,
                      llvm::ArrayRef<int64_t> repeats);
llvm::LogicalResult inferRepeatInterleave(ShapeRule &rule, mlir::Value self,
                                          std::optional<int64_t> dim);
void inferRepeatInterleaveBatch(BatchRule &rule, mlir::Value self,
                                int64_t repeats, std::optional<int64_t> dim);
llvm::LogicalResult inferRepeatRows(ShapeRule &rule, mlir::Value self,
                                    mlir::Value repeats,
                                    std::optional<int64_t> dim);

// Padding (PadShapes.cpp).

enum class Padding { Constant, Reflect, Replicate, Circular };
std::optional<Padding> getPadding(llvm::StringRef mode);
/// pad, which checks rank and list and hands on to one of those below.
llvm::LogicalResult inferPad(ShapeRule &rule, mlir::Value self,
                             llvm::StringRef mode,
                             std::optional<llvm::APFloat> value);
llvm::LogicalResult inferConstantPad(ShapeRule &rule, mlir::Value self);
/// reflection_pad, replication_pad of the last `spatial` dims.
llvm::LogicalResult inferWindowPad(ShapeRule &rule, mlir::Value self,
                                   llvm::StringRef list, Padding mode,
                                   int64_t spatial);
llvm::LogicalResult inferCircularPad(ShapeRule &rule, mlir::Value self);
void inferPadBatch(BatchRule &rule, mlir::Value self,
                   llvm::ArrayRef<int64_t> pad);

// Blocks and bands (Im2ColTriangularShapes.cpp).

llvm::LogicalResult inferPixelShuffle(ShapeRule &rule, mlir::Value self,
                                      int64_t factor);
llvm::LogicalResult inferPixelUnshuffle(ShapeRule &rule, mlir::Value self,
                                        int64_t factor);
llvm::LogicalResult inferChannelShuffle(ShapeRule &rule, mlir::Value self,
                                        int64_t groups);
/// The lists of im2col and col2im.
struct Blocks {
  llvm::ArrayRef<int64_t> kernel, dilation, padding, stride;
};
llvm::LogicalResult inferIm2col(ShapeRule &rule, mlir::Value self,
                                const Blocks &blocks);
llvm::LogicalResult inferCol2im(ShapeRule &rule, mlir::Value self,
                                const Blocks &blocks);
void inferFoldBatch(BatchRule &rule, mlir::Value self, int64_t rank);
llvm::LogicalResult inferTriangle(ShapeRule &rule, mlir::Value self);
llvm::LogicalResult inferDiagEmbed(ShapeRule &rule, mlir::Value self,
                                   int64_t offset, int64_t dim1, int64_t dim2);
void inferDiagEmbedBatch(BatchRule &rule, mlir::Value self, int64_t dim1,
                         int64_t dim2);
llvm::LogicalResult inferDiag(ShapeRule &rule, mlir::Value self,
                              int64_t diagonal);

// Tables (EmbeddingShapes.cpp).

llvm::LogicalResult inferOneHot(ShapeRule &rule, mlir::Value self,
                                int64_t classes);
struct Bags {
  mlir::Value weight, indices, offsets, perSampleWeights;
  int64_t mode = 0;
  bool includeLastOffset = false;
  std::optional<int64_t> paddingIndex;
};
llvm::LogicalResult inferEmbeddingBag(ShapeRule &rule, const Bags &bags);
void inferEmbeddingBagBatch(BatchRule &rule, const Bags &bags);
/// The size of bags that begin at `offsets`, if they are made as numbers in
/// equal steps from zero.
std::optional<int64_t> getBagSize(const BatchRule &rule, mlir::Value offsets);

} // namespace koila::indexing

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_INDEXRULES_H
