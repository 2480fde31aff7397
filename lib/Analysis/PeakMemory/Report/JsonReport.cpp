//===- JsonReport.cpp - The report as JSON --------------------------------===//

#include "koila/Analysis/PeakMemory.h"
#include "llvm/ADT/STLExtras.h"

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

static Value toJSON(const std::vector<BatchPiece> &pieces) {
  Array list;
  for (const BatchPiece &piece : pieces)
    list.push_back(Object{{"from", piece.from},
                          {"to", piece.to},
                          {"coefficients", Array(piece.coefficients)}});
  return list;
}

static Value toJSON(const std::optional<BatchLimit> &limit) {
  if (!limit)
    return nullptr;
  return limit->isUnbounded ? Value("unbounded") : Value(limit->batch);
}

const Inexactness *PeakReport::getUnbounded() const {
  auto found = llvm::find_if(
      inexact, [](const Inexactness &entry) { return !entry.isBound; });
  return found == inexact.end() ? nullptr : &*found;
}

static Object toJSON(const LiveTensor &tensor) {
  return Object{{"name", tensor.name},
                {"bytes", tensor.bytes},
                {"type", tensor.type},
                {"kind", tensor.kind},
                {"location", toJSON(tensor.place)}};
}

static Value toJSON(const StorageSpan &span) {
  Object storage = toJSON(span.tensor);
  storage["from"] = static_cast<int64_t>(span.from);
  storage["to"] = static_cast<int64_t>(span.to);
  storage["freed_by"] = nullptr;
  if (!span.freedBy.empty())
    storage["freed_by"] =
        Object{{"op", span.freedBy}, {"location", toJSON(span.freedPlace)}};
  return storage;
}

static Value toJSON(const std::vector<MemoryGroup> &groups) {
  Array list;
  for (const MemoryGroup &group : groups)
    list.push_back(Object{{"name", group.name},
                          {"bytes", group.bytes},
                          {"tensors", group.tensors}});
  return list;
}

static void writeEvents(llvm::json::OStream &json,
                        llvm::ArrayRef<MemoryEvent> events) {
  json.attributeArray("events", [&] {
    int64_t index = 0;
    for (const MemoryEvent &event : events) {
      bool isShared = !event.shared.empty();
      Object entry{{"index", index++},
                   {"action", isShared       ? "share"
                              : event.isFree ? "free"
                                             : "alloc"},
                   {"id", event.id},
                   {"bytes", event.bytes},
                   {"op", event.op},
                   {"location", ::toJSON(event.place)},
                   {"exact", event.isExact}};
      if (isShared)
        entry["key"] = event.shared;
      if (!event.left.empty())
        entry["left"] = event.left;
      json.value(std::move(entry));
    }
  });
}

void koila::printEvents(llvm::ArrayRef<MemoryEvent> events,
                        llvm::raw_ostream &os) {
  llvm::json::OStream json(os, /*IndentSize=*/1);
  json.object([&] {
    json.attribute("schema", 1);
    writeEvents(json, events);
  });
  os << "\n";
}

void koila::printEvents(llvm::ArrayRef<BatchEvents> batches,
                        llvm::raw_ostream &os) {
  llvm::json::OStream json(os, /*IndentSize=*/1);
  json.object([&] {
    json.attribute("schema", 1);
    json.attributeArray("batches", [&] {
      for (const BatchEvents &each : batches)
        json.object([&] {
          json.attribute("batch", each.batch);
          writeEvents(json, each.events);
        });
    });
  });
  os << "\n";
}

Value PeakReport::toJSON() const {
  Array live, line, spans, reasons;
  for (const LiveTensor &tensor : liveAtPeak)
    live.push_back(::toJSON(tensor));
  for (const StorageSpan &span : storages)
    spans.push_back(::toJSON(span));
  for (const TimelineEntry &entry : timeline) {
    Object step{{"index", entry.index},
                {"op", entry.op},
                {"location", ::toJSON(entry.place)},
                {"live_bytes", entry.liveBytes},
                {"transient_bytes", entry.transientBytes}};
    if (entry.frames) {
      Array frames;
      for (const SourcePlace &frame : *entry.frames)
        frames.push_back(Object{{"file", frame.file},
                                {"line", frame.line},
                                {"function", frame.function}});
      step["frames"] = std::move(frames);
    }
    line.push_back(std::move(step));
  }
  for (const Inexactness &entry : inexact) {
    Object reason{{"op", entry.op},
                  {"location", ::toJSON(entry.place)},
                  {"reason", entry.reason},
                  {"bound", entry.isBound}};
    if (!entry.source.empty())
      reason["source"] = entry.source;
    reasons.push_back(std::move(reason));
  }
  Value promised = nullptr;
  if (promise)
    promised = Object{{"budget_bytes", promise->budgetBytes},
                      {"tile", promise->tile},
                      {"holds_from", promise->holdsFrom},
                      {"holds_to", promise->holdsTo}};
  Value batch = Object{
      {"symbol", batchSymbol.empty() ? Value(nullptr) : Value(batchSymbol)},
      {"value", orNull(batchValue)}};
  Object report{
      {"schema", 1},
      {"function", function},
      {"mode", getModeName(mode)},
      {"allocator", deviceMemory ? "cuda" : "exact"},
      {"device", device},
      {"threads", threads},
      {"isa", isa},
      {"torch", torch},
      {"executor", anyExecutor ? "any" : "no-profiling"},
      {"batch", std::move(batch)},
      {"peak_bytes", orNull(peakBytes)},
      {"parameter_bytes", parameterBytes},
      {"input_bytes", orNull(inputBytes)},
      {"output_bytes", orNull(outputBytes)},
      {"gradient_bytes", gradientBytes},
      {"optimizer_bytes", optimizerBytes},
      {"peak_location", peakBytes ? ::toJSON(peakPlace) : Value(nullptr)},
      {"floor_bytes", orNull(floorBytes)},
      {"outside_allocator_bytes", nullptr},
      {"live_at_peak", std::move(live)},
      {"by_line", ::toJSON(groupByLine())},
      {"by_module", ::toJSON(groupByModule())},
      {"by_kind", ::toJSON(groupByKind())},
      {"timeline", std::move(line)},
      {"storages", std::move(spans)},
      {"batch_pieces", ::toJSON(batchPieces)},
      {"max_batch", ::toJSON(maxBatch)},
      {"promise", std::move(promised)},
      {"exact", exact()},
      {"inexact", std::move(reasons)}};
  if (deviceMemory)
    report["cuda"] = deviceMemory->toJSON();
  return report;
}
