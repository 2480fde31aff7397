//===- BlockPool.cpp - Free blocks by size --------------------------------===//

#include "BlockPool.h"

using namespace koila;

void BlockPool::insert(Block *block) {
  if (!block->isMapped) {
    unmapped.insert(block);
    return;
  }
  block->bornAtSearch = numSearches;
  free.insert(block);
}

void BlockPool::erase(Block *block) {
  if (block->isMapped)
    free.erase(block);
  else
    unmapped.erase(block);
}

/// The size of a block of an expandable segment is what it can grow to.
static int64_t getGrownSize(const Block *block) {
  const Block *next = block->next;
  return block->size + (next && !next->isMapped ? next->size : 0);
}

Block *BlockPool::take(Stream stream, int64_t bytes,
                       const CachingAllocatorSettings &settings) {
  auto found = free.lower_bound(BySize::Key(stream, bytes));
  auto isOfStream = [&](FreeSet::iterator place) {
    return place != free.end() && (*place)->segment->stream == stream;
  };
  if (!isOfStream(found))
    return nullptr;
  if (settings.expandableSegments)
    for (auto next = std::next(found);
         isOfStream(next) && getGrownSize(*next) < getGrownSize(*found); ++next)
      found = next;
  Block *block = *found;
  if (bytes < settings.maxSplitSize
          ? block->size >= settings.maxSplitSize
          : block->size >= bytes + settings.maxNonSplitRounding)
    return nullptr;
  free.erase(found);
  return block;
}
