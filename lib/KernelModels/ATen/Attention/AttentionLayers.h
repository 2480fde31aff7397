//===- AttentionLayers.h - Layers that are one operator ---------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_ATTENTION_ATTENTIONLAYERS_H
#define KOILA_KERNELMODELS_ATEN_ATTENTION_ATTENTIONLAYERS_H

#include "koila/Dialect/Koila/IR/AttentionOps.h"
#include "koila/Interfaces/Rules.h"

namespace koila {
class BackwardRule;
} // namespace koila

namespace koila::attention {

/// The bytes that a fused attention or encoder layer holds inside.
void describeMultiHead(WorkspaceRule &rule);
void describeEncoder(WorkspaceRule &rule);
/// The same of layers of nested tensors, and of what makes and ends those.
void describeNestedLayer(WorkspaceRule &rule, TransformerEncoderLayerFwdOp op);
void describeNesting(WorkspaceRule &rule);
void describePadding(WorkspaceRule &rule);
/// What autograd keeps of those whose result is nested.
void saveNested(SavedRule &rule);
/// The bytes of attention by way of matmul and softmax, and what of them
/// autograd keeps.
void describeMath(WorkspaceRule &rule, ScaledDotProductAttentionOp op);
/// A mask of numbers of `type`, in the place of a bool one.
AllocationTrace::Block allocateBoolMask(AllocationTrace &trace,
                                        const ConcreteTensor &mask,
                                        mlir::Type type);
void saveMath(SavedRule &rule, ScaledDotProductAttentionOp op);
void describeMathBackward(BackwardRule &rule, ScaledDotProductAttentionOp op);

} // namespace koila::attention

#endif // KOILA_KERNELMODELS_ATEN_ATTENTION_ATTENTIONLAYERS_H
