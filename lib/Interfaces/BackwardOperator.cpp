//===- BackwardOperator.cpp - Gradients by operators ----------------------===//

#include "koila/Interfaces/BackwardOperator.h"

#include "koila/Interfaces/BackwardOperator.cpp.inc"
