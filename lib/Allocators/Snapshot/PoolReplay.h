//===- PoolReplay.h - The events of one pool, made again --------*- C++ -*-===//

#ifndef KOILA_LIB_ALLOCATORS_SNAPSHOT_POOLREPLAY_H
#define KOILA_LIB_ALLOCATORS_SNAPSHOT_POOLREPLAY_H

#include "Recording.h"
#include "koila/Allocators/SnapshotReplay.h"
#include <unordered_map>

namespace koila {

/// Makes requests of an allocator in the order of a recording. What a recording
/// does not have is taken from its events: whether the driver has memory, where
/// segments lie, when other streams are done, and when the cache is emptied.
class PoolReplay {
public:
  PoolReplay(const Recording &recording,
             const CachingAllocatorSettings &settings,
             const ReplayOptions &options, const InitialState &initial,
             const std::set<size_t> &lateEvents);

  /// Up to the end, or to the first difference.
  llvm::Error run();

  const std::optional<ReplayReport::Difference> &getDifference() const {
    return difference;
  }
  int64_t getNumCompared() const { return numCompared; }
  int64_t getNumBlocks() const { return numBlocks; }
  const CachingAllocatorStats &getStats() const { return allocator.getStats(); }
  /// Where the difference is a block of another place, or another segment that
  /// goes, of the same size.
  struct OtherPlace {
    uint64_t simulated = 0;
    /// The starts of the segments of both places.
    uint64_t simulatedSegment = 0, recordedSegment = 0;
    /// Of the simulated block, and of the free one that it was taken from.
    int64_t bytes = 0, bytesOfFree = 0;
  };
  const std::optional<OtherPlace> &getOtherPlace() const { return otherPlace; }
  /// Where the difference is that the simulation has a free block and the
  /// recording has none: what may have come too late, as the request had found
  /// nothing before. That is a release, or a free for which it waited.
  std::optional<size_t> getLateEvent() const;

private:
  CachingAllocatorOptions getOptions(const ReplayOptions &options);
  bool isAtEnd() const { return next == recording.events.size(); }
  const AllocatorEvent &peek() const { return recording.events[next].event; }
  bool needsNewSegment() const;
  void noteOtherPlace(const AllocatorEvent &event);
  void hear(const AllocatorEvent &event);
  bool hasMemory() const;
  uint64_t chooseAddress() const;
  bool isSmall(const AllocatorEvent &request) const;
  void differ(std::string simulated);
  std::string describe(const AllocatorEvent &event) const;
  std::optional<std::pair<int64_t, uint64_t>>
  findSegment(uint64_t address) const;

  void advance();
  void allocate(size_t request);
  void allocateLate(size_t request);
  void free();
  void waitFor(size_t completed, uint64_t address,
               CachingAllocator::Allocation allocation);
  void complete();
  void release();
  std::optional<size_t> findRequest() const;
  bool isWholeCache() const;
  void compareSegments();

  const Recording &recording;
  const CachingAllocatorSettings settings;
  const InitialState &initial;
  const std::set<size_t> &lateEvents;
  const bool isLimited;
  CachingAllocator allocator;
  /// The event that is compared next, and the request that is made.
  size_t next = 0, current = 0;
  /// Of each event, when the block at its address is free next.
  std::vector<size_t> completions;
  /// By address.
  std::unordered_map<uint64_t, CachingAllocator::Allocation> live;
  /// Of a block that waits for other streams, what stands for them.
  std::unordered_map<uint64_t, uint64_t> waiting;
  int64_t numCompared = 0, numBlocks = 0;
  std::optional<ReplayReport::Difference> difference;
  std::optional<OtherPlace> otherPlace;
  bool hasFreeBlock = false;
};

} // namespace koila

#endif // KOILA_LIB_ALLOCATORS_SNAPSHOT_POOLREPLAY_H
