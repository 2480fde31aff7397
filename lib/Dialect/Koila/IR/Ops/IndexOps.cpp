//===- IndexOps.cpp - Generated parts of one family -----------------------===//

#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "../Rules/IndexRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/IndexOps.cpp.inc"

void KoilaDialect::registerIndexOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/IndexOps.cpp.inc"
      >();
}
