//===- NormOps.cpp - Generated parts of one family ------------------------===//

#include "koila/Dialect/Koila/IR/NormOps.h"
#include "../Rules/ReductionRules.h"
#include "koila/Dialect/Koila/IR/Dropout.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/NormOps.cpp.inc"

void KoilaDialect::registerNormOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/NormOps.cpp.inc"
      >();
}
