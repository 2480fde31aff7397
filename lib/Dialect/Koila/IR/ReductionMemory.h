//===- ReductionMemory.h - Reductions that are expressions ------*- C++ -*-===//
//
// Private to lib/Dialect/Koila/IR: the parts of describeReductionWorkspace.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_REDUCTIONMEMORY_H
#define KOILA_LIB_DIALECT_KOILA_IR_REDUCTIONMEMORY_H

#include "koila/Interfaces/Rules.h"

namespace koila::reduction {

/// quantile and nanquantile; `saved` is told what autograd keeps.
void describeQuantile(WorkspaceRule &rule, SavedRule *saved = nullptr);

} // namespace koila::reduction

#endif // KOILA_LIB_DIALECT_KOILA_IR_REDUCTIONMEMORY_H
