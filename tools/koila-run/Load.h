//===- Load.h - Programs from archives --------------------------*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_LOAD_H
#define KOILA_TOOLS_KOILARUN_LOAD_H

#include "Options.h"
#include "llvm/ADT/StringRef.h"
#include <torch/csrc/jit/api/module.h>

namespace koila::run {

/// Checks the archive as koila-opt does and loads it to its device. With
/// `restoreShapes`, the shapes recorded at tracing become types of the graph's
/// inputs. Throws UserError.
torch::jit::Module load(const std::string &path, const Options &options,
                        bool restoreShapes);

/// Throws UserError, with the methods there are.
torch::jit::Method getMethod(const torch::jit::Module &module,
                             const std::string &path, const std::string &name);

/// The first error of the library, which writes one JSON object per line.
std::string getFirstError(llvm::StringRef messages);

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_LOAD_H
