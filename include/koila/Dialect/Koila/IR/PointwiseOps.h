//===- PointwiseOps.h - Elementwise operators on one tensor -----*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_POINTWISEOPS_H
#define KOILA_DIALECT_KOILA_IR_POINTWISEOPS_H

#include "koila/Dialect/Koila/IR/ElementwiseOp.h"
#include "koila/Dialect/Koila/IR/Koila.h"

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/PointwiseOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_POINTWISEOPS_H
