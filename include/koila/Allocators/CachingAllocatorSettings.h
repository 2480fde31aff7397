//===- CachingAllocatorSettings.h - PYTORCH_ALLOC_CONF ----------*- C++ -*-===//
//
// The settings of PyTorch's CUDA caching allocator that decide about bytes,
// read from the text of the environment variable.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ALLOCATORS_CACHINGALLOCATORSETTINGS_H
#define KOILA_ALLOCATORS_CACHINGALLOCATORSETTINGS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <array>
#include <cstdint>
#include <limits>

namespace koila {

struct CachingAllocatorSettings {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  /// Bytes of the segment of a request between 1 and 10 MiB.
  int64_t largeSegmentSize = int64_t(20) << 20;
  /// Blocks of so many bytes are not split.
  int64_t maxSplitSize = kUnlimited;
  /// A block that is not split is larger than its request by less than this.
  int64_t maxNonSplitRounding = int64_t(20) << 20;
  /// Steps between two powers of two to which sizes are rounded, for sizes from
  /// 1, 2, 4... MiB on; the first also for smaller ones. None below two.
  std::array<uint64_t, 16> roundupDivisions = {};
  /// The share of the allowed memory from which on cached blocks are released
  /// by their age; 0 for never.
  double garbageCollectionThreshold = 0;
  bool expandableSegments = false;
  /// The share of the device that the process may reserve.
  double perProcessMemoryFraction = 1;
  /// Whether what exceeds this share is refused without an attempt to release
  /// cached blocks.
  bool throwOnCudaMallocOom = false;

  /// Reads `max_split_size_mb:64,expandable_segments:True` as PyTorch does, its
  /// leniency included: separators are not compared, and what follows a number
  /// is ignored. Keys that do not change bytes on the device are checked and
  /// dropped. The error names the key.
  static llvm::Expected<CachingAllocatorSettings> parse(llvm::StringRef text);

  uint64_t getRoundupDivisions(int64_t bytes) const;
  /// Of the block for a request.
  int64_t roundSize(int64_t bytes) const;

  bool operator==(const CachingAllocatorSettings &other) const = default;
};

} // namespace koila

#endif // KOILA_ALLOCATORS_CACHINGALLOCATORSETTINGS_H
