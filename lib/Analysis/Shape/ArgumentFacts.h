//===- ArgumentFacts.h - What a function says of its calls ------*- C++ -*-===//

#ifndef KOILA_ANALYSIS_SHAPE_ARGUMENTFACTS_H
#define KOILA_ANALYSIS_SHAPE_ARGUMENTFACTS_H

#include "mlir/IR/Operation.h"

namespace koila {

/// Fails, with an error, if assumptions rule out each call, or the dims of the
/// arguments do: what follows from them says nothing of any.
llvm::LogicalResult checkAssumptions(mlir::Operation *function);

} // namespace koila

#endif // KOILA_ANALYSIS_SHAPE_ARGUMENTFACTS_H
