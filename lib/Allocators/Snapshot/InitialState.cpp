//===- InitialState.cpp - What there was before a recording ---------------===//
//
// A recording is a ring buffer: its first events may be gone. Blocks that it
// frees and segments that it releases, without having got them, were there
// before; of those that are left at the end the same holds. Free neighbours are
// always one block, so that blocks in use say all of a segment.
//
//===----------------------------------------------------------------------===//

#include "Recording.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include <map>

using namespace koila;
using Action = AllocatorAction;
using State = CachingAllocator::BlockInfo::State;
using llvm::Error;

namespace {
constexpr int64_t kSmallSize = int64_t(1) << 20, kSmallBuffer = 2 * kSmallSize;

struct EarlierBlock {
  int64_t requested = 0;
  /// Zero where only what was asked for is known.
  int64_t size = 0;
  State state = State::Allocated;
  /// At which event it is free.
  size_t completed = 0;
};
/// By address.
using EarlierBlocks = std::map<uint64_t, EarlierBlock>;
/// Ranges of addresses with memory, without overlaps: begin and end.
using Ranges = std::map<uint64_t, uint64_t>;

class InitialStateFinder {
public:
  InitialStateFinder(const Recording &recording,
                     const CachingAllocatorSettings &settings,
                     int64_t deviceMemory)
      : recording(recording), settings(settings), deviceMemory(deviceMemory) {}

  Error findBlocks();
  Error findSegments();
  const EarlierBlocks &getBlocks() const { return blocks; }
  InitialState takeResult() { return std::move(result); }

private:
  using StreamAndPool = std::pair<uint64_t, bool>;

  Error fail(const RecordedEvent &at, const char *what) const {
    return llvm::createStringError(
        "the recording contradicts itself: event " + llvm::Twine(at.number) +
        " (" + getName(at.event.action) + " at 0x" +
        llvm::utohexstr(at.event.address) + ") " + what);
  }
  void findWhole();
  void findReservations();
  bool isSmallRange(uint64_t stream, uint64_t address, int64_t bytes) const;
  Error fill(CachingAllocator::InitialSegment &segment, uint64_t begin,
             uint64_t end);
  Error addSegment(CachingAllocator::InitialSegment segment,
                   const Ranges &mapped, int64_t unmappedBehind);
  int64_t getBlockSize(const CachingAllocator::InitialSegment &segment,
                       uint64_t address, const EarlierBlock &block,
                       int64_t room);

  const Recording &recording;
  const CachingAllocatorSettings &settings;
  const int64_t deviceMemory;
  EarlierBlocks blocks;
  /// The first event that allocates at an address.
  std::map<uint64_t, size_t> firstAllocations;
  /// Of cudaMalloc(), by address: stream, whether it is small, and size.
  struct Whole {
    uint64_t stream;
    bool isSmall;
    int64_t size;
  };
  std::map<uint64_t, Whole> wholes;
  /// Pages of expandable segments, and the lowest address ever mapped.
  struct Reservation {
    Ranges mapped;
    uint64_t begin = std::numeric_limits<uint64_t>::max();
  };
  std::map<StreamAndPool, Reservation> reservations;
  /// Of each stream, addresses of which it is known whether they are of the
  /// small pool.
  std::map<uint64_t, std::map<uint64_t, bool>> poolOfAddress;
  InitialState result;
};
} // namespace

//===----------------------------------------------------------------------===//
// Blocks in use
//===----------------------------------------------------------------------===//

Error InitialStateFinder::findBlocks() {
  enum class Seen { Live, Waiting, Free };
  std::map<uint64_t, Seen> seen;
  bool hasRequested = recording.has(Action::FreeRequested);
  bool hasCompleted = recording.has(Action::FreeCompleted);
  for (auto [index, recorded] : llvm::enumerate(recording.events)) {
    const AllocatorEvent &event = recorded.event;
    auto known = seen.find(event.address);
    bool isKnown = known != seen.end();
    if (event.action == Action::Alloc) {
      if (isKnown && known->second != Seen::Free)
        return fail(recorded,
                    hasRequested || hasCompleted
                        ? "gives a block that is in use"
                        : "gives a block that is in use: frees were left out, "
                          "and without them it cannot be replayed; record "
                          "without skip_actions");
      firstAllocations.try_emplace(event.address, index);
      seen[event.address] = Seen::Live;
    } else if (event.action == Action::FreeRequested) {
      if (isKnown && known->second != Seen::Live)
        return fail(recorded, "frees a block that is not in use");
      if (!isKnown)
        blocks[event.address] = {event.bytes, /*size=*/0, State::Allocated,
                                 hasCompleted ? recording.events.size()
                                              : index};
      seen[event.address] = hasCompleted ? Seen::Waiting : Seen::Free;
    } else if (event.action == Action::FreeCompleted) {
      Seen before = hasRequested ? Seen::Waiting : Seen::Live;
      if (isKnown && known->second != before)
        return fail(recorded, "frees a block that is not in use");
      if (!isKnown)
        blocks[event.address] = {
            event.bytes, /*size=*/0,
            hasRequested ? State::PendingFree : State::Allocated, index};
      else if (auto block = blocks.find(event.address); block != blocks.end())
        block->second.completed = std::min(block->second.completed, index);
      seen[event.address] = Seen::Free;
    }
  }
  for (const Snapshot::Segment *segment : recording.segments)
    for (const Snapshot::Block &block : segment->blocks)
      if (block.state != State::Inactive && !seen.count(block.address))
        blocks[block.address] = {
            std::min(block.requested.value_or(block.size), block.size),
            block.size, block.state, recording.events.size()};
  return Error::success();
}

