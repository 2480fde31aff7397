//===- BinaryOps.h - Operators on tensors that broadcast --------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_BINARYOPS_H
#define KOILA_DIALECT_KOILA_IR_BINARYOPS_H

#include "koila/Dialect/Koila/IR/ElementwiseOp.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/BackwardOperator.h"

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/BinaryOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_BINARYOPS_H
