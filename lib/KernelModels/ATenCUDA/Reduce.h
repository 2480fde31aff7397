//===- Reduce.h - What a reduction on a GPU holds inside --------*- C++ -*-===//
//
// Private to lib/KernelModels. A reduction of few results over many elements is
// split over the blocks of threads of a card, which leave partial results and
// count themselves in the memory of the device.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_ATENCUDA_REDUCE_H
#define KOILA_LIB_KERNELMODELS_ATENCUDA_REDUCE_H

#include "koila/Interfaces/Rules.h"
#include "llvm/ADT/ArrayRef.h"

namespace koila::cuda {

/// How a reduction sums up.
struct Accumulator {
  /// Of one partial result.
  int64_t bytes;
  /// Elements that a thread reads at once along the reduced dims.
  int64_t inputVector = 4;
};
/// float32 for half types, else the type itself.
Accumulator getSumAccumulator(mlir::Type type);

/// What the reduction of `input` over the dims of `isReduced` holds for a
/// moment. Says so where strides or the card decide and are not known.
void allocateReduction(AllocationTrace &trace, WorkspaceRule &rule,
                       const ConcreteTensor &input,
                       llvm::ArrayRef<bool> isReduced, Accumulator accumulator);

/// Which dims of `input` a reduction to `result` is over, where both have the
/// same rank or the result has none.
std::optional<llvm::SmallVector<bool>>
findReduced(const ConcreteTensor &input, const ConcreteTensor &result);

} // namespace koila::cuda

#endif // KOILA_LIB_KERNELMODELS_ATENCUDA_REDUCE_H
