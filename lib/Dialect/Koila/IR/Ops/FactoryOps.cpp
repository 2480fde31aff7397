//===- FactoryOps.cpp - Generated parts of one family ---------------------===//

#include "koila/Dialect/Koila/IR/FactoryOps.h"
#include "../Rules/FactoryRules.h"
#include "../Rules/NewTensors.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/FactoryOps.cpp.inc"

void KoilaDialect::registerFactoryOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/FactoryOps.cpp.inc"
      >();
}
