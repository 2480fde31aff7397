//===- Embedding.h - What reads by indices hold inside ----------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_EMBEDDING_H
#define KOILA_KERNELMODELS_ATEN_EMBEDDING_H

#include "koila/Interfaces/BackwardRule.h"

namespace koila::indexing {

/// The bytes of what stands for `indices`, with the places where a mask among
/// them is true, if there are as many as there can be. False if there is none.
bool describeSelection(WorkspaceRule &rule, mlir::ValueRange indices,
                       int64_t &bytes);
/// embedding_bag: what it holds inside, and the storages of its results.
void describeBagMemory(WorkspaceRule &rule);
/// The gradient of its weight.
void describeBagBackward(BackwardRule &rule);

} // namespace koila::indexing

#endif // KOILA_KERNELMODELS_ATEN_EMBEDDING_H
