//===- ViewOps.h - Views ----------------------------------------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_VIEWOPS_H
#define KOILA_DIALECT_KOILA_IR_VIEWOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ViewOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_VIEWOPS_H
