//===- SnapshotReplay.cpp - A recording beside the simulation -------------===//

#include "koila/Allocators/SnapshotReplay.h"
#include "PoolReplay.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <map>
#include <set>

using namespace koila;
using Action = AllocatorAction;
using llvm::Error;
using llvm::Twine;

namespace {
class Replay {
public:
  Replay(const Snapshot &snapshot, const ReplayOptions &options)
      : snapshot(snapshot), options(options) {}

  Error run();
  ReplayReport takeReport() { return std::move(report); }

private:
  Error split();
  Error readSettings();
  void noteActions();
  Error replay(const InitialState &initial);
  Error replayFromEachStart();
  void dropFirstRequest();
  Error
  replayFromBefore(llvm::function_ref<Error(const InitialState &)> tryFrom,
                   bool isNeeded);
  /// What a recording does not have, and what decides.
  struct Assumptions {
    InitialState state;
    /// Which of two segments is older.
    std::set<std::pair<uint64_t, uint64_t>> order;
    /// Frees that came when a request waited for other streams.
    std::set<size_t> lateEvents;
  };
  /// Replays, and whether other assumptions may do better.
  llvm::Expected<bool> attempt(Assumptions &assumptions);
  void note(const Twine &text) { report.notes.push_back(text.str()); }

  const Snapshot &snapshot;
  const ReplayOptions &options;
  CachingAllocatorSettings settings;
  Recording recording;
  ReplayReport report;
};
} // namespace

/// What is of the device's default pool.
Error Replay::split() {
  const Snapshot::Pool defaultPool;
  if (options.device >= static_cast<int64_t>(snapshot.traces.size()) ||
      snapshot.traces[options.device].empty())
    return llvm::createStringError(
        "the snapshot has no events of device " + Twine(options.device) +
        "; call torch.cuda.memory._record_memory_history() before what is to "
        "be recorded" +
        (options.device ? "" : ", or name another --device"));
  // Private segments by address, for entries that do not name their pool.
  std::map<uint64_t, uint64_t> privateEnds;
  for (const Snapshot::Segment &segment : snapshot.segments) {
    if (segment.device != options.device)
      continue;
    if (segment.pool == defaultPool)
      recording.segments.push_back(&segment);
    else
      privateEnds[segment.address] = segment.address + segment.size;
  }
  llvm::sort(recording.segments, [](const auto *left, const auto *right) {
    return left->address < right->address;
  });
  int64_t numPrivate = 0;
  for (auto [number, entry] :
       llvm::enumerate(snapshot.traces[options.device])) {
    bool isPrivate = entry.pool && *entry.pool != defaultPool;
    if (!entry.pool) {
      auto behind = privateEnds.upper_bound(entry.event.address);
      isPrivate = behind != privateEnds.begin() &&
                  entry.event.address < std::prev(behind)->second;
    }
    numPrivate += isPrivate;
    if (isPrivate)
      continue;
    recording.events.push_back({entry.event, static_cast<int64_t>(number)});
    recording.hasAction[static_cast<unsigned>(entry.event.action)] = true;
  }
  report.numEvents =
      static_cast<int64_t>(snapshot.traces[options.device].size());
  if (numPrivate || !privateEnds.empty())
    note("events of private pools (CUDA graphs, use_mem_pool) are not "
         "simulated: " +
         Twine(numPrivate) + " events and " + Twine(privateEnds.size()) +
         " segments are left out, and figures are without them");
  return Error::success();
}

Error Replay::readSettings() {
  std::vector<std::string> unknown;
  auto read = getAllocatorSettings(snapshot, unknown);
  if (!read)
    return read.takeError();
  settings = *read;
  if (!unknown.empty())
    note("allocator_settings has keys that koila does not know: " +
         llvm::join(unknown, ", "));
  if (settings.garbageCollectionThreshold > 0 && !options.memoryLimit)
    note(
        "garbage_collection_threshold acts below a limit of the process, which "
        "is not in a snapshot: give --memory-limit BYTES if there was one");
  return Error::success();
}

void Replay::noteActions() {
  if (!snapshot.otherActions.empty())
    note("actions that are not the allocator's are left out: " +
         llvm::join(snapshot.otherActions, ", "));
  if (!recording.has(Action::Alloc))
    return;
  if (recording.has(Action::FreeRequested) !=
      recording.has(Action::FreeCompleted))
    note(recording.has(Action::FreeRequested)
             ? "the recording has no free_completed: blocks are taken to be "
               "free when that is requested"
             : "the recording has no free_requested: blocks are taken to be "
               "freed when that is completed");
}

