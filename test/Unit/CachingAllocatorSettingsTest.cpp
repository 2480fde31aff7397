//===- CachingAllocatorSettingsTest.cpp - PYTORCH_ALLOC_CONF --------------===//
//
// What is refused, and what an accepted text means, is that of the parser in
// libc10 of PyTorch 2.13.0.
//
//===----------------------------------------------------------------------===//

#include "koila/Allocators/CachingAllocatorSettings.h"
#include "llvm/Support/Error.h"
#include "gtest/gtest.h"
#include <string>

using namespace koila;

static constexpr int64_t kMiB = 1048576;

/// What the error of a configuration says.
static std::string getError(llvm::StringRef settings) {
  return llvm::toString(CachingAllocatorSettings::parse(settings).takeError());
}

static CachingAllocatorSettings parse(llvm::StringRef settings) {
  return llvm::cantFail(CachingAllocatorSettings::parse(settings));
}

TEST(CachingAllocatorSettings, Defaults) {
  EXPECT_EQ(parse(""), CachingAllocatorSettings());
  EXPECT_EQ(parse("backend:native"), CachingAllocatorSettings());
}

TEST(CachingAllocatorSettings, Values) {
  CachingAllocatorSettings settings =
      parse(" expandable_segments : True , max_split_size_mb:64,"
            "max_non_split_rounding_mb:32,garbage_collection_threshold:0.8,"
            "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True,");
  EXPECT_TRUE(settings.expandableSegments);
  EXPECT_EQ(settings.maxSplitSize, 64 * kMiB);
  EXPECT_EQ(settings.maxNonSplitRounding, 32 * kMiB);
  EXPECT_EQ(settings.garbageCollectionThreshold, 0.8);
  EXPECT_EQ(settings.perProcessMemoryFraction, 0.5);
  EXPECT_TRUE(settings.throwOnCudaMallocOom);
}

TEST(CachingAllocatorSettings, LargeSegmentsAreReadFirst) {
  CachingAllocatorSettings settings =
      parse("max_split_size_mb:12,large_segment_size_mb:11");
  EXPECT_EQ(settings.largeSegmentSize, 11 * kMiB);
  EXPECT_EQ(settings.maxNonSplitRounding, 11 * kMiB);
  EXPECT_EQ(settings.maxSplitSize, 12 * kMiB);
  EXPECT_EQ(getError("max_split_size_mb:30,large_segment_size_mb:40"),
            "allocator configuration: 'max_split_size_mb' is at least 40, not "
            "30");
}

TEST(CachingAllocatorSettings, Divisions) {
  using Divisions = decltype(CachingAllocatorSettings::roundupDivisions);
  auto get = [](llvm::StringRef value) {
    return parse(("roundup_power2_divisions:" + value).str()).roundupDivisions;
  };
  EXPECT_EQ(get("8")[0], 8u);
  EXPECT_EQ(get("8")[15], 8u);
  EXPECT_EQ(get("[256:1,512:2,>:4]"),
            (Divisions{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(get("[64:2,16:8,>:4]"),
            (Divisions{2, 2, 2, 2, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(get("[64:2,]"), (Divisions{2, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(get("[>:4]")[0], 0u);
  EXPECT_EQ(get("[>:4]")[1], 4u);
  EXPECT_EQ(get("[65536:4,>:2]")[15], 4u);
  EXPECT_EQ(get("[]"), Divisions());
}

TEST(CachingAllocatorSettings, LeniencyOfPyTorch) {
  EXPECT_EQ(parse("max_split_size_mb,64MB").maxSplitSize, 64 * kMiB);
  EXPECT_EQ(
      parse("garbage_collection_threshold:0.5x").garbageCollectionThreshold,
      0.5);
}

TEST(CachingAllocatorSettings, KeysWithoutAnEffect) {
  EXPECT_EQ(parse("release_lock_on_cudamalloc:True,"
                  "release_lock_on_hipmalloc:True,"
                  "graph_capture_record_stream_reuse:True,"
                  "pinned_use_cuda_host_register:True,"
                  "pinned_use_hip_host_register:True,"
                  "pinned_use_background_threads:True,"
                  "pinned_free_catch_all:True,pinned_num_register_threads:8,"
                  "pinned_reserve_segment_size_mb:64,"
                  "pinned_max_round_threshold_mb:4,"
                  "pinned_max_cached_size_mb:8"),
            CachingAllocatorSettings());
}

TEST(CachingAllocatorSettings, Errors) {
  const std::pair<const char *, const char *> rows[] = {
      {"foo:1", "there is no key 'foo'"},
      {"expandable_segments:True,,backend:native", "there is no key ','"},
      {"expandable_segments:true",
       "'expandable_segments' is True or False, not 'true'"},
      {"max_split_size_mb:ab", "'max_split_size_mb' is a number, not 'ab'"},
      {"max_split_size_mb:[64]", "'max_split_size_mb' is a number, not '['"},
      {"max_split_size_mb:99999999999999999999",
       "'max_split_size_mb' is a number, not '99999999999999999999'"},
      {"max_split_size_mb:19", "'max_split_size_mb' is at least 20, not 19"},
      {"large_segment_size_mb:10",
       "'large_segment_size_mb' is at least 11, not 10"},
      {"max_non_split_rounding_mb:5",
       "'max_non_split_rounding_mb' is at least 20, not 5"},
      {"max_split_size_mb", "something is missing at the end"},
      {"max_split_size_mb:", "something is missing at the end"},
      {"garbage_collection_threshold:1",
       "'garbage_collection_threshold' is between 0 and 1, both excluded"},
      {"garbage_collection_threshold:x",
       "'garbage_collection_threshold' is a fraction, not 'x'"},
      {"per_process_memory_fraction:2",
       "'per_process_memory_fraction' is from 0 to 1"},
      {"roundup_power2_divisions:3",
       "'roundup_power2_divisions' is a power of two, not 3"},
      {"roundup_power2_divisions:[4:3]",
       "a number of 'roundup_power2_divisions' is a power of two or 0, not 3"},
      {"roundup_power2_divisions:[3:4]",
       "a size of 'roundup_power2_divisions' is a power of two, not 3"},
      {"roundup_power2_divisions:[4:2",
       "the list of 'roundup_power2_divisions' has no ']'"},
      {"pinned_num_register_threads:3",
       "'pinned_num_register_threads' is a power of two up to 128"},
      {"pinned_reserve_segment_size_mb:0",
       "'pinned_reserve_segment_size_mb' is greater than 0"},
      {"backend:cudaMallocAsync",
       "the backend 'cudaMallocAsync' leaves blocks to the driver and is not "
       "simulated; use 'native'"},
      {"backend:other", "there is no backend 'other'; use 'native'"}};
  for (auto [settings, text] : rows)
    EXPECT_EQ(getError(settings),
              std::string("allocator configuration: ") + text);
}
