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
                 CachingAllocator::Device device)
      : settings(settings), device(device) {}

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

  /// By birth.
  const std::map<int64_t, Segment> &getSegments() const { return segments; }
  int64_t getReserved() const { return reserved; }
  int64_t getFree() const { return device.freeBytes - reserved; }
  int64_t getTotal() const { return device.totalBytes; }

  CachingAllocatorStats stats;

private:
  Segment *addSegment(Stream stream, int64_t bytes, int64_t pageSize);
  Block *addBlock(Segment *segment, BlockPool *pool, int64_t offset,
                  int64_t bytes);
  /// A new block directly in front of another one, or behind it.
  Block *addBefore(Block *block, int64_t bytes);
  Block *addBehind(Block *block, int64_t offset, int64_t bytes);
  void drop(Block *block);
  Block *findRoom(BlockPool &pool, Stream stream, int64_t bytes);
  bool map(Block *block, int64_t bytes);
  void count(const BlockPool &pool, int64_t bytes);

  const CachingAllocatorSettings &settings;
  CachingAllocator::Device device;
  int64_t numBorn = 0, reserved = 0;
  std::map<int64_t, Segment> segments;
  /// Blocks stay where they are; those that are gone are used again.
  std::deque<Block> blocks;
  std::vector<Block *> unused;
};

} // namespace koila

#endif // KOILA_LIB_ALLOCATORS_CUDACACHING_DEVICESEGMENTS_H
