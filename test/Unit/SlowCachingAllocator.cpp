//===- SlowCachingAllocator.cpp - The allocator's rules, plainly ----------===//

#include "SlowCachingAllocator.h"

using namespace koila;
using namespace koila::slow;

static constexpr int64_t kMiB = 1048576;
static constexpr int64_t kNever = CachingAllocatorSettings::kUnlimited;

Allocator::Allocator(const CachingAllocatorSettings &settings,
                     CachingAllocator::Device device, Fault fault)
    : settings(settings), device(device), fault(fault) {
  setMemoryFraction(settings.perProcessMemoryFraction);
}

void Allocator::setMemoryFraction(double fraction) {
  isLimited = fraction < 1;
  allowed =
      static_cast<int64_t>(fraction * static_cast<double>(device.totalBytes));
}

Allocator::Position Allocator::find(int64_t number) const {
  for (size_t i = 0; i < segments.size(); ++i)
    for (size_t j = 0; j < segments[i].pieces.size(); ++j)
      if (segments[i].pieces[j].number == number)
        return {i, j};
  return {segments.size(), 0};
}

/// To multiples of 512, or to the next of the equal steps between the powers of
/// two around a size.
int64_t Allocator::round(int64_t bytes) const {
  int64_t below = 1;
  size_t bin = 0;
  while (below * 2 <= bytes)
    below *= 2;
  for (int64_t bound = 2 * kMiB; bound <= bytes && bin < 15; bound *= 2)
    ++bin;
  auto divisions = static_cast<int64_t>(settings.roundupDivisions[bin]);
  int64_t step = 512;
  if (divisions > 1 && bytes > 512 * divisions)
    step = below / divisions;
  return (bytes + step - 1) / step * step;
}

int64_t Allocator::getMapped() const {
  int64_t bytes = 0;
  for (const Segment &segment : segments)
    for (const Piece &piece : segment.pieces)
      bytes += piece.state == State::Unmapped ? 0 : piece.size;
  return bytes;
}

bool Allocator::isUnsplit(size_t segment) const {
  return segments[segment].pieces.size() == 1;
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

void Allocator::tell(AllocatorAction action, const Segment &segment,
                     int64_t offset, int64_t bytes) {
  trace.push_back({action, getAddress(segment.birth) + offset, bytes,
                   segment.stream, /*deviceFree=*/0});
}

void Allocator::tell(AllocatorAction action, int64_t number) {
  tell(action, segments[find(number).first], getPlace(number).offset,
       at(find(number)).requested);
}

std::vector<AllocatorEvent> Allocator::takeTrace() {
  return std::exchange(trace, {});
}

//===----------------------------------------------------------------------===//
// Statistics
//===----------------------------------------------------------------------===//

/// A step lets each statistic rise or fall, never both.
static void note(AllocatorStat &stat, int64_t value) {
  if (value > stat.current)
    stat.allocated += value - stat.current;
  else
    stat.freed += stat.current - value;
  stat.current = value;
  if (value > stat.peak)
    stat.peak = value;
}

static constexpr AllocatorPoolStat CachingAllocatorStats::*kStats[] = {
    &CachingAllocatorStats::segment,
    &CachingAllocatorStats::reservedBytes,
    &CachingAllocatorStats::allocation,
    &CachingAllocatorStats::allocatedBytes,
    &CachingAllocatorStats::active,
    &CachingAllocatorStats::activeBytes,
    &CachingAllocatorStats::requestedBytes,
    &CachingAllocatorStats::inactiveSplit,
    &CachingAllocatorStats::inactiveSplitBytes};

void Allocator::observe() {
  // Of all, small and large.
  int64_t counts[3][std::size(kStats)] = {};
  int64_t oversize = 0, oversizeSegments = 0;
  auto add = [&](bool isSmall, std::initializer_list<int64_t> values) {
    for (int pool : {0, isSmall ? 1 : 2})
      for (size_t i = 0; i < values.size(); ++i)
        counts[pool][i] += values.begin()[i];
  };
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment &owner = segments[i];
    int64_t mapped = 0;
    for (const Piece &piece : owner.pieces) {
      bool isAllocated = piece.state == State::Allocated;
      bool isActive = isAllocated || piece.state == State::PendingFree;
      bool isRequested =
          fault == Fault::RequestedFallsEarly ? isAllocated : isActive;
      bool isSplit = piece.state == State::Inactive && !owner.isExpandable &&
                     !isUnsplit(i);
      mapped += piece.state == State::Unmapped ? 0 : piece.size;
      oversize += isAllocated && piece.size >= settings.maxSplitSize;
      add(owner.isSmall, {0, 0, isAllocated, isAllocated * piece.size, isActive,
                          isActive * piece.size, isRequested * piece.requested,
                          isSplit, isSplit * piece.size});
    }
    oversizeSegments += !owner.isExpandable && mapped >= settings.maxSplitSize;
    add(owner.isSmall, {!owner.isExpandable, mapped});
  }
  for (size_t i = 0; i < std::size(kStats); ++i) {
    AllocatorPoolStat &stat = stats.*kStats[i];
    note(stat.all, counts[0][i]);
    note(stat.small, counts[1][i]);
    note(stat.large, counts[2][i]);
  }
  note(stats.oversizeAllocations, oversize);
  note(stats.oversizeSegments, oversizeSegments);
}

