//===- CustomOperators.h - Operators that a program registered --*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_CUSTOMOPERATORS_H
#define KOILA_TARGET_TORCHSCRIPT_CUSTOMOPERATORS_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace koila::torchscript {

/// Contexts of `registry` know what setCustomOperators() was told.
void addCustomOperators(mlir::DialectRegistry &registry);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_CUSTOMOPERATORS_H
