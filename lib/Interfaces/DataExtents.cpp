//===- DataExtents.cpp - Extents that data decide -------------------------===//

#include "koila/Interfaces/DataExtents.h"

#include "koila/Interfaces/DataExtents.cpp.inc"
