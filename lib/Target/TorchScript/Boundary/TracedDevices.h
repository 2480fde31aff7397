//===- TracedDevices.h - Devices that tracing wrote down --------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_BOUNDARY_TRACEDDEVICES_H
#define KOILA_TARGET_TORCHSCRIPT_BOUNDARY_TRACEDDEVICES_H

#include "llvm/ADT/StringRef.h"
#include <torch/csrc/jit/api/module.h>

namespace koila::torchscript {

/// Tracing writes down the device of each tensor that a program makes, whether
/// the program named one or took that of an argument. In the methods of
/// `module` and its parts, where tracing wrote `device`, which is where weights
/// and examples were, stands afterwards the device of an argument or a weight.
/// Other devices, and those that a script names, are the program's own and
/// stay. `isTraced`: methods of `module` are known to be traces.
void followDevice(const torch::jit::Module &module, llvm::StringRef device,
                  bool isTraced);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_BOUNDARY_TRACEDDEVICES_H
