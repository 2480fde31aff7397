//===- InitAllPasses.h - Every koila pass -----------------------*- C++ -*-===//

#ifndef KOILA_INITALLPASSES_H
#define KOILA_INITALLPASSES_H

#include "koila/Dialect/Koila/Transforms/Passes.h"

namespace koila {
inline void registerAllPasses() { registerKoilaPasses(); }
} // namespace koila

#endif // KOILA_INITALLPASSES_H
