//===- KoilaConvolutionOps.cpp - Generated parts of one family
//---------------===//

#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/KoilaConvolutionOps.cpp.inc"
