//===- PoolOps.cpp - Generated parts of one family ------------------------===//

#include "koila/Dialect/Koila/IR/PoolOps.h"
#include "../Rules/PoolRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/PoolOps.cpp.inc"

void KoilaDialect::registerPoolOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/PoolOps.cpp.inc"
      >();
}
