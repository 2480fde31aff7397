//===- GradientBuilder.h - What backward passes are written with -*- C++
//-*-===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_GRADIENTBUILDER_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_GRADIENTBUILDER_H

#include "mlir/IR/Builders.h"

namespace koila {

/// The sum of `parts`, of which there is at least one; `made` is called with
/// each operation.
mlir::Value addGradients(
    mlir::OpBuilder &builder, mlir::Location loc,
    llvm::ArrayRef<mlir::Value> parts,
    llvm::function_ref<void(mlir::Operation *)> made = [](mlir::Operation *) {
    });

/// A backward pass of `operands`, a tensor and the gradient that it has, if it
/// is no loss. Its graph is freed.
mlir::Operation *createBackward(mlir::OpBuilder &builder,
                                mlir::ValueRange operands);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_GRADIENTBUILDER_H
