//===- InitAllPasses.h - Every koila pass -----------------------*- C++ -*-===//

#ifndef KOILA_INITALLPASSES_H
#define KOILA_INITALLPASSES_H

#include "koila/Dialect/Koila/Transforms/Passes.h"
#include "koila/Dialect/Koila/Transforms/Pipelines.h"

namespace koila {
inline void registerAllPasses() {
  registerKoilaPasses();
  registerKoilaPipelines();
}
} // namespace koila

#endif // KOILA_INITALLPASSES_H
