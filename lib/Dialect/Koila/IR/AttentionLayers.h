//===- AttentionLayers.h - Layers that are one operator ---------*- C++ -*-===//
//
// Private to lib/Dialect/Koila/IR.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_ATTENTIONLAYERS_H
#define KOILA_LIB_DIALECT_KOILA_IR_ATTENTIONLAYERS_H

#include "koila/Dialect/Koila/IR/KoilaAttentionOps.h"
#include "koila/Interfaces/Rules.h"

namespace koila::attention {

/// The bytes that a fused attention or encoder layer holds inside.
void describeLayer(WorkspaceRule &rule);
/// The bytes of attention by way of matmul and softmax, and what of them
/// autograd keeps.
void describeMath(WorkspaceRule &rule, ScaledDotProductAttentionOp op);
void saveMath(SavedRule &rule, ScaledDotProductAttentionOp op);

} // namespace koila::attention

#endif // KOILA_LIB_DIALECT_KOILA_IR_ATTENTIONLAYERS_H
