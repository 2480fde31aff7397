//===- KoilaConvolutionOps.cpp - Generated parts of one family
//--------------------===//

#include "koila/Dialect/Koila/IR/KoilaConvolutionOps.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/KoilaConvolutionOps.cpp.inc"

void KoilaDialect::registerConvolutionOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/KoilaConvolutionOps.cpp.inc"
      >();
}
