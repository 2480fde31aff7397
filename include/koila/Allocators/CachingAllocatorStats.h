//===- CachingAllocatorStats.h - torch.cuda.memory_stats() ------*- C++ -*-===//

#ifndef KOILA_ALLOCATORS_CACHINGALLOCATORSTATS_H
#define KOILA_ALLOCATORS_CACHINGALLOCATORSTATS_H

#include <algorithm>
#include <cstdint>

namespace koila {

/// A count or a sum of bytes over time.
struct AllocatorStat {
  int64_t current = 0, peak = 0;
  /// All that it ever rose and fell by.
  int64_t allocated = 0, freed = 0;

  void add(int64_t amount) {
    current += amount;
    peak = std::max(peak, current);
    (amount > 0 ? allocated : freed) += amount > 0 ? amount : -amount;
  }
  bool operator==(const AllocatorStat &other) const = default;
};

/// The same, also by pool.
struct AllocatorPoolStat {
  AllocatorStat all, small, large;

  void add(bool isSmall, int64_t amount) {
    all.add(amount);
    (isSmall ? small : large).add(amount);
  }
  bool operator==(const AllocatorPoolStat &other) const = default;
};

/// The names are those of `torch.cuda.memory_stats()`.
struct CachingAllocatorStats {
  AllocatorPoolStat allocation, segment, active, inactiveSplit;
  AllocatorPoolStat allocatedBytes, reservedBytes, activeBytes,
      inactiveSplitBytes, requestedBytes;
  AllocatorStat oversizeAllocations, oversizeSegments;
  int64_t numAllocRetries = 0, numOoms = 0, numOomRejections = 0;
  int64_t numSyncAllStreams = 0, numDeviceAlloc = 0, numDeviceFree = 0;

  /// `torch.cuda.reset_peak_memory_stats()`.
  void resetPeaks();
  /// `torch.cuda.reset_accumulated_memory_stats()`.
  void resetAccumulated();

  bool operator==(const CachingAllocatorStats &other) const = default;
};

} // namespace koila

#endif // KOILA_ALLOCATORS_CACHINGALLOCATORSTATS_H
