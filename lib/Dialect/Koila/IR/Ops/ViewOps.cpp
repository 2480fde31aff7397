//===- ViewOps.cpp - Generated parts of one family ------------------------===//

#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "../Rules/ViewRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ViewOps.cpp.inc"

void KoilaDialect::registerViewOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/ViewOps.cpp.inc"
      >();
}
