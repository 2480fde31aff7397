//===- ConvolutionRules.h - Rules of convolutions ---------------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_CONVOLUTIONRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_CONVOLUTIONRULES_H

#include "OperatorRules.h"
#include "koila/Dialect/Koila/IR/ConvolutionOps.h"

namespace koila::rules {

llvm::LogicalResult inferConvolution(ShapeRule &rule, ConvolutionKind kind);
void inferConvolutionBatch(BatchRule &rule, ConvolutionKind kind);

/// conv_tbc: [time, batch, channels].
llvm::LogicalResult inferConvolutionOverTime(ShapeRule &rule);
void inferConvolutionOverTimeBatch(BatchRule &rule);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_CONVOLUTIONRULES_H
