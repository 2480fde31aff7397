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

namespace koila {

/// Lets `op`, which autograd may record, write no operand of the program. Of
/// `copy_` there is a derivative and none of `copy`, so that it writes a copy,
/// which is returned. Source: tools/autograd/derivatives.yaml.
mlir::Operation *withdrawTie(TorchOperatorInterface op);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_IR_COPYOPS_H
