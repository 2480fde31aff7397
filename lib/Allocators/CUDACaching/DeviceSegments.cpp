//===- DeviceSegments.cpp - What is obtained of the driver ----------------===//

#include "DeviceSegments.h"
#include "llvm/Support/MathExtras.h"
#include <cassert>

using namespace koila;

static constexpr int64_t kSmallBuffer = int64_t(2) << 20;

//===----------------------------------------------------------------------===//
// Lists of blocks
//===----------------------------------------------------------------------===//

Segment *DeviceSegments::addSegment(Stream stream, int64_t bytes,
                                    int64_t pageSize,
                                    std::optional<uint64_t> address) {
  using EqualBlocks = CachingAllocatorOptions::EqualBlocks;
  int64_t birth = numBorn++;
  if (!address && options.chooseAddress) {
    address = options.chooseAddress(bytes);
  } else if (!address) {
    address = nextAddress;
    nextAddress += llvm::alignTo(bytes, kSmallBuffer);
  }
  uint64_t rank = options.equalBlocks == EqualBlocks::ByAddress
                      ? *address
                      : static_cast<uint64_t>(birth);
  return &segments
              .try_emplace(birth, Segment{birth, rank, *address, stream, bytes,
                                          pageSize})
              .first->second;
}

Block *DeviceSegments::addBlock(Segment *segment, BlockPool *pool,
                                int64_t offset, int64_t bytes) {
  Block *block;
  if (unused.empty()) {
    block = &blocks.emplace_back();
  } else {
    block = unused.back();
    unused.pop_back();
    *block = Block();
  }
  block->segment = segment;
  block->pool = pool;
  block->offset = offset;
  block->size = bytes;
  return block;
}

Block *DeviceSegments::addBefore(Block *block, int64_t bytes) {
  Block *front = addBlock(block->segment, block->pool, block->offset, bytes);
  front->prev = block->prev;
  front->next = block;
  (front->prev ? front->prev->next : block->segment->first) = front;
  block->prev = front;
  return front;
}

Block *DeviceSegments::addBehind(Block *block, int64_t offset, int64_t bytes) {
  Block *back = addBlock(block->segment, block->pool, offset, bytes);
  back->prev = block;
  back->next = block->next;
  if (back->next)
    back->next->prev = back;
  block->next = back;
  return back;
}

void DeviceSegments::drop(Block *block) { unused.push_back(block); }

Block *DeviceSegments::splitFront(Block *block, int64_t bytes) {
  Block *front = addBefore(block, bytes);
  block->offset += bytes;
  block->size -= bytes;
  block->pool->insert(block);
  return front;
}

int64_t DeviceSegments::merge(Block *block, Block *neighbour) {
  if (!neighbour || !neighbour->isIdle() ||
      neighbour->isMapped != block->isMapped)
    return 0;
  neighbour->pool->erase(neighbour);
  if (block->prev == neighbour) {
    block->offset = neighbour->offset;
    block->prev = neighbour->prev;
    (block->prev ? block->prev->next : block->segment->first) = block;
  } else {
    block->next = neighbour->next;
    if (block->next)
      block->next->prev = block;
  }
  int64_t bytes = neighbour->size;
  block->size += bytes;
  drop(neighbour);
  return bytes;
}

//===----------------------------------------------------------------------===//
// cudaMalloc() and cudaFree()
//===----------------------------------------------------------------------===//

/// Bytes that came, or went if they are negative.
void DeviceSegments::count(const BlockPool &pool, int64_t bytes) {
  reserved += bytes;
  stats.reservedBytes.add(pool.isSmall, bytes);
  ++(bytes > 0 ? stats.numDeviceAlloc : stats.numDeviceFree);
}

Block *DeviceSegments::allocate(BlockPool &pool, Stream stream, int64_t bytes) {
  if (!hasMemory(bytes))
    return nullptr;
  Segment *segment = addSegment(stream, bytes, /*pageSize=*/0);
  segment->first = addBlock(segment, &pool, 0, bytes);
  count(pool, bytes);
  stats.segment.add(pool.isSmall, 1);
  if (bytes >= settings.maxSplitSize)
    stats.oversizeSegments.add(1);
  tell(AllocatorAction::SegmentAlloc, segment->first, bytes);
  return segment->first;
}

void DeviceSegments::release(Block *block) {
  assert(!block->isSplit() && block->isIdle() && "parts of it are in use");
  BlockPool &pool = *block->pool;
  pool.erase(block);
  count(pool, -block->size);
  stats.segment.add(pool.isSmall, -1);
  if (block->size >= settings.maxSplitSize)
    stats.oversizeSegments.add(-1);
  tell(AllocatorAction::SegmentFree, block, block->size);
  segments.erase(block->segment->birth);
  drop(block);
}

//===----------------------------------------------------------------------===//
// Expandable segments
//===----------------------------------------------------------------------===//

int64_t DeviceSegments::getPageSize(const BlockPool &pool) const {
  return pool.isSmall ? kSmallBuffer : settings.largeSegmentSize;
}

