//===- Archive.h - TorchScript archives before they are loaded --*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_BOUNDARY_ARCHIVE_H
#define KOILA_TARGET_TORCHSCRIPT_BOUNDARY_ARCHIVE_H

#include "koila/Target/PyTorchArchive/Refusal.h"
#include "llvm/ADT/StringRef.h"
#include <string>
#include <torch/csrc/jit/api/module.h>
#include <vector>

namespace koila::torchscript {

/// What the archive's directory says, without reading weights.
struct Archive {
  std::string path;
  /// SHA-256 over names, sizes and checksums of the records.
  std::string fingerprint;
  /// Names without the leading folder.
  std::vector<std::string> records;
  bool hasRecord(llvm::StringRef name) const;
  /// Whether koila wrote this method.
  bool carries(llvm::StringRef method) const;
};

/// The extra file with the report of the method that was written last.
inline constexpr const char *kReportFile = "koila/report.json";

/// Names of the extra files that an emitted archive has for each method that
/// koila wrote.
struct CarriedFiles {
  explicit CarriedFiles(llvm::StringRef method);
  /// The tiled program as MLIR bytecode, what shows that the method is still
  /// that one, and its report.
  std::string module, fingerprint, report;
};

/// Reads the directory of `path` and its small records. Refuses, with what to
/// do instead, whatever is no TorchScript archive, cannot be analysed, runs
/// code at load, or is made to overwhelm LibTorch.
Archive inspectArchive(const std::string &path);

/// Whether the file at its path still has the directory that it had.
bool isUnchanged(const Archive &archive);

/// The extra files that are in it, without contents.
torch::jit::ExtraFilesMap getExtraFiles(const Archive &archive);

/// Whether archives that run `__setstate__` are loaded. A property of the
/// process: it says that the user trusts the files.
void setAllowSetState(bool allow);
bool getAllowSetState();

/// Loads the archive to the CPU, wherever it was saved. `extraFiles` has the
/// wanted keys. Recorded example inputs, if wanted, become types of the graph's
/// inputs. Devices that tracing wrote down are those of weights and arguments
/// afterwards (TracedDevices.h).
torch::jit::Module loadArchive(const Archive &archive,
                               torch::jit::ExtraFilesMap &extraFiles,
                               bool restoreExamples);

/// The method, or a refusal that lists the methods there are.
torch::jit::Method getMethod(const torch::jit::Module &module,
                             const std::string &function,
                             const std::string &path);

/// One line of what LibTorch said, without its C++ call stack.
std::string getFirstLine(const std::exception &error);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_BOUNDARY_ARCHIVE_H
