//===- Recording.h - What a snapshot has of one pool ------------*- C++ -*-===//

#ifndef KOILA_LIB_ALLOCATORS_SNAPSHOT_RECORDING_H
#define KOILA_LIB_ALLOCATORS_SNAPSHOT_RECORDING_H

#include "koila/Allocators/Snapshot.h"
#include <array>
#include <set>

namespace koila {

struct RecordedEvent {
  AllocatorEvent event;
  /// In the trace of the device.
  int64_t number;
};

struct Recording {
  std::vector<RecordedEvent> events;
  /// Those that are left at the end, by address.
  std::vector<const Snapshot::Segment *> segments;
  /// The actions that the trace of the device has. The others did not happen,
  /// or were left out with `skip_actions`.
  std::array<bool, kNumAllocatorActions> hasAction = {};

  bool has(AllocatorAction action) const {
    return hasAction[static_cast<unsigned>(action)];
  }
  bool hasNewSegments() const {
    return has(AllocatorAction::SegmentAlloc) ||
           has(AllocatorAction::SegmentMap);
  }
};

/// What there was before the first event.
struct InitialState {
  std::vector<CachingAllocator::InitialSegment> segments;
  int64_t numBlocksInUse = 0;
  /// The addresses of those of which it is not known whether up to a mebibyte
  /// behind them is theirs: none is taken to be.
  std::set<uint64_t> unsureBlocks;
  /// Of a block that is freed and in use on other streams: the event at which
  /// it is free, by address.
  std::vector<std::pair<uint64_t, size_t>> waiting;
  /// Whether blocks or segments were there.
  bool isEmpty() const { return segments.empty(); }
};

/// A stream that stands for what a block waits for that is free at an event of
/// the recording. Their order is that of the events.
inline uint64_t getWaitStream(size_t event) {
  return (uint64_t(1) << 63) + event;
}

/// Of a block that may have more, the most.
inline constexpr int64_t kMostUnsplitRest = int64_t(1) << 20;

/// Whether blocks are freed, or left at the end, whose allocation the recording
/// does not have: it does not begin with the first one.
llvm::Expected<bool> hasEarlierBlocks(const Recording &recording);

/// Goes back from the segments that are left to what there was before the first
/// event.
llvm::Expected<InitialState>
findInitialState(const Recording &recording,
                 const CachingAllocatorSettings &settings,
                 int64_t deviceMemory);

} // namespace koila

#endif // KOILA_LIB_ALLOCATORS_SNAPSHOT_RECORDING_H
