//===- LossRules.h - Weighted means of losses -------------------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_LOSSRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_LOSSRULES_H

#include "OperatorRules.h"
#include "koila/Dialect/Koila/IR/LossOps.h"

namespace koila::rules {
/// WeightedMeanInterface::decomposeWeightedMean of losses on classes.
mlir::Value expandClassLossMean(mlir::Operation *op, mlir::Value weight,
                                mlir::OpBuilder &builder);
} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_LOSSRULES_H
