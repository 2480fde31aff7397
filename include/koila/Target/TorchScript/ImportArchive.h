//===- ImportArchive.h - Archives as MLIR modules ---------------*- C++ -*-===//
//
// koilaTorchImport for programs that link to the library: the program is read
// into a context of the caller.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORTARCHIVE_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORTARCHIVE_H

#include "koila/Target/TorchScript/TorchScript.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>

namespace koila::torchscript {

/// The method that `options` name, in `context`, which has koila's dialects;
/// null after an error. `messages` are those of koilaTorchImport, one JSON
/// object a line.
mlir::OwningOpRef<mlir::ModuleOp>
importArchive(const KoilaTorchImportOptions &options,
              mlir::MLIRContext *context, std::string &messages);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORTARCHIVE_H
