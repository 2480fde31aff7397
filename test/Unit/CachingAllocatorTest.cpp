//===- CachingAllocatorTest.cpp - Single rules of the allocator -----------===//
//
// Each rule of docs/design/Allocators.md with numbers. Sequences of them are in
// CachingAllocatorPropertyTest.cpp.
//
//===----------------------------------------------------------------------===//

#include "koila/Allocators/CachingAllocator.h"
#include "llvm/Support/Error.h"
#include "gtest/gtest.h"
#include <string>

using namespace koila;
using Allocation = CachingAllocator::Allocation;
using Place = CachingAllocator::Place;
using State = CachingAllocator::BlockInfo::State;

namespace {
constexpr int64_t kKiB = 1024, kMiB = 1048576;
constexpr int64_t kTotal = 1000 * kMiB;

/// An allocator of which each allocation is expected to succeed.
class Allocator : public CachingAllocator {
public:
  explicit Allocator(llvm::StringRef settings = "", int64_t total = kTotal)
      : CachingAllocator(
            llvm::cantFail(CachingAllocatorSettings::parse(settings)),
            {total, total}) {}

  Allocation get(int64_t bytes, Stream stream = 0) {
    Result result = allocate(bytes, stream);
    if (const auto *failed = std::get_if<AllocatorOutOfMemory>(&result)) {
      ADD_FAILURE() << failed->getMessage();
      return {};
    }
    return std::get<Allocation>(result);
  }
  AllocatorOutOfMemory fail(int64_t bytes) {
    Result result = allocate(bytes);
    const auto *failed = std::get_if<AllocatorOutOfMemory>(&result);
    EXPECT_TRUE(failed) << bytes << " bytes were allocated";
    return failed ? *failed : AllocatorOutOfMemory();
  }
  void release(Allocation allocation) { llvm::cantFail(free(allocation)); }
  int64_t getAllocated() const { return getStats().allocatedBytes.all.current; }
  int64_t getReserved() const { return getStats().reservedBytes.all.current; }
};
} // namespace

//===----------------------------------------------------------------------===//
// Requests of a process that has nothing yet
//===----------------------------------------------------------------------===//

TEST(CachingAllocator, FirstRequests) {
  struct Row {
    int64_t requested, segment, allocated;
  };
  for (Row row :
       {Row{1, 2097152, 512}, Row{512, 2097152, 512}, Row{513, 2097152, 1024},
        // Still small.
        Row{1048576, 2097152, 1048576},
        // Large, and split.
        Row{1048577, 20971520, 1049088}, Row{8519680, 20971520, 8519680},
        Row{10485760, 10485760, 10485760},
        // 2,096,640 bytes are left over.
        Row{10486272, 12582912, 10486272},
        // 1,048,576 bytes are left over: they are not split off.
        Row{11534336, 12582912, 12582912}, Row{33554432, 33554432, 33554432}}) {
    Allocator allocator;
    allocator.get(row.requested);
    const CachingAllocatorStats &stats = allocator.getStats();
    EXPECT_EQ(stats.reservedBytes.all.current, row.segment) << row.requested;
    EXPECT_EQ(stats.allocatedBytes.all.current, row.allocated);
    EXPECT_EQ(stats.activeBytes.all.current, row.allocated);
    EXPECT_EQ(stats.requestedBytes.all.current, row.requested);
    EXPECT_EQ(stats.inactiveSplitBytes.all.current,
              row.segment - row.allocated);
    EXPECT_EQ(stats.segment.all.current, 1);
    EXPECT_EQ(stats.segment.small.current, row.allocated <= kMiB);
  }
}

TEST(CachingAllocator, NothingIsAllocatedForZeroBytes) {
  Allocator allocator;
  Allocation nothing = allocator.get(0);
  EXPECT_TRUE(nothing.isEmpty());
  allocator.release(nothing);
  EXPECT_EQ(allocator.getStats(), CachingAllocatorStats());
}

