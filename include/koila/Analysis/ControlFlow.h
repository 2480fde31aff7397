//===- ControlFlow.h - Which control flow passes follow ---------*- C++ -*-===//

#ifndef KOILA_ANALYSIS_CONTROLFLOW_H
#define KOILA_ANALYSIS_CONTROLFLOW_H

#include "mlir/IR/Operation.h"

namespace koila {

/// The outermost operation in `function`, itself included, with a region of
/// several blocks; null if there is none. Passes follow structured control flow
/// only.
mlir::Operation *findSeveralBlocks(mlir::Operation *function);

/// Whether `loop` compares its bounds as numbers without a sign: those below
/// zero are large ones.
bool countsUnsigned(mlir::Operation *loop);

} // namespace koila

#endif // KOILA_ANALYSIS_CONTROLFLOW_H
