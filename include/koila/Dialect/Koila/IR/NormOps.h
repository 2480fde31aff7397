//===- NormOps.h - Normalisations, softmax, dropout -------------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_NORMOPS_H
#define KOILA_DIALECT_KOILA_IR_NORMOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/BackwardOperator.h"
#include "koila/Interfaces/RandomOp.h"

namespace koila {
/// PyTorch's backward pass may give wrong gradients for one sample, where a
/// tensor of one sample counts both as contiguous and as channels_last: of
/// images whose gradient comes back through `flatten(2).transpose(1, 2)`,
/// for one. Measured with PyTorch 2.13 (test/training/single_sample.py).
template <typename ConcreteOp>
class SingleSampleGradientUnreliable
    : public mlir::OpTrait::TraitBase<ConcreteOp,
                                      SingleSampleGradientUnreliable> {};

namespace rules {
struct Dropout;
} // namespace rules
} // namespace koila

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/NormOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_NORMOPS_H
