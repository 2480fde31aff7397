//===- CachingAllocator.cpp - PyTorch's CUDA caching allocator ------------===//
//
// The steps of an allocation and of a free. Source:
// c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13: malloc(), free(),
// alloc_block(), process_events(), release_cached_blocks().
//
//===----------------------------------------------------------------------===//

#include "koila/Allocators/CachingAllocator.h"
#include "Release.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MathExtras.h"
#include <cassert>

using namespace koila;
using Allocation = CachingAllocator::Allocation;
using Result = CachingAllocator::Result;
using SegmentInfo = CachingAllocator::SegmentInfo;

namespace {
constexpr int64_t kMinBlockSize = 512;
constexpr int64_t kSmallSize = int64_t(1) << 20;
constexpr int64_t kSmallBuffer = int64_t(2) << 20;
constexpr int64_t kMinLargeAlloc = int64_t(10) << 20;
constexpr int64_t kRoundLarge = int64_t(2) << 20;
constexpr uint64_t kExabyte = uint64_t(1) << 60;
/// Of a segment that is there from the start.
constexpr int64_t kMostBytes = int64_t(1) << 50;

struct Request {
  int64_t requested;
  /// Rounded: of the block.
  int64_t bytes;
  /// Of the segment if no free block is fit.
  int64_t segment;
  Stream stream;
  BlockPool &pool;
  bool isRejected = false;
};
} // namespace

class CachingAllocator::Impl {
public:
  Impl(const CachingAllocatorSettings &settings, Device device,
       CachingAllocatorOptions options)
      : settings(settings),
        segments(this->settings, device, std::move(options)) {
    setMemoryFraction(settings.perProcessMemoryFraction);
  }

  Result allocate(int64_t bytes, Stream stream);
  void free(Block *block);
  void releaseCached();
  void processEvents();
  void setMemoryFraction(double fraction);
  std::vector<SegmentInfo> getSegments() const;
  std::vector<Allocation> restore(llvm::ArrayRef<InitialSegment> initial);

  const CachingAllocatorSettings settings;
  DeviceSegments segments;
  llvm::DenseMap<uint64_t, Block *> live;
  /// Of each stream, the blocks that wait for an event of it, in the order of
  /// the events, and how many of these have come.
  struct Events {
    std::deque<Block *> blocks;
    size_t numReady = 0;
  };
  std::map<Stream, Events> events;

private:
  bool collectsGarbage() const {
    return allowed && settings.garbageCollectionThreshold > 0;
  }
  int64_t getSegmentSize(int64_t bytes) const;
  bool shouldSplit(const Block *block, const Request &request) const;

  void putBack(Block *block);
  Allocation addInitial(Block *block, const InitialBlock &initial);
  Block *takeFree(const Request &request);
  Block *obtain(Request &request, bool isRetry);
  Block *obtainNew(Request &request);
  Allocation finish(Block *block, const Request &request);
  AllocatorOutOfMemory report(const Request &request);

  BlockPool small{/*isSmall=*/true}, large{/*isSmall=*/false};
  std::optional<int64_t> allowed;
  uint64_t numAllocations = 0;
};

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

int64_t CachingAllocator::Impl::getSegmentSize(int64_t bytes) const {
  if (bytes <= kSmallSize)
    return kSmallBuffer;
  if (bytes < kMinLargeAlloc)
    return settings.largeSegmentSize;
  return llvm::alignTo(bytes, kRoundLarge);
}

bool CachingAllocator::Impl::shouldSplit(const Block *block,
                                         const Request &request) const {
  int64_t rest = block->size - request.bytes;
  if (block->pool->isSmall || settings.expandableSegments)
    return rest >= kMinBlockSize;
  return request.bytes < settings.maxSplitSize && rest > kSmallSize;
}

//===----------------------------------------------------------------------===//
// Blocks that are freed
//===----------------------------------------------------------------------===//

void CachingAllocator::Impl::free(Block *block) {
  CachingAllocatorStats &stats = segments.stats;
  bool isSmall = block->pool->isSmall;
  block->isAllocated = false;
  segments.tell(AllocatorAction::FreeRequested, block, block->requested);
  stats.allocation.add(isSmall, -1);
  stats.allocatedBytes.add(isSmall, -block->size);
  if (block->size >= settings.maxSplitSize)
    stats.oversizeAllocations.add(-1);
  for (Stream stream : block->otherStreams) {
    events[stream].blocks.push_back(block);
    ++block->numEvents;
  }
  block->otherStreams.clear();
  if (!block->numEvents)
    putBack(block);
}

