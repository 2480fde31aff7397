//===- Release.h - Cached segments that go back to the driver ---*- C++ -*-===//
//
// Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13: release_blocks(),
// release_available_cached_blocks(), garbage_collect_cached_blocks().
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_ALLOCATORS_CUDACACHING_RELEASE_H
#define KOILA_LIB_ALLOCATORS_CUDACACHING_RELEASE_H

#include "DeviceSegments.h"

namespace koila {

/// All segments without a block in use, and all pages of expandable ones.
void releaseAll(DeviceSegments &segments, BlockPool &pool);

/// With a largest size that is split: enough of the blocks from that size on
/// for a request, and one alone if one suffices. Whether that was possible.
bool releaseOversize(DeviceSegments &segments, BlockPool &pool, Stream stream,
                     int64_t bytes, const CachingAllocatorSettings &settings);

/// Segments of at least the mean age among those that can go, again and again
/// until `target` bytes are released.
void collectGarbage(DeviceSegments &segments, BlockPool &pool, int64_t target);

} // namespace koila

#endif // KOILA_LIB_ALLOCATORS_CUDACACHING_RELEASE_H
