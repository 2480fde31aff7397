//===- InProcess.h - TorchScript modules of this process --------*- C++ -*-===//
//
// Passes on a module that a program holds, without a file: what comes back
// shares every tensor with it. For programs that have LibTorch; the Python
// package is one.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TARGET_TORCHSCRIPT_INPROCESS_H
#define KOILA_TARGET_TORCHSCRIPT_INPROCESS_H

#include "koila/Interfaces/CustomOperators.h"
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/jit/api/module.h>
#include <vector>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace koila::torchscript {

/// From now on contexts of `registry` ask LibTorch for the shapes of operators
/// that koila has no rule for.
void registerMetaKernels(mlir::DialectRegistry &registry);

/// From now on passes on modules of this process know the operators that
/// `operators` names, and ask `answer` what their rules say
/// (Interfaces/CustomOperators.h). Replaces what was registered before.
void setCustomOperators(llvm::StringMap<CustomOperator> operators,
                        std::function<std::string(llvm::StringRef)> answer);

/// What to run on which method.
struct InProcessOptions {
  /// What diagnostics call the module.
  std::string name;
  std::string method = "forward";
  /// With one, the passes see `train_step` (TrainStep.h); empty: the method
  /// returns the loss.
  std::optional<std::string> loss;
  /// As `--input`, and `--batch` (`B=64`).
  std::vector<std::string> inputs;
  std::vector<std::string> batch;
  /// Empty: `B`, else the only symbol.
  std::string batchSymbol;
  /// The passes, as text: `koila-compile{tile=16}`.
  std::string pipeline;
  /// Where the tensors of the module are, which it may name, as traces do:
  /// `cuda:0`. What is made of it is for that device alone.
  std::string device = "cpu";
  /// Tensor arguments, by position, that are on the CPU while the module is on
  /// `device`: they are moved there, those with the batch tile by tile, and
  /// what tiles make of the whole batch is left on the CPU.
  std::vector<size_t> fromHost;
};

struct InProcessResult {
  bool succeeded = false;
  /// One JSON object per line, as those of TorchScript.h; also with the
  /// severity "remark", and then with `kind`, `name` and `arguments` if a pass
  /// told of a decision.
  std::string messages;
  /// The report that a pass left; empty if none did.
  std::string report;
  /// Samples per tile; none if the batch is not split.
  std::optional<int64_t> tile;
  /// The rewritten module, if it was asked for.
  std::optional<torch::jit::Module> module;
};

/// Runs passes on a method of `module`, which stays as it is. With `emit` the
/// result has a copy of the module with the rewritten method. Nothing is
/// thrown.
InProcessResult runInProcess(const torch::jit::Module &module,
                             const InProcessOptions &options, bool emit);

/// Runs passes on a method of the archive at `path`, which is not changed. The
/// archive at `output`, if that is not empty, gets what came of it, as
/// koilaTorchEmit writes it.
InProcessResult runOnArchive(const std::string &path,
                             const InProcessOptions &options,
                             const std::string &output = "");

/// Of `module`, which was loaded to the CPU from the archive at `path`: the
/// device that the archive was saved on, where tracing wrote it down, becomes
/// that of weights and arguments. Nothing is thrown; what koila refuses to load
/// stays as it is.
void followDeviceOfArchive(const torch::jit::Module &module,
                           const std::string &path);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_INPROCESS_H
