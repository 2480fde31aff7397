//===- PoolReplay.cpp - The events of one pool, made again ----------------===//

#include "PoolReplay.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <map>
#include <tuple>

using namespace koila;
using Action = AllocatorAction;
using Allocation = CachingAllocator::Allocation;
using State = CachingAllocator::BlockInfo::State;
using llvm::Error;
using llvm::Twine;

static std::string formatAddress(uint64_t address) {
  return "0x" + llvm::utohexstr(address, /*LowerCase=*/true);
}

static bool isRelease(Action action) {
  return action == Action::SegmentFree || action == Action::SegmentUnmap;
}

static bool isNewSegment(Action action) {
  return action == Action::SegmentAlloc || action == Action::SegmentMap;
}

/// Refused requests leave no events, and the share of a device of which a
/// snapshot does not have the size says nothing.
static CachingAllocatorSettings
withoutFractions(CachingAllocatorSettings settings) {
  settings.perProcessMemoryFraction = 1;
  settings.throwOnCudaMallocOom = false;
  return settings;
}

PoolReplay::PoolReplay(const Recording &recording,
                       const CachingAllocatorSettings &settings,
                       const ReplayOptions &options,
                       const InitialState &initial,
                       const std::set<size_t> &lateEvents)
    : recording(recording), settings(withoutFractions(settings)),
      initial(initial), lateEvents(lateEvents),
      isLimited(options.memoryLimit.has_value()),
      allocator(this->settings, {options.deviceMemory, options.deviceMemory},
                getOptions(options)) {
  if (isLimited) {
    auto memory = static_cast<double>(options.deviceMemory);
    // A share of which the whole bytes are the limit.
    double share = (static_cast<double>(*options.memoryLimit) + 0.5) / memory;
    llvm::cantFail(allocator.setMemoryFraction(std::min(share, 1.0)));
  }
  completions.resize(recording.events.size());
  std::unordered_map<uint64_t, size_t> completed;
  for (size_t i = recording.events.size(); i-- > 0;) {
    const AllocatorEvent &event = recording.events[i].event;
    if (event.action == Action::FreeCompleted)
      completed[event.address] = i;
    auto known = completed.find(event.address);
    completions[i] =
        known == completed.end() ? recording.events.size() : known->second;
  }
}

CachingAllocatorOptions PoolReplay::getOptions(const ReplayOptions &options) {
  CachingAllocatorOptions own;
  own.equalBlocks = options.equalBlocks;
  own.observer = [this](const AllocatorEvent &event) { hear(event); };
  own.hasMemory = [this](int64_t) { return hasMemory(); };
  own.chooseAddress = [this](int64_t) { return chooseAddress(); };
  return own;
}

//===----------------------------------------------------------------------===//
// What the recording decides
//===----------------------------------------------------------------------===//

/// Not if something goes back to the driver next, or if memory is exhausted.
/// Anything else is a difference, which is reported best at the new segment.
bool PoolReplay::hasMemory() const {
  if (isAtEnd())
    return true;
  Action action = peek().action;
  return !isRelease(action) && action != Action::FreeCompleted &&
         action != Action::OutOfMemory;
}

uint64_t PoolReplay::chooseAddress() const {
  if (!isAtEnd() && isNewSegment(peek().action))
    return peek().address;
  const AllocatorEvent &request = recording.events[current].event;
  if (!settings.expandableSegments || !recording.has(Action::SegmentMap))
    // New segments were left out: the first block of one lies at its start.
    return request.address;
  // A reservation may get its first page later, if memory is exhausted now.
  std::optional<uint64_t> firstPage;
  for (size_t i = next; i < recording.events.size(); ++i) {
    const AllocatorEvent &event = recording.events[i].event;
    if (event.action == Action::SegmentMap && event.stream == request.stream &&
        !firstPage)
      firstPage = event.address;
    if (event.action != Action::Alloc && event.action != Action::OutOfMemory)
      continue;
    // The pages are for this request.
    if (firstPage && isSmall(event) == isSmall(request))
      return *firstPage;
    firstPage = std::nullopt;
  }
  return request.address;
}

bool PoolReplay::isSmall(const AllocatorEvent &request) const {
  constexpr int64_t kSmallSize = int64_t(1) << 20;
  return settings.roundSize(request.bytes) <= kSmallSize;
}

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

std::optional<std::pair<int64_t, uint64_t>>
PoolReplay::findSegment(uint64_t address) const {
  for (const CachingAllocator::SegmentInfo &segment : allocator.getSegments()) {
    uint64_t begin = allocator.getAddress(segment.birth) + segment.offset;
    uint64_t end = begin;
    for (const CachingAllocator::BlockInfo &block : segment.blocks)
      end += block.size;
    if (address >= begin && address < end)
      return std::pair(segment.birth, begin);
  }
  return std::nullopt;
}

