//===- Koila.h - The koila dialect ------------------------------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILA_H
#define KOILA_DIALECT_KOILA_IR_KOILA_H

#include "koila/Dialect/Koila/IR/DimExpr.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "koila/Interfaces/MutableStorage.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "koila/Dialect/Koila/IR/KoilaDialect.h.inc"
#include "koila/Dialect/Koila/IR/KoilaEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "koila/Dialect/Koila/IR/KoilaAttributes.h.inc"
#define GET_TYPEDEF_CLASSES
#include "koila/Dialect/Koila/IR/KoilaTypes.h.inc"

namespace koila {
/// Facts the program relies on; keeps assumptions from being removed.
struct AssumptionResource
    : public mlir::SideEffects::Resource::Base<AssumptionResource> {
  llvm::StringRef getName() final { return "<koila assumption>"; }
};
/// How long tensors live; keeps the places where they end from being removed.
struct LifetimeResource
    : public mlir::SideEffects::Resource::Base<LifetimeResource> {
  llvm::StringRef getName() final { return "<koila lifetime>"; }
};
/// What an opaque operator may read or write; keeps them in order.
struct OpaqueResource
    : public mlir::SideEffects::Resource::Base<OpaqueResource> {
  llvm::StringRef getName() final { return "<koila opaque>"; }
};
/// The generator that random operators draw from.
struct RandomResource
    : public mlir::SideEffects::Resource::Base<RandomResource> {
  llvm::StringRef getName() final { return "<koila random>"; }
};
} // namespace koila

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/KoilaOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_KOILA_H
