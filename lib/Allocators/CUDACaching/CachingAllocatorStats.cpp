//===- CachingAllocatorStats.cpp - torch.cuda.memory_stats() --------------===//

#include "koila/Allocators/CachingAllocatorStats.h"

using namespace koila;

template <typename FnT>
static void forEach(CachingAllocatorStats &stats, FnT apply) {
  for (AllocatorPoolStat *stat :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactiveSplit,
        &stats.allocatedBytes, &stats.reservedBytes, &stats.activeBytes,
        &stats.inactiveSplitBytes, &stats.requestedBytes}) {
    apply(stat->all);
    apply(stat->small);
    apply(stat->large);
  }
  apply(stats.oversizeAllocations);
  apply(stats.oversizeSegments);
}

void CachingAllocatorStats::resetPeaks() {
  forEach(*this, [](AllocatorStat &stat) { stat.peak = stat.current; });
}

void CachingAllocatorStats::resetAccumulated() {
  forEach(*this, [](AllocatorStat &stat) { stat.allocated = stat.freed = 0; });
  numAllocRetries = numOoms = numOomRejections = 0;
  numSyncAllStreams = numDeviceAlloc = numDeviceFree = 0;
}