/// What nothing uses any more goes back to its pool.
void CachingAllocator::Impl::putBack(Block *block) {
  CachingAllocatorStats &stats = segments.stats;
  bool isSmall = block->pool->isSmall;
  int64_t size = block->size, splits = 0, splitBytes = 0;
  segments.tell(AllocatorAction::FreeCompleted, block, block->requested);
  for (Block *neighbour : {block->prev, block->next})
    if (int64_t bytes = segments.merge(block, neighbour)) {
      --splits;
      splitBytes -= bytes;
    }
  block->pool->insert(block);
  if (block->isSplit()) {
    ++splits;
    splitBytes += block->size;
  }
  // Free pages of an expandable segment can go at any time.
  if (!block->segment->isExpandable()) {
    stats.inactiveSplit.add(isSmall, splits);
    stats.inactiveSplitBytes.add(isSmall, splitBytes);
  }
  stats.active.add(isSmall, -1);
  stats.activeBytes.add(isSmall, -size);
  stats.requestedBytes.add(isSmall, -block->requested);
}

/// In the order of streams: PyTorch's is that of a hash table, which decides
/// about peaks and sums of `inactive_split` alone.
void CachingAllocator::Impl::processEvents() {
  for (auto it = events.begin(); it != events.end();) {
    Events &queue = it->second;
    for (; queue.numReady; --queue.numReady) {
      Block *block = queue.blocks.front();
      queue.blocks.pop_front();
      if (!--block->numEvents)
        putBack(block);
    }
    it = queue.blocks.empty() ? events.erase(it) : std::next(it);
  }
}

/// empty_cache(), and the last resort of an allocation.
void CachingAllocator::Impl::releaseCached() {
  ++segments.stats.numSyncAllStreams;
  for (auto &[stream, queue] : events)
    queue.numReady = queue.blocks.size();
  processEvents();
  releaseAll(segments, large);
  releaseAll(segments, small);
}

//===----------------------------------------------------------------------===//
// Allocations
//===----------------------------------------------------------------------===//

Block *CachingAllocator::Impl::takeFree(const Request &request) {
  if (collectsGarbage())
    request.pool.countSearch();
  return request.pool.take(request.stream, request.bytes, settings);
}

/// A block with memory from the driver, if the limits leave enough.
Block *CachingAllocator::Impl::obtain(Request &request, bool isRetry) {
  CachingAllocatorStats &stats = segments.stats;
  if (isRetry)
    ++stats.numAllocRetries;
  int64_t reserved = segments.getReserved() + request.segment;
  if (allowed && reserved > *allowed)
    return nullptr;
  if (settings.throwOnCudaMallocOom) {
    double total = static_cast<double>(segments.getTotal());
    if (reserved >
        static_cast<int64_t>(settings.perProcessMemoryFraction * total)) {
      ++stats.numOomRejections;
      request.isRejected = true;
      return nullptr;
    }
  }
  // A limit that is not known here refuses before the driver is asked.
  if (!segments.mayAsk(request.segment))
    return nullptr;
  return settings.expandableSegments
             ? segments.grow(request.pool, request.stream, request.bytes)
             : segments.allocate(request.pool, request.stream, request.segment);
}

/// The same, and what is cached goes if there is too little.
Block *CachingAllocator::Impl::obtainNew(Request &request) {
  if (collectsGarbage()) {
    auto threshold = static_cast<int64_t>(settings.garbageCollectionThreshold *
                                          static_cast<double>(*allowed));
    collectGarbage(segments, large, segments.getReserved() - threshold);
  }
  Block *block = obtain(request, /*isRetry=*/false);
  if (block || request.isRejected)
    return block;
  if (releaseOversize(segments, request.pool, request.stream, request.bytes,
                      settings))
    block = obtain(request, /*isRetry=*/false);
  if (block)
    return block;
  releaseCached();
  return obtain(request, /*isRetry=*/true);
}

Allocation CachingAllocator::Impl::finish(Block *block,
                                          const Request &request) {
  CachingAllocatorStats &stats = segments.stats;
  bool isSmall = block->pool->isSmall;
  bool isCounted = !block->segment->isExpandable();
  bool wasSplit = block->isSplit();
  if (shouldSplit(block, request)) {
    Block *rest = block;
    block = segments.splitFront(rest, request.bytes);
    if (isCounted && wasSplit) {
      stats.inactiveSplitBytes.add(isSmall, -block->size);
    } else if (isCounted) {
      stats.inactiveSplitBytes.add(isSmall, rest->size);
      stats.inactiveSplit.add(isSmall, 1);
    }
  } else if (isCounted && wasSplit) {
    stats.inactiveSplitBytes.add(isSmall, -block->size);
    stats.inactiveSplit.add(isSmall, -1);
  }
  block->isAllocated = true;
  block->requested = request.requested;
  stats.allocation.add(isSmall, 1);
  stats.allocatedBytes.add(isSmall, block->size);
  stats.active.add(isSmall, 1);
  stats.activeBytes.add(isSmall, block->size);
  stats.requestedBytes.add(isSmall, block->requested);
  if (block->size >= settings.maxSplitSize)
    stats.oversizeAllocations.add(1);
  segments.tell(AllocatorAction::Alloc, block, block->requested);
  live[numAllocations] = block;
  return Allocation(numAllocations++);
}

