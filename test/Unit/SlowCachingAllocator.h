//===- SlowCachingAllocator.h - The allocator's rules, plainly --*- C++ -*-===//
//
// The rules of PyTorch's CUDA caching allocator once more, for comparison with
// koila::CachingAllocator, with which it shares types of data and no code:
// segments are lists of pieces, each search looks at all of them, and each
// statistic is counted anew after each step.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TEST_UNIT_SLOWCACHINGALLOCATOR_H
#define KOILA_TEST_UNIT_SLOWCACHINGALLOCATOR_H

#include "koila/Allocators/CachingAllocator.h"
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace koila::slow {

/// A rule that is broken on purpose, to see that a comparison finds it.
enum class Fault {
  None,
  /// Of equal blocks the one of the newest segment.
  NewestFirst,
  /// The first block that is large enough.
  FirstFit,
  /// A large block is split if a whole mebibyte is left over.
  SplitMebibyte,
  /// A block is not merged with the one in front of it.
  KeepPrevious,
  /// Pages of expandable segments are mapped in the last gap that has room.
  LastRoom,
  NoGarbageCollection,
  /// All cached blocks go where large ones alone would do.
  NoOversizeRelease,
  /// `requested_bytes` falls with free(), not when the block is free.
  RequestedFallsEarly
};

class Allocator {
public:
  Allocator(const CachingAllocatorSettings &settings,
            CachingAllocator::Device device, Fault fault = Fault::None);

  /// The number of the allocation; -1 if memory is exhausted, -2 if the request
  /// was rejected.
  int64_t allocate(int64_t bytes, uint64_t stream);
  void free(int64_t number);
  void recordStream(int64_t number, uint64_t stream);
  void synchronize(uint64_t stream);
  void emptyCache();
  void setMemoryFraction(double fraction);
  void resetPeaks();

  const CachingAllocatorStats &getStats() const { return stats; }
  std::vector<CachingAllocator::SegmentInfo> getSegments() const;
  /// What happened since the last call. Segments lie far from each other, in
  /// the order of their births.
  std::vector<AllocatorEvent> takeTrace();
  static uint64_t getAddress(int64_t birth) {
    return static_cast<uint64_t>(birth + 1) << 38;
  }
  CachingAllocator::Place getPlace(int64_t number) const;

private:
  enum class State { Unmapped, Inactive, Taken, Allocated, PendingFree };
  struct Piece {
    int64_t size = 0, requested = 0, number = -1;
    State state = State::Inactive;
    std::set<uint64_t> streams;
    /// Searches of its pool since it became inactive.
    int64_t age = 0;
  };
  struct Segment {
    int64_t birth;
    uint64_t stream;
    bool isSmall, isExpandable;
    int64_t page;
    std::vector<Piece> pieces;
  };
  /// A segment and a piece of it.
  using Position = std::pair<size_t, size_t>;
  struct Event {
    int64_t number;
    uint64_t stream;
    bool isDone;
  };

  Piece &at(Position position) {
    return segments[position.first].pieces[position.second];
  }
  Position find(int64_t number) const;
  int64_t round(int64_t bytes) const;
  int64_t getMapped() const;
  bool isUnsplit(size_t segment) const;
  bool search(int64_t bytes, uint64_t stream, bool isSmall, Position &found);
  bool obtain(int64_t bytes, int64_t segmentBytes, uint64_t stream,
              bool isSmall, Position &found, bool &isRejected);
  bool mapPages(int64_t bytes, uint64_t stream, bool isSmall, Position &found);
  void collectGarbage();
  bool releaseOversize(int64_t bytes, uint64_t stream, bool isSmall);
  void release(size_t segment);
  /// The segments of one pool, or those of them that are chosen, as a set of
  /// free blocks has them: by stream, size and birth.
  void releaseInOrder(bool isSmall, const std::set<int64_t> *births);
  void unmapAll(size_t segment, bool isSmall);
  void tell(AllocatorAction action, const Segment &segment, int64_t offset,
            int64_t bytes);
  void tell(AllocatorAction action, int64_t number);
  void releaseAll();
  void processEvents(bool all);
  void putBack(int64_t number);
  /// Joins neighbours that are both inactive or both unmapped.
  void join(size_t segment);
  void observe();

  CachingAllocatorSettings settings;
  CachingAllocator::Device device;
  Fault fault;
  int64_t allowed;
  bool isLimited = false;
  std::vector<Segment> segments;
  std::vector<Event> events;
  std::vector<AllocatorEvent> trace;
  int64_t numBirths = 0, numAllocations = 0;
  CachingAllocatorStats stats;
};

} // namespace koila::slow

#endif // KOILA_TEST_UNIT_SLOWCACHINGALLOCATOR_H
