//===- HostMemory.cpp - How much memory the host has left -----------------===//
//
// Sources: Linux, Documentation/filesystems/proc.rst (MemAvailable, VmSize),
// admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; getrlimit(2).
//
//===----------------------------------------------------------------------===//

#include "koila/Device/HostMemory.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include <algorithm>
#include <limits>
#include <optional>

using namespace koila;
using llvm::StringRef;

namespace {
/// The names that one version of control groups gives to its files.
struct GroupFiles {
  StringRef folder, limit, used, cached;
};

class Reader {
public:
  explicit Reader(StringRef root) : root(root) {}

  /// The free bytes by everything that could be read.
  std::optional<FreeMemory> read();

private:
  std::optional<std::string> readFile(const llvm::Twine &path) const;
  std::optional<int64_t> readNumber(const llvm::Twine &path) const;
  /// The number after `key` in a file of one key and number per line.
  std::optional<int64_t> readEntry(const llvm::Twine &path,
                                   StringRef key) const;
  void consider(int64_t bytes, const llvm::Twine &source);
  void readHost();
  void readGroup(const GroupFiles &files, StringRef group);
  void readGroups();
  void readLimits();

  StringRef root;
  std::optional<FreeMemory> least;
};
} // namespace

std::optional<std::string> Reader::readFile(const llvm::Twine &path) const {
  // Files of /proc have no size.
  auto file = llvm::MemoryBuffer::getFileAsStream(root + path);
  if (!file)
    return std::nullopt;
  return (*file)->getBuffer().str();
}

std::optional<int64_t> Reader::readNumber(const llvm::Twine &path) const {
  auto text = readFile(path);
  uint64_t number;
  // `max` is no number, and no limit.
  if (!text || StringRef(*text).trim().getAsInteger(10, number))
    return std::nullopt;
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min(number, kMost));
}

std::optional<int64_t> Reader::readEntry(const llvm::Twine &path,
                                         StringRef key) const {
  auto text = readFile(path);
  if (!text)
    return std::nullopt;
  llvm::SmallVector<StringRef> lines;
  StringRef(*text).split(lines, '\n');
  for (StringRef line : lines) {
    int64_t number;
    if (line.consume_front(key) && !line.ltrim().consumeInteger(10, number))
      return number;
  }
  return std::nullopt;
}

void Reader::consider(int64_t bytes, const llvm::Twine &source) {
  if (!least || bytes < least->bytes)
    least = FreeMemory{bytes, source.str()};
}

void Reader::readHost() {
  auto available = readEntry("/proc/meminfo", "MemAvailable:");
  if (available && *available <= std::numeric_limits<int64_t>::max() / 1024)
    consider(*available * 1024, "MemAvailable of /proc/meminfo");
}

void Reader::readGroup(const GroupFiles &files, StringRef group) {
  // A container may see itself as the root, under the path that it has outside.
  while (true) {
    std::string folder = (files.folder + group).str();
    auto limit = readNumber(folder + "/" + files.limit);
    auto used = readNumber(folder + "/" + files.used);
    if (limit && used) {
      int64_t cached =
          readEntry(folder + "/memory.stat", files.cached).value_or(0);
      int64_t held = std::max<int64_t>(*used - cached, 0);
      consider(std::max<int64_t>(*limit - held, 0), folder + "/" + files.limit);
    }
    if (group.empty())
      return;
    size_t slash = group.rfind('/');
    group = slash == StringRef::npos ? StringRef() : group.take_front(slash);
  }
}

void Reader::readGroups() {
  auto groups = readFile("/proc/self/cgroup");
  if (!groups)
    return;
  constexpr StringRef kLimit = "memory.max", kUsed = "memory.current",
                      kCached = "inactive_file ";
  // The second is where version 2 is if version 1 has the first.
  const GroupFiles unified[] = {
      {"/sys/fs/cgroup", kLimit, kUsed, kCached},
      {"/sys/fs/cgroup/unified", kLimit, kUsed, kCached}};
  const GroupFiles first = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                            "memory.usage_in_bytes", "total_inactive_file "};
  llvm::SmallVector<StringRef> lines;
  StringRef(*groups).split(lines, '\n');
  for (StringRef line : lines) {
    auto [number, rest] = line.split(':');
    auto [controllers, group] = rest.split(':');
    group = group.rtrim('/');
    if (number == "0" && controllers.empty())
      for (const GroupFiles &files : unified)
        readGroup(files, group);
    llvm::SmallVector<StringRef> names;
    controllers.split(names, ',');
    if (llvm::is_contained(names, "memory"))
      readGroup(first, group);
  }
}

void Reader::readLimits() {
  const std::pair<StringRef, StringRef> kinds[] = {
      {"Max address space", "VmSize:"}, {"Max data size", "VmData:"}};
  for (auto [name, key] : kinds) {
    // `unlimited` is no number.
    auto limit = readEntry("/proc/self/limits", name);
    auto used = readEntry("/proc/self/status", key);
    if (limit && used && *used <= std::numeric_limits<int64_t>::max() / 1024)
      consider(std::max<int64_t>(*limit - *used * 1024, 0),
               name + " of /proc/self/limits");
  }
}

std::optional<FreeMemory> Reader::read() {
  readHost();
  readGroups();
  readLimits();
  return least;
}

llvm::Expected<FreeMemory> koila::getFreeHostMemory(StringRef root) {
  if (auto found = Reader(root).read())
    return *found;
  return llvm::createStringError(
      "neither /proc/meminfo nor a control group says how much memory is free");
}