void Allocator::resetPeaks() {
  for (auto member : kStats)
    for (AllocatorStat *stat :
         {&(stats.*member).all, &(stats.*member).small, &(stats.*member).large})
      stat->peak = stat->current;
  stats.oversizeAllocations.peak = stats.oversizeAllocations.current;
  stats.oversizeSegments.peak = stats.oversizeSegments.current;
}

//===----------------------------------------------------------------------===//
// Free pieces
//===----------------------------------------------------------------------===//

void Allocator::join(size_t index) {
  std::vector<Piece> joined;
  for (const Piece &piece : segments[index].pieces) {
    bool isIdle =
        piece.state == State::Inactive || piece.state == State::Unmapped;
    if (isIdle && !joined.empty() && joined.back().state == piece.state) {
      joined.back().size += piece.size;
      // What was put back last is youngest.
      joined.back().age = std::min(joined.back().age, piece.age);
    } else {
      joined.push_back(piece);
    }
  }
  segments[index].pieces = joined;
}

void Allocator::putBack(int64_t number) {
  Position position = find(number);
  Piece &piece = at(position);
  tell(AllocatorAction::FreeCompleted, number);
  piece.state = State::Inactive;
  piece.number = -1;
  piece.requested = 0;
  piece.age = 0;
  if (fault == Fault::KeepPrevious && position.second) {
    // The one in front is out of sight for a moment.
    State &previous =
        segments[position.first].pieces[position.second - 1].state;
    State kept = previous;
    previous = State::Taken;
    join(position.first);
    segments[position.first].pieces[position.second - 1].state = kept;
  } else {
    join(position.first);
  }
  observe();
}

void Allocator::free(int64_t number) {
  Piece &piece = at(find(number));
  tell(AllocatorAction::FreeRequested, number);
  piece.state = State::PendingFree;
  for (uint64_t stream : piece.streams)
    events.push_back({number, stream, /*isDone=*/false});
  observe();
  if (piece.streams.empty())
    putBack(number);
}

void Allocator::recordStream(int64_t number, uint64_t stream) {
  Position position = find(number);
  if (segments[position.first].stream != stream)
    at(position).streams.insert(stream);
}

void Allocator::synchronize(uint64_t stream) {
  for (Event &event : events)
    event.isDone |= event.stream == stream;
}

