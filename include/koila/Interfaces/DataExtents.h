//===- DataExtents.h - Extents that data decide -----------------*- C++ -*-===//

#ifndef KOILA_INTERFACES_DATAEXTENTS_H
#define KOILA_INTERFACES_DATAEXTENTS_H

#include "koila/Interfaces/Rules.h"

namespace koila {

/// What is known of an extent that data decide.
struct ExtentBound {
  /// What it counts, in the user's terms: "how many elements a mask selects".
  llvm::StringRef counted;
  /// It is no larger; null if nothing bounds it.
  DimExpr most;
};

} // namespace koila

#include "koila/Interfaces/DataExtents.h.inc"

#endif // KOILA_INTERFACES_DATAEXTENTS_H
