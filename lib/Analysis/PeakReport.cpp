//===- PeakReport.cpp - The report as JSON and as text --------------------===//

#include "koila/Analysis/PeakMemory.h"
#include "koila/Support/ByteSize.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace koila;
using llvm::json::Array;
using llvm::json::Object;
using llvm::json::Value;

static Value toJSON(const SourcePlace &place) {
  if (!place.isKnown() && place.module.empty())
    return nullptr;
  return Object{{"file", place.file},
                {"line", place.line},
                {"column", place.column},
                {"function", place.function},
                {"module", place.module}};
}

template <typename T>
static Value orNull(const std::optional<T> &value) {
  return value ? Value(*value) : Value(nullptr);
}

const Inexactness *PeakReport::getUnbounded() const {
  auto found = llvm::find_if(
      inexact, [](const Inexactness &entry) { return !entry.isBound; });
  return found == inexact.end() ? nullptr : &*found;
}

Value PeakReport::toJSON() const {
  Array live, line, reasons;
  for (const LiveTensor &tensor : liveAtPeak)
    live.push_back(Object{{"name", tensor.name},
                          {"bytes", tensor.bytes},
                          {"type", tensor.type},
                          {"kind", tensor.kind},
                          {"location", ::toJSON(tensor.place)}});
  for (const TimelineEntry &entry : timeline)
    line.push_back(Object{{"index", entry.index},
                          {"op", entry.op},
                          {"location", ::toJSON(entry.place)},
                          {"live_bytes", entry.liveBytes},
                          {"transient_bytes", entry.transientBytes}});
  for (const Inexactness &entry : inexact)
    reasons.push_back(Object{{"op", entry.op},
                             {"location", ::toJSON(entry.place)},
                             {"reason", entry.reason}});
  Value promised = nullptr;
  if (promise)
    promised = Object{{"budget_bytes", promise->budgetBytes},
                      {"tile", promise->tile},
                      {"holds_from", promise->holdsFrom},
                      {"holds_to", promise->holdsTo}};
  Value batch = Object{
      {"symbol", batchSymbol.empty() ? Value(nullptr) : Value(batchSymbol)},
      {"value", orNull(batchValue)}};
  return Object{
      {"schema", 1},
      {"function", function},
      {"mode", "inference"},
      {"allocator", "exact"},
      {"device", "cpu"},
      {"threads", threads},
      {"isa", isa},
      {"executor", "no-profiling"},
      {"batch", std::move(batch)},
      {"peak_bytes", orNull(peakBytes)},
      {"parameter_bytes", parameterBytes},
      {"input_bytes", orNull(inputBytes)},
      {"output_bytes", orNull(outputBytes)},
      {"gradient_bytes", 0},
      {"optimizer_bytes", 0},
      {"peak_location", peakBytes ? ::toJSON(peakPlace) : Value(nullptr)},
      {"floor_bytes", orNull(floorBytes)},
      {"outside_allocator_bytes", nullptr},
      {"live_at_peak", std::move(live)},
      {"timeline", std::move(line)},
      {"batch_pieces", Array{}},
      {"max_batch", nullptr},
      {"promise", std::move(promised)},
      {"exact", exact()},
      {"inexact", std::move(reasons)}};
}

/// `file.py:46 (layer1.0.conv1)`, as much of it as is known.
static std::string spell(const SourcePlace &place) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (place.isKnown())
    os << place.file << ':' << place.line;
  if (!place.module.empty())
    os << (place.isKnown() ? " (" : "") << place.module
       << (place.isKnown() ? ")" : "");
  return text.empty() ? "unknown place" : text;
}

/// Eight heights of one character per column; the maximum of each column.
static std::string drawSparkline(const std::vector<TimelineEntry> &timeline) {
  static const char *const kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr size_t kColumns = 72;
  size_t columns = std::min(kColumns, timeline.size());
  std::vector<int64_t> heights(columns, 0);
  int64_t top = 1;
  for (size_t index = 0; index < timeline.size(); ++index) {
    int64_t bytes = timeline[index].liveBytes + timeline[index].transientBytes;
    int64_t &height = heights[index * columns / timeline.size()];
    height = std::max(height, bytes);
    top = std::max(top, bytes);
  }
  std::string text;
  for (int64_t height : heights)
    text += kBars[static_cast<size_t>(7.0 * static_cast<double>(height) /
                                      static_cast<double>(top))];
  return text;
}

void PeakReport::print(llvm::raw_ostream &os) const {
  os << "koila: memory of '" << function << "', inference, cpu, " << threads
     << (threads == 1 ? " thread" : " threads") << ", " << isa << "\n";
  if (!batchSymbol.empty()) {
    os << "  batch         " << batchSymbol;
    if (batchValue)
      os << " = " << *batchValue;
    os << "\n";
  }
  if (!peakBytes) {
    os << "  peak          needs a value for symbol '" << missing
       << "' (--batch " << missing << "=N)\n";
    os << "  parameters    " << formatBytes(parameterBytes) << "\n";
    return;
  }
  os << "  peak          " << formatBytes(*peakBytes)
     << (exact() ? "" : ", not exact") << "\n";
  os << "  at            " << peakOp << ", " << spell(peakPlace) << "\n";
  os << "  parameters    " << formatBytes(parameterBytes)
     << " (not in the peak)\n";
  if (inputBytes)
    os << "  inputs        " << formatBytes(*inputBytes)
       << " (not in the peak)\n";
  if (outputBytes)
    os << "  outputs       " << formatBytes(*outputBytes) << "\n";
  if (floorBytes)
    os << "  floor         " << formatBytes(*floorBytes)
       << " (no tile goes below)\n";
  if (!timeline.empty())
    os << "  timeline      " << drawSparkline(timeline) << "\n";
  os << "live at the peak:\n";
  constexpr size_t kMostRows = 20;
  for (size_t index = 0; index < std::min(kMostRows, liveAtPeak.size());
       ++index) {
    const LiveTensor &tensor = liveAtPeak[index];
    os << "  " << llvm::format("%12s", formatBytesShort(tensor.bytes).c_str())
       << "  " << llvm::format("%-10s", tensor.kind.c_str()) << "  "
       << tensor.name << (tensor.type.empty() ? "" : " ") << tensor.type << "  "
       << spell(tensor.place) << "\n";
  }
  if (liveAtPeak.size() > kMostRows)
    os << "  and " << liveAtPeak.size() - kMostRows << " more\n";
  if (promise)
    os << "promise: at most " << formatBytes(promise->budgetBytes)
       << " for every batch from " << promise->holdsFrom << " to "
       << promise->holdsTo << ", tile " << promise->tile << "\n";
  for (const Inexactness &entry : inexact)
    os << "not exact: " << entry.op << ", " << spell(entry.place) << ": "
       << entry.reason << "\n";
}
