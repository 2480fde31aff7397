//===- ReductionRules.h - Rules of reductions, sorting, norms ---*- C++ -*-===//
//
// What the families of reductions, sorting and searching, normalisations and
// losses share. Arguments of one name mean the same in all of them: `dim` (a
// number or a list), `keepdim`, `dtype`, `reduction`.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_REDUCTIONRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_REDUCTIONRULES_H

#include "OperatorRules.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"
#include "koila/Interfaces/Layout.h"
#include "mlir/IR/BuiltinTypes.h"

namespace koila::rules {

/// How the element type of a result follows from that of `self`.
enum class ResultType {
  Same,
  /// `dtype`; without, integers become int64.
  Sum,
  /// `dtype`; integers are refused.
  Mean,
  /// Integers become float32.
  Float,
  /// Of complex numbers that of their parts; integers are refused.
  Real,
  /// As Real, with a `dtype` that does not narrow.
  Norm,
  /// int64.
  Index,
  /// bool; uint8 stays.
  Truth
};

/// Null where unknown; failure after an error.
llvm::FailureOr<mlir::Type> getResultType(ShapeRule &rule, ResultType how,
                                          mlir::Type self);
/// float32 for integers.
mlir::Type getFloatType(mlir::Type type);

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

struct Reduction {
  /// One for each result.
  llvm::SmallVector<ResultType, 2> types;
  /// Whether a reduced dim may not be empty.
  bool needsElements = false;
  /// Whether an empty list of dims means all dims, as no list does.
  bool emptyIsAll = true;
};

llvm::LogicalResult inferReduction(ShapeRule &rule, const Reduction &how);
void inferReductionBatch(BatchRule &rule, bool emptyIsAll = true,
                         Combine combine = Combine::None);
/// Whether the norm of no elements has no value: negative p and infinity.
bool isNormOfElements(mlir::Attribute p);
/// How norms of order `p` (null: 2) of parts make the norm of the whole.
Combine getNormCombine(mlir::Attribute p);
/// `combine`, if none or one is taken off, for which the samples of any batch
/// are enough, and of real numbers: of complex ones a variance is a real number
/// and the mean is not.
Combine getMomentCombine(const BatchRule &rule, Combine combine);
llvm::LogicalResult inferLogSumExp(ShapeRule &rule);
llvm::LogicalResult inferTrace(ShapeRule &rule);
/// `q` is null for a number.
llvm::LogicalResult inferQuantile(ShapeRule &rule, mlir::Value q);
void inferQuantileBatch(BatchRule &rule, mlir::Value q);

//===----------------------------------------------------------------------===//
// Along one dim
//===----------------------------------------------------------------------===//

/// Results of the shape of `self`, packed, or with its order of strides.
llvm::LogicalResult inferAlongDim(ShapeRule &rule, int64_t dim,
                                  llvm::ArrayRef<ResultType> types,
                                  bool keepsStrides = false);
llvm::LogicalResult inferTopk(ShapeRule &rule, int64_t dim);
llvm::LogicalResult inferKthvalue(ShapeRule &rule, int64_t dim);
/// Along `dim`, which the result may not have.
void inferSelectionBatch(BatchRule &rule, int64_t dim, bool dropsDim);
llvm::LogicalResult inferDiff(ShapeRule &rule, int64_t n, int64_t dim,
                              mlir::Value prepend, mlir::Value append);
void inferDiffBatch(BatchRule &rule, int64_t dim, mlir::Value prepend,
                    mlir::Value append);
/// Counts from `dim`; all elements if there is none.
llvm::LogicalResult inferUnique(ShapeRule &rule, std::optional<int64_t> dim,
                                bool inverse, bool counts);
llvm::LogicalResult inferHistogram(ShapeRule &rule, int64_t bins);
/// `values` is null for a number.
llvm::LogicalResult inferSearch(ShapeRule &rule, mlir::Value boundaries,
                                mlir::Value values, mlir::Value sorter,
                                bool manyRows);
void inferSearchBatch(BatchRule &rule, mlir::Value boundaries,
                      mlir::Value values, mlir::Value sorter);
void mixAll(BatchRule &rule);

//===----------------------------------------------------------------------===//
// Normalisations
//===----------------------------------------------------------------------===//

/// The strides of empty_like in the memory format that `info` suggests.
/// Source: c10/core/MemoryFormat.h.
TensorInfo inSuggestedFormat(const TensorInfo &info);
/// One type for all parameters: that of the input, or float32 for halves.
/// Source: aten/src/ATen/native/cpu/mixed_data_type.h.
llvm::LogicalResult checkParameterTypes(ShapeRule &rule,
                                        const TensorInfo &input,
                                        mlir::ValueRange parameters);
/// Whether there are no elements: batch_norm then checks nothing but that
/// weight and bias have a first element.
bool isEmpty(const TensorInfo &info);
llvm::LogicalResult checkFirstElements(ShapeRule &rule,
                                       mlir::ValueRange vectors);
/// Vectors of one element for each of `channels`.
llvm::LogicalResult checkChannels(ShapeRule &rule, DimExpr channels,
                                  mlir::ValueRange vectors);
/// Mean and variance of each channel of `input`.
llvm::LogicalResult inferBatchNormStats(ShapeRule &rule, mlir::Value input);
void inferBatchNormStatsBatch(BatchRule &rule, mlir::Value input);
llvm::LogicalResult inferNativeBatchNormBackward(ShapeRule &rule);
void inferNativeBatchNormBackwardBatch(BatchRule &rule);
/// Checks `normalized_shape` and the parameters of its shape.
llvm::LogicalResult inferTrailingNorm(ShapeRule &rule, mlir::Value input,
                                      mlir::ValueRange parameters);
/// With mean and reciprocal deviation of each row.
llvm::LogicalResult inferNativeLayerNorm(ShapeRule &rule, mlir::Value input,
                                         mlir::ValueRange parameters);
void inferTrailingNormBatch(BatchRule &rule, mlir::Value input,
                            mlir::ValueRange parameters);
llvm::LogicalResult inferGroupNorm(ShapeRule &rule, int64_t groups,
                                   mlir::Value weight, mlir::Value bias);
llvm::LogicalResult inferInstanceNorm(ShapeRule &rule, bool useInputStats,
                                      mlir::ValueRange parameters);
/// Samples apart in dim 0, parameters without batch.
void inferSampleNormBatch(BatchRule &rule, mlir::ValueRange parameters);
llvm::LogicalResult inferDropout(ShapeRule &rule, double p);
llvm::LogicalResult inferRenorm(ShapeRule &rule, int64_t dim);
void inferRenormBatch(BatchRule &rule, int64_t dim);
llvm::LogicalResult inferWeightNorm(ShapeRule &rule, int64_t dim);

//===----------------------------------------------------------------------===//
// Losses and distances
//===----------------------------------------------------------------------===//

/// The extents of operands that broadcast; none if a rank is unknown; failure
/// after an error.
llvm::FailureOr<std::optional<llvm::SmallVector<DimExpr>>>
broadcastOperands(ShapeRule &rule, llvm::ArrayRef<TensorInfo> operands);
/// Sets the result of a loss whose samples give `each`.
llvm::LogicalResult setLoss(ShapeRule &rule, TensorInfo each);
/// After the rule has said what `reduction` none gives: any other mixes
/// samples, and tiles add up where those of none keep apart. `mean` says how
/// means do.
void reduceLossBatch(BatchRule &rule, Combine mean);

enum class Loss {
  Squared,
  Absolute,
  Huber,
  Binary,
  BinaryWithLogits,
  Divergence,
  SoftMargin,
  Hinge,
  MarginRanking,
  Poisson
};
llvm::LogicalResult inferElementwiseLoss(ShapeRule &rule, Loss loss);
void inferElementwiseLossBatch(BatchRule &rule);

enum class ClassLoss { Nll, Nll2d, NllNd, CrossEntropy };
llvm::LogicalResult inferClassLoss(ShapeRule &rule, ClassLoss loss,
                                   mlir::Value weight);
void inferClassLossBatch(BatchRule &rule, mlir::Value weight);
llvm::LogicalResult inferMultiMarginLoss(ShapeRule &rule, mlir::Value weight);
llvm::LogicalResult inferMultilabelMarginLoss(ShapeRule &rule);
/// All operands but the weight carry the batch in dim 0.
void inferRowLossBatch(BatchRule &rule, mlir::Value weight);
llvm::LogicalResult inferCtcLoss(ShapeRule &rule, int64_t blank);
void inferCtcLossBatch(BatchRule &rule);
llvm::LogicalResult inferCosineEmbeddingLoss(ShapeRule &rule);
llvm::LogicalResult inferTripletLoss(ShapeRule &rule);
void inferTripletLossBatch(BatchRule &rule);

llvm::LogicalResult inferCosineSimilarity(ShapeRule &rule, int64_t dim);
llvm::LogicalResult inferPairwiseDistance(ShapeRule &rule, bool keepdim);
/// Two operands that broadcast, reduced along `dim` of what they give.
void inferDistanceBatch(BatchRule &rule, int64_t dim, bool keepdim);
llvm::LogicalResult inferCdist(ShapeRule &rule, double p);
void inferCdistBatch(BatchRule &rule);
llvm::LogicalResult inferPdist(ShapeRule &rule, double p);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_REDUCTIONRULES_H
