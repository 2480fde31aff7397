//===- BackwardOperator.h - Gradients by operators --------------*- C++ -*-===//

#ifndef KOILA_INTERFACES_BACKWARDOPERATOR_H
#define KOILA_INTERFACES_BACKWARDOPERATOR_H

#include "koila/Interfaces/Rules.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include "koila/Interfaces/BackwardOperator.h.inc"

#endif // KOILA_INTERFACES_BACKWARDOPERATOR_H
