//===- FactoryOps.h - Tensors from sizes; random tensors --------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_FACTORYOPS_H
#define KOILA_DIALECT_KOILA_IR_FACTORYOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/RandomOp.h"

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/FactoryOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_FACTORYOPS_H