AllocatorOutOfMemory CachingAllocator::Impl::report(const Request &request) {
  CachingAllocatorStats &stats = segments.stats;
  AllocatorOutOfMemory report;
  report.kind = request.isRejected ? AllocatorOutOfMemory::Kind::Rejected
                                   : AllocatorOutOfMemory::Kind::Exhausted;
  if (!request.isRejected) {
    ++stats.numOoms;
    segments.tellOutOfMemory(request.bytes, request.stream);
  }
  report.requested = request.requested;
  report.segment = request.segment;
  report.deviceTotal = segments.getTotal();
  report.deviceFree = segments.getFree();
  report.allowed = allowed;
  report.allocated = stats.allocatedBytes.all.current;
  report.reserved = stats.reservedBytes.all.current;
  return report;
}

Result CachingAllocator::Impl::allocate(int64_t bytes, Stream stream) {
  if (bytes == 0)
    return Allocation();
  if (static_cast<uint64_t>(bytes) >= kExabyte) {
    AllocatorOutOfMemory report;
    report.kind = AllocatorOutOfMemory::Kind::TooLarge;
    report.requested = bytes;
    return report;
  }
  processEvents();
  int64_t rounded = settings.roundSize(bytes);
  Request request{bytes, rounded, getSegmentSize(rounded), stream,
                  rounded <= kSmallSize ? small : large};
  Block *block = takeFree(request);
  if (!block)
    block = obtainNew(request);
  if (!block)
    return report(request);
  return finish(block, request);
}

void CachingAllocator::Impl::setMemoryFraction(double fraction) {
  allowed = std::nullopt;
  if (fraction < 1)
    allowed = static_cast<int64_t>(fraction *
                                   static_cast<double>(segments.getTotal()));
}

//===----------------------------------------------------------------------===//
// Snapshots
//===----------------------------------------------------------------------===//

std::vector<SegmentInfo> CachingAllocator::Impl::getSegments() const {
  using State = CachingAllocator::BlockInfo::State;
  std::vector<SegmentInfo> infos;
  for (const auto &[birth, segment] : segments.getSegments())
    for (const Block *block = segment.first; block; block = block->next) {
      if (!block->isMapped)
        continue;
      if (!block->prev || !block->prev->isMapped)
        infos.push_back({birth,
                         block->offset,
                         segment.stream,
                         block->pool->isSmall,
                         segment.isExpandable(),
                         {}});
      State state = block->isAllocated ? State::Allocated
                    : block->isIdle()  ? State::Inactive
                                       : State::PendingFree;
      infos.back().blocks.push_back(
          {block->size, state == State::Inactive ? 0 : block->requested,
           state});
    }
  return infos;
}

//===----------------------------------------------------------------------===//
// What is there from the start
//===----------------------------------------------------------------------===//

static llvm::Error
checkInitial(const CachingAllocator::InitialSegment &segment) {
  using State = CachingAllocator::BlockInfo::State;
  auto fail = [&](const char *why) {
    return llvm::createStringError("the segment at 0x" +
                                   llvm::utohexstr(segment.address) + why);
  };
  int64_t size = 0;
  for (const CachingAllocator::InitialBlock &block : segment.blocks) {
    if (block.size <= 0 || block.size > kMostBytes - size)
      return fail(" has a block of no size, or of a wrong one");
    if (block.requested < 0 || block.requested > block.size)
      return fail(" has a block that is smaller than what was asked for");
    if (!block.isMapped &&
        (!segment.isExpandable || block.state != State::Inactive))
      return fail(" has a block in use without memory");
    size += block.size;
  }
  return size ? llvm::Error::success() : fail(" has no blocks");
}

Allocation CachingAllocator::Impl::addInitial(Block *block,
                                              const InitialBlock &initial) {
  using State = BlockInfo::State;
  CachingAllocatorStats &stats = segments.stats;
  bool isSmall = block->pool->isSmall;
  block->requested = initial.requested;
  stats.active.add(isSmall, 1);
  stats.activeBytes.add(isSmall, block->size);
  stats.requestedBytes.add(isSmall, block->requested);
  if (initial.state == State::PendingFree) {
    events[initial.waitsFor].blocks.push_back(block);
    ++block->numEvents;
    return Allocation();
  }
  block->isAllocated = true;
  stats.allocation.add(isSmall, 1);
  stats.allocatedBytes.add(isSmall, block->size);
  if (block->size >= settings.maxSplitSize)
    stats.oversizeAllocations.add(1);
  live[numAllocations] = block;
  return Allocation(numAllocations++);
}

