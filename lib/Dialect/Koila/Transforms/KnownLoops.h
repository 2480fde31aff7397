//===- KnownLoops.h - Loops of a known number of turns ----------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_TRANSFORMS_KNOWNLOOPS_H
#define KOILA_LIB_DIALECT_KOILA_TRANSFORMS_KNOWNLOOPS_H

#include "mlir/Interfaces/FunctionInterfaces.h"

namespace koila {

/// Puts the turns of short loops that hand a tensor from one to the next behind
/// each other, where the assumptions say how many there are. Returns whether
/// there were any.
bool unrollKnownLoops(mlir::FunctionOpInterface function);

} // namespace koila

#endif // KOILA_LIB_DIALECT_KOILA_TRANSFORMS_KNOWNLOOPS_H
