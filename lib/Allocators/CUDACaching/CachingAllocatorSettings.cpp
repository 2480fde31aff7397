//===- CachingAllocatorSettings.cpp - PYTORCH_ALLOC_CONF ------------------===//
//
// Sources: c10/core/AllocatorConfig.{h,cpp},
// c10/cuda/CUDAAllocatorConfig.{h,cpp} of PyTorch 2.13.
//
//===----------------------------------------------------------------------===//

#include "koila/Allocators/CachingAllocatorSettings.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

using namespace koila;
using llvm::Error;
using llvm::StringRef;
using llvm::Twine;

namespace {
constexpr int64_t kMiB = int64_t(1) << 20;
constexpr StringRef kLargeSegmentSize = "large_segment_size_mb";
constexpr uint64_t kMinLargeAllocMiB = 10;
/// No request has as many: see CachingAllocator::allocate().
constexpr uint64_t kMostMiB = uint64_t(1) << 40;
constexpr uint64_t kMostThreads = 128;

/// Keys without an effect on the bytes of the device: of pinned host memory, of
/// locks, of captures of graphs.
enum class Ignored : uint8_t { None, Flag, Number, Threads, Reserve };

Ignored findIgnored(StringRef key) {
  return llvm::StringSwitch<Ignored>(key)
      .Cases({"release_lock_on_cudamalloc", "release_lock_on_hipmalloc",
              "graph_capture_record_stream_reuse",
              "pinned_use_cuda_host_register", "pinned_use_hip_host_register",
              "pinned_use_background_threads", "pinned_free_catch_all"},
             Ignored::Flag)
      .Cases({"pinned_max_round_threshold_mb", "pinned_max_cached_size_mb"},
             Ignored::Number)
      .Case("pinned_num_register_threads", Ignored::Threads)
      .Case("pinned_reserve_segment_size_mb", Ignored::Reserve)
      .Default(Ignored::None);
}

bool isKey(StringRef name) {
  return findIgnored(name) != Ignored::None ||
         llvm::StringSwitch<bool>(name)
             .Cases({"max_split_size_mb", "max_non_split_rounding_mb",
                     "roundup_power2_divisions", "garbage_collection_threshold",
                     "expandable_segments", "per_process_memory_fraction",
                     "throw_on_cudamalloc_oom", "backend"},
                    true)
             .Default(false);
}

class Parser {
public:
  explicit Parser(StringRef text);
  Error parse();
  const CachingAllocatorSettings &getSettings() const { return settings; }

private:
  Error fail(const Twine &text) const {
    return llvm::createStringError("allocator configuration: " + text);
  }
  /// The next token.
  Error read(StringRef &token);
  /// Over a separator, which is not compared.
  Error skip();
  Error read(StringRef key, bool &flag);
  Error read(StringRef key, uint64_t &number);
  Error convert(StringRef key, StringRef token, uint64_t &number) const;
  Error read(StringRef key, double &number);
  /// Mebibytes, as bytes.
  Error read(StringRef key, uint64_t least, int64_t &bytes);
  Error skipValue(StringRef key);
  Error parseLargeSegmentSize();
  Error parseValue(StringRef key);
  Error parseIgnored(StringRef key, Ignored kind);
  Error parseBackend();
  Error parseDivisions(StringRef key);
  Error parseInterval(StringRef key, StringRef boundary);

  std::vector<std::string> tokens;
  size_t place = 0;
  /// Of the list of `roundup_power2_divisions`.
  bool hasInterval = false;
  size_t lastInterval = 0;
  CachingAllocatorSettings settings;
};
} // namespace

Parser::Parser(StringRef text) {
  std::string word;
  auto finish = [&] {
    if (!word.empty())
      tokens.push_back(std::move(word));
    word.clear();
  };
  for (char c : text) {
    if (StringRef(",:[]").contains(c)) {
      finish();
      tokens.emplace_back(1, c);
    } else if (!llvm::isSpace(c)) {
      word += c;
    }
  }
  finish();
}

Error Parser::read(StringRef &token) {
  if (place == tokens.size())
    return fail("something is missing at the end");
  token = tokens[place++];
  return Error::success();
}

