//===- CopyOps.cpp - Generated parts of one family ------------------------===//

#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "../Rules/CopyRules.h"
#include "../Rules/NewTensors.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/CopyOps.cpp.inc"

void KoilaDialect::registerCopyOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/CopyOps.cpp.inc"
      >();
}
