//===- ConvolutionRules.h - Rules of convolutions ---------------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_CONVOLUTIONRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_CONVOLUTIONRULES_H

#include "OperatorRules.h"
#include "WorkRules.h"
#include "koila/Dialect/Koila/IR/ConvolutionOps.h"

namespace koila::rules {

llvm::LogicalResult inferConvolution(ShapeRule &rule, ConvolutionKind kind);
void inferConvolutionBatch(BatchRule &rule, ConvolutionKind kind);

/// Whether the operator for gradients of convolutions gives those of `op`.
bool hasConvolutionGradients(mlir::Operation *op);
llvm::SmallVector<mlir::Value>
buildConvolutionGradients(mlir::Operation *op, ConvolutionKind kind,
                          mlir::OpBuilder &builder, mlir::Value gradient,
                          mlir::ValueRange operands,
                          llvm::ArrayRef<bool> wanted);
llvm::LogicalResult inferConvolutionBackward(ShapeRule &rule);
void inferConvolutionBackwardBatch(BatchRule &rule);

/// conv_tbc: [time, batch, channels].
llvm::LogicalResult inferConvolutionOverTime(ShapeRule &rule);
void inferConvolutionOverTimeBatch(BatchRule &rule);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_CONVOLUTIONRULES_H
