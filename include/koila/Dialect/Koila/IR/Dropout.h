//===- Dropout.h - What the dropouts do in training -------------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_DROPOUT_H
#define KOILA_DIALECT_KOILA_IR_DROPOUT_H

#include "koila/Interfaces/Differentiation.h"
#include "koila/Interfaces/RandomOp.h"
#include "koila/Interfaces/Rules.h"

namespace koila::rules {

/// A dropout in training with a probability above zero. The operand is the
/// input. Source: _dropout_impl in aten/src/ATen/native/Dropout.cpp.
struct Dropout {
  double p;
  /// One draw per channel.
  bool feature;
  /// Affine values instead of zeros.
  bool alpha;

  llvm::LogicalResult inferShapes(ShapeRule &rule) const;
  void inferBatch(BatchRule &rule) const;
  void describeDifferentiation(DifferentiationRule &rule) const;
  /// The noise that PyTorch keeps for the gradient of `input`; none where that
  /// is not known.
  std::optional<ConcreteTensor> getNoise(const ConcreteTensor &input) const;
  /// The noise for `input`; nothing if PyTorch has none for it.
  TensorInfo getNoise(const TensorInfo &input) const;
  /// The operators that dropout calls on CPU, with `storage` for the noise.
  mlir::Value build(mlir::OpBuilder &builder, mlir::Operation *op,
                    mlir::Value storage) const;
  /// What the one kernel that a dropout is on a GPU makes of the input, with
  /// the mask that this kernel draws when it is given `source`.
  mlir::Value buildFused(mlir::OpBuilder &builder, mlir::Operation *op,
                         mlir::Value source) const;
};

llvm::LogicalResult inferNativeDropout(ShapeRule &rule);

} // namespace koila::rules

#endif // KOILA_DIALECT_KOILA_IR_DROPOUT_H
