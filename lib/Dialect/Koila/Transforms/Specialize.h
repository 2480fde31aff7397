//===- Specialize.h - What is decided before tiling -------------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_TRANSFORMS_SPECIALIZE_H
#define KOILA_LIB_DIALECT_KOILA_TRANSFORMS_SPECIALIZE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace koila {

/// Drops the 0-dim tensors in which traced programs keep sizes, so that
/// arithmetic on sizes is arithmetic on numbers alone.
void foldNumbers(mlir::FunctionOpInterface function);

/// Numbers of samples that went through tensors, as `size(0) // windows` does
/// in a trace, become those of an argument, which tiles know.
void countByArgument(mlir::FunctionOpInterface function,
                     llvm::StringRef batchSymbol);

/// Devices of what is computed from an argument are read of the argument, which
/// is there before the tiles.
void readDevicesOfArguments(mlir::FunctionOpInterface function);

/// Replaces each branch whose condition follows from the assumptions by the
/// side that runs, and drops what only the conditions needed. The function
/// then holds under its assumptions only, which its emission must check. False
/// if there was nothing to do.
bool inlineDecidedBranches(mlir::FunctionOpInterface function);

/// All of this, and loops of known turns: what the facts about arguments decide
/// is gone afterwards, and the function says so.
llvm::LogicalResult decideControlFlow(mlir::ModuleOp module,
                                      mlir::FunctionOpInterface function);

} // namespace koila

#endif // KOILA_LIB_DIALECT_KOILA_TRANSFORMS_SPECIALIZE_H