std::vector<Allocation>
CachingAllocator::Impl::restore(llvm::ArrayRef<InitialSegment> initial) {
  CachingAllocatorStats &stats = segments.stats;
  std::vector<Allocation> allocations;
  for (const InitialSegment &segment : initial) {
    BlockPool &pool = segment.isSmall ? small : large;
    Block *block = segments.adopt(pool, segment)->first;
    for (const InitialBlock &info : segment.blocks) {
      if (info.state != BlockInfo::State::Inactive) {
        allocations.push_back(addInitial(block, info));
      } else if (block->isSplit() && !segment.isExpandable) {
        stats.inactiveSplit.add(pool.isSmall, 1);
        stats.inactiveSplitBytes.add(pool.isSmall, block->size);
      }
      block = block->next;
    }
  }
  return allocations;
}

//===----------------------------------------------------------------------===//
// The interface
//===----------------------------------------------------------------------===//

CachingAllocator::CachingAllocator(const CachingAllocatorSettings &settings,
                                   Device device,
                                   CachingAllocatorOptions options)
    : impl(std::make_unique<Impl>(settings, device, std::move(options))) {}
CachingAllocator::~CachingAllocator() = default;
CachingAllocator::CachingAllocator(CachingAllocator &&) noexcept = default;
CachingAllocator &
CachingAllocator::operator=(CachingAllocator &&) noexcept = default;

static llvm::Error failNotLive(Allocation allocation) {
  return llvm::createStringError("allocation " +
                                 llvm::Twine(allocation.getNumber()) +
                                 " is not live: it was freed before");
}

Result CachingAllocator::allocate(int64_t bytes, Stream stream) {
  return impl->allocate(bytes, stream);
}

llvm::Error CachingAllocator::free(Allocation allocation) {
  if (allocation.isEmpty())
    return llvm::Error::success();
  auto found = impl->live.find(allocation.getNumber());
  if (found == impl->live.end())
    return failNotLive(allocation);
  Block *block = found->second;
  impl->live.erase(found);
  impl->free(block);
  return llvm::Error::success();
}

llvm::Error CachingAllocator::recordStream(Allocation allocation,
                                           Stream stream) {
  if (allocation.isEmpty())
    return llvm::Error::success();
  Block *block = impl->live.lookup(allocation.getNumber());
  if (!block)
    return failNotLive(allocation);
  if (stream != block->segment->stream &&
      !llvm::is_contained(block->otherStreams, stream))
    block->otherStreams.push_back(stream);
  return llvm::Error::success();
}

void CachingAllocator::synchronize(Stream stream) {
  auto found = impl->events.find(stream);
  if (found != impl->events.end())
    found->second.numReady = found->second.blocks.size();
}

void CachingAllocator::processEvents() { impl->processEvents(); }

void CachingAllocator::emptyCache() { impl->releaseCached(); }

llvm::Error CachingAllocator::setMemoryFraction(double fraction) {
  if (!(fraction >= 0 && fraction <= 1))
    return llvm::createStringError(
        "a fraction of the memory of a device is from 0 to 1");
  impl->setMemoryFraction(fraction);
  return llvm::Error::success();
}

const CachingAllocatorStats &CachingAllocator::getStats() const {
  return impl->segments.stats;
}
void CachingAllocator::resetPeakStats() { impl->segments.stats.resetPeaks(); }
void CachingAllocator::resetAccumulatedStats() {
  impl->segments.stats.resetAccumulated();
}

CachingAllocator::Place
CachingAllocator::getPlace(Allocation allocation) const {
  const Block *block = impl->live.lookup(allocation.getNumber());
  assert(block && "it was freed before");
  return {block->segment->birth, block->offset};
}

int64_t CachingAllocator::getBlockBytes(Allocation allocation) const {
  const Block *block = impl->live.lookup(allocation.getNumber());
  assert(block && "it was freed before");
  return block->size;
}

std::vector<SegmentInfo> CachingAllocator::getSegments() const {
  return impl->getSegments();
}

uint64_t CachingAllocator::getAddress(int64_t birth) const {
  auto found = impl->segments.getSegments().find(birth);
  assert(found != impl->segments.getSegments().end() && "it was released");
  return found->second.address;
}

const CachingAllocatorSettings &CachingAllocator::getSettings() const {
  return impl->settings;
}

llvm::Expected<std::vector<Allocation>>
CachingAllocator::restore(llvm::ArrayRef<InitialSegment> initial) {
  assert(impl->segments.getSegments().empty() && "it was used before");
  for (const InitialSegment &segment : initial)
    if (llvm::Error error = checkInitial(segment))
      return error;
  return impl->restore(initial);
}
