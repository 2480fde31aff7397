//===- LossOps.h - Losses and distances -------------------------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces,
// but for the backward pass.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_LOSSOPS_H
#define KOILA_DIALECT_KOILA_IR_LOSSOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/WeightedMean.h"

namespace koila {
/// `.grad` of weights and arguments.
struct GradientResource
    : public mlir::SideEffects::Resource::Base<GradientResource> {
  llvm::StringRef getName() final { return "<koila gradient>"; }
};
/// On a module that holds a training step: how it was made of an archive, a
/// dictionary of `method`, `loss` and, if there are any, `gradients`
/// (KoilaTorchImportOptions).
inline constexpr llvm::StringLiteral kTrainStepAttr = "koila.train_step";

} // namespace koila

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/LossOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_LOSSOPS_H
