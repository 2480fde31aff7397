//===- SpectralOps.cpp - Generated parts of one family --------------------===//

#include "koila/Dialect/Koila/IR/SpectralOps.h"
#include "../Rules/SpectralRules.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/SpectralOps.cpp.inc"

void KoilaDialect::registerSpectralOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/SpectralOps.cpp.inc"
      >();
}