/// By address, but for pairs of which the order is known. False if these
/// contradict each other, or are not all of these segments.
static bool
sortSegments(std::vector<CachingAllocator::InitialSegment> &segments,
             const std::set<std::pair<uint64_t, uint64_t>> &order) {
  std::map<uint64_t, size_t> indices;
  for (auto [index, segment] : llvm::enumerate(segments))
    indices[segment.address] = index;
  std::map<uint64_t, unsigned> numOlder;
  for (auto [older, younger] : order) {
    if (!indices.count(older) || !indices.count(younger))
      return false;
    ++numOlder[younger];
  }
  std::set<uint64_t> ready;
  for (auto [address, index] : indices)
    if (!numOlder.count(address))
      ready.insert(address);
  std::vector<CachingAllocator::InitialSegment> sorted;
  while (!ready.empty()) {
    uint64_t address = *ready.begin();
    ready.erase(ready.begin());
    sorted.push_back(segments[indices[address]]);
    for (auto pair = order.lower_bound({address, 0});
         pair != order.end() && pair->first == address; ++pair)
      if (--numOlder[pair->second] == 0)
        ready.insert(pair->second);
  }
  if (sorted.size() != segments.size())
    return false;
  segments = std::move(sorted);
  return true;
}

/// Makes a block from before the recording larger that lies in front of a
/// simulated place, so that what is free there was too small for it. False if
/// no block can be so large.
static bool growBlock(InitialState &initial,
                      const PoolReplay::OtherPlace &other,
                      const CachingAllocatorSettings &settings) {
  constexpr int64_t kMinBlockSize = 512;
  int64_t bytes = other.bytesOfFree - other.bytes + kMinBlockSize;
  for (CachingAllocator::InitialSegment &segment : initial.segments) {
    uint64_t address = segment.address;
    for (size_t i = 0; i + 1 < segment.blocks.size(); ++i) {
      CachingAllocator::InitialBlock &block = segment.blocks[i];
      CachingAllocator::InitialBlock &behind = segment.blocks[i + 1];
      if (address + block.size == other.simulated &&
          initial.unsureBlocks.count(address)) {
        int64_t rest = block.size + bytes - settings.roundSize(block.requested);
        if (rest > kMostUnsplitRest || bytes >= behind.size)
          return false;
        block.size += bytes;
        behind.size -= bytes;
        return true;
      }
      address += block.size;
    }
  }
  return false;
}

llvm::Expected<bool> Replay::attempt(Assumptions &assumptions) {
  using EqualBlocks = CachingAllocatorOptions::EqualBlocks;
  PoolReplay pool(recording, settings, options, assumptions.state,
                  assumptions.lateEvents);
  if (Error error = pool.run())
    return error;
  const CachingAllocatorStats &stats = pool.getStats();
  report.numCompared = pool.getNumCompared();
  report.difference = pool.getDifference();
  report.numSegments = static_cast<int64_t>(recording.segments.size());
  report.numBlocks = pool.getNumBlocks();
  report.peakAllocated = stats.allocatedBytes.all.peak;
  report.peakActive = stats.activeBytes.all.peak;
  report.peakRequested = stats.requestedBytes.all.peak;
  report.peakReserved = stats.reservedBytes.all.peak;

  if (std::optional<size_t> late = pool.getLateEvent()) {
    assumptions.lateEvents.insert(*late);
    return true;
  }
  std::optional<PoolReplay::OtherPlace> other = pool.getOtherPlace();
  if (!other)
    return false;
  if (growBlock(assumptions.state, *other, settings))
    return true;
  if (options.equalBlocks == EqualBlocks::ByAddress)
    return false;
  // The recorded place is of the older one.
  auto [pair, isNew] = assumptions.order.insert(
      {other->recordedSegment, other->simulatedSegment});
  if (!isNew)
    return false;
  if (sortSegments(assumptions.state.segments, assumptions.order))
    return true;
  assumptions.order.erase(pair);
  return false;
}

