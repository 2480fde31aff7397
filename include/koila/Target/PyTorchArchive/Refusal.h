//===- Refusal.h - What ends a reading of a file ----------------*- C++ -*-===//

#ifndef KOILA_TARGET_PYTORCHARCHIVE_REFUSAL_H
#define KOILA_TARGET_PYTORCHARCHIVE_REFUSAL_H

#include "mlir/IR/Location.h"
#include "llvm/ADT/Twine.h"
#include <optional>
#include <string>

namespace koila::torchscript {

/// What ends an import or emission. Thrown only between functions of
/// lib/Target, never through a frame of MLIR, which is built without
/// exceptions.
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
[[noreturn]] inline void refuseFile(llvm::StringRef path,
                                    const llvm::Twine &why) {
  refuse(llvm::Twine("'") + path + "' " + why);
}

/// What to do instead, at the end of a refusal.
inline constexpr const char *kSaveInstead =
    "; make a program of the model with torch.jit.trace or torch.jit.script "
    "and save it with torch.jit.save";

/// Refuses a zip archive of something else.
[[noreturn]] inline void refuseWithoutProgram(llvm::StringRef path) {
  refuseFile(path,
             llvm::Twine("is a zip archive without a TorchScript program") +
                 kSaveInstead);
}

} // namespace koila::torchscript

#endif // KOILA_TARGET_PYTORCHARCHIVE_REFUSAL_H
