//===- ConvolutionOps.cpp - Generated parts of one family -----------------===//

#include "koila/Dialect/Koila/IR/ConvolutionOps.h"
#include "../Rules/ConvolutionRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ConvolutionOps.cpp.inc"

void KoilaDialect::registerConvolutionOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/ConvolutionOps.cpp.inc"
      >();
}
