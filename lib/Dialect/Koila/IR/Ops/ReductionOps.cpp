//===- ReductionOps.cpp - Generated parts of one family -------------------===//

#include "koila/Dialect/Koila/IR/ReductionOps.h"
#include "../Rules/ReductionRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ReductionOps.cpp.inc"

void KoilaDialect::registerReductionOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/ReductionOps.cpp.inc"
      >();
}
