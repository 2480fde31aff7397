//===- CachingAllocatorPropertyTest.cpp - Random allocations and frees ----===//
//
// The caching allocator next to a slow one, which shares no code with it, after
// each of 100,000 random steps: its statistics, its blocks and the events that
// it tells. KOILA_TEST_LONG=1 makes them a million. That a comparison can fail
// is seen with slow allocators that break a rule.
//
//===----------------------------------------------------------------------===//

#include "SlowCachingAllocator.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Error.h"
#include "gtest/gtest.h"
#include <cstdlib>
#include <random>
#include <string>

using namespace koila;
using slow::Fault;

namespace {
constexpr unsigned kSeed = 20260101;
constexpr int64_t kMiB = 1048576;

struct Configuration {
  std::string settings;
  CachingAllocator::Device device;
};

// The bytes of the device, and those that are free: where both are few, it runs
// out of memory again and again.
const Configuration kConfigurations[] = {
    {"", {80000 * kMiB, 79000 * kMiB}},
    {"", {500 * kMiB, 400 * kMiB}},
    {"expandable_segments:True", {80000 * kMiB, 79000 * kMiB}},
    {"expandable_segments:True", {420 * kMiB, 400 * kMiB}},
    {"max_split_size_mb:24", {500 * kMiB, 450 * kMiB}},
    {"max_split_size_mb:40,max_non_split_rounding_mb:32,"
     "roundup_power2_divisions:8",
     {500 * kMiB, 450 * kMiB}},
    {"roundup_power2_divisions:[1:4,8:2,16:16,>:1]", {800 * kMiB, 600 * kMiB}},
    {"garbage_collection_threshold:0.6,per_process_memory_fraction:0.5",
     {1000 * kMiB, 900 * kMiB}},
    {"large_segment_size_mb:32,throw_on_cudamalloc_oom:True",
     {400 * kMiB, 400 * kMiB}},
    {"expandable_segments:True,large_segment_size_mb:12,max_split_size_mb:16,"
     "per_process_memory_fraction:0.75",
     {500 * kMiB, 500 * kMiB}}};

class Comparison {
public:
  Comparison(const Configuration &configuration, unsigned seed, Fault fault)
      : settings(llvm::cantFail(
            CachingAllocatorSettings::parse(configuration.settings))),
        fast(settings, configuration.device, getOptions()),
        plain(settings, configuration.device, fault), random(seed) {}

  /// The first step after which the two differ; -1 if they never do.
  int64_t run(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step)
      if (!advance() || !(fast.getStats() == plain.getStats()) ||
          fast.getSegments() != plain.getSegments() ||
          std::exchange(trace, {}) != plain.takeTrace())
        return step;
    return -1;
  }

  const CachingAllocatorStats &getStats() const { return fast.getStats(); }

private:
  int64_t pick(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  }
  /// To hear what happens, and with the slow one's addresses.
  CachingAllocatorOptions getOptions() {
    CachingAllocatorOptions options;
    options.observer = [this](const AllocatorEvent &event) {
      trace.push_back(event);
    };
    options.chooseAddress = [this](int64_t) {
      return slow::Allocator::getAddress(numBirths++);
    };
    return options;
  }
  int64_t pickBytes();
  bool allocate();
  void free();
  bool advance();

  CachingAllocatorSettings settings;
  std::vector<AllocatorEvent> trace;
  int64_t numBirths = 0;
  CachingAllocator fast;
  slow::Allocator plain;
  std::mt19937 random;
  std::vector<std::pair<CachingAllocator::Allocation, int64_t>> live;
  size_t wanted = 20;
};
} // namespace

int64_t Comparison::pickBytes() {
  // Few sizes, so that blocks are equal, at and around the limits of rules.
  const int64_t limits[] = {
      1,        512,       513,           kMiB - 512, kMiB,
      kMiB + 1, 2 * kMiB,  10 * kMiB - 1, 10 * kMiB,  11 * kMiB,
      11534336, 20 * kMiB, 24 * kMiB,     40 * kMiB,  10 * kMiB + 512};
  switch (pick(0, 9)) {
  case 0:
    return limits[pick(0, std::size(limits) - 1)];
  case 1:
    return pick(1, 48 * kMiB);
  case 2:
    return pick(10, 24) * kMiB;
  case 3:
  case 4:
    return pick(kMiB, 10 * kMiB);
  case 5:
    return pick(1, 6) * 1536 * 1024;
  case 6:
  case 7:
    return pick(1, 16) * 65536;
  default:
    return pick(1, kMiB);
  }
}