TEST(CachingAllocator, WorkspacesShareASegment) {
  Allocator allocator;
  Allocation first = allocator.get(8519680), second = allocator.get(8519680);
  EXPECT_EQ(allocator.getPlace(second), (Place{0, 8519680}));
  EXPECT_EQ(allocator.getReserved(), 20971520);
  // 3,932,160 bytes are left.
  Allocation third = allocator.get(8519680);
  EXPECT_EQ(allocator.getPlace(third), (Place{1, 0}));
  EXPECT_EQ(allocator.getReserved(), 2 * 20971520);
  EXPECT_EQ(allocator.getAllocated(), 3 * 8519680);
  EXPECT_EQ(allocator.getPlace(first), (Place{0, 0}));
}

TEST(CachingAllocator, PowersOfTwoInSteps) {
  auto getBlock = [](llvm::StringRef settings, int64_t bytes) {
    Allocator allocator(settings);
    return allocator.getBlockBytes(allocator.get(bytes));
  };
  EXPECT_EQ(getBlock("roundup_power2_divisions:4", 1200 * kKiB), 1280 * kKiB);
  EXPECT_EQ(getBlock("roundup_power2_divisions:4", 1280 * kKiB), 1280 * kKiB);
  EXPECT_EQ(getBlock("roundup_power2_divisions:4", 2 * kMiB), 2 * kMiB);
  // A step has 512 bytes at least.
  EXPECT_EQ(getBlock("roundup_power2_divisions:4", 2048), 2048);
  EXPECT_EQ(getBlock("roundup_power2_divisions:4", 2049), 2560);
  EXPECT_EQ(getBlock("roundup_power2_divisions:4", 4097), 5120);
  EXPECT_EQ(getBlock("roundup_power2_divisions:1", 4097), 4608);
  // Less than 2 MiB is in the first interval.
  llvm::StringRef list = "roundup_power2_divisions:[1:2,4:8,>:1]";
  EXPECT_EQ(getBlock(list, 5000), 6144);
  EXPECT_EQ(getBlock(list, kMiB + 1), 3 * kMiB / 2);
  EXPECT_EQ(getBlock(list, 2 * kMiB + 1), 2 * kMiB + 512);
  EXPECT_EQ(getBlock(list, 4 * kMiB + 1), 4 * kMiB + kMiB / 2);
  EXPECT_EQ(getBlock(list, 9 * kMiB + 1), 9 * kMiB + 512);
}

//===----------------------------------------------------------------------===//
// Search, split, merge
//===----------------------------------------------------------------------===//

TEST(CachingAllocator, EqualBlocksOldestSegmentFirst) {
  Allocator allocator;
  Allocation blocks[3];
  for (Allocation &block : blocks)
    block = allocator.get(12 * kMiB);
  // Freed from the last on.
  for (int i : {2, 1, 0})
    allocator.release(blocks[i]);
  for (int64_t birth : {0, 1, 2})
    EXPECT_EQ(allocator.getPlace(allocator.get(12 * kMiB)), (Place{birth, 0}));
}

TEST(CachingAllocator, EqualBlocksLowestOffsetFirst) {
  Allocator allocator;
  Allocation blocks[5];
  for (Allocation &block : blocks)
    block = allocator.get(2048);
  allocator.release(blocks[3]);
  allocator.release(blocks[1]);
  EXPECT_EQ(allocator.getPlace(allocator.get(2048)), (Place{0, 2048}));
  EXPECT_EQ(allocator.getPlace(allocator.get(2048)), (Place{0, 6144}));
}

TEST(CachingAllocator, SmallestBlockThatFits) {
  Allocator allocator;
  Allocation large = allocator.get(14 * kMiB);
  Allocation middle = allocator.get(12 * kMiB);
  allocator.release(large);
  allocator.release(middle);
  EXPECT_EQ(allocator.getPlace(allocator.get(11 * kMiB)), (Place{1, 0}));
  EXPECT_EQ(allocator.getPlace(allocator.get(13 * kMiB)), (Place{0, 0}));
}

