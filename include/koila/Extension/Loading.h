//===- Loading.h - Extensions of this process -------------------*- C++ -*-===//
//
// Extensions are loaded once for the process and never unloaded: contexts that
// are made later have their dialects (registerAllDialects), in koila-opt, in
// the TorchScript library and in Python alike.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_EXTENSION_LOADING_H
#define KOILA_EXTENSION_LOADING_H

#include "mlir/IR/DialectRegistry.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace koila {

enum class PluginKind {
  /// Made with KOILA_EXTENSION, which is checked.
  Extension,
  /// Also a dialect plugin of MLIR that knows nothing of koila, as mlir-opt
  /// loads it.
  AnyDialect
};

/// Loads the library at `path` and runs its code. A file that is loaded already
/// is left alone. Fails, and nothing has been added, for a file that is no such
/// library, was built with another MLIR or koila, is linked to copies of them,
/// or has dialects or operators that are there already. The message names the
/// path.
llvm::Error loadExtension(llvm::StringRef path,
                          PluginKind kind = PluginKind::Extension);

/// Adds the dialects of all that has been loaded.
void registerExtensions(mlir::DialectRegistry &registry);

} // namespace koila

#endif // KOILA_EXTENSION_LOADING_H