void Allocator::processEvents(bool all) {
  std::set<uint64_t> streams;
  for (const Event &event : events)
    streams.insert(event.stream);
  for (uint64_t stream : streams)
    for (size_t i = 0; i < events.size();) {
      Event event = events[i];
      if (event.stream != stream || !(event.isDone || all)) {
        ++i;
        continue;
      }
      events.erase(events.begin() + static_cast<ptrdiff_t>(i));
      bool isWaiting = false;
      for (const Event &other : events)
        isWaiting |= other.number == event.number;
      if (isWaiting)
        continue;
      at(find(event.number)).streams.clear();
      putBack(event.number);
    }
}

//===----------------------------------------------------------------------===//
// What the driver gets back
//===----------------------------------------------------------------------===//

void Allocator::release(size_t segment) {
  tell(AllocatorAction::SegmentFree, segments[segment], /*offset=*/0,
       segments[segment].pieces[0].size);
  segments.erase(segments.begin() + static_cast<ptrdiff_t>(segment));
  ++stats.numDeviceFree;
  observe();
}

/// Pages of inactive pieces.
void Allocator::unmapAll(size_t index, bool isSmall) {
  if (segments[index].isSmall != isSmall)
    return;
  std::vector<Piece> pieces;
  int64_t offset = 0, page = segments[index].page;
  int64_t freed = 0;
  for (const Piece &piece : segments[index].pieces) {
    int64_t first = (offset + page - 1) / page * page;
    int64_t last = (offset + piece.size) / page * page;
    if (piece.state != State::Inactive || first >= last) {
      pieces.push_back(piece);
    } else {
      tell(AllocatorAction::SegmentUnmap, segments[index], first, last - first);
      int64_t front = first - offset, back = offset + piece.size - last;
      ++freed;
      for (auto [size, state] : {std::pair(front, State::Inactive),
                                 std::pair(last - first, State::Unmapped),
                                 std::pair(back, State::Inactive)})
        if (size) {
          pieces.emplace_back();
          pieces.back().size = size;
          pieces.back().state = state;
        }
    }
    offset += piece.size;
  }
  segments[index].pieces = pieces;
  stats.numDeviceFree += freed;
  join(index);
  observe();
}

void Allocator::releaseAll() {
  ++stats.numSyncAllStreams;
  processEvents(/*all=*/true);
  for (bool isSmall : {false, true}) {
    releaseInOrder(isSmall, /*births=*/nullptr);
    // What is free has its order by sizes, of which those of whole blocks are
    // not in an event.
    std::map<uint64_t, std::tuple<uint64_t, int64_t, uint64_t>> order;
    for (const Segment &segment : segments) {
      int64_t offset = 0;
      for (const Piece &piece : segment.pieces) {
        int64_t first = (offset + segment.page - 1) /
                        std::max<int64_t>(segment.page, 1) * segment.page;
        uint64_t address = getAddress(segment.birth) + first;
        order[address] = {segment.stream, piece.size, address};
        offset += piece.size;
      }
    }
    size_t begin = trace.size();
    for (size_t i = segments.size(); i-- > 0;) {
      if (!segments[i].isExpandable)
        continue;
      bool wasMapped = segments[i].pieces.size() > 1;
      unmapAll(i, isSmall);
      if (wasMapped && isUnsplit(i))
        segments.erase(segments.begin() + static_cast<ptrdiff_t>(i));
    }
    std::sort(trace.begin() + static_cast<ptrdiff_t>(begin), trace.end(),
              [&](const AllocatorEvent &left, const AllocatorEvent &right) {
                return order[left.address] < order[right.address];
              });
  }
}

void Allocator::releaseInOrder(bool isSmall, const std::set<int64_t> *births) {
  std::set<std::tuple<uint64_t, int64_t, int64_t>> order;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment &one = segments[i];
    if (one.isSmall == isSmall && !one.isExpandable && isUnsplit(i) &&
        one.pieces[0].state == State::Inactive &&
        (!births || births->count(one.birth)))
      order.insert({one.stream, one.pieces[0].size, one.birth});
  }
  for (const auto &[stream, size, birth] : order)
    for (size_t i = 0; i < segments.size(); ++i)
      if (segments[i].birth == birth) {
        release(i);
        break;
      }
}

