//===- SnapshotReplay.h - A recording beside the simulation -----*- C++ -*-===//
//
// The requests of a snapshot's trace are made again of a simulated allocator,
// and all that this does is compared with what was recorded.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ALLOCATORS_SNAPSHOTREPLAY_H
#define KOILA_ALLOCATORS_SNAPSHOTREPLAY_H

#include "koila/Allocators/Snapshot.h"

namespace koila {

struct ReplayOptions {
  int64_t device = 0;
  CachingAllocatorOptions::EqualBlocks equalBlocks =
      CachingAllocatorOptions::EqualBlocks::BySegmentBirth;
  /// The memory of the device, by which addresses of expandable segments are
  /// reserved; it is not in a snapshot. Without it, more than any device has.
  int64_t deviceMemory = kMostDeviceMemory;
  static constexpr int64_t kMostDeviceMemory = int64_t(1) << 44;
  /// What the process was allowed to reserve, which decides about garbage
  /// collection and is not in a snapshot.
  std::optional<int64_t> memoryLimit;
};

struct ReplayReport {
  struct Difference {
    /// Of the device's trace, from 0 on; none if the segments differ that are
    /// left at the end.
    std::optional<int64_t> event;
    /// What was recorded at this event.
    std::string action;
    std::string simulated, recorded;
  };
  /// Of the device's trace, and those of them that the simulation repeated.
  int64_t numEvents = 0, numCompared = 0;
  /// Segments and blocks that are left at the end, and were compared.
  int64_t numSegments = 0, numBlocks = 0;
  std::optional<Difference> difference;
  /// What was not compared, and what is assumed.
  std::vector<std::string> notes;
  /// Since the first event.
  int64_t peakAllocated = 0, peakActive = 0, peakRequested = 0,
          peakReserved = 0;
};

/// Fails if there is nothing to replay, or if the recording contradicts itself.
llvm::Expected<ReplayReport> replaySnapshot(const Snapshot &snapshot,
                                            const ReplayOptions &options);

} // namespace koila

#endif // KOILA_ALLOCATORS_SNAPSHOTREPLAY_H
