//===- ObjectOps.h - Attributes and methods of objects ----------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_OBJECTOPS_H
#define KOILA_DIALECT_KOILA_IR_OBJECTOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"

namespace koila {
/// What attributes of the module and of objects hold.
struct ModuleStateResource
    : public mlir::SideEffects::Resource::Base<ModuleStateResource> {
  llvm::StringRef getName() final { return "<koila module state>"; }
};

/// Whether `op` itself reads or writes attributes, by its memory effects.
bool accessesModuleState(mlir::Operation *op);
/// Whether `op` itself may assign attributes, by its memory effects; what it is
/// given may then live on in them.
bool mayWriteModuleState(mlir::Operation *op);

namespace detail {
/// What is unknown may read and write everything, attributes included, and
/// draw random numbers.
void addUnknownEffects(EffectList &effects);
} // namespace detail
} // namespace koila

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ObjectOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_OBJECTOPS_H
