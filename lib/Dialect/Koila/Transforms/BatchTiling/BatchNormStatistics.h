//===- BatchNormStatistics.h - Statistics of the batch, apart ---*- C++ -*-===//
//
// In training mode a batch normalisation is made of the statistics of the
// batch, which are a reduction, and of a normalisation of each sample by them.
// Its gradient is made in the same way: two sums over the batch, and beyond
// them each sample alone. Source: S. Ioffe, C. Szegedy, Batch Normalization,
// 2015, section 3.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BATCHNORMSTATISTICS_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BATCHNORMSTATISTICS_H

#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace koila {

class BatchNormOp;

/// On a batch normalisation in eval mode whose statistics are those of the
/// batch that it normalises.
inline constexpr llvm::StringLiteral kNormalisesBatchAttr =
    "koila.normalises_batch";

/// Makes of each batch normalisation in training mode the mean and the variance
/// of the batch, the update of the running statistics, and a normalisation of
/// each sample by them. True if there is any.
bool decomposeBatchNorms(mlir::FunctionOpInterface function);

/// Whether something in `op` normalises by the statistics of the batch.
bool normalisesByBatch(mlir::Operation *op);

/// What the gradient of a normalisation by statistics of the batch is made of.
class BatchNormGradient {
public:
  /// Builds the two sums over the batch. `gradient` is that of the result of
  /// `op`, which has the mark `koila.normalises_batch`; `input` stands for its
  /// input.
  BatchNormGradient(mlir::OpBuilder &builder, BatchNormOp op,
                    mlir::Value gradient, mlir::Value input);

  /// Those of the operands of `op`, one number for each channel.
  mlir::Value getWeightGradient() const { return ofDeviation; }
  mlir::Value getBiasGradient() const { return ofMean; }
  /// Builds what the gradient of the input takes for each channel.
  void prepareInputGradient(mlir::OpBuilder &builder);
  /// Builds that of the input, for which `input` stands, once it is prepared.
  /// `gradient` stands for that of the result.
  mlir::Value buildInputGradient(mlir::OpBuilder &builder, mlir::Value input,
                                 mlir::Value gradient) const;
  /// That of the result.
  mlir::Value getGradient() const { return gradient; }
  /// What is normalised.
  mlir::Value getResult() const { return norm->getResult(0); }

private:
  mlir::Operation *norm;
  mlir::Value gradient, ofDeviation, ofMean;
  /// The factor of `gradient`, shaped to broadcast; weight and bias of what is
  /// normalised again.
  mlir::Value scale, weight, bias;
};

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_BATCHNORMSTATISTICS_H
