//===- TorchScriptLibrary.h - Opens LibTorch when needed --------*- C++ -*-===//
//
// Linking LibTorch costs 0.17 s at every start; --help and work on .mlir must
// not pay for it.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TOOLS_KOILA_OPT_TORCHSCRIPTLIBRARY_H
#define KOILA_TOOLS_KOILA_OPT_TORCHSCRIPTLIBRARY_H

#include "support/Untrusted.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

struct KoilaTorchProgram;

namespace koila {

class TorchScriptLibrary {
public:
  /// Opens the library beside this executable's; prints why not to stderr.
  static std::optional<TorchScriptLibrary> open(const char *executable,
                                                const ArchiveOptions &options,
                                                bool quiet = false);

  /// MLIR bytecode of a method of an archive, or of the training step that it
  /// makes with `loss` (empty: the method returns it) and `gradients`
  /// (KoilaTorchImportOptions). Messages go to stderr. What `willEmit` is kept
  /// in memory for that.
  std::optional<std::string> import(llvm::StringRef path,
                                    llvm::StringRef function,
                                    const std::optional<std::string> &loss,
                                    const std::string &gradients,
                                    bool willEmit);
  bool emit(llvm::StringRef bytecode, llvm::StringRef weights,
            llvm::StringRef output, llvm::StringRef report);
  /// Runs an operator on shapes (MetaKernelShapeSource); none if it cannot.
  std::optional<std::string> runMeta(llvm::StringRef request);
  /// Compares the schemas of all operations with LibTorch's.
  bool checkSchemas();

private:
  void *handle = nullptr;
  /// Used up by emission, or by the end of the process.
  KoilaTorchProgram *program = nullptr;
  /// How long LibTorch may be busy with one archive.
  unsigned timeoutSeconds = 0;
};

} // namespace koila

#endif // KOILA_TOOLS_KOILA_OPT_TORCHSCRIPTLIBRARY_H