/// The block at the lowest place from which on idle neighbours suffice: one
/// that is not mapped, or a free one in front of it.
Block *DeviceSegments::findRoom(BlockPool &pool, Stream stream, int64_t bytes) {
  const auto &unmapped = pool.getUnmapped();
  // What ended the last attempt: it ends those in front of it as well.
  const Block *obstacle = nullptr;
  for (auto it = unmapped.lower_bound(stream);
       it != unmapped.end() && (*it)->segment->stream == stream; ++it) {
    Block *start = *it;
    if (obstacle && obstacle->segment == start->segment &&
        start->offset < obstacle->offset)
      continue;
    if (start->prev && start->prev->isIdle())
      start = start->prev;
    int64_t room = 0;
    const Block *block = start;
    for (; block && block->isIdle() && room < bytes; block = block->next)
      room += block->size;
    if (room >= bytes)
      return start;
    obstacle = block;
  }
  // Addresses for nine eighths of the device, in whole pages.
  int64_t pageSize = getPageSize(pool);
  int64_t total = device.totalBytes + device.totalBytes / 8;
  Segment *segment = addSegment(
      stream, llvm::divideCeil(total, pageSize) * pageSize, pageSize);
  Block *block = addBlock(segment, &pool, 0, segment->size);
  segment->first = block;
  block->isMapped = false;
  pool.insert(block);
  return block;
}

/// Maps the pages of the first `bytes` of a block, which is free then.
bool DeviceSegments::map(Block *block, int64_t bytes) {
  int64_t mapped = llvm::alignTo(bytes, block->segment->pageSize);
  if (!hasMemory(mapped))
    return false;
  BlockPool &pool = *block->pool;
  pool.erase(block);
  block->isMapped = true;
  if (mapped < block->size) {
    Block *rest =
        addBehind(block, block->offset + mapped, block->size - mapped);
    rest->isMapped = false;
    pool.insert(rest);
    block->size = mapped;
  }
  Block pages = *block;
  merge(block, block->prev);
  merge(block, block->next);
  pool.insert(block);
  count(pool, mapped);
  tell(AllocatorAction::SegmentMap, &pages, mapped);
  return true;
}

Block *DeviceSegments::grow(BlockPool &pool, Stream stream, int64_t bytes) {
  Block *block = findRoom(pool, stream, bytes);
  if (!block->isMapped && !map(block, std::min(block->size, bytes)))
    return nullptr;
  while (block->size < bytes) {
    // It is free, and what follows is not mapped.
    Block *next = block->next;
    if (!map(next, std::min(next->size, bytes - block->size)))
      return nullptr;
    block = next;
  }
  pool.erase(block);
  return block;
}

void DeviceSegments::unmap(Block *block) {
  BlockPool &pool = *block->pool;
  int64_t pageSize = block->segment->pageSize;
  int64_t end = block->offset + block->size;
  int64_t firstPage = llvm::alignTo(block->offset, pageSize);
  int64_t lastPage = llvm::alignDown(end, pageSize);
  if (firstPage >= lastPage)
    return;
  pool.erase(block);
  if (block->offset < firstPage)
    pool.insert(addBefore(block, firstPage - block->offset));
  if (lastPage < end)
    pool.insert(addBehind(block, lastPage, end - lastPage));
  block->offset = firstPage;
  block->size = lastPage - firstPage;
  block->isMapped = false;
  Block pages = *block;
  merge(block, block->prev);
  merge(block, block->next);
  count(pool, firstPage - lastPage);
  tell(AllocatorAction::SegmentUnmap, &pages, lastPage - firstPage);
  if (block->isSplit()) {
    pool.insert(block);
    return;
  }
  segments.erase(block->segment->birth);
  drop(block);
}

//===----------------------------------------------------------------------===//
// What is there from the start
//===----------------------------------------------------------------------===//

Segment *
DeviceSegments::adopt(BlockPool &pool,
                      const CachingAllocator::InitialSegment &initial) {
  int64_t size = 0, mapped = 0;
  for (const CachingAllocator::InitialBlock &block : initial.blocks) {
    size += block.size;
    mapped += block.isMapped ? block.size : 0;
  }
  Segment *segment =
      addSegment(initial.stream, size,
                 initial.isExpandable ? getPageSize(pool) : 0, initial.address);
  Block *last = nullptr;
  int64_t offset = 0;
  std::vector<Block *> idle;
  for (const CachingAllocator::InitialBlock &info : initial.blocks) {
    Block *block = last ? addBehind(last, offset, info.size)
                        : addBlock(segment, &pool, offset, info.size);
    if (!last)
      segment->first = block;
    block->isMapped = info.isMapped;
    if (info.state == CachingAllocator::BlockInfo::State::Inactive)
      idle.push_back(block);
    offset += info.size;
    last = block;
  }
  for (Block *block : idle)
    pool.insert(block);
  reserved += mapped;
  stats.reservedBytes.add(pool.isSmall, mapped);
  if (!initial.isExpandable) {
    stats.segment.add(pool.isSmall, 1);
    if (size >= settings.maxSplitSize)
      stats.oversizeSegments.add(1);
  }
  return segment;
}
