//===- DiagnosticJSON.h - Errors on their way out ---------------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_BOUNDARY_DIAGNOSTICJSON_H
#define KOILA_TARGET_TORCHSCRIPT_BOUNDARY_DIAGNOSTICJSON_H

#include "koila/Target/PyTorchArchive/Refusal.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/JSON.h"
#include <optional>
#include <string>
#include <utility>

namespace koila::torchscript {

/// The messages of one call, as lines of JSON.
class Messages {
public:
  void add(llvm::StringRef severity, llvm::StringRef message,
           std::optional<mlir::Location> location = std::nullopt);
  void add(const Refusal &refusal);
  /// A decision of a pass.
  void addRemark(llvm::StringRef message, mlir::Location location,
                 llvm::StringRef kind, llvm::StringRef name,
                 llvm::json::Object arguments);
  /// Lines that another call made.
  void append(llvm::StringRef lines);
  bool hasError() const { return anyError; }
  /// A handler for the diagnostics that MLIR gives, notes included.
  void addDiagnostic(mlir::Diagnostic &diagnostic);
  const std::string &getText() const { return text; }

private:
  void add(llvm::json::Object object, std::optional<mlir::Location> location);

  std::string text;
  bool anyError = false;
};

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_BOUNDARY_DIAGNOSTICJSON_H
