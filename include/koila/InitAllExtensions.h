//===- InitAllExtensions.h - What koila adds to dialects --------*- C++ -*-===//

#ifndef KOILA_INITALLEXTENSIONS_H
#define KOILA_INITALLEXTENSIONS_H

#include "koila/KernelModels/Registration.h"

namespace koila {
/// The kernel models of all targets. Without them no analysis of memory runs.
inline void registerAllExtensions(mlir::DialectRegistry &registry) {
  registerCPUKernelModels(registry);
  registerCUDAKernelModels(registry);
}
} // namespace koila

#endif // KOILA_INITALLEXTENSIONS_H
