//===- BlockPool.h - Free blocks by size ------------------------*- C++ -*-===//
//
// Blocks of segments, and the sets in which those that are free wait for a
// request. Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_ALLOCATORS_CUDACACHING_BLOCKPOOL_H
#define KOILA_LIB_ALLOCATORS_CUDACACHING_BLOCKPOOL_H

#include "koila/Allocators/CachingAllocator.h"
#include "llvm/ADT/SmallVector.h"
#include <set>
#include <tuple>

namespace koila {

using Stream = CachingAllocator::Stream;

class BlockPool;
struct Block;

/// What one cudaMalloc() gave, or one reservation of addresses.
struct Segment {
  int64_t birth;
  /// Which segment goes first where blocks have equal sizes.
  uint64_t rank;
  uint64_t address;
  Stream stream;
  int64_t size;
  /// Zero unless it is expandable.
  int64_t pageSize;
  Block *first = nullptr;

  bool isExpandable() const { return pageSize != 0; }
};

/// A range of a segment. Those of a segment are a list without gaps.
struct Block {
  Segment *segment;
  BlockPool *pool;
  int64_t offset, size;
  int64_t requested = 0;
  Block *prev = nullptr, *next = nullptr;
  bool isAllocated = false, isMapped = true;
  /// Events of other streams that have to come before it is free.
  unsigned numEvents = 0;
  llvm::SmallVector<Stream, 1> otherStreams;
  /// The number of searches when it was put into the pool.
  int64_t bornAtSearch = 0;

  bool isSplit() const { return prev || next; }
  /// Free or not mapped.
  bool isIdle() const {
    return !isAllocated && !numEvents && otherStreams.empty();
  }
};

class BlockPool {
public:
  explicit BlockPool(bool isSmall) : isSmall(isSmall) {}

  /// A free block, or one that is not mapped.
  void insert(Block *block);
  void erase(Block *block);
  /// Takes the block for a request out of the pool; null if none is fit.
  Block *take(Stream stream, int64_t bytes,
              const CachingAllocatorSettings &settings);

  void countSearch() { ++numSearches; }
  int64_t getAge(const Block *block) const {
    return numSearches - block->bornAtSearch;
  }

  /// Equal sizes in the order of their segments' ranks. Births are compared
  /// last: a recording may have segments of one address.
  struct BySize {
    using is_transparent = void;
    using Key = std::pair<Stream, int64_t>;
    bool operator()(const Block *left, const Block *right) const {
      return getKey(left) < getKey(right);
    }
    bool operator()(const Block *block, const Key &key) const {
      return Key(block->segment->stream, block->size) < key;
    }

  private:
    static std::tuple<Stream, int64_t, uint64_t, int64_t, int64_t>
    getKey(const Block *block) {
      const Segment &segment = *block->segment;
      return {segment.stream, block->size, segment.rank, block->offset,
              segment.birth};
    }
  };
  struct ByPlace {
    using is_transparent = void;
    bool operator()(const Block *left, const Block *right) const {
      return getKey(left) < getKey(right);
    }
    bool operator()(const Block *block, Stream stream) const {
      return block->segment->stream < stream;
    }

  private:
    static std::tuple<Stream, uint64_t, int64_t, int64_t>
    getKey(const Block *block) {
      const Segment &segment = *block->segment;
      return {segment.stream, segment.address, block->offset, segment.birth};
    }
  };
  using FreeSet = std::set<Block *, BySize>;
  using UnmappedSet = std::set<Block *, ByPlace>;
  const FreeSet &getFree() const { return free; }
  const UnmappedSet &getUnmapped() const { return unmapped; }

  const bool isSmall;

private:
  FreeSet free;
  UnmappedSet unmapped;
  int64_t numSearches = 0;
};

} // namespace koila

#endif // KOILA_LIB_ALLOCATORS_CUDACACHING_BLOCKPOOL_H
