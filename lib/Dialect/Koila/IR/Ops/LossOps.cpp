//===- LossOps.cpp - Generated parts of one family ------------------------===//

#include "koila/Dialect/Koila/IR/LossOps.h"
#include "../Rules/LossRules.h"
#include "../Rules/ReductionRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/LossOps.cpp.inc"

void KoilaDialect::registerLossOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/LossOps.cpp.inc"
      >();
}
