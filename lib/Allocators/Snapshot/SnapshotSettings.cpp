//===- SnapshotSettings.cpp - The settings of a snapshot ------------------===//
//
// A snapshot has the text of PYTORCH_CUDA_ALLOC_CONF, and values of some of its
// keys as they were when the snapshot was made.
//
//===----------------------------------------------------------------------===//

#include "SnapshotSettings.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace koila;
using llvm::Error;
using llvm::StringRef;

static constexpr int64_t kMiB = int64_t(1) << 20;
static constexpr StringRef kText = "PYTORCH_CUDA_ALLOC_CONF";
static constexpr StringRef kDivisions = "roundup_power2_divisions.";

/// Of pinned memory, of locks and of captures of graphs.
static bool changesNoBytes(StringRef name) {
  return llvm::StringSwitch<bool>(name)
      .Cases({"pinned_num_register_threads", "release_lock_on_cudamalloc",
              "pinned_use_cuda_host_register", "pinned_use_background_threads",
              "pinned_reserve_segment_size_mb", "pinned_free_catch_all"},
             true)
      .Cases({"graph_capture_record_stream_reuse", "max_round_threshold",
              "max_cached_size"},
             true)
      .Default(false);
}

static Error fail(StringRef name, const llvm::Twine &what) {
  return llvm::createStringError("allocator_settings: '" + name + "' " + what);
}

static Error setValue(CachingAllocatorSettings &settings, StringRef name,
                      const Snapshot::Value &value, bool &isKnown) {
  const auto *integer = std::get_if<int64_t>(&value);
  if (name == "max_split_size") {
    if (!integer)
      return fail(name, "is not a number of bytes");
    // Without a limit it is the largest number of 64 bits, or -1.
    settings.maxSplitSize =
        *integer < 0 ? CachingAllocatorSettings::kUnlimited : *integer;
  } else if (name == "garbage_collection_threshold") {
    const auto *number = std::get_if<double>(&value);
    double threshold = number ? *number : integer ? double(*integer) : -1;
    if (!(threshold >= 0 && threshold < 1))
      return fail(name, "is not a fraction below 1");
    settings.garbageCollectionThreshold = threshold;
  } else if (name == "expandable_segments") {
    const auto *flag = std::get_if<bool>(&value);
    if (!flag)
      return fail(name, "is not True or False");
    settings.expandableSegments = *flag;
  } else if (name.consume_front(kDivisions)) {
    uint64_t mebibytes;
    if (name.getAsInteger(10, mebibytes) || !llvm::isPowerOf2_64(mebibytes) ||
        llvm::Log2_64(mebibytes) >= settings.roundupDivisions.size())
      return fail("roundup_power2_divisions",
                  "has the size '" + name +
                      "', which is not one of 1, 2, 4...");
    if (!integer || *integer < 0 ||
        (*integer && !llvm::isPowerOf2_64(static_cast<uint64_t>(*integer))))
      return fail("roundup_power2_divisions",
                  "has a number that is no power of two");
    settings.roundupDivisions[llvm::Log2_64(mebibytes)] =
        static_cast<uint64_t>(*integer);
  } else {
    isKnown = changesNoBytes(name);
  }
  return Error::success();
}

llvm::Expected<CachingAllocatorSettings>
koila::getAllocatorSettings(const Snapshot &snapshot,
                            std::vector<std::string> &unknown) {
  CachingAllocatorSettings settings;
  auto isText = [](StringRef name) {
    return name == kText || name == "PYTORCH_ALLOC_CONF";
  };
  for (const auto &[name, value] : snapshot.settings) {
    if (!isText(name))
      continue;
    const auto *text = std::get_if<std::string>(&value);
    if (!text)
      return fail(name, "is not a text");
    auto parsed = CachingAllocatorSettings::parse(*text);
    if (!parsed)
      return fail(name, "is wrong: " + llvm::toString(parsed.takeError()));
    settings = *parsed;
  }
  for (const auto &[name, value] : snapshot.settings) {
    bool isKnown = true;
    if (isText(name))
      continue;
    if (Error error = setValue(settings, name, value, isKnown))
      return error;
    if (!isKnown)
      unknown.push_back(name);
  }
  return settings;
}

/// What PYTORCH_CUDA_ALLOC_CONF has to be for these settings.
static std::string formatSettings(const CachingAllocatorSettings &settings) {
  const CachingAllocatorSettings defaults;
  std::vector<std::string> parts;
  auto add = [&](StringRef key, const auto &value) {
    parts.push_back(llvm::formatv("{0}:{1}", key, value).str());
  };
  auto addFlag = [&](StringRef key, bool value) {
    if (value)
      add(key, "True");
  };
  auto addFraction = [&](StringRef key, double value, double usual) {
    if (value != usual)
      parts.push_back(llvm::formatv("{0}:{1:f17}", key, value).str());
  };
  auto addSize = [&](StringRef key, int64_t value, int64_t usual) {
    if (value != usual)
      add(key, value / kMiB);
  };
  addSize("large_segment_size_mb", settings.largeSegmentSize,
          defaults.largeSegmentSize);
  addSize("max_split_size_mb", settings.maxSplitSize, defaults.maxSplitSize);
  addSize("max_non_split_rounding_mb", settings.maxNonSplitRounding,
          settings.largeSegmentSize);
  if (settings.roundupDivisions != defaults.roundupDivisions) {
    std::vector<std::string> entries;
    for (auto [index, divisions] : llvm::enumerate(settings.roundupDivisions))
      entries.push_back(
          llvm::formatv("{0}:{1}", uint64_t(1) << index, divisions).str());
    parts.push_back("roundup_power2_divisions:[" + llvm::join(entries, ",") +
                    "]");
  }
  addFraction("garbage_collection_threshold",
              settings.garbageCollectionThreshold, 0);
  addFlag("expandable_segments", settings.expandableSegments);
  addFraction("per_process_memory_fraction", settings.perProcessMemoryFraction,
              1);
  addFlag("throw_on_cudamalloc_oom", settings.throwOnCudaMallocOom);
  return llvm::join(parts, ",");
}

std::vector<std::pair<std::string, Snapshot::Value>>
koila::describeSettings(const CachingAllocatorSettings &settings) {
  bool isUnlimited =
      settings.maxSplitSize == CachingAllocatorSettings::kUnlimited;
  std::vector<std::pair<std::string, Snapshot::Value>> all = {
      {kText.str(), formatSettings(settings)},
      {"max_split_size", isUnlimited ? int64_t(-1) : settings.maxSplitSize},
      {"garbage_collection_threshold", settings.garbageCollectionThreshold},
      {"expandable_segments", settings.expandableSegments}};
  for (auto [index, divisions] : llvm::enumerate(settings.roundupDivisions))
    all.push_back({(kDivisions + llvm::Twine(uint64_t(1) << index)).str(),
                   static_cast<int64_t>(divisions)});
  return all;
}