/// Splits leave over more than a mebibyte in large segments, so that less than
/// that in front of a block in use is of the block itself. Where there is more,
/// less than a mebibyte of it may be: then the next allocation there, which
/// takes the front of what is free, says where the block ends. In other
/// segments all is split.
int64_t InitialStateFinder::getBlockSize(
    const CachingAllocator::InitialSegment &segment, uint64_t address,
    const EarlierBlock &block, int64_t room) {
  if (block.size)
    return block.size;
  int64_t size = settings.roundSize(block.requested);
  if (segment.isSmall || segment.isExpandable || size > room)
    return size;
  if (size >= settings.maxSplitSize || room - size <= kMostUnsplitRest)
    return room;
  int64_t end = size;
  size_t first = block.completed;
  for (auto next = firstAllocations.lower_bound(address + size);
       next != firstAllocations.end() &&
       next->first <= address + size + kMostUnsplitRest;
       ++next)
    if (next->second < first) {
      first = next->second;
      end = static_cast<int64_t>(next->first - address);
    }
  if (first == block.completed)
    result.unsureBlocks.insert(address);
  return std::min(end, room);
}

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

void InitialStateFinder::findWhole() {
  std::map<uint64_t, bool> isThere;
  for (const RecordedEvent &recorded : recording.events) {
    const AllocatorEvent &event = recorded.event;
    if (event.action == Action::SegmentAlloc) {
      isThere[event.address] = true;
    } else if (event.action == Action::SegmentFree) {
      if (!isThere.count(event.address))
        wholes[event.address] = {event.stream, event.bytes == kSmallBuffer,
                                 event.bytes};
      isThere[event.address] = false;
    }
  }
  for (const Snapshot::Segment *segment : recording.segments)
    if (!segment->isExpandable && !isThere.count(segment->address))
      wholes[segment->address] = {segment->stream, segment->isSmall,
                                  segment->size};
}

static void addRange(Ranges &ranges, uint64_t begin, uint64_t end) {
  auto next = ranges.lower_bound(begin);
  if (next != ranges.begin() && std::prev(next)->second >= begin)
    --next;
  while (next != ranges.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = ranges.erase(next);
  }
  ranges[begin] = end;
}

static void removeRange(Ranges &ranges, uint64_t begin, uint64_t end) {
  auto next = ranges.lower_bound(begin);
  if (next != ranges.begin() && std::prev(next)->second > begin)
    --next;
  while (next != ranges.end() && next->first < end) {
    auto [first, last] = *next;
    next = ranges.erase(next);
    if (first < begin)
      ranges[first] = begin;
    if (last > end)
      ranges[end] = last;
  }
}

/// Pages of the large pool are larger. Where the size does not tell, it is as
/// what is nearest in its reservation.
bool InitialStateFinder::isSmallRange(uint64_t stream, uint64_t address,
                                      int64_t bytes) const {
  auto known = poolOfAddress.find(stream);
  if (bytes % settings.largeSegmentSize || known == poolOfAddress.end())
    return bytes % settings.largeSegmentSize;
  const std::map<uint64_t, bool> &places = known->second;
  uint64_t nearest = deviceMemory + deviceMemory / 8;
  bool isSmall = false;
  auto above = places.lower_bound(address);
  if (above != places.begin()) {
    auto below = std::prev(above);
    if (address - below->first < nearest) {
      nearest = address - below->first;
      isSmall = below->second;
    }
  }
  if (above != places.end() && above->first - address < nearest)
    isSmall = above->second;
  return isSmall;
}

void InitialStateFinder::findReservations() {
  for (const Snapshot::Segment *segment : recording.segments)
    if (segment->isExpandable)
      poolOfAddress[segment->stream][segment->address] = segment->isSmall;
  for (const RecordedEvent &recorded : recording.events) {
    const AllocatorEvent &event = recorded.event;
    if (event.action == Action::Alloc ||
        event.action == Action::FreeRequested ||
        event.action == Action::FreeCompleted)
      poolOfAddress[event.stream][event.address] =
          settings.roundSize(event.bytes) <= kSmallSize;
  }
  for (const Snapshot::Segment *segment : recording.segments)
    if (segment->isExpandable) {
      Reservation &all = reservations[{segment->stream, segment->isSmall}];
      addRange(all.mapped, segment->address, segment->address + segment->size);
      all.begin = std::min(all.begin, segment->address);
    }
  for (const RecordedEvent &recorded : llvm::reverse(recording.events)) {
    const AllocatorEvent &event = recorded.event;
    bool isMap = event.action == Action::SegmentMap;
    if (!isMap && event.action != Action::SegmentUnmap)
      continue;
    bool isSmall = isSmallRange(event.stream, event.address, event.bytes);
    Reservation &all = reservations[{event.stream, isSmall}];
    (isMap ? removeRange : addRange)(all.mapped, event.address,
                                     event.address + event.bytes);
    all.begin = std::min(all.begin, event.address);
    // A reservation without pages is given up: those before are of another one.
    if (all.mapped.empty())
      all.begin = std::numeric_limits<uint64_t>::max();
  }
}

