//===- Messages.h - Errors on their way out ---------------------*- C++ -*-===//

#ifndef KOILA_LIB_TARGET_TORCHSCRIPT_MESSAGES_H
#define KOILA_LIB_TARGET_TORCHSCRIPT_MESSAGES_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"
#include <optional>
#include <string>
#include <utility>

namespace koila::torchscript {

/// What ends an import or emission. Thrown only between functions of this
/// folder, never through a frame of MLIR, which is built without exceptions.
struct Refusal {
  std::string message;
  std::optional<mlir::Location> location;
  /// A second place, for example the later use of a written value.
  std::string note;
  std::optional<mlir::Location> noteLocation;
};

[[noreturn]] inline void refuse(const llvm::Twine &message) {
  throw Refusal{message.str(), std::nullopt, {}, std::nullopt};
}
[[noreturn]] inline void refuse(mlir::Location location,
                                const llvm::Twine &message) {
  throw Refusal{message.str(), location, {}, std::nullopt};
}

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

#endif // KOILA_LIB_TARGET_TORCHSCRIPT_MESSAGES_H
