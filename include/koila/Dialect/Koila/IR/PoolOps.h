//===- PoolOps.h - Pooling --------------------------------------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_POOLOPS_H
#define KOILA_DIALECT_KOILA_IR_POOLOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/KernelWork.h"

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/PoolOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_POOLOPS_H
