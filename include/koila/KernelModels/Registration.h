//===- Registration.h - Kernel models of a registry's contexts --*- C++ -*-===//

#ifndef KOILA_KERNELMODELS_REGISTRATION_H
#define KOILA_KERNELMODELS_REGISTRATION_H

#include "mlir/IR/DialectRegistry.h"

namespace koila {

/// The library of the target `cpu`, and `aten`, on which it is built: what
/// holds on every device.
void registerCPUKernelModels(mlir::DialectRegistry &registry);
/// The library of the target `cuda`, on the same base, and on that one for each
/// card of which a profile is shipped, by the profile's name.
void registerCUDAKernelModels(mlir::DialectRegistry &registry);

} // namespace koila

#endif // KOILA_KERNELMODELS_REGISTRATION_H
