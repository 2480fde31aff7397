//===- PointwiseOps.cpp - Generated parts of one family -------------------===//

#include "koila/Dialect/Koila/IR/PointwiseOps.h"
#include "../Rules/ElementwiseRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/PointwiseOps.cpp.inc"

void KoilaDialect::registerPointwiseOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/PointwiseOps.cpp.inc"
      >();
}