/// Where the simulation does something else because of what is not known, the
/// recording says more. All that it says has to be possible at once.
Error Replay::replay(const InitialState &initial) {
  constexpr unsigned kMostAttempts = 1000;
  Assumptions assumptions{initial, {}, {}};
  std::optional<ReplayReport> best;
  for (unsigned count = 0; count < kMostAttempts; ++count) {
    auto isChanged = attempt(assumptions);
    if (!isChanged)
      return isChanged.takeError();
    if (!best || !report.difference || report.numCompared > best->numCompared)
      best = report;
    if (!*isChanged)
      break;
  }
  report = *best;
  if (size_t choices = assumptions.order.size())
    note("which of the segments from before the recording are older is not "
         "known, but for " +
         Twine(choices) + (choices == 1 ? " choice" : " choices") +
         " among equal blocks that the recording made");
  return Error::success();
}

Error Replay::run() {
  if (Error error = split())
    return error;
  if (Error error = readSettings())
    return error;
  noteActions();
  if (!recording.has(Action::Alloc))
    return llvm::createStringError(
        "the recording has no 'alloc' of device " + Twine(options.device) +
        ", so that there is nothing to replay; record without skip_actions");
  return replayFromEachStart();
}

/// Of what can have been there before, that which explains most.
Error Replay::replayFromEachStart() {
  auto hasEarlier = hasEarlierBlocks(recording);
  if (!hasEarlier)
    return hasEarlier.takeError();
  const ReplayReport before = report;
  std::optional<ReplayReport> best;
  auto tryFrom = [&](const InitialState &initial) -> Error {
    if (Error error = replay(initial))
      return error;
    if (!best || !report.difference || report.numCompared > best->numCompared)
      best = report;
    report = before;
    return Error::success();
  };
  if (!*hasEarlier) {
    if (!recording.hasNewSegments())
      note(
          "the recording has no segment_alloc and no segment_map: segments are "
          "compared by the places of their blocks, and at the end");
    if (Error error = tryFrom(InitialState()))
      return error;
  }
  if (!best || best->difference)
    if (Error error = replayFromBefore(tryFrom, /*isNeeded=*/!best))
      return error;
  report = std::move(*best);
  return Error::success();
}

/// Of a request that began before the recording, it is not known what it found
/// and what it released.
void Replay::dropFirstRequest() {
  std::vector<RecordedEvent> &events = recording.events;
  Action first = events.front().event.action;
  if (first == Action::Alloc || first == Action::FreeRequested ||
      first == Action::FreeCompleted)
    return;
  auto end = llvm::find_if(events, [](const RecordedEvent &recorded) {
    return recorded.event.action == Action::Alloc ||
           recorded.event.action == Action::OutOfMemory ||
           recorded.event.action == Action::FreeRequested;
  });
  if (end != events.end() && end->event.action != Action::FreeRequested)
    ++end;
  events.erase(events.begin(), end);
}

Error Replay::replayFromBefore(
    llvm::function_ref<Error(const InitialState &)> tryFrom, bool isNeeded) {
  if (isNeeded)
    dropFirstRequest();
  auto initial = findInitialState(recording, settings, options.deviceMemory);
  if (!initial && isNeeded)
    return initial.takeError();
  if (!initial || (initial->isEmpty() && !isNeeded)) {
    llvm::consumeError(initial.takeError());
    return Error::success();
  }
  const ReplayReport before = report;
  auto noteStart = [&](const InitialState &state) {
    note("the recording does not begin with the first allocation: " +
         Twine(state.segments.size()) + " segments with " +
         Twine(state.numBlocksInUse) +
         " blocks in use were there before, and peaks count from its first "
         "event on");
    if (!state.unsureBlocks.empty())
      note("of " + Twine(state.unsureBlocks.size()) +
           " of these blocks it is not known whether less than a mebibyte "
           "behind them was theirs, but for what allocations say");
  };
  noteStart(*initial);
  if (Error error = tryFrom(*initial))
    return error;
  if (recording.hasNewSegments())
    return Error::success();
  // No segment came while it was recorded, or these events were left out.
  llvm::erase_if(initial->segments, [](const auto &segment) {
    return llvm::all_of(segment.blocks, [](const auto &block) {
      return block.state == CachingAllocator::BlockInfo::State::Inactive;
    });
  });
  report = before;
  noteStart(*initial);
  note(
      "the recording has no segment_alloc and no segment_map: segments without "
      "a block from before are taken to be new, and are compared at the end");
  return tryFrom(*initial);
}

llvm::Expected<ReplayReport>
koila::replaySnapshot(const Snapshot &snapshot, const ReplayOptions &options) {
  Replay replay(snapshot, options);
  if (Error error = replay.run())
    return error;
  return replay.takeReport();
}
