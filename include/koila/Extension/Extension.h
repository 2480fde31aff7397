//===- Extension.h - What the sources of an extension include ---*- C++ -*-===//
//
// An extension is a shared library with a dialect whose operations implement
// koila's interfaces: to MLIR's tools a dialect plugin, to koila one that says
// which koila it was built with. docs/user/Extensions.md has an example.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_EXTENSION_EXTENSION_H
#define KOILA_EXTENSION_EXTENSION_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/BackwardRule.h"
#include "koila/Interfaces/Layout.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "llvm/Config/llvm-config.h"
#include <cstdint>

/// Raised whenever an interface or a class that rules use changes, so that what
/// was compiled before would misread it.
#define KOILA_EXTENSION_API_VERSION 1

namespace koila {

/// What an extension says of what it was built with. The first member stays
/// where it is in every version.
struct ExtensionInfo {
  /// KOILA_EXTENSION_API_VERSION.
  uint32_t apiVersion;
  /// LLVM_VERSION_STRING.
  const char *llvmVersion;
  /// The identity of the dialect and of an interface in the libraries that the
  /// extension is linked to: others than those of the process mean that it has
  /// copies of its own of them.
  const void *dialect;
  const void *interface;

  static ExtensionInfo get() {
    return {KOILA_EXTENSION_API_VERSION, LLVM_VERSION_STRING,
            mlir::TypeID::get<KoilaDialect>().getAsOpaquePointer(),
            mlir::TypeID::get<TorchOperatorInterface>().getAsOpaquePointer()};
  }
};

} // namespace koila

/// The entry points of an extension, once in one of its sources, outside of
/// namespaces: its name and version as literals, and the classes of its
/// dialects.
///
///   KOILA_EXTENSION("mylib", "1.0", mylib::MyDialect)
#define KOILA_EXTENSION(NAME, VERSION, ...)                                    \
  extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT const ::koila::ExtensionInfo *  \
  koilaGetExtensionInfo() {                                                    \
    static const auto info = ::koila::ExtensionInfo::get();                    \
    return &info;                                                              \
  }                                                                            \
  extern "C" LLVM_ATTRIBUTE_VISIBILITY_DEFAULT ::mlir::                        \
      DialectPluginLibraryInfo                                                 \
      mlirGetDialectPluginInfo() {                                             \
    return {MLIR_PLUGIN_API_VERSION, NAME, VERSION,                            \
            [](::mlir::DialectRegistry *registry) {                            \
              registry->insert<__VA_ARGS__>();                                 \
            }};                                                                \
  }

#endif // KOILA_EXTENSION_EXTENSION_H
