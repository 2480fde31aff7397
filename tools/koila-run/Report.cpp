//===- Report.cpp - What koila-run prints ---------------------------------===//

#include "Report.h"
#include "koila/Support/ByteSize.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

using namespace koila;
using namespace koila::run;

static void printComparison(llvm::raw_ostream &os, const Comparison &result) {
  os << "compare: "
     << (!result.equal    ? "UNEQUAL"
         : result.vacuous ? "VACUOUS"
                          : "equal");
  if (!result.reason.empty())
    os << " (" << result.reason << ')';
  os << "\n  largest value " << llvm::format("%.3g", result.largest);
  if (result.hasSpread) {
    os << ", spread between samples " << llvm::format("%.3g", result.spread);
    if (result.largest > 0.0)
      os << " (" << llvm::format("%.2g", result.spread / result.largest)
         << " of it)";
  } else {
    os << ", spread between samples not checked (fewer than two samples)";
  }
  os << "\n  largest difference " << llvm::format("%.3g", result.maxAbs)
     << " (relative " << llvm::format("%.2g", result.maxRel) << "), in float64 "
     << llvm::format("%.3g", result.maxAbsDouble) << '\n';
  if (result.gradients > 0)
    os << "  " << result.gradients << " gradients, largest difference "
       << llvm::format("%.3g", result.gradientMaxAbs) << " (relative "
       << llvm::format("%.2g", result.gradientMaxRel) << ")\n";
  for (const std::string &note : result.notes)
    os << "  note: " << note << '\n';
}

void koila::run::printText(llvm::raw_ostream &os, const RunReport &report) {
  const Options &options = report.options;
  os << options.method << ", " << options.modeName();
  for (const SymbolValue &symbol : report.symbols)
    os << ", " << symbol.first << " = " << symbol.second;
  os << ", " << options.threads
     << (options.threads == 1 ? " thread, " : " threads, ")
     << (options.device == "cpu" ? options.isa : options.device) << '\n';
  for (const ProgramResult &program : report.programs) {
    int64_t peak = program.measured.bytes;
    os << program.path << "\n  measured peak  " << formatBytes(peak);
    if (const auto &device = program.measured.device)
      os << "\n  allocated      " << formatBytes(device->allocated)
         << " at most, with weights and inputs\n  reserved       "
         << formatBytes(device->reserved) << " at most";
    os << "\n  predicted peak ";
    const Prediction &prediction = program.prediction;
    if (!prediction.peakBytes) {
      os << "none: " << prediction.reason;
    } else {
      os << formatBytes(*prediction.peakBytes);
      int64_t difference = peak - *prediction.peakBytes;
      if (difference == 0)
        os << ", equal to the measured one";
      else
        os << ", measured is " << (difference > 0 ? "+" : "")
           << llvm::format("%.2f", 100.0 * static_cast<double>(difference) /
                                       static_cast<double>(std::max<int64_t>(
                                           *prediction.peakBytes, 1)))
           << " %";
      if (!prediction.exact)
        os << " (inexact: " << prediction.reason << ')';
    }
    os << "\n  time           " << llvm::format("%.3f", program.milliseconds)
       << " ms (median of " << options.repeat << ")\n";
  }
  if (report.comparison)
    printComparison(os, *report.comparison);
}

static llvm::json::Value optional(std::optional<int64_t> value) {
  return value ? llvm::json::Value(*value) : llvm::json::Value(nullptr);
}

/// JSON has no infinities; a difference that large is null.
static llvm::json::Value finiteOrNull(double value) {
  return std::isfinite(value) ? llvm::json::Value(value)
                              : llvm::json::Value(nullptr);
}

void koila::run::printJSON(llvm::raw_ostream &os, const RunReport &report) {
  const Options &options = report.options;
  llvm::json::Array programs;
  for (const ProgramResult &program : report.programs) {
    const Prediction &prediction = program.prediction;
    llvm::json::Array warnings;
    for (const std::string &warning : program.warnings)
      warnings.push_back(llvm::json::fixUTF8(warning));
    llvm::json::Object entry{
        {"path", llvm::json::fixUTF8(program.path)},
        {"predicted_peak_bytes", optional(prediction.peakBytes)},
        {"predicted_exact", prediction.exact},
        {"prediction_note",
         prediction.reason.empty()
             ? llvm::json::Value(nullptr)
             : llvm::json::Value(llvm::json::fixUTF8(prediction.reason))},
        {"measured_peak_bytes", program.measured.bytes},
        {"time_ms", program.milliseconds},
        {"warnings", std::move(warnings)}};
    if (const auto &device = program.measured.device) {
      entry["measured_allocated_bytes"] = device->allocated;
      entry["measured_reserved_bytes"] = device->reserved;
    }
    programs.push_back(std::move(entry));
  }
  llvm::json::Value comparison = nullptr;
  if (report.comparison) {
    const Comparison &result = *report.comparison;
    llvm::json::Array notes;
    for (const std::string &note : result.notes)
      notes.push_back(llvm::json::fixUTF8(note));
    llvm::json::Value gradients = nullptr;
    if (options.gradMode)
      gradients = llvm::json::Object{
          {"tensors", static_cast<int64_t>(result.gradients)},
          {"max_abs", finiteOrNull(result.gradientMaxAbs)},
          {"max_rel", finiteOrNull(result.gradientMaxRel)}};
    comparison = llvm::json::Object{
        {"equal", result.equal && !result.vacuous},
        {"vacuous", result.vacuous},
        {"reason", result.reason.empty()
                       ? llvm::json::Value(nullptr)
                       : llvm::json::Value(llvm::json::fixUTF8(result.reason))},
        {"max_abs", finiteOrNull(result.maxAbs)},
        {"max_rel", finiteOrNull(result.maxRel)},
        {"max_abs_float64", finiteOrNull(result.maxAbsDouble)},
        {"largest", finiteOrNull(result.largest)},
        {"spread", result.hasSpread ? finiteOrNull(result.spread)
                                    : llvm::json::Value(nullptr)},
        {"tensors", static_cast<int64_t>(result.tensors)},
        {"gradients", std::move(gradients)},
        {"notes", std::move(notes)}};
  }
  llvm::json::Value batch = nullptr;
  if (!report.batch.first.empty())
    batch = llvm::json::Object{{"symbol", report.batch.first},
                               {"value", report.batch.second}};
  os << llvm::formatv("{0:2}",
                      llvm::json::Value(llvm::json::Object{
                          {"schema", 1},
                          {"function", options.method},
                          {"mode", options.modeName()},
                          {"device", options.device},
                          {"threads", options.threads},
                          {"isa", options.isa},
                          {"executor", "TorchScript without profiling"},
                          {"seed", static_cast<int64_t>(options.seed)},
                          {"repeat", options.repeat},
                          {"batch", std::move(batch)},
                          {"programs", std::move(programs)},
                          {"compare", std::move(comparison)}}))
     << '\n';
}
