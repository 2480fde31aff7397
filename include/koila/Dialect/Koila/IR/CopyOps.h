//===- CopyOps.h - Casts, copies and fills ----------------------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_COPYOPS_H
#define KOILA_DIALECT_KOILA_IR_COPYOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/CopyOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_COPYOPS_H
