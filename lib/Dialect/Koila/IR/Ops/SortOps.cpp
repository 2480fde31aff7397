//===- SortOps.cpp - Generated parts of one family ------------------------===//

#include "koila/Dialect/Koila/IR/SortOps.h"
#include "../Rules/ReductionRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/SortOps.cpp.inc"

void KoilaDialect::registerSortOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/SortOps.cpp.inc"
      >();
}
