//===- Towers.h - Parts of a program that meet late -------------*- C++ -*-===//
//
// Operations have levels, the number of cuts before them, and those of one
// level run in one nest of loops. Of towers, parts of a program that share
// nothing before they meet, as the encoders of two views do, whole tensors
// would be there side by side. So one tower follows the other.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_TOWERS_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_TOWERS_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/MapVector.h"

namespace koila {

/// By operation, in the order of the program.
using Levels = llvm::MapVector<mlir::Operation *, unsigned>;

/// Levels that are nowhere less than `levels`, by which each tower of several
/// levels begins where the one before it ends; the same ones where there are
/// no two. `getMakers` gives the operations whose results one reads, of which
/// those without a level share nothing. Towers come in the order of the
/// program, but those `isLast` is true of an operation of after all others.
Levels orderTowers(
    const Levels &levels,
    llvm::function_ref<llvm::SmallVector<mlir::Operation *>(mlir::Operation *)>
        getMakers,
    llvm::function_ref<bool(mlir::Operation *)> isLast);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_TOWERS_H
