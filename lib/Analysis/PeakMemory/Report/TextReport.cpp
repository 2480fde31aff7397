//===- TextReport.cpp - The report as text, and its groups ----------------===//

#include "koila/Analysis/PeakMemory.h"
#include "koila/Support/ByteSize.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <limits>

using namespace koila;

/// Adds up the tensors to which `getName` gives one name, most bytes first.
static std::vector<MemoryGroup>
group(const std::vector<LiveTensor> &tensors,
      llvm::function_ref<std::string(const LiveTensor &)> getName) {
  std::vector<MemoryGroup> groups;
  llvm::StringMap<size_t> indices;
  for (const LiveTensor &tensor : tensors) {
    std::string name = getName(tensor);
    auto [entry, isNew] = indices.try_emplace(name, groups.size());
    if (isNew)
      groups.push_back({name, 0, 0});
    MemoryGroup &found = groups[entry->second];
    if (llvm::AddOverflow(found.bytes, tensor.bytes, found.bytes))
      found.bytes = std::numeric_limits<int64_t>::max();
    ++found.tensors;
  }
  llvm::stable_sort(groups, [](const MemoryGroup &lhs, const MemoryGroup &rhs) {
    return lhs.bytes > rhs.bytes;
  });
  return groups;
}

std::vector<MemoryGroup> PeakReport::groupByLine() const {
  return group(liveAtPeak, [](const LiveTensor &tensor) {
    return tensor.place.isKnown()
               ? tensor.place.file + ":" + std::to_string(tensor.place.line)
               : std::string("unknown place");
  });
}

std::vector<MemoryGroup> PeakReport::groupByModule() const {
  return group(liveAtPeak, [](const LiveTensor &tensor) {
    return tensor.place.module.empty() ? std::string("the top module")
                                       : tensor.place.module;
  });
}

std::vector<MemoryGroup> PeakReport::groupByKind() const {
  return group(liveAtPeak,
               [](const LiveTensor &tensor) { return tensor.kind; });
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
    int64_t bytes = timeline[index].getTotalBytes();
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

/// `1000 + 64 B + 4 B²`.
static std::string spell(const BatchPiece &piece, llvm::StringRef symbol) {
  std::string text;
  llvm::raw_string_ostream os(text);
  const std::string powers[] = {"", symbol.str(), symbol.str() + "²"};
  for (auto [coefficient, power] :
       llvm::zip_equal(piece.coefficients, powers)) {
    if (coefficient == 0)
      continue;
    if (!text.empty())
      os << (coefficient < 0 ? " - " : " + ");
    else if (coefficient < 0)
      os << "-";
    uint64_t size = coefficient < 0 ? -uint64_t(coefficient) : coefficient;
    if (size != 1 || power.empty())
      os << size << (power.empty() ? "" : " ");
    os << power;
  }
  return text.empty() ? "0" : text;
}

static void printCurve(const PeakReport &report, llvm::raw_ostream &os) {
  constexpr size_t kMostPieces = 6;
  for (auto [index, piece] : llvm::enumerate(report.batchPieces)) {
    if (index == kMostPieces) {
      os << "                and " << report.batchPieces.size() - kMostPieces
         << " more pieces up to " << report.batchSymbol << " = "
         << report.batchPieces.back().to << "\n";
      break;
    }
    os << (index == 0 ? "  by batch      " : "                ")
       << spell(piece, report.batchSymbol) << " bytes, " << report.batchSymbol
       << " = " << piece.from;
    if (piece.to != piece.from)
      os << ".." << piece.to;
    os << "\n";
  }
  if (!report.maxBatch)
    return;
  os << "  largest batch ";
  if (report.maxBatch->isUnbounded)
    os << "any fits the budget\n";
  else
    os << report.maxBatch->batch << " within the budget\n";
}

/// Each doubt with its place; of one that many operations share, the first
/// ones.
static void printDoubts(const std::vector<Inexactness> &doubts,
                        llvm::raw_ostream &os) {
  constexpr unsigned kMostOfAReason = 5;
  llvm::MapVector<llvm::StringRef, unsigned> counts;
  for (const Inexactness &entry : doubts)
    if (++counts[entry.reason] <= kMostOfAReason)
      os << "not exact: " << entry.op << ", " << spell(entry.place) << ": "
         << entry.reason
         << (entry.source.empty() ? "" : " (" + entry.source + ")") << "\n";
  for (auto [reason, count] : counts)
    if (count > kMostOfAReason)
      os << "not exact: " << count - kMostOfAReason
         << " more operations: " << reason << "\n";
}

void PeakReport::print(llvm::raw_ostream &os) const {
  os << "koila: memory of '" << function << "', " << getModeName(mode) << ", "
     << device << ", ";
  // Other devices have neither.
  if (device == "cpu")
    os << threads << (threads == 1 ? " thread" : " threads") << ", " << isa
       << ", ";
  os << "torch " << torch << "\n";
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
    printCurve(*this, os);
    return;
  }
  bool isBounded = llvm::all_of(
      inexact, [](const Inexactness &doubt) { return doubt.isBound; });
  os << "  peak          " << formatBytes(*peakBytes)
     << (exact()     ? ""
         : isBounded ? ", not exact, an upper bound"
                     : ", not exact")
     << "\n";
  if (!peakOp.empty())
    os << "  at            " << peakOp << ", " << spell(peakPlace) << "\n";
  os << "  parameters    " << formatBytes(parameterBytes)
     << " (not in the peak)\n";
  llvm::StringRef made =
      hasGradients ? " (not in the peak)" : " (made in the step)";
  if (gradientBytes)
    os << "  gradients     " << formatBytes(gradientBytes) << made << "\n";
  if (optimizerBytes)
    os << "  optimizer     " << formatBytes(optimizerBytes) << made << "\n";
  if (inputBytes)
    os << "  inputs        " << formatBytes(*inputBytes)
       << " (not in the peak)\n";
  if (outputBytes)
    os << "  outputs       " << formatBytes(*outputBytes) << "\n";
  if (floorBytes)
    os << "  floor         " << formatBytes(*floorBytes)
       << " (no tile goes below)\n";
  if (deviceMemory)
    deviceMemory->print(os);
  printCurve(*this, os);
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
  printDoubts(inexact, os);
}
