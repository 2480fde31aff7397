//===- Options.h - Command line of koila-run --------------------*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_OPTIONS_H
#define KOILA_TOOLS_KOILARUN_OPTIONS_H

#include "koila/Allocators/SnapshotReplay.h"
#include "koila/InputSpec/InputSpec.h"
#include "koila/KernelModels/WorkspaceTable.h"
#include "support/Untrusted.h"
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace koila::run {

/// An error whose text is for the user. Thrown anywhere, printed in main.
class UserError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// The diagnostic is on stderr already.
class DiagnosedError : public std::exception {};

struct Options {
  /// One or two archives.
  std::vector<std::string> paths;
  CallSpec call;
  std::string method = "forward";
  /// Mode: inference, else forward-with-grad or train.
  bool gradMode = false;
  bool trains = false;
  /// Of mode train; see TrainStepSpec.
  std::string loss;
  int64_t repeat = 5;
  uint64_t seed = 0;
  int64_t threads = 0;
  /// Where programs run, by LibTorch's name.
  std::string device = "cpu";
  /// oneDNN's name; what koila predicts for.
  std::string isa;
  /// Where the rules hold; null: the table that koila ships.
  std::shared_ptr<const WorkspaceTable> workspaces;
  /// The table to write; empty: run programs instead.
  std::string calibrate;
  /// Programs for each row of that table.
  int64_t calls = 24;
  /// The snapshot to replay; empty: run programs instead.
  std::string replay;
  ReplayOptions replayOptions;
  ArchiveOptions archives;
  bool json = false;
  bool help = false;

  const char *modeName() const {
    return trains ? "train" : gradMode ? "forward-with-grad" : "inference";
  }
};

/// Throws UserError.
Options parseOptions(int argc, char **argv);
/// The text of `--help`.
extern const char *const kHelp;

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_OPTIONS_H
