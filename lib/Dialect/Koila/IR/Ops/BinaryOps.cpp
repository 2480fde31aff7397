//===- BinaryOps.cpp - Generated parts of one family ----------------------===//

#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "../Rules/ElementwiseRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/BinaryOps.cpp.inc"

void KoilaDialect::registerBinaryOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/BinaryOps.cpp.inc"
      >();
}
