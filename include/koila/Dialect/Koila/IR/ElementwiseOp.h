//===- ElementwiseOp.h - What elementwise operators say ---------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_ELEMENTWISEOP_H
#define KOILA_DIALECT_KOILA_IR_ELEMENTWISEOP_H

#include "koila/Dialect/Koila/IR/Elementwise.h"
#include "mlir/IR/OpDefinition.h"

#include "koila/Dialect/Koila/IR/ElementwiseOp.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_ELEMENTWISEOP_H
