//===- Calibrate.cpp - A table of workspaces for this machine -------------===//

#include "Calibrate.h"
#include "CalibrationCalls.h"
#include "Inputs.h"
#include "Load.h"
#include "Measure.h"
#include "Predict.h"
#include "koila/KernelModels/WorkspaceTable.h"
#include "koila/Support/OutputFile.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include <torch/version.h>

using namespace koila;
using namespace koila::run;

namespace {
/// Calls of one row that the rule itself does not doubt.
struct Tally {
  int64_t calls = 0, larger = 0, smaller = 0, skipped = 0;
  /// The first that differs, in words.
  std::string example;
};

class Calibration {
public:
  Calibration(const Options &options, mlir::MLIRContext *context)
      : options(options), context(context), rng(options.seed) {
    this->options.workspaces =
        std::make_shared<const WorkspaceTable>(WorkspaceTable::trustAll());
    llvm::SmallString<128> file;
    if (llvm::sys::fs::createTemporaryFile("koila-calibrate", "pt", file))
      throw UserError("no temporary file can be made");
    path = file.str().str();
  }
  ~Calibration() { llvm::sys::fs::remove(path); }

  WorkspaceTable run();

private:
  Tally measure(const CalibrationFamily &family, const std::string &dtype,
                const std::string &format);
  void compare(const CalibrationCall &call, Tally &tally);

  Options options;
  mlir::MLIRContext *context;
  std::mt19937_64 rng;
  std::string path;
};
} // namespace

/// Runs the call at a few batches: a sample, an odd number, more than threads
/// and blocks.
void Calibration::compare(const CalibrationCall &call, Tally &tally) {
  torch::jit::Module module("koila_calibration");
  module.define(call.source);
  module.eval();
  module.save(path);
  options.call.inputs.clear();
  for (const std::string &text : call.inputs) {
    std::string error;
    if (!options.call.addInput(text, error))
      throw UserError("a call of the calibration: " + error);
  }
  CallMode mode{options.method, options.gradMode, options.seed};
  for (int64_t batch : {1, 2, 5, 16}) {
    options.call.batch = {{"B", batch}};
    Prediction prediction = predictPeak(path, options, context);
    if (!prediction.peakBytes || !prediction.exact)
      continue;
    torch::jit::Method method = getMethod(module, path, options.method);
    Signature signature(method, options, context);
    std::vector<c10::IValue> inputs =
        makeInputs(method, signature, options.seed);
    int64_t measured = measurePeak(module, path, mode, inputs).bytes;
    int64_t difference = measured - *prediction.peakBytes;
    ++tally.calls;
    tally.larger += difference > 0;
    tally.smaller += difference < 0;
    if (difference != 0 && tally.example.empty()) {
      std::string shapes;
      for (const std::string &text : call.inputs)
        shapes += (shapes.empty() ? "" : ", ") + text;
      tally.example =
          llvm::formatv("{0} at B={1} took {2} bytes where the "
                        "rule says {3}",
                        shapes, batch, measured, *prediction.peakBytes);
    }
  }
}

Tally Calibration::measure(const CalibrationFamily &family,
                           const std::string &dtype,
                           const std::string &format) {
  Tally tally;
  for (int64_t index = 0; index < options.calls; ++index) {
    CalibrationCall call = family.draw(index, dtype, format, rng);
    try {
      compare(call, tally);
    } catch (const std::exception &) {
      // A window that does not fit, or a type that a kernel lacks.
      ++tally.skipped;
    }
  }
  return tally;
}

/// A row of fewer calls would promise more than was seen.
static constexpr int64_t kLeastCalls = 16;

/// The row that the calls support.
static WorkspaceRow makeRow(const CalibrationFamily &family, Tally tally) {
  WorkspaceRow row;
  row.op = family.ops;
  row.calls = tally.calls;
  int64_t different = tally.larger + tally.smaller;
  if (different == 0)
    return row;
  row.trust = tally.larger ? Trust::Unknown : Trust::UpperBound;
  row.why = llvm::formatv("{0} of {1} calls on this machine differ: {2}",
                          different, tally.calls, tally.example);
  return row;
}

WorkspaceTable Calibration::run() {
  WorkspaceTable table;
  for (const CalibrationFamily &family : getCalibrationFamilies())
    for (const std::string &dtype : family.dtypes)
      for (const std::string &format : family.formats) {
        llvm::errs() << "koila-run: calibrating " << family.ops.front() << ", "
                     << dtype << ", " << format << ", " << options.threads
                     << " threads: ";
        Tally tally = measure(family, dtype, format);
        WorkspaceRow row = makeRow(family, tally);
        row.dtype = {dtype};
        // A strided operand is copied, and then is a contiguous one.
        if (format == "contiguous")
          row.memoryFormat = {format, "strided"};
        else
          row.memoryFormat = {format};
        row.isa = {options.isa};
        row.torch = {TORCH_VERSION};
        row.leastThreads = options.threads;
        row.mostThreads = options.threads;
        row.source =
            llvm::formatv("koila-run --calibrate --seed {0}", options.seed);
        llvm::errs() << tally.calls << " calls, "
                     << (tally.calls < kLeastCalls
                             ? "too few without a doubt of the rule; no row"
                         : row.why.empty() ? "all exact"
                                           : row.why);
        if (tally.skipped)
          llvm::errs() << "; " << tally.skipped << " programs do not run";
        llvm::errs() << '\n';
        if (tally.calls >= kLeastCalls)
          table.add(std::move(row));
      }
  return table;
}

void koila::run::calibrate(const Options &options, mlir::MLIRContext *context) {
  WorkspaceTable table = Calibration(options, context).run();
  std::string error;
  auto write = [&](llvm::raw_ostream &os) {
    os << llvm::formatv("{0:2}", table.toJSON()) << '\n';
  };
  setLastOutput();
  if (!writeOutputFile(options.calibrate, write, error))
    throw UserError(error);
}