void Allocator::emptyCache() { releaseAll(); }

bool Allocator::releaseOversize(int64_t bytes, uint64_t stream, bool isSmall) {
  if (settings.maxSplitSize == kNever || settings.expandableSegments ||
      fault == Fault::NoOversizeRelease)
    return false;
  int64_t wanted = std::max(bytes, settings.maxSplitSize), released = 0;
  while (released < wanted) {
    // The smallest that suffices alone; else the largest.
    size_t best = segments.size();
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment &one = segments[i];
      int64_t size = one.pieces[0].size;
      if (!isUnsplit(i) || one.pieces[0].state != State::Inactive ||
          one.stream != stream || one.isSmall != isSmall ||
          size < settings.maxSplitSize)
        continue;
      int64_t bestSize =
          best == segments.size() ? 0 : segments[best].pieces[0].size;
      bool isEnough = !released && size >= wanted;
      bool isBestEnough = !released && bestSize >= wanted;
      if (!bestSize || (isEnough && !isBestEnough) ||
          (isEnough && size < bestSize) ||
          // Of equal ones, the largest are released from the end.
          (!isEnough && !isBestEnough && size >= bestSize))
        best = i;
    }
    if (best == segments.size())
      return false;
    released += segments[best].pieces[0].size;
    release(best);
  }
  return true;
}

void Allocator::collectGarbage() {
  int64_t threshold = static_cast<int64_t>(settings.garbageCollectionThreshold *
                                           static_cast<double>(allowed));
  int64_t target = getMapped() - threshold;
  while (target > 0 && fault != Fault::NoGarbageCollection) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < segments.size(); ++i)
      if (!segments[i].isSmall && isUnsplit(i) && !segments[i].isExpandable &&
          segments[i].pieces[0].state == State::Inactive) {
        sum += static_cast<double>(segments[i].pieces[0].age);
        ++count;
      }
    if (!count)
      return;
    std::set<int64_t> births;
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment &one = segments[i];
      if (one.isSmall || !isUnsplit(i) || one.isExpandable ||
          one.pieces[0].state != State::Inactive ||
          static_cast<double>(one.pieces[0].age) < sum / count)
        continue;
      target -= one.pieces[0].size;
      births.insert(one.birth);
    }
    releaseInOrder(/*isSmall=*/false, &births);
  }
}

//===----------------------------------------------------------------------===//
// Allocations
//===----------------------------------------------------------------------===//

/// The smallest piece that is large enough; of equal ones the oldest segment's,
/// and the first one there. With expandable segments the next one is preferred
/// as long as it can grow to less.
bool Allocator::search(int64_t bytes, uint64_t stream, bool isSmall,
                       Position &found) {
  // By size, birth and offset.
  std::map<std::pair<int64_t, std::pair<int64_t, size_t>>, Position> fit;
  for (size_t i = 0; i < segments.size(); ++i)
    for (size_t j = 0; j < segments[i].pieces.size(); ++j) {
      const Segment &owner = segments[i];
      const Piece &piece = owner.pieces[j];
      if (owner.stream != stream || owner.isSmall != isSmall ||
          piece.state != State::Inactive || piece.size < bytes)
        continue;
      int64_t birth = fault == Fault::NewestFirst ? -owner.birth : owner.birth;
      int64_t size = fault == Fault::FirstFit ? 0 : piece.size;
      fit[{size, {birth, j}}] = {i, j};
    }
  if (fit.empty())
    return false;
  auto grown = [&](Position position) {
    const std::vector<Piece> &pieces = segments[position.first].pieces;
    int64_t size = pieces[position.second].size;
    if (position.second + 1 < pieces.size() &&
        pieces[position.second + 1].state == State::Unmapped)
      size += pieces[position.second + 1].size;
    return size;
  };
  found = fit.begin()->second;
  if (settings.expandableSegments)
    for (const auto &[key, position] : fit) {
      if (position != found && grown(position) >= grown(found))
        break;
      found = position;
    }
  int64_t size = at(found).size;
  if (settings.maxSplitSize != kNever) {
    if (bytes < settings.maxSplitSize && size >= settings.maxSplitSize)
      return false;
    if (bytes >= settings.maxSplitSize &&
        size >= bytes + settings.maxNonSplitRounding)
      return false;
  }
  at(found).state = State::Taken;
  return true;
}