/// The blocks between two addresses that have memory.
Error InitialStateFinder::fill(CachingAllocator::InitialSegment &segment,
                               uint64_t begin, uint64_t end) {
  auto block = blocks.lower_bound(begin);
  while (begin < end) {
    bool isLast = block == blocks.end() || block->first >= end;
    if (uint64_t next = isLast ? end : block->first; next > begin) {
      segment.blocks.push_back({static_cast<int64_t>(next - begin)});
      begin = next;
    }
    if (isLast)
      break;
    auto [address, info] = *block++;
    uint64_t limit = block == blocks.end() ? end : std::min(end, block->first);
    auto room = static_cast<int64_t>(limit - begin);
    int64_t size = getBlockSize(segment, address, info, room);
    if (size > room)
      return llvm::createStringError(
          "the recording contradicts itself: the block of " +
          llvm::Twine(size) + " bytes at 0x" + llvm::utohexstr(address) +
          ", which was there before the first event, overlaps another one");
    uint64_t waitsFor = 0;
    if (info.state == State::PendingFree) {
      waitsFor = getWaitStream(info.completed);
      result.waiting.push_back({address, info.completed});
    }
    segment.blocks.push_back({size, std::min(info.requested, size), info.state,
                              /*isMapped=*/true, waitsFor});
    ++result.numBlocksInUse;
    begin += size;
  }
  return Error::success();
}

Error InitialStateFinder::addSegment(CachingAllocator::InitialSegment segment,
                                     const Ranges &mapped,
                                     int64_t unmappedBehind) {
  auto addUnmapped = [&](int64_t bytes) {
    if (bytes)
      segment.blocks.push_back(
          {bytes, /*requested=*/0, State::Inactive, /*isMapped=*/false});
  };
  uint64_t end = segment.address;
  for (auto [begin, rangeEnd] : mapped) {
    addUnmapped(static_cast<int64_t>(begin - end));
    if (Error error = fill(segment, begin, rangeEnd))
      return error;
    end = rangeEnd;
  }
  addUnmapped(unmappedBehind);
  result.segments.push_back(std::move(segment));
  return Error::success();
}

Error InitialStateFinder::findSegments() {
  findWhole();
  findReservations();
  for (auto [address, whole] : wholes)
    if (Error error = addSegment({address,
                                  whole.stream,
                                  whole.isSmall,
                                  /*isExpandable=*/false,
                                  {}},
                                 {{address, address + whole.size}}, 0))
      return error;
  for (const auto &[key, all] : reservations) {
    if (all.mapped.empty())
      continue;
    auto [stream, isSmall] = key;
    int64_t page = isSmall ? kSmallBuffer : settings.largeSegmentSize;
    for (auto [begin, end] : all.mapped)
      if ((begin - all.begin) % page || (end - begin) % page)
        return llvm::createStringError(
            "the expandable segment at 0x" + llvm::utohexstr(begin) +
            " does not consist of pages of " + llvm::Twine(page) + " bytes");
    // Nine eighths of the device.
    auto size = static_cast<int64_t>(
        llvm::alignTo(deviceMemory + deviceMemory / 8, page));
    auto used = static_cast<int64_t>(all.mapped.rbegin()->second - all.begin);
    if (Error error =
            addSegment({all.begin, stream, isSmall, /*isExpandable=*/true, {}},
                       all.mapped, std::max<int64_t>(size - used, 0)))
      return error;
  }
  if (result.numBlocksInUse != static_cast<int64_t>(blocks.size()))
    return llvm::createStringError(
        "the recording contradicts itself: blocks that were there before the "
        "first event are in no segment; was the recording stopped before the "
        "snapshot was made, or segment_free left out of it?");
  return Error::success();
}

llvm::Expected<bool> koila::hasEarlierBlocks(const Recording &recording) {
  CachingAllocatorSettings settings;
  InitialStateFinder finder(recording, settings, /*deviceMemory=*/0);
  if (Error error = finder.findBlocks())
    return error;
  return !finder.getBlocks().empty();
}

llvm::Expected<InitialState>
koila::findInitialState(const Recording &recording,
                        const CachingAllocatorSettings &settings,
                        int64_t deviceMemory) {
  InitialStateFinder finder(recording, settings, deviceMemory);
  if (Error error = finder.findBlocks())
    return error;
  if (Error error = finder.findSegments())
    return error;
  return finder.takeResult();
}
