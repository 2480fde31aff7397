//===- SnapshotTest.cpp - Snapshots, written, read and replayed -----------===//

#include "koila/Allocators/Snapshot.h"
#include "koila/Allocators/SnapshotReplay.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"
#include <string>

using namespace koila;
using Action = AllocatorAction;

namespace {
constexpr int64_t kMiB = 1048576;

/// A program on two streams, with its trace.
Snapshot makeSnapshot(llvm::StringRef settings = "") {
  Snapshot snapshot;
  snapshot.traces.emplace_back();
  Snapshot::Stack stack =
      snapshot.addStack({{"model.py", 12, "forward"}, {"main.py", 3, "main"}});
  CachingAllocatorOptions options;
  options.observer = [&](const AllocatorEvent &event) {
    auto time = static_cast<int64_t>(snapshot.traces[0].size());
    snapshot.traces[0].push_back({event, time, Snapshot::Pool(), stack});
  };
  CachingAllocator allocator(
      llvm::cantFail(CachingAllocatorSettings::parse(settings)),
      {80000 * kMiB, 80000 * kMiB}, options);
  std::vector<CachingAllocator::Allocation> all;
  for (int64_t bytes : {1000, 3000000, 512, 30000000, 5000000})
    all.push_back(std::get<CachingAllocator::Allocation>(
        allocator.allocate(bytes, bytes == 512 ? 16 : 0)));
  llvm::cantFail(allocator.recordStream(all[1], 16));
  llvm::cantFail(allocator.free(all[1]));
  llvm::cantFail(allocator.free(all[3]));
  allocator.emptyCache();
  allocator.allocate(2000000);
  llvm::cantFail(allocator.recordStream(all[4], 16));
  llvm::cantFail(allocator.free(all[4]));
  addAllocator(snapshot, allocator);
  return snapshot;
}

std::string write(const Snapshot &snapshot) {
  std::string pickle;
  llvm::raw_string_ostream os(pickle);
  writeSnapshot(os, snapshot);
  return pickle;
}

std::string getError(llvm::StringRef pickle) {
  auto snapshot = readSnapshot(pickle);
  return snapshot ? "" : llvm::toString(snapshot.takeError());
}

/// A pickle of protocol 2 with these instructions.
std::string pickle(llvm::StringRef instructions) {
  return "\x80\x02" + instructions.str();
}

TEST(Snapshot, WhatIsWrittenIsRead) {
  for (const char *settings :
       {"", "expandable_segments:True",
        "max_split_size_mb:64,large_segment_size_mb:24,"
        "roundup_power2_divisions:[1:4,>:8],throw_on_cudamalloc_oom:True,"
        "garbage_collection_threshold:0.6,per_process_memory_fraction:0.3"}) {
    Snapshot written = makeSnapshot(settings);
    Snapshot read = llvm::cantFail(readSnapshot(write(written)));
    EXPECT_EQ(read.segments, written.segments);
    EXPECT_EQ(read.traces, written.traces);
    EXPECT_EQ(read.settings, written.settings);
    EXPECT_EQ(read.frames, written.frames);
    EXPECT_EQ(read.stacks, written.stacks);
    std::vector<std::string> unknown;
    EXPECT_EQ(llvm::cantFail(getAllocatorSettings(read, unknown)),
              llvm::cantFail(CachingAllocatorSettings::parse(settings)));
    EXPECT_TRUE(unknown.empty());
  }
}

TEST(Snapshot, BlocksInUseHaveTheirStacks) {
  Snapshot snapshot = makeSnapshot();
  for (const Snapshot::Segment &segment : snapshot.segments)
    for (const Snapshot::Block &block : segment.blocks)
      EXPECT_EQ(block.stack == Snapshot::kNoStack,
                block.state == CachingAllocator::BlockInfo::State::Inactive);
}

TEST(Snapshot, ItsOwnTraceAgrees) {
  for (const char *settings : {"", "expandable_segments:True"}) {
    Snapshot snapshot = makeSnapshot(settings);
    ReplayReport report = llvm::cantFail(replaySnapshot(snapshot, {}));
    EXPECT_FALSE(report.difference);
    EXPECT_EQ(report.numCompared, report.numEvents);
    EXPECT_EQ(report.numEvents,
              static_cast<int64_t>(snapshot.traces[0].size()));
  }
}

TEST(Snapshot, EndsAnywhere) {
  std::string whole = write(makeSnapshot());
  ASSERT_EQ(getError(whole), "");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(getError(llvm::StringRef(whole).take_front(size)), "")
        << size << " bytes";
}

TEST(Snapshot, AnyByteMayBeWrong) {
  std::string whole = write(makeSnapshot());
  // Some changes are none of the structure; none may do harm, also replayed.
  for (size_t i = 0; i < whole.size(); ++i)
    for (unsigned char change : {0x01, 0x80, 0xff, 0x5c}) {
      std::string wrong = whole;
      wrong[i] = static_cast<char>(wrong[i] ^ change);
      auto snapshot = readSnapshot(wrong);
      if (!snapshot) {
        llvm::consumeError(snapshot.takeError());
        continue;
      }
      auto report = replaySnapshot(*snapshot, {});
      if (!report)
        llvm::consumeError(report.takeError());
    }
}

TEST(Snapshot, NothingIsCalled) {
  // os.system("true"), in both spellings.
  EXPECT_EQ(getError(pickle("cos\nsystem\n(X\4\0\0\0truetR.")),
            "at byte 2: it names or calls a class or a function, which is not "
            "run; a snapshot has plain values alone");
  std::string named("\x80\x04\x8c\2os\x8c\6system\x93.", 16);
  EXPECT_NE(getError(named).find("names or calls"), std::string::npos);
}

TEST(Snapshot, WildInstructions) {
  EXPECT_EQ(getError(""), "at byte 0: it ends in the middle of an instruction");
  EXPECT_EQ(getError("PK\3\4 a zip file"),
            "at byte 0: it is not a pickle of protocol 2 to 5");
  EXPECT_EQ(getError(pickle("}")),
            "at byte 3: it ends without its last instruction");
  EXPECT_EQ(getError(pickle("a.")),
            "at byte 2: an instruction takes a value that is not there");
  EXPECT_EQ(getError(pickle("u.")),
            "at byte 2: an instruction takes a mark that is not there");
  EXPECT_EQ(getError(pickle("}(K\1u.")), "at byte 6: a key has no value");
  EXPECT_EQ(getError(pickle("](K\1u.")),
            "at byte 6: it fills a container that is not there");
  EXPECT_EQ(getError(pickle("h\1.")),
            "at byte 2: it takes a value that was never remembered");
  EXPECT_EQ(getError(pickle("}r\xff\xff\xff\x7f.")),
            "at byte 3: it remembers a value in a place that is not there");
  EXPECT_EQ(getError(pickle("P1\n.")),
            "at byte 2: instruction 0x50 is none of a snapshot");
  EXPECT_EQ(getError(pickle("X\xff\xff\xff\xff.")),
            "at byte 2: it ends in the middle of an instruction");
  EXPECT_EQ(getError(pickle("NN.")), "at byte 4: it does not end in one value");
}

TEST(Snapshot, DeepAndEndlessValues) {
  constexpr size_t kDepth = 1000000;
  std::string deep =
      std::string(kDepth, ']') + std::string(kDepth - 1, 'a') + ".";
  EXPECT_NE(getError(pickle(deep)), "");
  // A list that contains itself.
  EXPECT_NE(getError(pickle("]q\1h\1a.")), "");
  // One dict at many places.
  std::string text = "}(X\x08" + std::string(3, '\0') + "segments](}q\1";
  for (int i = 0; i < 100; ++i)
    text += "h\1";
  text += "eX\x0d" + std::string(3, '\0') + "device_traces]u.";
  EXPECT_NE(getError(pickle(text)), "");
}

TEST(Snapshot, ErrorsSayWhere) {
  Snapshot snapshot = makeSnapshot();
  snapshot.segments[1].blocks[0].size += 512;
  EXPECT_EQ(getError(write(snapshot)),
            "segments[1].blocks[1]: it is not where the block in front of it "
            "ends");
  snapshot = makeSnapshot();
  snapshot.segments[0].size += 512;
  EXPECT_NE(getError(write(snapshot)).find("segments[0]: its blocks have"),
            std::string::npos);
  snapshot = makeSnapshot();
  snapshot.traces[0][2].event.bytes = -1;
  EXPECT_EQ(getError(write(snapshot)),
            "device_traces[0][2]: 'size' is not an integer from 0 to "
            "1152921504606846976");
  EXPECT_EQ(getError(pickle("].")),
            "snapshot: it is not the dict of torch.cuda.memory._snapshot(), "
            "which _dump_snapshot() writes");
  EXPECT_EQ(getError(pickle("}.")),
            "snapshot: 'segments' is not there, or not a list");
}

TEST(Snapshot, UnknownSettingsAreNamed) {
  Snapshot snapshot = makeSnapshot();
  snapshot.settings.push_back({"new_setting", int64_t(3)});
  ReplayReport report = llvm::cantFail(replaySnapshot(snapshot, {}));
  EXPECT_FALSE(report.difference);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("new_setting"), std::string::npos);
  snapshot.settings[0].second = std::string("no_such_key:1");
  auto failed = replaySnapshot(snapshot, {});
  EXPECT_EQ(llvm::toString(failed.takeError()),
            "allocator_settings: 'PYTORCH_CUDA_ALLOC_CONF' is wrong: allocator "
            "configuration: there is no key 'no_such_key'");
}

