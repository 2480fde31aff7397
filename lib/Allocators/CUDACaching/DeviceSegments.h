//===- DeviceSegments.h - What is obtained of the driver --------*- C++ -*-===//
//
// Segments of cudaMalloc() and pages of expandable segments: how they come, are
// cut into blocks, and go back. Source: c10/cuda/CUDACachingAllocator.cpp of
// PyTorch 2.13.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_ALLOCATORS_CUDACACHING_DEVICESEGMENTS_H
#define KOILA_LIB_ALLOCATORS_CUDACACHING_DEVICESEGMENTS_H

#include "BlockPool.h"
#include <deque>
#include <map>

namespace koila {

class DeviceSegments {
public:
  DeviceSegments(const CachingAllocatorSettings &settings,
                 CachingAllocator::Device device,
                 CachingAllocatorOptions options)
      : settings(settings), device(device), options(std::move(options)) {}

  /// A block that is a segment of its own, in no pool; null if the device has
  /// too little.
  Block *allocate(BlockPool &pool, Stream stream, int64_t bytes);
  /// cudaFree() of a free block that is a whole segment.
  void release(Block *block);
  /// The same with pages of an expandable segment. Where they do not suffice,
  /// those that were mapped stay.
  Block *grow(BlockPool &pool, Stream stream, int64_t bytes);
  /// Gives back the pages that are inside of a free block, and the addresses of
  /// a segment that has none left.
  void unmap(Block *block);

  /// The first `bytes` of a block that is in no pool, as a block of its own.
  /// The rest goes to the pool and is returned in its place.
  Block *splitFront(Block *block, int64_t bytes);
  /// Adds a neighbour to a block that is in no pool, if both are idle and both
  /// have memory or none has. The size of the neighbour, or 0.
  int64_t merge(Block *block, Block *neighbour);

  /// A segment of blocks that are there from the start: free ones are in the
  /// pool, none is counted but for what is reserved.
  Segment *adopt(BlockPool &pool,
                 const CachingAllocator::InitialSegment &initial);

  /// To who listens.
  void tell(AllocatorAction action, const Block *block, int64_t bytes) const {
    if (options.observer)
      options.observer({action, block->segment->address + block->offset, bytes,
                        block->segment->stream, /*deviceFree=*/0});
  }
  void tellOutOfMemory(int64_t bytes, Stream stream) const {
    if (options.observer)
      options.observer({AllocatorAction::OutOfMemory, /*address=*/0, bytes,
                        stream, getFree()});
  }

  /// Whether who knows a recording says that there is memory.
  bool mayAsk(int64_t bytes) const {
    return !options.hasMemory || options.hasMemory(bytes);
  }

  /// By birth.
  const std::map<int64_t, Segment> &getSegments() const { return segments; }
  int64_t getReserved() const { return reserved; }
  int64_t getFree() const { return device.freeBytes - reserved; }
  int64_t getTotal() const { return device.totalBytes; }

  CachingAllocatorStats stats;

private:
  Segment *addSegment(Stream stream, int64_t bytes, int64_t pageSize,
                      std::optional<uint64_t> address = std::nullopt);
  Block *addBlock(Segment *segment, BlockPool *pool, int64_t offset,
                  int64_t bytes);
  /// A new block directly in front of another one, or behind it.
  Block *addBefore(Block *block, int64_t bytes);
  Block *addBehind(Block *block, int64_t offset, int64_t bytes);
  void drop(Block *block);
  Block *findRoom(BlockPool &pool, Stream stream, int64_t bytes);
  int64_t getPageSize(const BlockPool &pool) const;
  bool map(Block *block, int64_t bytes);
  void count(const BlockPool &pool, int64_t bytes);
  bool hasMemory(int64_t bytes) const {
    return bytes <= getFree() && mayAsk(bytes);
  }

  const CachingAllocatorSettings &settings;
  CachingAllocator::Device device;
  const CachingAllocatorOptions options;
  int64_t numBorn = 0, reserved = 0;
  /// Where the driver gives addresses, on 64-bit systems.
  uint64_t nextAddress = uint64_t(0x7) << 44;
  std::map<int64_t, Segment> segments;
  /// Blocks stay where they are; those that are gone are used again.
  std::deque<Block> blocks;
  std::vector<Block *> unused;
};

} // namespace koila

#endif // KOILA_LIB_ALLOCATORS_CUDACACHING_DEVICESEGMENTS_H