Error Parser::skip() {
  StringRef separator;
  return read(separator);
}

Error Parser::read(StringRef key, bool &flag) {
  StringRef token;
  if (Error error = read(token))
    return error;
  if (token != "True" && token != "False")
    return fail("'" + key + "' is True or False, not '" + token + "'");
  flag = token == "True";
  return Error::success();
}

Error Parser::read(StringRef key, uint64_t &number) {
  StringRef token;
  if (Error error = read(token))
    return error;
  return convert(key, token, number);
}

Error Parser::convert(StringRef key, StringRef token, uint64_t &number) const {
  // As std::stoull(): what follows the digits is ignored, -1 is the largest.
  std::string text = token.str();
  char *end = nullptr;
  errno = 0;
  number = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str() || errno == ERANGE)
    return fail("'" + key + "' is a number, not '" + token + "'");
  return Error::success();
}

Error Parser::read(StringRef key, double &number) {
  StringRef token;
  if (Error error = read(token))
    return error;
  std::string text = token.str();
  char *end = nullptr;
  errno = 0;
  number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || errno == ERANGE)
    return fail("'" + key + "' is a fraction, not '" + token + "'");
  return Error::success();
}

Error Parser::read(StringRef key, uint64_t least, int64_t &bytes) {
  uint64_t number;
  if (Error error = read(key, number))
    return error;
  if (number < least)
    return fail("'" + key + "' is at least " + Twine(least) + ", not " +
                Twine(number));
  bytes = static_cast<int64_t>(std::min(number, kMostMiB)) * kMiB;
  return Error::success();
}

Error Parser::skipValue(StringRef key) {
  StringRef token;
  if (Error error = skip())
    return error;
  if (Error error = read(token))
    return error;
  if (token != "[")
    return Error::success();
  while (place < tokens.size())
    if (tokens[place++] == "]")
      return Error::success();
  return fail("the list of '" + key + "' has no ']'");
}

/// It is read before all others, which are compared with it.
Error Parser::parseLargeSegmentSize() {
  for (place = 0; place < tokens.size(); ++place) {
    StringRef key = tokens[place++];
    if (Error error = key == kLargeSegmentSize ? skip() : skipValue(key))
      return error;
    if (key != kLargeSegmentSize)
      continue;
    if (Error error =
            read(key, kMinLargeAllocMiB + 1, settings.largeSegmentSize))
      return error;
    settings.maxNonSplitRounding = settings.largeSegmentSize;
  }
  return Error::success();
}

Error Parser::parseIgnored(StringRef key, Ignored kind) {
  bool flag;
  if (kind == Ignored::Flag)
    return read(key, flag);
  uint64_t number;
  if (Error error = read(key, number))
    return error;
  if (kind == Ignored::Threads &&
      (!llvm::isPowerOf2_64(number) || number > kMostThreads))
    return fail("'" + key + "' is a power of two up to " + Twine(kMostThreads));
  if (kind == Ignored::Reserve && !number)
    return fail("'" + key + "' is greater than 0");
  return Error::success();
}

Error Parser::parseBackend() {
  StringRef token;
  if (Error error = read(token))
    return error;
  if (token == "native")
    return Error::success();
  if (token == "cudaMallocAsync")
    return fail("the backend 'cudaMallocAsync' leaves blocks to the driver and "
                "is not simulated; use 'native'");
  return fail("there is no backend '" + token + "'; use 'native'");
}

/// `boundary:divisions` in a list.
Error Parser::parseInterval(StringRef key, StringRef boundary) {
  auto &all = settings.roundupDivisions;
  uint64_t divisions, size;
  if (Error error = skip())
    return error;
  if (Error error = read(key, divisions))
    return error;
  if (divisions && !llvm::isPowerOf2_64(divisions))
    return fail("a number of '" + key + "' is a power of two or 0, not " +
                Twine(divisions));
  if (boundary == ">") {
    std::fill(all.begin() + lastInterval + 1, all.end(), divisions);
    return Error::success();
  }
  if (Error error = convert(key, boundary, size))
    return error;
  if (!llvm::isPowerOf2_64(size))
    return fail("a size of '" + key + "' is a power of two, not " +
                Twine(size));
  lastInterval = std::min<size_t>(llvm::Log2_64(size), all.size() - 1);
  if (!hasInterval)
    std::fill(all.begin(), all.begin() + lastInterval, divisions);
  hasInterval = true;
  all[lastInterval] = divisions;
  return Error::success();
}

