//===- ResampleOps.h - Up- and downsampling, sampling at a grid -*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_RESAMPLEOPS_H
#define KOILA_DIALECT_KOILA_IR_RESAMPLEOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ResampleOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_RESAMPLEOPS_H
