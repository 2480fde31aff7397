//===- EmbeddingMemory.h - What embedding_bag holds inside ------*- C++ -*-===//
//
// Private to lib/Dialect/Koila/IR.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_EMBEDDINGMEMORY_H
#define KOILA_LIB_DIALECT_KOILA_IR_EMBEDDINGMEMORY_H

#include "koila/Interfaces/BackwardRule.h"

namespace koila::indexing {

/// embedding_bag: what it holds inside, and the storages of its results.
void describeBagMemory(WorkspaceRule &rule);
/// The gradient of its weight.
void describeBagBackward(BackwardRule &rule);

} // namespace koila::indexing

#endif // KOILA_LIB_DIALECT_KOILA_IR_EMBEDDINGMEMORY_H
