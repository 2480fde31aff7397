//===- Specialize.h - Branches that the assumptions decide ------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_TRANSFORMS_SPECIALIZE_H
#define KOILA_LIB_DIALECT_KOILA_TRANSFORMS_SPECIALIZE_H

#include "mlir/Interfaces/FunctionInterfaces.h"

namespace koila {

/// Replaces each branch whose condition follows from the assumptions by the
/// side that runs, and drops what only the conditions needed. The function
/// then holds under its assumptions only, which its emission must check. False
/// if there was nothing to do.
bool inlineDecidedBranches(mlir::FunctionOpInterface function);

} // namespace koila

#endif // KOILA_LIB_DIALECT_KOILA_TRANSFORMS_SPECIALIZE_H
