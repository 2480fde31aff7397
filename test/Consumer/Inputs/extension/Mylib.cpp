//===- Mylib.cpp - The dialect of mylib, as an extension of koila ---------===//

#include "koila/Extension/Extension.h"

#include "MylibDialect.h.inc"
#define GET_OP_CLASSES
#include "Mylib.h.inc"

#include "MylibDialect.cpp.inc"
#define GET_OP_CLASSES
#include "Mylib.cpp.inc"

void mylib::MylibDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "Mylib.cpp.inc"
      >();
}

KOILA_EXTENSION("mylib", "1.0", mylib::MylibDialect)
