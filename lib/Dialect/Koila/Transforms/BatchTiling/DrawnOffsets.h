//===- DrawnOffsets.h - How far a program moves the generator ---*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_TRANSFORMS_BATCHTILING_DRAWNOFFSETS_H
#define KOILA_LIB_DIALECT_KOILA_TRANSFORMS_BATCHTILING_DRAWNOFFSETS_H

#include "koila/KernelModels/PhiloxOffset.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace koila {

/// By how much one call of `function` moves the offset of the generator of a
/// GPU, for the sizes that `koila.symbols` give; none where that is not known,
/// as of draws in loops.
std::optional<int64_t> getPhiloxOffset(mlir::FunctionOpInterface function,
                                       const PhiloxDevice &device);

/// A remark of the offset of `function`, which draws for the whole batch what
/// the untiled program draws; fails, with an error, if it moved the generator
/// by other than `untiled`.
llvm::LogicalResult reportPhiloxOffset(mlir::FunctionOpInterface function,
                                       std::optional<int64_t> untiled,
                                       const PhiloxDevice &device);

} // namespace koila

#endif // KOILA_LIB_DIALECT_KOILA_TRANSFORMS_BATCHTILING_DRAWNOFFSETS_H