TEST(CachingAllocator, StreamsAndPoolsHaveTheirOwnBlocks) {
  Allocator allocator;
  allocator.release(allocator.get(1024, /*stream=*/0));
  allocator.get(1024, /*stream=*/7);
  EXPECT_EQ(allocator.getReserved(), 4 * kMiB);
  allocator.get(2 * kMiB, /*stream=*/7);
  EXPECT_EQ(allocator.getReserved(), 24 * kMiB);
  allocator.get(1024, /*stream=*/0);
  EXPECT_EQ(allocator.getReserved(), 24 * kMiB);
}

TEST(CachingAllocator, FreedNeighboursMerge) {
  Allocator allocator;
  Allocation blocks[3];
  for (Allocation &block : blocks)
    block = allocator.get(4096);
  const AllocatorPoolStat &split = allocator.getStats().inactiveSplit;
  const AllocatorPoolStat &bytes = allocator.getStats().inactiveSplitBytes;
  allocator.release(blocks[0]);
  EXPECT_EQ(split.small.current, 2);
  EXPECT_EQ(bytes.small.current, 2 * kMiB - 8 * kKiB);
  allocator.release(blocks[2]);
  EXPECT_EQ(split.small.current, 2);
  ASSERT_EQ(allocator.getSegments().size(), 1u);
  EXPECT_EQ(allocator.getSegments()[0].blocks.size(), 3u);
  allocator.release(blocks[1]);
  EXPECT_EQ(split.small.current, 0);
  EXPECT_EQ(bytes.small.current, 0);
  EXPECT_EQ(allocator.getSegments()[0].blocks.size(), 1u);
  EXPECT_EQ(allocator.getReserved(), 2 * kMiB);
}