/// Maps pages in the first run of idle pieces that begins with an unmapped one,
/// or with the inactive piece in front of it, and has room.
bool Allocator::mapPages(int64_t bytes, uint64_t stream, bool isSmall,
                         Position &found) {
  size_t segment = segments.size(), begin = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const std::vector<Piece> &pieces = segments[i].pieces;
    if (segments[i].stream != stream || segments[i].isSmall != isSmall)
      continue;
    for (size_t j = 0; j < pieces.size(); ++j) {
      if (pieces[j].state != State::Unmapped)
        continue;
      bool isFreeInFront = j > 0 && pieces[j - 1].state == State::Inactive;
      size_t start = isFreeInFront ? j - 1 : j;
      int64_t room = 0;
      for (size_t k = start;
           k < pieces.size() && (pieces[k].state == State::Unmapped ||
                                 pieces[k].state == State::Inactive);
           ++k)
        room += pieces[k].size;
      bool isFirst = segment == segments.size();
      if (room >= bytes && (isFirst || fault == Fault::LastRoom)) {
        segment = i;
        begin = start;
      }
    }
  }
  if (segment == segments.size()) {
    int64_t page = isSmall ? 2 * kMiB : settings.largeSegmentSize;
    int64_t total = device.totalBytes + device.totalBytes / 8;
    Piece piece;
    piece.size = (total + page - 1) / page * page;
    piece.state = State::Unmapped;
    segments.push_back({numBirths++, stream, isSmall, true, page, {piece}});
  }
  // From the start on, gap by gap, as much as is missing.
  int64_t missing = bytes, page = segments[segment].page;
  for (size_t j = begin; missing > 0; ++j) {
    std::vector<Piece> &pieces = segments[segment].pieces;
    if (pieces[j].state == State::Unmapped) {
      int64_t used = std::min(missing, pieces[j].size);
      int64_t mapped = (used + page - 1) / page * page;
      if (getMapped() + mapped > device.freeBytes) {
        join(segment);
        return false;
      }
      int64_t offset = 0;
      for (size_t k = 0; k < j; ++k)
        offset += pieces[k].size;
      tell(AllocatorAction::SegmentMap, segments[segment], offset, mapped);
      Piece rest = pieces[j];
      rest.size -= mapped;
      pieces[j].size = mapped;
      pieces[j].state = State::Inactive;
      if (rest.size)
        pieces.insert(pieces.begin() + static_cast<ptrdiff_t>(j) + 1, rest);
      ++stats.numDeviceAlloc;
      observe();
    }
    missing -= segments[segment].pieces[j].size;
  }
  // Pieces in front of the start do not join.
  join(segment);
  found = {segment, begin};
  at(found).state = State::Taken;
  return true;
}

bool Allocator::obtain(int64_t bytes, int64_t segmentBytes, uint64_t stream,
                       bool isSmall, Position &found, bool &isRejected) {
  int64_t mapped = getMapped();
  if (isLimited && mapped + segmentBytes > allowed)
    return false;
  if (settings.throwOnCudaMallocOom &&
      mapped + segmentBytes >
          static_cast<int64_t>(settings.perProcessMemoryFraction *
                               static_cast<double>(device.totalBytes))) {
    isRejected = true;
    ++stats.numOomRejections;
    return false;
  }
  if (settings.expandableSegments)
    return mapPages(bytes, stream, isSmall, found);
  if (mapped + segmentBytes > device.freeBytes)
    return false;
  Piece piece;
  piece.size = segmentBytes;
  piece.state = State::Taken;
  segments.push_back({numBirths++, stream, isSmall, false, 0, {piece}});
  tell(AllocatorAction::SegmentAlloc, segments.back(), /*offset=*/0,
       segmentBytes);
  found = {segments.size() - 1, 0};
  ++stats.numDeviceAlloc;
  observe();
  return true;
}

