//===- MatmulRules.h - Rules of products and functions of matrices *- C++
//-*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_MATMULRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_MATMULRULES_H

#include "OperatorRules.h"
#include "WorkRules.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"

namespace koila::rules {

/// Refuses operands of different element types.
llvm::LogicalResult checkOneElementType(const ShapeRule &rule, mlir::Type input,
                                        mlir::Type other,
                                        llvm::StringRef name = "the weight");

/// The element type of `self`, for a call of which no rank is known.
llvm::LogicalResult inferTypeOnly(ShapeRule &rule, mlir::Value self);

/// The ranks of tensors; none if one is unknown.
template <typename Rule>
std::optional<llvm::SmallVector<int64_t>>
getRanks(const Rule &rule, llvm::ArrayRef<mlir::Value> values) {
  llvm::SmallVector<int64_t> ranks;
  for (mlir::Value value : values) {
    TensorInfo info = rule.tensor(value);
    if (!info.hasRank())
      return std::nullopt;
    ranks.push_back(info.getRank());
  }
  return ranks;
}

/// A product of which `equation` says in the notation of einsum which dims of
/// the factors are the same: "...nk,...km->...nm".
struct Product {
  llvm::SmallVector<mlir::Value> factors;
  llvm::StringRef equation;
  /// What is added to the product and broadcasts to it; may be absent.
  mlir::Value added;
};
/// The result is dense row-major.
llvm::LogicalResult inferProduct(ShapeRule &rule, const Product &product);
void inferProductBatch(BatchRule &rule, const Product &product);
/// The same, with labels.
llvm::LogicalResult inferLabelled(ShapeRule &rule, const Labels &labels,
                                  llvm::ArrayRef<mlir::Value> factors,
                                  mlir::Value added = {});
/// `overBatch`: how sums over a part of the batch make those over all of it.
void inferLabelledBatch(BatchRule &rule, const Labels &labels,
                        llvm::ArrayRef<mlir::Value> factors, Combine overBatch);
/// The same of a product, to which something may be added.
void inferProductBatch(BatchRule &rule, const Labels &labels,
                       llvm::ArrayRef<mlir::Value> factors,
                       mlir::Value added = {});

/// What is added must broadcast to `result`, or have its shape where it is
/// written in place; then it is the result.
llvm::LogicalResult checkAdded(ShapeRule &rule, const TensorInfo &added,
                               TensorInfo &result);

/// The leading dims of the inputs are the same ones, and features are needed.
llvm::LogicalResult checkBilinear(ShapeRule &rule, mlir::Value lhs,
                                  mlir::Value rhs);
llvm::LogicalResult inferMatmul(ShapeRule &rule, mlir::Value lhs,
                                mlir::Value rhs);
void inferMatmulBatch(BatchRule &rule, mlir::Value lhs, mlir::Value rhs);
llvm::LogicalResult inferInner(ShapeRule &rule, mlir::Value lhs,
                               mlir::Value rhs);
void inferInnerBatch(BatchRule &rule, mlir::Value lhs, mlir::Value rhs);
/// The product of two vectors, to which `added` may be added. Types are
/// promoted.
llvm::LogicalResult inferOuter(ShapeRule &rule, mlir::Value lhs,
                               mlir::Value rhs, mlir::Value added = {});
llvm::LogicalResult inferTensordot(ShapeRule &rule, mlir::Value lhs,
                                   mlir::Value rhs,
                                   llvm::ArrayRef<int64_t> lhsDims,
                                   llvm::ArrayRef<int64_t> rhsDims);
void inferTensordotBatch(BatchRule &rule, mlir::Value lhs, mlir::Value rhs,
                         llvm::ArrayRef<int64_t> lhsDims,
                         llvm::ArrayRef<int64_t> rhsDims);
llvm::LogicalResult inferKron(ShapeRule &rule, mlir::Value lhs,
                              mlir::Value rhs);
void inferKronBatch(BatchRule &rule, mlir::Value lhs, mlir::Value rhs);
llvm::LogicalResult inferMultiDot(ShapeRule &rule, mlir::ValueRange matrices);
void inferMultiDotBatch(BatchRule &rule, mlir::ValueRange matrices);
/// Of the rows of `self`, whose columns may have two kinds of weights.
llvm::LogicalResult inferCovariance(ShapeRule &rule, mlir::Value self,
                                    mlir::Value counts, mlir::Value weights);
/// Without `dim` along the first dim of extent 3.
llvm::LogicalResult inferCross(ShapeRule &rule, mlir::Value lhs,
                               mlir::Value rhs, std::optional<int64_t> dim);
void inferCrossBatch(BatchRule &rule, mlir::Value lhs, mlir::Value rhs,
                     std::optional<int64_t> dim);

llvm::LogicalResult inferEinsum(ShapeRule &rule, llvm::StringRef equation,
                                mlir::ValueRange tensors,
                                std::optional<llvm::ArrayRef<int64_t>> path);
void inferEinsumBatch(BatchRule &rule, llvm::StringRef equation,
                      mlir::ValueRange tensors);
/// One operand of which nothing is summed is a view.
void describeEinsumStorage(StorageRule &rule, llvm::StringRef equation,
                           mlir::ValueRange tensors);

/// A function of the matrices in the last two dims. `results` describes each
/// result by its layout (C: rows first, F: columns first), its type (s: that
/// of the input, r: its real part's, i: int32, l: int64) and its extents
/// after the leading dims, in letters: n rows, m columns, k the lesser of
/// both. Example: "Fs:nk,Cr:k". With `square`, rows and columns are as many.
llvm::LogicalResult inferMatrixFunction(ShapeRule &rule, mlir::Value input,
                                        bool square, llvm::StringRef results,
                                        bool takesIntegers = false);
llvm::LogicalResult inferCholesky(ShapeRule &rule, mlir::Value input);
llvm::LogicalResult inferMatrixPower(ShapeRule &rule, mlir::Value input,
                                     int64_t n);
void inferMatrixFunctionBatch(BatchRule &rule, mlir::Value input);
/// Systems of equations: WithInfo has a second result of one code for each
/// matrix; the right sides of Triangular are matrices.
enum class System { General, WithInfo, Triangular };
llvm::LogicalResult inferSolve(ShapeRule &rule, mlir::Value matrix,
                               mlir::Value rhs, bool left, System kind);
void inferSolveBatch(BatchRule &rule, mlir::Value matrix, mlir::Value rhs,
                     bool left, System kind);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_MATMULRULES_H
