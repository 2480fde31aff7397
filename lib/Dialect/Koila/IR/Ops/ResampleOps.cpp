//===- ResampleOps.cpp - Generated parts of one family --------------------===//

#include "koila/Dialect/Koila/IR/ResampleOps.h"
#include "../Rules/ResampleRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ResampleOps.cpp.inc"

void KoilaDialect::registerResampleOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/ResampleOps.cpp.inc"
      >();
}
