//===- WeightedMean.h - Means of unequal elements ---------------*- C++ -*-===//

#ifndef KOILA_INTERFACES_WEIGHTEDMEAN_H
#define KOILA_INTERFACES_WEIGHTEDMEAN_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include "koila/Interfaces/WeightedMean.h.inc"

#endif // KOILA_INTERFACES_WEIGHTEDMEAN_H
