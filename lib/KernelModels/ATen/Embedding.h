//===- Embedding.h - What embedding_bag holds inside ------------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_EMBEDDING_H
#define KOILA_KERNELMODELS_ATEN_EMBEDDING_H

#include "koila/Interfaces/BackwardRule.h"

namespace koila::indexing {

/// embedding_bag: what it holds inside, and the storages of its results.
void describeBagMemory(WorkspaceRule &rule);
/// The gradient of its weight.
void describeBagBackward(BackwardRule &rule);

} // namespace koila::indexing

#endif // KOILA_KERNELMODELS_ATEN_EMBEDDING_H
