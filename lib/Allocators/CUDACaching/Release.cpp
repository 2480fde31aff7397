//===- Release.cpp - Cached segments that go back to the driver -----------===//

#include "Release.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace koila;

void koila::releaseAll(DeviceSegments &segments, BlockPool &pool) {
  // Both change the set.
  for (Block *block : llvm::to_vector(pool.getFree())) {
    if (block->segment->isExpandable())
      segments.unmap(block);
    else if (!block->isSplit())
      segments.release(block);
  }
}

bool koila::releaseOversize(DeviceSegments &segments, BlockPool &pool,
                            Stream stream, int64_t bytes,
                            const CachingAllocatorSettings &settings) {
  // Pages of expandable segments are not released so.
  if (settings.maxSplitSize == CachingAllocatorSettings::kUnlimited ||
      settings.expandableSegments)
    return false;
  const BlockPool::FreeSet &free = pool.getFree();
  int64_t wanted = std::max(bytes, settings.maxSplitSize);
  auto isOversize = [&](const Block *block) {
    return block->segment->stream == stream &&
           block->size >= settings.maxSplitSize;
  };
  auto end = free.lower_bound(BlockPool::BySize::Key(stream, wanted));
  if (end != free.end() && isOversize(*end)) {
    segments.release(*end);
    return true;
  }
  // None suffices alone: the largest first.
  int64_t released = 0;
  while (released < wanted && end != free.begin() &&
         isOversize(*std::prev(end))) {
    Block *block = *std::prev(end);
    released += block->size;
    segments.release(block);
  }
  return released >= wanted;
}

void koila::collectGarbage(DeviceSegments &segments, BlockPool &pool,
                           int64_t target) {
  if (target <= 0)
    return;
  std::vector<Block *> cached;
  int64_t age = 0;
  for (Block *block : pool.getFree())
    if (!block->isSplit() && !block->segment->isExpandable()) {
      cached.push_back(block);
      age += pool.getAge(block);
    }
  while (target > 0 && !cached.empty()) {
    double mean = static_cast<double>(age) / static_cast<double>(cached.size());
    llvm::erase_if(cached, [&](Block *block) {
      int64_t own = pool.getAge(block);
      if (static_cast<double>(own) < mean)
        return false;
      target -= block->size;
      age -= own;
      segments.release(block);
      return true;
    });
  }
}