int64_t Allocator::allocate(int64_t bytes, uint64_t stream) {
  processEvents(/*all=*/false);
  int64_t size = round(bytes);
  bool isSmall = size <= kMiB;
  int64_t segmentBytes = settings.largeSegmentSize;
  if (isSmall)
    segmentBytes = 2 * kMiB;
  else if (size >= 10 * kMiB)
    segmentBytes = (size + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);

  bool collects = isLimited && settings.garbageCollectionThreshold > 0;
  if (collects)
    for (Segment &segment : segments)
      if (segment.isSmall == isSmall)
        for (Piece &piece : segment.pieces)
          ++piece.age;
  Position found;
  bool isRejected = false;
  bool isFound = search(size, stream, isSmall, found);
  if (!isFound) {
    if (collects)
      collectGarbage();
    auto attempt = [&] {
      return obtain(size, segmentBytes, stream, isSmall, found, isRejected);
    };
    isFound = attempt();
    if (!isFound && !isRejected) {
      if (releaseOversize(size, stream, isSmall))
        isFound = attempt();
      if (!isFound) {
        releaseAll();
        ++stats.numAllocRetries;
        isFound = attempt();
      }
    }
  }
  if (!isFound) {
    stats.numOoms += !isRejected;
    if (!isRejected)
      trace.push_back({AllocatorAction::OutOfMemory, /*address=*/0, size,
                       stream, device.freeBytes - getMapped()});
    return isRejected ? -2 : -1;
  }

  int64_t rest = at(found).size - size;
  bool isSplit = rest >= 512;
  if (!isSmall && !settings.expandableSegments)
    isSplit = size < settings.maxSplitSize &&
              (fault == Fault::SplitMebibyte ? rest >= kMiB : rest > kMiB);
  if (isSplit) {
    Piece remainder;
    remainder.size = rest;
    std::vector<Piece> &pieces = segments[found.first].pieces;
    pieces.insert(pieces.begin() + static_cast<ptrdiff_t>(found.second) + 1,
                  remainder);
    at(found).size = size;
  }
  Piece &piece = at(found);
  piece.state = State::Allocated;
  piece.requested = bytes;
  piece.number = numAllocations++;
  observe();
  int64_t number = piece.number;
  tell(AllocatorAction::Alloc, number);
  return number;
}

//===----------------------------------------------------------------------===//
// Snapshots
//===----------------------------------------------------------------------===//

CachingAllocator::Place Allocator::getPlace(int64_t number) const {
  auto [segment, index] = find(number);
  int64_t offset = 0;
  for (size_t i = 0; i < index; ++i)
    offset += segments[segment].pieces[i].size;
  return {segments[segment].birth, offset};
}

std::vector<CachingAllocator::SegmentInfo> Allocator::getSegments() const {
  using BlockState = CachingAllocator::BlockInfo::State;
  std::vector<CachingAllocator::SegmentInfo> infos;
  for (const Segment &segment : segments) {
    int64_t offset = 0;
    bool isNew = true;
    for (const Piece &piece : segment.pieces) {
      bool isUnmapped = piece.state == State::Unmapped;
      if (!isUnmapped) {
        if (isNew)
          infos.push_back({segment.birth,
                           offset,
                           segment.stream,
                           segment.isSmall,
                           segment.isExpandable,
                           {}});
        BlockState state =
            piece.state == State::Allocated     ? BlockState::Allocated
            : piece.state == State::PendingFree ? BlockState::PendingFree
                                                : BlockState::Inactive;
        infos.back().blocks.push_back({piece.size, piece.requested, state});
      }
      isNew = isUnmapped;
      offset += piece.size;
    }
  }
  return infos;
}
