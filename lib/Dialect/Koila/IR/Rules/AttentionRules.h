//===- AttentionRules.h - Rules of attention and recurrent layers *- C++
//-*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_ATTENTIONRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_ATTENTIONRULES_H

#include "OperatorRules.h"
#include "WorkRules.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"

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
  /// Weights are dropped, which the flash kernel does not do.
  bool drops = false;
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

llvm::LogicalResult inferNested(ShapeRule &rule, mlir::Value padded,
                                mlir::Value mask);
llvm::LogicalResult inferToPadded(ShapeRule &rule, mlir::Value nested);

llvm::LogicalResult inferRecurrent(ShapeRule &rule, const Recurrent &layer);
void inferRecurrentBatch(BatchRule &rule, const Recurrent &layer);
llvm::LogicalResult inferCell(ShapeRule &rule, const Recurrent &cell);
void inferCellBatch(BatchRule &rule, const Recurrent &cell);

llvm::LogicalResult inferPack(ShapeRule &rule, mlir::Value input,
                              mlir::Value lengths);
llvm::LogicalResult inferPad(ShapeRule &rule, mlir::Value data,
                             mlir::Value batchSizes, bool batchFirst);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_ATTENTIONRULES_H
