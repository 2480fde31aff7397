//===- AttentionLayers.h - Layers that are one operator ---------*- C++ -*-===//
//
// Private to lib/Dialect/Koila/IR.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_ATTENTIONLAYERS_H
#define KOILA_LIB_DIALECT_KOILA_IR_ATTENTIONLAYERS_H

#include "koila/Interfaces/Rules.h"

namespace koila::attention {

/// The bytes that a fused attention or encoder layer holds inside.
void describeLayer(WorkspaceRule &rule);

} // namespace koila::attention

#endif // KOILA_LIB_DIALECT_KOILA_IR_ATTENTIONLAYERS_H
