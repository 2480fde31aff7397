//===- SavedTable.h - PyTorch's table of what autograd keeps ----*- C++ -*-===//
//
// Private to lib/Dialect/Koila/IR: SavedTensors.inc, looked up by the name of a
// schema.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_SAVEDTABLE_H
#define KOILA_LIB_DIALECT_KOILA_IR_SAVEDTABLE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace koila::saved {

/// What is saved of one operator.
struct Entry {
  unsigned arguments;
  llvm::StringRef what;

  /// No gradient passes.
  bool isDetached() const { return what == "-"; }
  /// Calls `argument` with the index of each saved argument, and `result` with
  /// that of each saved result. `wants` says of an argument whether it wants a
  /// gradient.
  void forEach(llvm::function_ref<bool(unsigned)> wants,
               llvm::function_ref<void(unsigned)> argument,
               llvm::function_ref<void(unsigned)> result) const;
};

/// Null for an operator that is not in the table.
const Entry *lookUp(llvm::StringRef schemaName);

} // namespace koila::saved

#endif // KOILA_LIB_DIALECT_KOILA_IR_SAVEDTABLE_H
