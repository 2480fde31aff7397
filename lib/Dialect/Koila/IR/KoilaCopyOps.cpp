//===- KoilaCopyOps.cpp - Generated parts of one family
//--------------------===//

#include "koila/Dialect/Koila/IR/KoilaCopyOps.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/KoilaCopyOps.cpp.inc"

void KoilaDialect::registerCopyOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/KoilaCopyOps.cpp.inc"
      >();
}
