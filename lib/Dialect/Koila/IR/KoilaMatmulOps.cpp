//===- KoilaMatmulOps.cpp - Generated parts of one family
//--------------------===//

#include "koila/Dialect/Koila/IR/KoilaMatmulOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/KoilaMatmulOps.cpp.inc"

void KoilaDialect::registerMatmulOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/KoilaMatmulOps.cpp.inc"
      >();
}