Error Parser::parseDivisions(StringRef key) {
  StringRef token;
  if (Error error = read(token))
    return error;
  if (token != "[") {
    uint64_t divisions;
    if (Error error = convert(key, token, divisions))
      return error;
    if (!llvm::isPowerOf2_64(divisions))
      return fail("'" + key + "' is a power of two, not " + Twine(divisions));
    settings.roundupDivisions.fill(divisions);
    return Error::success();
  }
  hasInterval = false;
  lastInterval = 0;
  while (true) {
    if (Error error = read(token))
      return error;
    if (token == "]")
      return Error::success();
    if (Error error = parseInterval(key, token))
      return error;
    if (place < tokens.size() && tokens[place] != "]")
      ++place;
  }
}

Error Parser::parseValue(StringRef key) {
  uint64_t largeMiB = settings.largeSegmentSize / kMiB;
  double &threshold = settings.garbageCollectionThreshold;
  double &fraction = settings.perProcessMemoryFraction;
  if (key == "max_split_size_mb")
    return read(key, largeMiB, settings.maxSplitSize);
  if (key == "max_non_split_rounding_mb")
    return read(key, largeMiB, settings.maxNonSplitRounding);
  if (key == "expandable_segments")
    return read(key, settings.expandableSegments);
  if (key == "throw_on_cudamalloc_oom")
    return read(key, settings.throwOnCudaMallocOom);
  if (key == "roundup_power2_divisions")
    return parseDivisions(key);
  if (key == "backend")
    return parseBackend();
  if (key == "garbage_collection_threshold") {
    if (Error error = read(key, threshold))
      return error;
    return threshold > 0 && threshold < 1
               ? Error::success()
               : fail("'" + key + "' is between 0 and 1, both excluded");
  }
  if (key == "per_process_memory_fraction") {
    if (Error error = read(key, fraction))
      return error;
    return fraction >= 0 && fraction <= 1
               ? Error::success()
               : fail("'" + key + "' is from 0 to 1");
  }
  return parseIgnored(key, findIgnored(key));
}

Error Parser::parse() {
  if (Error error = parseLargeSegmentSize())
    return error;
  for (place = 0; place < tokens.size(); ++place) {
    StringRef key = tokens[place++];
    if (key == kLargeSegmentSize) {
      if (Error error = skipValue(key))
        return error;
      continue;
    }
    if (!isKey(key))
      return fail("there is no key '" + key + "'");
    if (Error error = skip())
      return error;
    if (Error error = parseValue(key))
      return error;
  }
  return Error::success();
}

llvm::Expected<CachingAllocatorSettings>
CachingAllocatorSettings::parse(StringRef text) {
  Parser parser(text);
  if (Error error = parser.parse())
    return error;
  return parser.getSettings();
}

uint64_t CachingAllocatorSettings::getRoundupDivisions(int64_t bytes) const {
  constexpr unsigned kFirst = 20;
  unsigned log = llvm::Log2_64(static_cast<uint64_t>(bytes));
  size_t index = log > kFirst ? log - kFirst : 0;
  return roundupDivisions[std::min(index, roundupDivisions.size() - 1)];
}

int64_t CachingAllocatorSettings::roundSize(int64_t bytes) const {
  constexpr uint64_t kMinBlockSize = 512;
  uint64_t size = bytes;
  if (size < kMinBlockSize)
    return kMinBlockSize;
  uint64_t divisions = getRoundupDivisions(bytes);
  // Steps are not smaller than a block.
  uint64_t step = kMinBlockSize;
  if (divisions > 1 && size / kMinBlockSize >= divisions)
    step = llvm::bit_floor(size) / divisions;
  return llvm::alignTo(size, step);
}
