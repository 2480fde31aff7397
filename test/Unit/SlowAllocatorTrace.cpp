//===- SlowAllocatorTrace.cpp - A random program, as JSON -----------------===//
//
//   KoilaSlowAllocatorTrace SETTINGS TOTAL-MIB SEED STEPS STREAMS
//
// Runs random allocations and frees with the slow allocator and prints what
// happened: events, the segments that are left, and peaks. A test makes
// snapshots of that (test/oracle/snapshot_replay.py).
//
//===----------------------------------------------------------------------===//

#include "SlowCachingAllocator.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
#include <random>

using namespace koila;
using State = CachingAllocator::BlockInfo::State;

namespace {
constexpr int64_t kMiB = 1048576;

class RandomProgram {
public:
  RandomProgram(const CachingAllocatorSettings &settings, int64_t total,
                unsigned seed, int64_t numStreams)
      : numStreams(numStreams),
        hasFixedLimit(settings.perProcessMemoryFraction < 1),
        allocator(settings, {total, total}), random(seed) {}

  void step();
  llvm::json::Value describe();

private:
  int64_t pick(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  }
  int64_t pickBytes();
  uint64_t pickStream() { return pick(0, numStreams - 1) * 16; }

  const int64_t numStreams;
  const bool hasFixedLimit;
  slow::Allocator allocator;
  std::mt19937 random;
  std::vector<int64_t> live;
  size_t wanted = 20;
};
} // namespace

/// Few sizes, so that blocks are equal, and others.
int64_t RandomProgram::pickBytes() {
  switch (pick(0, 5)) {
  case 0:
    return pick(1, 40 * kMiB);
  case 1:
    return pick(1, 12) * 2 * kMiB;
  case 2:
    return pick(kMiB, 10 * kMiB);
  case 3:
    return pick(1, 16) * 65536;
  case 4:
    return pick(1, 6) * 1536 * 1024;
  default:
    return pick(1, kMiB);
  }
}

void RandomProgram::step() {
  int64_t kind = pick(0, 999);
  if (kind < 5) {
    allocator.emptyCache();
  } else if (kind < 8 && !hasFixedLimit) {
    allocator.setMemoryFraction(static_cast<double>(pick(5, 10)) / 10);
  } else if (kind < 60) {
    allocator.synchronize(pickStream());
  } else if (kind < 120 && !live.empty()) {
    allocator.recordStream(live[pick(0, live.size() - 1)], pickStream());
  } else if (kind < 125) {
    wanted = pick(0, 60);
  } else if (live.empty() || pick(0, 9) < (live.size() < wanted ? 6 : 4)) {
    int64_t number =
        allocator.allocate(pickBytes(), pick(0, 3) ? 0 : pickStream());
    if (number >= 0)
      live.push_back(number);
  } else {
    std::swap(live[pick(0, live.size() - 1)], live.back());
    allocator.free(live.back());
    live.pop_back();
  }
}

llvm::json::Value RandomProgram::describe() {
  llvm::json::Array events, segments;
  for (const AllocatorEvent &event : allocator.takeTrace())
    events.push_back(llvm::json::Array{getName(event.action), event.address,
                                       event.bytes, event.stream,
                                       event.deviceFree});
  for (const CachingAllocator::SegmentInfo &segment : allocator.getSegments()) {
    llvm::json::Array blocks;
    for (const CachingAllocator::BlockInfo &block : segment.blocks)
      blocks.push_back(llvm::json::Array{
          block.size, block.requested,
          block.state == State::Allocated     ? "active_allocated"
          : block.state == State::PendingFree ? "active_pending_free"
                                              : "inactive"});
    uint64_t address =
        slow::Allocator::getAddress(segment.birth) + segment.offset;
    segments.push_back(
        llvm::json::Object{{"address", address},
                           {"stream", segment.stream},
                           {"is_small", segment.isSmall},
                           {"is_expandable", segment.isExpandable},
                           {"blocks", std::move(blocks)}});
  }
  const CachingAllocatorStats &stats = allocator.getStats();
  return llvm::json::Object{
      {"events", std::move(events)},
      {"segments", std::move(segments)},
      {"peaks", llvm::json::Array{stats.allocatedBytes.all.peak,
                                  stats.activeBytes.all.peak,
                                  stats.requestedBytes.all.peak,
                                  stats.reservedBytes.all.peak}}};
}

int main(int argc, char **argv) {
  if (argc != 6)
    return 1;
  auto settings = llvm::cantFail(CachingAllocatorSettings::parse(argv[1]));
  RandomProgram program(settings, std::atoll(argv[2]) * kMiB,
                        std::strtoul(argv[3], nullptr, 10),
                        std::atoll(argv[5]));
  for (int64_t steps = std::atoll(argv[4]); steps > 0; --steps)
    program.step();
  llvm::outs() << program.describe() << '\n';
  return 0;
}
