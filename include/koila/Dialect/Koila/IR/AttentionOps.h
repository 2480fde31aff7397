//===- AttentionOps.h - Attention and recurrent layers ----------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_ATTENTIONOPS_H
#define KOILA_DIALECT_KOILA_IR_ATTENTIONOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/KernelWork.h"
#include "koila/Interfaces/RandomOp.h"

namespace koila::rules {

/// A recurrent layer, or one cell.
struct Recurrent {
  mlir::Value input;
  llvm::SmallVector<mlir::Value> hidden;
  llvm::SmallVector<mlir::Value> params;
  /// Gates of a cell: 4 is an LSTM.
  int64_t gates = 1;
  /// How many samples have each step; for packed sequences only.
  mlir::Value batchSizes = {};
  int64_t layers = 1;
  bool biases = true, bidirectional = false, batchFirst = false;
};

/// The sequences that a nested tensor was made of, with their padding; null for
/// any other tensor.
mlir::Value getPadded(mlir::Value nested);

} // namespace koila::rules

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/AttentionOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_ATTENTIONOPS_H
