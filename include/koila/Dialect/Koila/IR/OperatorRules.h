//===- OperatorRules.h - Rules shared by operator families ------*- C++ -*-===//
//
// The bodies of the three rules, as free functions that the operations of a
// family call. Grouped in lib/Dialect/Koila/IR/Rules*.cpp by family.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_OPERATORRULES_H
#define KOILA_DIALECT_KOILA_IR_OPERATORRULES_H

#include "koila/Dialect/Koila/IR/Derivatives.h"
#include "koila/Interfaces/Rules.h"
#include "koila/KernelModels/BackwardRules.h"
#include "koila/KernelModels/WorkspaceRules.h"
#include "mlir/IR/ValueRange.h"

namespace koila::rules {

/// Everything that decides shape and workspace of a convolution.
struct Convolution {
  mlir::Value input, weight, bias;
  llvm::ArrayRef<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  bool transposed = false;
  int64_t spatialRank = 2;
  /// Whether an input without batch is taken as one sample.
  bool allowsUnbatched = true;
};

// Shape rules.
llvm::LogicalResult inferBinary(ShapeRule &rule, mlir::Value self,
                                mlir::Value other);
llvm::LogicalResult inferConvolution(ShapeRule &rule, const Convolution &conv);
llvm::LogicalResult inferWindowPool(ShapeRule &rule, mlir::Value self,
                                    llvm::ArrayRef<int64_t> kernel,
                                    llvm::ArrayRef<int64_t> stride,
                                    llvm::ArrayRef<int64_t> padding,
                                    llvm::ArrayRef<int64_t> dilation,
                                    bool ceilMode);
llvm::LogicalResult inferAdaptivePool(ShapeRule &rule, mlir::Value self,
                                      llvm::ArrayRef<int64_t> outputSize);
llvm::LogicalResult inferSoftmax(ShapeRule &rule, mlir::Value self, int64_t dim,
                                 std::optional<int64_t> dtype);
llvm::LogicalResult inferReshape(ShapeRule &rule, mlir::Value self,
                                 llvm::ArrayRef<int64_t> sizes,
                                 mlir::ValueRange dynamicSizes);
llvm::LogicalResult inferFlatten(ShapeRule &rule, mlir::Value self,
                                 int64_t start, int64_t end);

// Batch rules.
/// The batch in one or more operands that broadcast against each other.
void inferBroadcastBatch(BatchRule &rule, llvm::ArrayRef<mlir::Value> operands);
void inferConvolutionBatch(BatchRule &rule, const Convolution &conv);
/// An operator over trailing dims: the batch stays in dim 0 of tensors with
/// more than `trailing` dims.
void inferTrailingBatch(BatchRule &rule, mlir::Value self, int64_t trailing);
/// An operator along `dim`: a batch there means that samples are mixed.
void inferAlongDimBatch(BatchRule &rule, mlir::Value self, int64_t dim,
                        llvm::StringRef what);
void inferReshapeBatch(BatchRule &rule, mlir::Value self,
                       llvm::ArrayRef<int64_t> sizes,
                       mlir::ValueRange dynamicSizes);

// Memory rules.
/// Storage of its own, or that of the first operand where the tie is resolved.
void describeNewStorage(StorageRule &rule);
/// A number as a tensor, which is none if it is only read as a number again.
void describeNumberStorage(StorageRule &rule);
/// For operators whose transient bytes have no rule yet.
void describeUnknownWorkspace(WorkspaceRule &rule);
/// Alias if the input is contiguous, a copy where it is known not to be.
void describeReshapeStorage(StorageRule &rule, mlir::Value self);
void describeSoftmaxWorkspace(WorkspaceRule &rule, mlir::Value self,
                              mlir::Value result);

/// PyTorch's element type for a ScalarType code; null for unknown codes.
mlir::Type getTypeForScalarTypeCode(mlir::MLIRContext *context, int64_t code);
/// The common element type of two tensors, as torch.promote_types with
/// 0-dim tensors giving way. Null if either is unknown.
mlir::Type promoteTypes(const TensorInfo &lhs, const TensorInfo &rhs);
/// The same, from element types and whether each has dims.
mlir::Type promoteTypes(mlir::Type lhs, bool lhsHasDims, mlir::Type rhs,
                        bool rhsHasDims);
/// Counts from the end for negative dims; none if out of range.
std::optional<int64_t> normalizeDim(int64_t dim, int64_t rank);

} // namespace koila::rules

#endif // KOILA_DIALECT_KOILA_IR_OPERATORRULES_H