TEST(Snapshot, PrivatePoolsAreLeftOut) {
  Snapshot snapshot = makeSnapshot();
  Snapshot::Entry entry = snapshot.traces[0][1];
  entry.pool = Snapshot::Pool(0, 1);
  snapshot.traces[0].insert(snapshot.traces[0].begin() + 3, entry);
  ReplayReport report = llvm::cantFail(replaySnapshot(snapshot, {}));
  EXPECT_FALSE(report.difference);
  EXPECT_EQ(report.numCompared, report.numEvents - 1);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("private pools"), std::string::npos);
}

TEST(Snapshot, AChangeIsFoundAtItsEvent) {
  Snapshot snapshot = makeSnapshot();
  for (size_t i = 0; i < snapshot.traces[0].size(); ++i) {
    if (snapshot.traces[0][i].event.action != Action::SegmentAlloc)
      continue;
    Snapshot changed = snapshot;
    changed.traces[0][i].event.bytes += 2 * kMiB;
    ReplayReport report = llvm::cantFail(replaySnapshot(changed, {}));
    ASSERT_TRUE(report.difference);
    EXPECT_EQ(report.difference->event, static_cast<int64_t>(i));
    EXPECT_EQ(report.numCompared, static_cast<int64_t>(i));
  }
  Snapshot changed = snapshot;
  changed.segments[0].blocks[0].requested = 7;
  ReplayReport report = llvm::cantFail(replaySnapshot(changed, {}));
  ASSERT_TRUE(report.difference);
  EXPECT_FALSE(report.difference->event);
}

TEST(Snapshot, NothingToReplay) {
  Snapshot snapshot = makeSnapshot();
  ReplayOptions other;
  other.device = 1;
  EXPECT_NE(llvm::toString(replaySnapshot(snapshot, other).takeError())
                .find("_record_memory_history"),
            std::string::npos);
  llvm::erase_if(snapshot.traces[0], [](const Snapshot::Entry &entry) {
    return entry.event.action == Action::Alloc;
  });
  EXPECT_NE(llvm::toString(replaySnapshot(snapshot, {}).takeError())
                .find("skip_actions"),
            std::string::npos);
}
} // namespace
