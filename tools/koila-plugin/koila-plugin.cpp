//===- koila-plugin.cpp - koila in a stock mlir-opt -----------------------===//
//
// mlir-opt --load-dialect-plugin=KoilaPlugin.so
//          --pass-pipeline='builtin.module(koila-infer-shapes)' in.mlir
//
// The dialect entry point registers the passes too, so that one flag gives
// both; with --load-pass-plugin alone the dialect would be unknown.
//
//===----------------------------------------------------------------------===//

#include "koila/InitAllDialects.h"
#include "koila/InitAllExtensions.h"
#include "koila/InitAllPasses.h"
#include "koila/Support/OutputFile.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"

extern "C" LLVM_ATTRIBUTE_WEAK ::mlir::DialectPluginLibraryInfo
mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "Koila", KOILA_VERSION,
          [](::mlir::DialectRegistry *registry) {
            koila::registerAllDialects(*registry);
            koila::registerAllExtensions(*registry);
            koila::registerAllPasses();
            // What loads plugins is a tool, which runs once.
            koila::setFilesWrittenOnce();
          }};
}

extern "C" LLVM_ATTRIBUTE_WEAK ::mlir::PassPluginLibraryInfo
mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "KoilaPasses", KOILA_VERSION,
          []() { koila::registerAllPasses(); }};
}