std::string PoolReplay::describe(const AllocatorEvent &event) const {
  std::string text =
      (getName(event.action) + " of " + Twine(event.bytes) + " bytes").str();
  if (event.action != Action::OutOfMemory) {
    text += " at " + formatAddress(event.address);
    if (auto segment = findSegment(event.address))
      text += (", offset " + Twine(event.address - segment->second) +
               " of the segment at " + formatAddress(segment->second))
                  .str();
  }
  return text + ", stream " + std::to_string(event.stream);
}

void PoolReplay::differ(std::string simulated) {
  if (difference)
    return;
  difference.emplace();
  difference->simulated = std::move(simulated);
  if (isAtEnd()) {
    difference->recorded = "nothing more";
    return;
  }
  difference->event = recording.events[next].number;
  difference->action = getName(peek().action).str();
  difference->recorded = describe(peek());
}

/// Whether the recorded request may have found no free block.
bool PoolReplay::needsNewSegment() const {
  if (isAtEnd())
    return false;
  if (peek().action == Action::FreeCompleted)
    return lateEvents.count(next);
  if (peek().action != Action::Alloc)
    return true;
  // Pages that were free may do once others are released.
  if (next && isRelease(recording.events[next - 1].event.action))
    return true;
  // A block that is in no segment is in a new one.
  return !recording.hasNewSegments() && !findSegment(peek().address);
}

void PoolReplay::hear(const AllocatorEvent &event) {
  if (event.action == Action::FreeCompleted)
    waiting.erase(event.address);
  if (difference || !recording.has(event.action))
    return;
  AllocatorEvent simulated = event;
  if (!isAtEnd())
    simulated.deviceFree = peek().deviceFree;
  if (isAtEnd() || !(simulated == peek())) {
    noteOtherPlace(event);
    hasFreeBlock = event.action == Action::Alloc && needsNewSegment();
    differ(describe(event));
    return;
  }
  ++next;
  ++numCompared;
}

std::optional<size_t> PoolReplay::getLateEvent() const {
  if (!hasFreeBlock)
    return std::nullopt;
  std::optional<size_t> release;
  for (size_t i = next; i-- > 0;) {
    Action action = recording.events[i].event.action;
    if (isRelease(action))
      release = i;
    else if (action != Action::FreeCompleted)
      break;
    else if (release && !lateEvents.count(*release))
      return release;
    else if (!lateEvents.count(i))
      return i;
  }
  return release && !lateEvents.count(*release) ? release : std::nullopt;
}

/// A block of another place, or a segment of another one that goes first.
void PoolReplay::noteOtherPlace(const AllocatorEvent &event) {
  if (isAtEnd() || event.action != peek().action ||
      event.bytes != peek().bytes || event.stream != peek().stream)
    return;
  OtherPlace other;
  if (event.action == Action::SegmentFree) {
    other.simulatedSegment = event.address;
    other.recordedSegment = peek().address;
    otherPlace = other;
  }
  if (event.action != Action::Alloc)
    return;
  other.simulated = event.address;
  for (const CachingAllocator::SegmentInfo &segment : allocator.getSegments()) {
    uint64_t begin = allocator.getAddress(segment.birth) + segment.offset;
    uint64_t place = begin;
    for (auto [index, block] : llvm::enumerate(segment.blocks)) {
      uint64_t end = place + block.size;
      if (peek().address >= place && peek().address < end)
        other.recordedSegment = begin;
      if (place == other.simulated) {
        other.simulatedSegment = begin;
        other.bytes = other.bytesOfFree = block.size;
        if (index + 1 < segment.blocks.size() &&
            segment.blocks[index + 1].state == State::Inactive)
          other.bytesOfFree += segment.blocks[index + 1].size;
      }
      place = end;
    }
  }
  otherPlace = other;
}

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

void PoolReplay::allocate(size_t request) {
  current = request;
  AllocatorEvent event = recording.events[request].event;
  CachingAllocator::Result result =
      allocator.allocate(event.bytes, event.stream);
  if (const auto *allocation = std::get_if<Allocation>(&result))
    live[event.address] = *allocation;
}

