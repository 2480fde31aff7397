//===- CompilationUnit.h - Copies freed with their module -------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_BOUNDARY_COMPILATIONUNIT_H
#define KOILA_TARGET_TORCHSCRIPT_BOUNDARY_COMPILATIONUNIT_H

#include <torch/csrc/jit/api/module.h>

namespace koila::torchscript {

/// As `module.clone(/*inplace=*/true)`, with other types and the same tensors,
/// but in a compilation unit of its own. LibTorch frees types and functions
/// with their unit: those of modules that Python scripts and traces share one
/// that lives as long as the process.
torch::jit::Module cloneIntoOwnUnit(const torch::jit::Module &module);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_BOUNDARY_COMPILATIONUNIT_H
