//===- WeightedMean.cpp - Means of unequal elements -----------------------===//

#include "koila/Interfaces/WeightedMean.h"

#include "koila/Interfaces/WeightedMean.cpp.inc"
