//===- ReadBack.h - Reading back what was written ---------------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_READBACK_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_READBACK_H

#include "../Import/Import.h"

namespace koila::torchscript {

/// The module as text without what a round trip may change: locations, names
/// of archive and method, and recorded examples.
std::string getCanonicalText(mlir::ModuleOp module);

/// Whether two functions do the same, operation by operation; types may say
/// more or less.
bool isSameProgram(mlir::func::FuncOp lhs, mlir::func::FuncOp rhs);

/// The normal form of the method as LibTorch would load it.
std::string getMethodNormalForm(const torch::jit::Module &module,
                                const std::string &function);

/// Normal forms of methods, by name.
using NormalForms = std::vector<std::pair<std::string, std::string>>;

/// SHA-256 of the method's normal form. Those that are `known` of the module
/// are not made again.
std::string getFunctionFingerprint(const torch::jit::Module &module,
                                   const std::string &function,
                                   const NormalForms &known = {});

/// What a written archive is compared with.
struct Expectation {
  std::string function;
  /// Of the methods that were built.
  NormalForms normalForms;
  /// The method that must import as `canonicalText`; empty: none.
  std::string sameFunction;
  std::string canonicalText;
};

/// Loads the archive at `path` and compares it. Throws Refusal.
void verifyArchive(const std::string &path, const Expectation &expectation,
                   const OperatorTable &operators, mlir::MLIRContext *context);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_READBACK_H
