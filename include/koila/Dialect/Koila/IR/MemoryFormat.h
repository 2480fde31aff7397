//===- MemoryFormat.h - Memory formats of new tensors -----------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_MEMORYFORMAT_H
#define KOILA_DIALECT_KOILA_IR_MEMORYFORMAT_H

#include "mlir/IR/Operation.h"

namespace koila::rules {

/// c10/core/MemoryFormat.h.
enum class MemoryFormat : int64_t {
  Contiguous = 0,
  Preserve = 1,
  ChannelsLast = 2,
  ChannelsLast3d = 3
};

/// The argument `memory_format`; Preserve for None or if there is none.
MemoryFormat getMemoryFormat(mlir::Operation *op);

/// Whether the arguments `layout` and `pin_memory` ask for nothing special.
bool isPlain(mlir::Operation *op);

} // namespace koila::rules

#endif // KOILA_DIALECT_KOILA_IR_MEMORYFORMAT_H
