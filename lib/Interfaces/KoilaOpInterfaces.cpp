//===- KoilaOpInterfaces.cpp - The questions passes ask operations --------===//

#include "koila/Interfaces/KoilaOpInterfaces.h"

using namespace mlir;
using namespace koila;

#include "koila/Interfaces/KoilaOpInterfaces.cpp.inc"
