//===- DataExtents.h - Extents that data decide -----------------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_DATAEXTENTS_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_DATAEXTENTS_H

#include "koila/Interfaces/DataExtents.h"

namespace koila::rules {

/// Gives the operators of which data decide extents the interface that bounds
/// them.
void attachDataExtents(mlir::MLIRContext &context);

/// The most that extent `dim` of what is read by `indices` can be; none where
/// no mask has a say in it.
std::optional<DimExpr> getMostSelected(const TensorInfo &self,
                                       llvm::ArrayRef<TensorInfo> indices,
                                       llvm::ArrayRef<bool> mask, unsigned dim);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_DATAEXTENTS_H
