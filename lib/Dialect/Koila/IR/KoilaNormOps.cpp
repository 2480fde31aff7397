//===- KoilaNormOps.cpp - Generated parts of one family
//--------------------===//

#include "koila/Dialect/Koila/IR/KoilaNormOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/KoilaNormOps.cpp.inc"

void KoilaDialect::registerNormOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/KoilaNormOps.cpp.inc"
      >();
}
