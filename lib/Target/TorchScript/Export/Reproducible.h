//===- Reproducible.h - Equal inputs give equal files -----------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_REPRODUCIBLE_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_REPRODUCIBLE_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringRef.h"
#include <string>
#include <torch/csrc/jit/api/module.h>

namespace koila::torchscript {

/// Gives the classes and functions of `module` names, and the constants of
/// classes an order, that depend on the program alone: what Python made is
/// numbered in the order of the process, and ordered by hashes of it.
void giveCanonicalNames(const torch::jit::Module &module);

/// `module` as bytecode that does not say where the archive `path` was. Places
/// in the archive have an empty name of a file instead.
std::string getPortableBytecode(mlir::ModuleOp module, llvm::StringRef path);

/// The report without `path`, in the same way.
std::string getPortableReport(llvm::StringRef json, llvm::StringRef path);

/// The contrary of getPortableBytecode(), for a module that was read.
void setArchivePath(mlir::ModuleOp module, llvm::StringRef path);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_REPRODUCIBLE_H
