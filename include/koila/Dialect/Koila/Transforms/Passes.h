//===- Passes.h - Passes on the koila dialect -------------------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_PASSES_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_PASSES_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/Pass.h"

namespace koila {
class KoilaDialect;

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "koila/Dialect/Koila/Transforms/Passes.h.inc"

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_PASSES_H
