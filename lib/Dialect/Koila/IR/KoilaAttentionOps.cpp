//===- KoilaAttentionOps.cpp - Generated parts of one family
//--------------------===//

#include "koila/Dialect/Koila/IR/KoilaAttentionOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/KoilaAttentionOps.cpp.inc"

void KoilaDialect::registerAttentionOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/KoilaAttentionOps.cpp.inc"
      >();
}