TEST(CachingAllocator, WhatIsFreedTwiceIsAnError) {
  Allocator allocator;
  Allocation block = allocator.get(1024);
  allocator.release(block);
  EXPECT_EQ(llvm::toString(allocator.free(block)),
            "allocation 0 is not live: it was freed before");
  EXPECT_EQ(llvm::toString(allocator.recordStream(block, 1)),
            "allocation 0 is not live: it was freed before");
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

TEST(CachingAllocator, ABlockWaitsForOtherStreams) {
  Allocator allocator;
  Allocation block = allocator.get(4096);
  llvm::cantFail(allocator.recordStream(block, 0));
  llvm::cantFail(allocator.recordStream(block, 5));
  allocator.release(block);
  const CachingAllocatorStats &stats = allocator.getStats();
  EXPECT_EQ(stats.allocatedBytes.all.current, 0);
  EXPECT_EQ(stats.activeBytes.all.current, 4096);
  EXPECT_EQ(stats.requestedBytes.all.current, 4096);
  EXPECT_EQ(allocator.getSegments()[0].blocks[0].state, State::PendingFree);
  EXPECT_EQ(allocator.getPlace(allocator.get(4096)), (Place{0, 4096}));
  allocator.synchronize(5);
  // The next allocation sees it.
  EXPECT_EQ(stats.activeBytes.all.current, 8192);
  EXPECT_EQ(allocator.getPlace(allocator.get(4096)), (Place{0, 0}));
  EXPECT_EQ(stats.activeBytes.all.current, 8192);
}

TEST(CachingAllocator, EmptyCacheWaitsForAllStreams) {
  Allocator allocator;
  Allocation block = allocator.get(4096);
  llvm::cantFail(allocator.recordStream(block, 5));
  allocator.release(block);
  allocator.emptyCache();
  EXPECT_EQ(allocator.getReserved(), 0);
  EXPECT_EQ(allocator.getStats().numSyncAllStreams, 1);
  EXPECT_TRUE(allocator.getSegments().empty());
}

//===----------------------------------------------------------------------===//
// The end of memory
//===----------------------------------------------------------------------===//

TEST(CachingAllocator, EmptyCacheKeepsSegmentsInUse) {
  Allocator allocator;
  Allocation kept = allocator.get(1024), freed = allocator.get(1024);
  allocator.release(allocator.get(30 * kMiB));
  allocator.release(freed);
  EXPECT_EQ(allocator.getReserved(), 32 * kMiB);
  allocator.emptyCache();
  EXPECT_EQ(allocator.getReserved(), 2 * kMiB);
  EXPECT_EQ(allocator.getStats().numDeviceFree, 1);
  EXPECT_EQ(allocator.getStats().segment.all.freed, 1);
  EXPECT_EQ(allocator.getStats().reservedBytes.all.peak, 32 * kMiB);
  allocator.release(kept);
}

TEST(CachingAllocator, CachedSegmentsGoBeforeMemoryEnds) {
  Allocator allocator("", 100 * kMiB);
  allocator.release(allocator.get(60 * kMiB));
  // 60 MiB are cached, of another size.
  allocator.get(80 * kMiB);
  EXPECT_EQ(allocator.getStats().numAllocRetries, 1);
  EXPECT_EQ(allocator.getStats().numOoms, 0);
  EXPECT_EQ(allocator.getReserved(), 80 * kMiB);

  AllocatorOutOfMemory failed = allocator.fail(22 * kMiB - 100);
  EXPECT_EQ(failed.kind, AllocatorOutOfMemory::Kind::Exhausted);
  EXPECT_EQ(failed.requested, 22 * kMiB - 100);
  EXPECT_EQ(failed.segment, 22 * kMiB);
  EXPECT_EQ(failed.deviceFree, 20 * kMiB);
  EXPECT_EQ(failed.allocated, 80 * kMiB);
  EXPECT_EQ(failed.getMessage(),
            "CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a "
            "total capacity of 100.00 MiB of which 20.00 MiB is free. Of the "
            "allocated memory 80.00 MiB is allocated by PyTorch, and 0 bytes "
            "is reserved by PyTorch but unallocated.");
  EXPECT_EQ(allocator.getStats().numOoms, 1);
  EXPECT_EQ(allocator.getStats().numAllocRetries, 2);
  // What fits is still allocated.
  allocator.get(20 * kMiB);
}

TEST(CachingAllocator, AFractionLimitsWhatIsReserved) {
  Allocator allocator;
  llvm::cantFail(allocator.setMemoryFraction(0.05));
  allocator.get(11 * kMiB);
  allocator.get(20 * kMiB);
  // 32 MiB are reserved of 50: the segment of 1 MiB has 20 MiB.
  AllocatorOutOfMemory failed = allocator.fail(kMiB + 1);
  EXPECT_EQ(failed.allowed, 50 * kMiB);
  EXPECT_EQ(failed.deviceFree, kTotal - 32 * kMiB);
  EXPECT_NE(failed.getMessage().find("is free. 50.00 MiB allowed; Of the "),
            std::string::npos);
  llvm::cantFail(allocator.setMemoryFraction(1));
  allocator.get(kMiB + 1);
  EXPECT_EQ(llvm::toString(allocator.setMemoryFraction(1.5)),
            "a fraction of the memory of a device is from 0 to 1");
}

TEST(CachingAllocator, RejectsInPlaceOfReleasing) {
  Allocator allocator("throw_on_cudamalloc_oom:True", 100 * kMiB);
  allocator.release(allocator.get(60 * kMiB));
  AllocatorOutOfMemory failed = allocator.fail(80 * kMiB);
  EXPECT_EQ(failed.kind, AllocatorOutOfMemory::Kind::Rejected);
  EXPECT_EQ(failed.getMessage(),
            "CUDA out of memory. Allocation was preemptively rejected because "
            "it would exceed per_process_memory_fraction limit. Requested "
            "size: 80.00 MiB");
  EXPECT_EQ(allocator.getReserved(), 60 * kMiB);
  EXPECT_EQ(allocator.getStats().numOomRejections, 1);
  EXPECT_EQ(allocator.getStats().numOoms, 0);
}

TEST(CachingAllocator, AnExabyteIsTooLarge) {
  Allocator allocator;
  AllocatorOutOfMemory failed = allocator.fail(int64_t(1) << 60);
  EXPECT_EQ(failed.kind, AllocatorOutOfMemory::Kind::TooLarge);
  EXPECT_EQ(failed.getMessage(),
            "CUDA out of memory. Tried to allocate more than 1EB memory.");
  EXPECT_EQ(allocator.getStats(), CachingAllocatorStats());
  allocator.fail((int64_t(1) << 60) - 1);
  EXPECT_EQ(allocator.getStats().numOoms, 1);
}

//===----------------------------------------------------------------------===//
// Settings that change the search
//===----------------------------------------------------------------------===//

TEST(CachingAllocator, OversizeBlocksAreNotSplit) {
  Allocator allocator("max_split_size_mb:64", 300 * kMiB);
  const CachingAllocatorStats &stats = allocator.getStats();
  allocator.release(allocator.get(100 * kMiB));
  EXPECT_EQ(stats.oversizeSegments.current, 1);
  EXPECT_EQ(stats.oversizeAllocations.allocated, 1);
  EXPECT_EQ(stats.oversizeAllocations.current, 0);
  // Not of the 100 MiB: a smaller request never is.
  EXPECT_EQ(allocator.getPlace(allocator.get(63 * kMiB)), (Place{1, 0}));
  // 20 MiB more than the request are too many.
  EXPECT_EQ(allocator.getPlace(allocator.get(80 * kMiB)), (Place{2, 0}));
  Allocation rounded = allocator.get(80 * kMiB + 512);
  EXPECT_EQ(allocator.getPlace(rounded), (Place{0, 0}));
  EXPECT_EQ(allocator.getBlockBytes(rounded), 100 * kMiB);
}

TEST(CachingAllocator, EnoughOversizeBlocksAreReleased) {
  Allocator allocator("max_split_size_mb:64", 340 * kMiB);
  Allocation blocks[] = {allocator.get(70 * kMiB), allocator.get(80 * kMiB),
                         allocator.get(90 * kMiB), allocator.get(66 * kMiB),
                         allocator.get(1024)};
  for (Allocation block : blocks)
    allocator.release(block);
  // No single one has 120 MiB: the two largest go.
  allocator.get(120 * kMiB);
  EXPECT_EQ(allocator.getStats().numAllocRetries, 0);
  EXPECT_EQ(allocator.getReserved(), (70 + 66 + 2 + 120) * kMiB);
  // The smallest of 64 MiB or more goes for a request below.
  allocator.get(63 * kMiB);
  allocator.get(63 * kMiB);
  EXPECT_EQ(allocator.getStats().numAllocRetries, 0);
  EXPECT_EQ(allocator.getReserved(), (70 + 2 + 120 + 2 * 64) * kMiB);
}

TEST(CachingAllocator, OldSegmentsAreCollected) {
  Allocator allocator("garbage_collection_threshold:0.5,"
                      "per_process_memory_fraction:0.2");
  // 200 MiB are allowed; collection begins above 100.
  Allocation old = allocator.get(40 * kMiB), young = allocator.get(50 * kMiB);
  allocator.release(old);
  for (int i = 0; i < 10; ++i)
    allocator.release(allocator.get(46 * kMiB));
  allocator.release(young);
  EXPECT_EQ(allocator.getReserved(), 136 * kMiB);
  // 36 MiB have to go: the old segment has them.
  allocator.get(60 * kMiB);
  EXPECT_EQ(allocator.getReserved(), (136 - 40 + 60) * kMiB);
  EXPECT_EQ(allocator.getStats().numAllocRetries, 0);
  EXPECT_EQ(allocator.getStats().numSyncAllStreams, 0);
}

//===----------------------------------------------------------------------===//
// Expandable segments
//===----------------------------------------------------------------------===//

TEST(CachingAllocator, PagesOfExpandableSegments) {
  Allocator allocator("expandable_segments:True");
  allocator.get(1);
  EXPECT_EQ(allocator.getReserved(), 2 * kMiB);
  allocator.get(11534336);
  EXPECT_EQ(allocator.getReserved(), 22 * kMiB);
  // Nothing but 512 bytes is rounded.
  EXPECT_EQ(allocator.getAllocated(), 512 + 11534336);
  // 9 MiB of the page are left, and the next page is mapped.
  Allocation behind = allocator.get(10 * kMiB);
  EXPECT_EQ(allocator.getPlace(behind), (Place{1, 11534336}));
  EXPECT_EQ(allocator.getReserved(), 42 * kMiB);
  const CachingAllocatorStats &stats = allocator.getStats();
  EXPECT_EQ(stats.segment.all.current, 0);
  EXPECT_EQ(stats.inactiveSplit.all.current, 0);
  EXPECT_EQ(stats.numDeviceAlloc, 3);
}

TEST(CachingAllocator, WholePagesAreUnmapped) {
  Allocator allocator("expandable_segments:True");
  Allocation first = allocator.get(10 * kMiB);
  Allocation middle = allocator.get(50 * kMiB);
  Allocation last = allocator.get(kMiB + 512);
  EXPECT_EQ(allocator.getReserved(), 80 * kMiB);
  allocator.release(middle);
  allocator.emptyCache();
  // Of 10 to 60 MiB, two whole pages; of the last one, none.
  EXPECT_EQ(allocator.getReserved(), 40 * kMiB);
  std::vector<CachingAllocator::SegmentInfo> segments = allocator.getSegments();
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].blocks.size(), 2u);
  EXPECT_EQ(segments[1].offset, 60 * kMiB);
  EXPECT_TRUE(segments[1].isExpandable);
  // The gap is filled from the free bytes in front of it on.
  EXPECT_EQ(allocator.getPlace(allocator.get(30 * kMiB)),
            (Place{0, 10 * kMiB}));
  EXPECT_EQ(allocator.getReserved(), 60 * kMiB);
  allocator.release(first);
  allocator.release(last);
}

