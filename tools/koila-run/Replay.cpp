//===- Replay.cpp - A snapshot of PyTorch's allocator, replayed -----------===//

#include "Replay.h"
#include "koila/Support/ByteSize.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace koila;
using namespace koila::run;
using EqualBlocks = CachingAllocatorOptions::EqualBlocks;

static const char *getRules(const ReplayOptions &options) {
  return options.equalBlocks == EqualBlocks::ByAddress ? "2.11" : "2.13";
}

static std::string count(int64_t number, const char *noun) {
  return std::to_string(number) + ' ' + noun + (number == 1 ? "" : "s");
}

static void printText(llvm::raw_ostream &os, const std::string &path,
                      const ReplayOptions &options,
                      const ReplayReport &report) {
  os << path << ", device " << options.device << ", rules of PyTorch "
     << getRules(options) << "\n  peak allocated "
     << formatBytes(report.peakAllocated) << "\n  peak active    "
     << formatBytes(report.peakActive) << "\n  peak requested "
     << formatBytes(report.peakRequested) << "\n  peak reserved  "
     << formatBytes(report.peakReserved) << '\n';
  for (const std::string &note : report.notes)
    os << "  note: " << note << '\n';
  std::string events = count(report.numCompared, "event");
  if (report.numCompared != report.numEvents)
    events = std::to_string(report.numCompared) + " of " +
             count(report.numEvents, "event");
  if (!report.difference) {
    os << "the simulation and the recording agree: " << events << ", and "
       << count(report.numSegments, "segment") << " with "
       << count(report.numBlocks, "block") << " at the end\n";
    return;
  }
  const ReplayReport::Difference &difference = *report.difference;
  os << "the simulation and the recording differ ";
  if (difference.event)
    os << "at event " << *difference.event << " (" << difference.action
       << "); before, " << events << " were compared and agree\n";
  else
    os << "at the end, after " << events << " that agree\n";
  os << "  simulated: " << difference.simulated
     << "\n  recorded:  " << difference.recorded << '\n';
}

static void printJSON(llvm::raw_ostream &os, const std::string &path,
                      const ReplayOptions &options,
                      const ReplayReport &report) {
  llvm::json::Array notes;
  for (const std::string &note : report.notes)
    notes.push_back(llvm::json::fixUTF8(note));
  llvm::json::Value difference = nullptr;
  if (report.difference)
    difference = llvm::json::Object{
        {"event", report.difference->event
                      ? llvm::json::Value(*report.difference->event)
                      : llvm::json::Value(nullptr)},
        {"action", report.difference->action},
        {"simulated", report.difference->simulated},
        {"recorded", report.difference->recorded}};
  os << llvm::formatv("{0:2}",
                      llvm::json::Value(llvm::json::Object{
                          {"schema", 1},
                          {"path", llvm::json::fixUTF8(path)},
                          {"device", options.device},
                          {"rules", getRules(options)},
                          {"agree", !report.difference},
                          {"events", report.numEvents},
                          {"events_compared", report.numCompared},
                          {"segments", report.numSegments},
                          {"blocks_compared", report.numBlocks},
                          {"peak_allocated_bytes", report.peakAllocated},
                          {"peak_active_bytes", report.peakActive},
                          {"peak_requested_bytes", report.peakRequested},
                          {"peak_reserved_bytes", report.peakReserved},
                          {"difference", std::move(difference)},
                          {"notes", std::move(notes)}}))
     << '\n';
}

bool koila::run::replay(llvm::raw_ostream &os, const Options &options) {
  const std::string &path = options.replay;
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                          /*RequiresNullTerminator=*/false);
  if (!file)
    throw UserError("cannot read '" + path + "': " + file.getError().message());
  auto fail = [&](llvm::Error error) {
    throw UserError("'" + path + "': " + llvm::toString(std::move(error)));
  };
  auto snapshot = readSnapshot((*file)->getBuffer());
  if (!snapshot)
    fail(snapshot.takeError());
  auto report = replaySnapshot(*snapshot, options.replayOptions);
  if (!report)
    fail(report.takeError());
  if (options.json)
    printJSON(os, path, options.replayOptions, *report);
  else
    printText(os, path, options.replayOptions, *report);
  return !report->difference;
}
