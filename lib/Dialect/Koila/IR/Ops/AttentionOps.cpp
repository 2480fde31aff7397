//===- AttentionOps.cpp - Generated parts of one family -------------------===//

#include "koila/Dialect/Koila/IR/AttentionOps.h"
#include "../Rules/AttentionRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/AttentionOps.cpp.inc"

void KoilaDialect::registerAttentionOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/AttentionOps.cpp.inc"
      >();
}
