//===- AttentionOps.h - Attention and recurrent layers ----------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_ATTENTIONOPS_H
#define KOILA_DIALECT_KOILA_IR_ATTENTIONOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"

namespace koila::rules {

/// A scaled dot product.
struct Attention {
  /// Which kernel computes it; `Any` is for PyTorch to choose.
  enum class Kind { Any, Flash, Math };
  mlir::Value query, key, value, mask;
  bool causal = false;
  /// Groups of heads of the queries share those of keys and values.
  bool grouped = false;
  Kind kind = Kind::Any;
};
llvm::LogicalResult inferAttention(ShapeRule &rule, const Attention &attention);
void inferAttentionBatch(BatchRule &rule, const Attention &attention);

/// A whole layer of attention of a sequence to itself.
struct AttentionLayer {
  mlir::Value input, weight, bias, projection, projectionBias, mask;
  /// The operands that are the sequence.
  llvm::SmallVector<mlir::Value> inputs;
  int64_t width = 0, heads = 1;
  std::optional<int64_t> maskType;
  bool needsWeights = false, averages = false;
};
llvm::LogicalResult inferAttentionLayer(ShapeRule &rule,
                                        const AttentionLayer &layer);
void inferAttentionLayerBatch(BatchRule &rule, const AttentionLayer &layer);

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
llvm::LogicalResult inferRecurrent(ShapeRule &rule, const Recurrent &layer);
void inferRecurrentBatch(BatchRule &rule, const Recurrent &layer);
llvm::LogicalResult inferCell(ShapeRule &rule, const Recurrent &cell);
void inferCellBatch(BatchRule &rule, const Recurrent &cell);

llvm::LogicalResult inferPack(ShapeRule &rule, mlir::Value input,
                              mlir::Value lengths);
llvm::LogicalResult inferPad(ShapeRule &rule, mlir::Value data,
                             mlir::Value batchSizes, bool batchFirst);

} // namespace koila::rules

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/AttentionOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_ATTENTIONOPS_H