bool Comparison::allocate() {
  int64_t bytes = pickBytes();
  uint64_t stream = pick(0, 3) ? 0 : pick(1, 2) * 16;
  CachingAllocator::Result result = fast.allocate(bytes, stream);
  int64_t number = plain.allocate(bytes, stream);
  if (auto *failed = std::get_if<AllocatorOutOfMemory>(&result))
    return number ==
           (failed->kind == AllocatorOutOfMemory::Kind::Rejected ? -2 : -1);
  if (number < 0)
    return false;
  auto allocation = std::get<CachingAllocator::Allocation>(result);
  live.push_back({allocation, number});
  return fast.getPlace(allocation) == plain.getPlace(number);
}

void Comparison::free() {
  // The last ones more often, as programs do.
  size_t last = live.size() - 1;
  size_t index = pick(0, 2) ? pick(0, last) : last - pick(0, last) / 4;
  auto [allocation, number] = live[index];
  live.erase(live.begin() + static_cast<ptrdiff_t>(index));
  llvm::cantFail(fast.free(allocation));
  plain.free(number);
}

bool Comparison::advance() {
  int64_t kind = pick(0, 999);
  if (kind < 4) {
    fast.emptyCache();
    plain.emptyCache();
  } else if (kind < 6) {
    fast.resetPeakStats();
    plain.resetPeaks();
  } else if (kind < 8) {
    double fraction = static_cast<double>(pick(5, 10)) / 10;
    llvm::cantFail(fast.setMemoryFraction(fraction));
    plain.setMemoryFraction(fraction);
  } else if (kind < 60) {
    uint64_t stream = pick(0, 2) * 16;
    fast.synchronize(stream);
    plain.synchronize(stream);
  } else if (kind < 120 && !live.empty()) {
    auto [allocation, number] = live[pick(0, live.size() - 1)];
    uint64_t stream = pick(0, 2) * 16;
    llvm::cantFail(fast.recordStream(allocation, stream));
    plain.recordStream(number, stream);
  } else if (kind < 125) {
    // Programs grow and shrink.
    wanted = pick(0, 80);
  } else if (live.empty() || pick(0, 9) < (live.size() < wanted ? 6 : 4)) {
    return allocate();
  } else {
    free();
  }
  return true;
}

TEST(CachingAllocatorProperty, EqualsSlowOne) {
  bool isLong = std::getenv("KOILA_TEST_LONG") != nullptr;
  int64_t steps = isLong ? 100000 : 10000;
  CachingAllocatorStats seen;
  for (auto [index, configuration] : llvm::enumerate(kConfigurations)) {
    Comparison comparison(configuration, kSeed + index, Fault::None);
    EXPECT_EQ(comparison.run(steps), -1)
        << "with '" << configuration.settings << "'";
    const CachingAllocatorStats &stats = comparison.getStats();
    seen.numOoms += stats.numOoms;
    seen.numAllocRetries += stats.numAllocRetries;
    seen.numOomRejections += stats.numOomRejections;
    seen.oversizeSegments.allocated += stats.oversizeSegments.allocated;
    seen.active.small.allocated += stats.active.small.allocated;
    seen.active.large.allocated += stats.active.large.allocated;
  }
  // The rules that are rare were at work.
  EXPECT_GT(seen.numOoms, 100);
  EXPECT_GT(seen.numAllocRetries, seen.numOoms);
  EXPECT_GT(seen.numOomRejections, 10);
  EXPECT_GT(seen.oversizeSegments.allocated, 100);
  EXPECT_GT(seen.active.small.allocated, 10000);
  EXPECT_GT(seen.active.large.allocated, 10000);
}

TEST(CachingAllocatorProperty, SeesABrokenRule) {
  for (Fault fault :
       {Fault::NewestFirst, Fault::FirstFit, Fault::SplitMebibyte,
        Fault::KeepPrevious, Fault::LastRoom, Fault::RequestedFallsEarly}) {
    bool isSeen = false;
    for (auto [index, configuration] : llvm::enumerate(kConfigurations))
      isSeen |= Comparison(configuration, kSeed + index, fault).run(10000) >= 0;
    EXPECT_TRUE(isSeen) << "fault " << static_cast<int>(fault);
  }
}