/// A block that is not free at once, as the next event says, is used on another
/// stream until it is.
void PoolReplay::free() {
  AllocatorEvent event = peek();
  auto found = live.find(event.address);
  if (found == live.end()) {
    differ("no block in use at " + formatAddress(event.address));
    return;
  }
  Allocation allocation = found->second;
  live.erase(found);
  bool isNext =
      next + 1 < recording.events.size() &&
      recording.events[next + 1].event.action == Action::FreeCompleted &&
      recording.events[next + 1].event.address == event.address &&
      !lateEvents.count(next + 1);
  if (event.action == Action::FreeRequested && !isNext &&
      recording.has(Action::FreeCompleted)) {
    waitFor(completions[next], event.address, allocation);
  }
  llvm::cantFail(allocator.free(allocation));
}

void PoolReplay::waitFor(size_t completed, uint64_t address,
                         Allocation allocation) {
  uint64_t stream = getWaitStream(completed);
  waiting[address] = stream;
  llvm::cantFail(allocator.recordStream(allocation, stream));
}

/// A request that waits for other streams. What it waits for was freed before,
/// which is not to be seen if these events were left out.
void PoolReplay::allocateLate(size_t request) {
  if (!recording.has(Action::FreeRequested))
    for (size_t i = next; i < request; ++i) {
      const AllocatorEvent &event = recording.events[i].event;
      auto found = live.find(event.address);
      if (event.action != Action::FreeCompleted || found == live.end())
        continue;
      waitFor(i, event.address, found->second);
      llvm::cantFail(allocator.free(found->second));
      live.erase(found);
    }
  allocate(request);
}

/// The end of a free that waited.
void PoolReplay::complete() {
  if (!recording.has(Action::FreeRequested)) {
    free();
    return;
  }
  auto found = waiting.find(peek().address);
  if (found == waiting.end()) {
    differ("no block that waits at " + formatAddress(peek().address));
    return;
  }
  allocator.synchronize(found->second);
  allocator.processEvents();
}

/// The allocation for which segments come or go next; none if the next request
/// is another one.
std::optional<size_t> PoolReplay::findRequest() const {
  for (size_t i = next; i < recording.events.size(); ++i) {
    Action action = recording.events[i].event.action;
    if (action == Action::Alloc || action == Action::OutOfMemory)
      return i;
    if (action == Action::FreeRequested)
      break;
  }
  return std::nullopt;
}

/// Whether what goes back to the driver next is all that is cached, in the
/// order of torch.cuda.empty_cache().
bool PoolReplay::isWholeCache() const {
  // It would wait for other streams first.
  if (!waiting.empty())
    return false;
  // Which of equal ones is older may not be known.
  using Key = std::tuple<bool, uint64_t, int64_t, int64_t>;
  std::unordered_map<uint64_t, Key> cached;
  for (const CachingAllocator::SegmentInfo &segment : allocator.getSegments())
    if (!segment.isExpandable && segment.blocks.size() == 1 &&
        segment.blocks[0].state == State::Inactive)
      cached[allocator.getAddress(segment.birth)] = {
          segment.isSmall, segment.stream, segment.blocks[0].size,
          initial.isEmpty() ? segment.birth : 0};
  Key last;
  for (size_t i = next; i < recording.events.size(); ++i) {
    const AllocatorEvent &event = recording.events[i].event;
    if (event.action != Action::SegmentFree)
      break;
    auto found = cached.find(event.address);
    if (found == cached.end() || found->second < last)
      return false;
    last = found->second;
    cached.erase(found);
  }
  return cached.empty();
}

/// Segments go because a request was not met, or because the program emptied
/// the cache. What follows tells; where both would, they do the same, but for
/// settings with which a request releases a part of the cache first.
void PoolReplay::release() {
  size_t end = next;
  while (end < recording.events.size() &&
         (isRelease(recording.events[end].event.action) ||
          recording.events[end].event.action == Action::FreeCompleted))
    ++end;
  bool isForRequest =
      end < recording.events.size() &&
      (isNewSegment(recording.events[end].event.action) ||
       recording.events[end].event.action == Action::OutOfMemory ||
       (recording.events[end].event.action == Action::Alloc &&
        !recording.hasNewSegments()));
  bool releasesParts =
      (settings.maxSplitSize != CachingAllocatorSettings::kUnlimited &&
       !settings.expandableSegments) ||
      (isLimited && settings.garbageCollectionThreshold > 0);
  std::optional<size_t> request = findRequest();
  bool isLate = lateEvents.count(next) ||
                (isForRequest && releasesParts && !isWholeCache());
  if (isLate && request)
    allocateLate(*request);
  else
    allocator.emptyCache();
}

