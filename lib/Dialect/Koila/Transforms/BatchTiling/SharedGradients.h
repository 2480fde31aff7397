//===- SharedGradients.h - Gradients that share memory ----------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_SHAREDGRADIENTS_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_SHAREDGRADIENTS_H

#include "mlir/Interfaces/FunctionInterfaces.h"

namespace koila {

/// Gives gradients memory of their own, wherever the backward passes of
/// `function`, a step in tiles, would add to memory that others read.
llvm::LogicalResult separateGradients(mlir::FunctionOpInterface function);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_SHAREDGRADIENTS_H
