//===- ConvolutionOps.h - Convolutions --------------------------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_CONVOLUTIONOPS_H
#define KOILA_DIALECT_KOILA_IR_CONVOLUTIONOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/BackwardOperator.h"
#include "koila/Interfaces/KernelWork.h"

namespace koila::rules {

/// What a schema says by its name. Everything else is in arguments that all
/// schemas call alike.
struct ConvolutionKind {
  /// 0: the weight says it, and an input without batch is refused.
  int64_t spatialRank;
  bool transposed;
};

} // namespace koila::rules

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ConvolutionOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_CONVOLUTIONOPS_H