TEST(CachingAllocator, AnEmptyExpandableSegmentGoes) {
  Allocator allocator("expandable_segments:True");
  allocator.release(allocator.get(50 * kMiB));
  allocator.emptyCache();
  EXPECT_EQ(allocator.getReserved(), 0);
  EXPECT_EQ(allocator.getPlace(allocator.get(50 * kMiB)), (Place{1, 0}));
}

TEST(CachingAllocator, GapsAreMappedOneAfterTheOther) {
  Allocator allocator("expandable_segments:True", 100 * kMiB);
  Allocation blocks[3];
  for (Allocation &block : blocks)
    block = allocator.get(20 * kMiB);
  allocator.get(20 * kMiB, /*stream=*/5);
  allocator.release(blocks[1]);
  allocator.emptyCache();
  allocator.release(blocks[2]);
  EXPECT_EQ(allocator.getReserved(), 60 * kMiB);
  EXPECT_EQ(allocator.getStats().numDeviceAlloc, 4);
  // The page of the second block, and two behind the third, of which the device
  // has one. The first attempt leaves the page mapped, the second has no gap.
  AllocatorOutOfMemory failed = allocator.fail(70 * kMiB);
  EXPECT_EQ(failed.reserved, 40 * kMiB);
  EXPECT_EQ(allocator.getStats().numDeviceAlloc, 5);
  EXPECT_EQ(allocator.getStats().reservedBytes.all.peak, 80 * kMiB);
  EXPECT_EQ(allocator.getPlace(allocator.get(60 * kMiB)),
            (Place{0, 20 * kMiB}));
}
