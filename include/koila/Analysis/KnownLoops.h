//===- KnownLoops.h - Loops of a known number of turns ----------*- C++ -*-===//

#ifndef KOILA_ANALYSIS_KNOWNLOOPS_H
#define KOILA_ANALYSIS_KNOWNLOOPS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace koila {

/// Puts the turns of short loops that hand a tensor from one to the next behind
/// each other, where the assumptions say how many there are: which turn a
/// storage is of, nothing else tells. With `keepsLifetimes` only of loops after
/// which no other tensor lives shorter for it: PyTorch keeps what a loop reads
/// until its end. Returns whether there were any.
bool unrollKnownLoops(mlir::FunctionOpInterface function, bool keepsLifetimes);

/// A copy of the module around `function` in which that is done, for an
/// analysis of a program as it is written; null if there is nothing to do.
mlir::OwningOpRef<mlir::ModuleOp>
copyUnrolled(mlir::FunctionOpInterface function);

} // namespace koila

#endif // KOILA_ANALYSIS_KNOWNLOOPS_H
