//===- ElementwiseOp.cpp - What elementwise operators say -----------------===//

#include "koila/Dialect/Koila/IR/ElementwiseOp.h"

#include "koila/Dialect/Koila/IR/ElementwiseOp.cpp.inc"