void PoolReplay::advance() {
  switch (peek().action) {
  case Action::FreeRequested:
    free();
    break;
  case Action::FreeCompleted:
    if (std::optional<size_t> request = findRequest();
        request && lateEvents.count(next))
      allocateLate(*request);
    else
      complete();
    break;
  case Action::SegmentFree:
  case Action::SegmentUnmap:
    release();
    break;
  case Action::Alloc:
  case Action::SegmentAlloc:
  case Action::SegmentMap:
  case Action::OutOfMemory:
    if (std::optional<size_t> request = findRequest())
      allocate(*request);
    else
      differ("no segment without a request for it");
    break;
  }
}

llvm::Error PoolReplay::run() {
  auto restored = allocator.restore(initial.segments);
  if (!restored)
    return restored.takeError();
  // The allocations are those of the blocks in use.
  auto allocation = restored->begin();
  for (const CachingAllocator::InitialSegment &segment : initial.segments) {
    uint64_t address = segment.address;
    for (const CachingAllocator::InitialBlock &block : segment.blocks) {
      if (block.state != State::Inactive) {
        if (!allocation->isEmpty())
          live[address] = *allocation;
        ++allocation;
      }
      address += block.size;
    }
  }
  for (auto [address, event] : initial.waiting)
    waiting[address] = getWaitStream(event);
  allocator.resetPeakStats();
  while (!isAtEnd() && !difference) {
    size_t before = next;
    advance();
    if (next == before)
      differ("nothing");
  }
  if (!difference)
    compareSegments();
  return Error::success();
}

//===----------------------------------------------------------------------===//
// What is left at the end
//===----------------------------------------------------------------------===//

static std::string describe(uint64_t stream, bool isSmall, bool isExpandable,
                            uint64_t address) {
  return (Twine(isExpandable ? "an expandable " : "a ") +
          (isSmall ? "small" : "large") + " segment at " +
          formatAddress(address) + ", stream " + Twine(stream))
      .str();
}

static std::string describe(uint64_t address, int64_t size, int64_t requested,
                            State state) {
  std::string text = "at " + formatAddress(address) + " a block of " +
                     std::to_string(size) + " bytes";
  if (state == State::Inactive)
    return text + ", inactive";
  return text + ", " + std::to_string(requested) + " of them asked for, " +
         (state == State::Allocated ? "allocated" : "waiting to be free");
}

void PoolReplay::compareSegments() {
  std::map<uint64_t, CachingAllocator::SegmentInfo> simulated;
  for (CachingAllocator::SegmentInfo &segment : allocator.getSegments())
    simulated[allocator.getAddress(segment.birth) + segment.offset] = segment;
  auto fail = [&](std::string ours, std::string theirs) {
    difference.emplace();
    difference->simulated = std::move(ours);
    difference->recorded = std::move(theirs);
  };
  auto own = simulated.begin();
  for (const Snapshot::Segment *segment : recording.segments) {
    std::string theirs = ::describe(segment->stream, segment->isSmall,
                                    segment->isExpandable, segment->address);
    if (own == simulated.end())
      return fail("no more segments", theirs);
    const CachingAllocator::SegmentInfo &info = own->second;
    std::string ours =
        ::describe(info.stream, info.isSmall, info.isExpandable, own->first);
    if (ours != theirs)
      return fail(ours, theirs);
    uint64_t address = segment->address;
    for (size_t i = 0; i < segment->blocks.size(); ++i) {
      const Snapshot::Block &block = segment->blocks[i];
      if (i == info.blocks.size())
        return fail("nothing at " + formatAddress(address),
                    ::describe(block.address, block.size,
                               block.requested.value_or(0), block.state));
      const CachingAllocator::BlockInfo &one = info.blocks[i];
      // Of inactive blocks, some versions keep what was asked for last.
      bool hasRequested = block.requested && block.state != State::Inactive;
      int64_t requested = hasRequested ? *block.requested : one.requested;
      // Without these events, it is not known what waits.
      bool isWaiting = block.state == State::PendingFree &&
                       one.state == State::Allocated &&
                       !recording.has(Action::FreeRequested);
      if (one.size != block.size || (one.state != block.state && !isWaiting) ||
          one.requested != requested)
        return fail(::describe(address, one.size, one.requested, one.state),
                    ::describe(address, block.size, requested, block.state));
      address += block.size;
      ++numBlocks;
    }
    if (info.blocks.size() > segment->blocks.size())
      return fail("more blocks in " + ours,
                  "none behind " + formatAddress(address));
    ++own;
  }
  if (own != simulated.end())
    fail(::describe(own->second.stream, own->second.isSmall,
                    own->second.isExpandable, own->first),
         "no more segments");
}
