//===- MatmulOps.cpp - Generated parts of one family ----------------------===//

#include "koila/Dialect/Koila/IR/MatmulOps.h"
#include "../Rules/MatmulRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/MatmulOps.cpp.inc"

void KoilaDialect::registerMatmulOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/MatmulOps.cpp.inc"
      >();
}
