//===- ReadSnapshot.cpp - Snapshots from pickles --------------------------===//
//
// Source of the names: torch/csrc/cuda/Module.cpp of PyTorch.
//
//===----------------------------------------------------------------------===//

#include "PickleValues.h"
#include "koila/Allocators/Snapshot.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace koila;
using Kind = PickleValue::Kind;
using State = CachingAllocator::BlockInfo::State;
using llvm::Error;
using llvm::StringRef;
using llvm::Twine;

namespace {
/// So many bytes are never asked for.
constexpr int64_t kMostBytes = int64_t(1) << 60;
constexpr int64_t kMostDevices = 1024;
/// A few names of what is not known suffice.
constexpr size_t kMostNamed = 8;

class SnapshotReader {
public:
  explicit SnapshotReader(PickleValues values)
      : values(std::move(values)), isUsed(this->values.getNumContainers()) {}

  llvm::Expected<Snapshot> read();

private:
  Error fail(const Twine &where, const Twine &what) const {
    return llvm::createStringError(where + ": " + what);
  }
  /// Checks that it is a dict, and that it was not in another place: what is
  /// there many times would be read many times.
  Error enter(const PickleValue &dict, const Twine &where);
  Error getList(const PickleValue &dict, StringRef key, const Twine &where,
                llvm::ArrayRef<PickleValue> &elements) const;
  // Missing values stay as they are, unless they are required.
  Error getInteger(const PickleValue &dict, StringRef key, const Twine &where,
                   int64_t least, int64_t most, int64_t &result,
                   bool isRequired = true) const;
  Error getBytes(const PickleValue &dict, StringRef key, const Twine &where,
                 int64_t &result) const {
    return getInteger(dict, key, where, 0, kMostBytes, result);
  }
  Error getUnsigned(const PickleValue &dict, StringRef key, const Twine &where,
                    uint64_t &result, bool isRequired = true) const;
  Error getText(const PickleValue &dict, StringRef key, const Twine &where,
                StringRef &result) const;
  Error getFlag(const PickleValue &dict, StringRef key, const Twine &where,
                bool &result) const;
  Error getPool(const PickleValue &dict, StringRef key, const Twine &where,
                std::optional<Snapshot::Pool> &result) const;
  Error getStack(const PickleValue &dict, const Twine &where,
                 Snapshot::Stack &result);
  Error readFrame(const PickleValue &value, const Twine &where,
                  uint32_t &result);
  Error readBlock(const PickleValue &value, const Twine &where,
                  uint64_t address, Snapshot::Block &block);
  Error readSegment(const PickleValue &value, const Twine &where);
  Error readEntry(const PickleValue &value, const Twine &where,
                  std::vector<Snapshot::Entry> &trace);
  Error readSettings(const PickleValue &dict, StringRef prefix);

  const PickleValues values;
  std::vector<bool> isUsed;
  llvm::DenseMap<uint32_t, uint32_t> frames;
  llvm::DenseMap<uint32_t, Snapshot::Stack> stacks;
  Snapshot snapshot;
};
} // namespace

//===----------------------------------------------------------------------===//
// Values of dicts
//===----------------------------------------------------------------------===//

Error SnapshotReader::enter(const PickleValue &dict, const Twine &where) {
  if (dict.kind != Kind::Dict)
    return fail(where, "it is not a dict");
  if (isUsed[dict.node])
    return fail(where, "the same dict is in another place");
  isUsed[dict.node] = true;
  return Error::success();
}

Error SnapshotReader::getList(const PickleValue &dict, StringRef key,
                              const Twine &where,
                              llvm::ArrayRef<PickleValue> &elements) const {
  const PickleValue *value = values.find(dict, key);
  if (!value || value->kind != Kind::List)
    return fail(where, "'" + key + "' is not there, or not a list");
  elements = values.getElements(*value);
  return Error::success();
}

Error SnapshotReader::getInteger(const PickleValue &dict, StringRef key,
                                 const Twine &where, int64_t least,
                                 int64_t most, int64_t &result,
                                 bool isRequired) const {
  const PickleValue *value = values.find(dict, key);
  if (!value && !isRequired)
    return Error::success();
  if (!value)
    return fail(where, "'" + key + "' is not there");
  if (value->kind != Kind::Integer || value->integer < least ||
      value->integer > most)
    return fail(where, "'" + key + "' is not an integer from " + Twine(least) +
                           " to " + Twine(most));
  result = value->integer;
  return Error::success();
}

Error SnapshotReader::getUnsigned(const PickleValue &dict, StringRef key,
                                  const Twine &where, uint64_t &result,
                                  bool isRequired) const {
  const PickleValue *value = values.find(dict, key);
  if (!value && !isRequired)
    return Error::success();
  bool isGood =
      value && (value->kind == Kind::Unsigned ||
                (value->kind == Kind::Integer && value->integer >= 0));
  if (!isGood)
    return fail(where,
                "'" + key + "' is not there, or not an integer from 0 to 2^64");
  result = static_cast<uint64_t>(value->integer);
  return Error::success();
}

Error SnapshotReader::getText(const PickleValue &dict, StringRef key,
                              const Twine &where, StringRef &result) const {
  const PickleValue *value = values.find(dict, key);
  if (!value || value->kind != Kind::Text)
    return fail(where, "'" + key + "' is not there, or not a text");
  result = value->text;
  return Error::success();
}

Error SnapshotReader::getFlag(const PickleValue &dict, StringRef key,
                              const Twine &where, bool &result) const {
  const PickleValue *value = values.find(dict, key);
  if (!value)
    return Error::success();
  if (value->kind != Kind::Boolean)
    return fail(where, "'" + key + "' is not True or False");
  result = value->integer;
  return Error::success();
}

Error SnapshotReader::getPool(const PickleValue &dict, StringRef key,
                              const Twine &where,
                              std::optional<Snapshot::Pool> &result) const {
  const PickleValue *value = values.find(dict, key);
  if (!value || value->kind == Kind::None)
    return Error::success();
  if (value->kind == Kind::List) {
    llvm::ArrayRef<PickleValue> ids = values.getElements(*value);
    if (ids.size() == 2 && ids[0].kind == Kind::Integer &&
        ids[1].kind == Kind::Integer) {
      result = {ids[0].integer, ids[1].integer};
      return Error::success();
    }
  }
  return fail(where, "'" + key + "' is not a pair of integers");
}

//===----------------------------------------------------------------------===//
// Stacks
//===----------------------------------------------------------------------===//

Error SnapshotReader::readFrame(const PickleValue &value, const Twine &where,
                                uint32_t &result) {
  if (value.kind != Kind::Dict)
    return fail(where, "it is not a dict");
  auto [known, isNew] = frames.try_emplace(value.node, snapshot.frames.size());
  result = known->second;
  if (!isNew)
    return Error::success();
  StringRef file, function;
  int64_t line = 0;
  constexpr int64_t kMostLines = int64_t(1) << 32;
  if (Error error = getText(value, "filename", where, file))
    return error;
  if (Error error = getText(value, "name", where, function))
    return error;
  if (Error error = getInteger(value, "line", where, -kMostLines, kMostLines,
                               line, /*isRequired=*/false))
    return error;
  snapshot.frames.push_back({file.str(), line, function.str()});
  return Error::success();
}

Error SnapshotReader::getStack(const PickleValue &dict, const Twine &where,
                               Snapshot::Stack &result) {
  const PickleValue *value = values.find(dict, "frames");
  if (!value || value->kind == Kind::None)
    return Error::success();
  if (value->kind != Kind::List)
    return fail(where, "'frames' is not a list");
  llvm::ArrayRef<PickleValue> elements = values.getElements(*value);
  if (elements.empty())
    return Error::success();
  auto [known, isNew] = stacks.try_emplace(value->node, snapshot.stacks.size());
  result = known->second;
  if (!isNew)
    return Error::success();
  std::vector<uint32_t> stack(elements.size());
  for (auto [index, element] : llvm::enumerate(elements))
    if (Error error = readFrame(
            element, where + ".frames[" + Twine(index) + "]", stack[index]))
      return error;
  snapshot.stacks.push_back(std::move(stack));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

Error SnapshotReader::readBlock(const PickleValue &value, const Twine &where,
                                uint64_t address, Snapshot::Block &block) {
  if (Error error = enter(value, where))
    return error;
  StringRef state;
  // Up to PyTorch 2.0 blocks have no addresses.
  block.address = address;
  if (Error error = getUnsigned(value, "address", where, block.address,
                                /*isRequired=*/false))
    return error;
  if (block.address != address)
    return fail(where, "it is not where the block in front of it ends");
  if (Error error = getBytes(value, "size", where, block.size))
    return error;
  if (values.find(value, "requested_size")) {
    block.requested = 0;
    if (Error error =
            getBytes(value, "requested_size", where, *block.requested))
      return error;
  }
  if (Error error = getText(value, "state", where, state))
    return error;
  auto known = llvm::StringSwitch<std::optional<State>>(state)
                   .Case("active_allocated", State::Allocated)
                   .Cases({"active_pending_free", "active_awaiting_free"},
                          State::PendingFree)
                   .Case("inactive", State::Inactive)
                   .Default(std::nullopt);
  if (!known)
    return fail(where, "there is no state '" + state + "'");
  block.state = *known;
  return getStack(value, where, block.stack);
}

Error SnapshotReader::readSegment(const PickleValue &value,
                                  const Twine &where) {
  if (Error error = enter(value, where))
    return error;
  Snapshot::Segment segment;
  StringRef type;
  std::optional<Snapshot::Pool> pool;
  llvm::ArrayRef<PickleValue> blocks;
  if (Error error =
          getInteger(value, "device", where, 0, kMostDevices, segment.device))
    return error;
  if (Error error = getUnsigned(value, "address", where, segment.address))
    return error;
  if (Error error = getBytes(value, "total_size", where, segment.size))
    return error;
  if (Error error = getUnsigned(value, "stream", where, segment.stream))
    return error;
  if (Error error = getText(value, "segment_type", where, type))
    return error;
  if (type != "small" && type != "large")
    return fail(where, "there is no type '" + type + "'");
  segment.isSmall = type == "small";
  if (Error error =
          getFlag(value, "is_expandable", where, segment.isExpandable))
    return error;
  if (Error error = getPool(value, "segment_pool_id", where, pool))
    return error;
  segment.pool = pool.value_or(Snapshot::Pool());
  if (Error error = getStack(value, where, segment.stack))
    return error;
  if (Error error = getList(value, "blocks", where, blocks))
    return error;
  int64_t offset = 0;
  for (auto [index, element] : llvm::enumerate(blocks)) {
    Snapshot::Block block;
    if (Error error =
            readBlock(element, where + ".blocks[" + Twine(index) + "]",
                      segment.address + offset, block))
      return error;
    if (block.size > segment.size - offset)
      return fail(where, "its blocks have more bytes than 'total_size'");
    offset += block.size;
    segment.blocks.push_back(block);
  }
  if (offset != segment.size)
    return fail(where, "its blocks have " + Twine(offset) +
                           " bytes, and 'total_size' is " +
                           Twine(segment.size));
  snapshot.segments.push_back(std::move(segment));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Traces and settings
//===----------------------------------------------------------------------===//

Error SnapshotReader::readEntry(const PickleValue &value, const Twine &where,
                                std::vector<Snapshot::Entry> &trace) {
  if (Error error = enter(value, where))
    return error;
  StringRef name;
  if (Error error = getText(value, "action", where, name))
    return error;
  std::optional<AllocatorAction> action = parseAllocatorAction(name);
  if (!action) {
    // The snapshot itself is an entry.
    if (name != "snapshot" && snapshot.otherActions.size() < kMostNamed &&
        !llvm::is_contained(snapshot.otherActions, name))
      snapshot.otherActions.push_back(name.str());
    return Error::success();
  }
  Snapshot::Entry entry;
  AllocatorEvent &event = entry.event;
  event.action = *action;
  if (Error error = event.action == AllocatorAction::OutOfMemory
                        ? getInteger(value, "device_free", where, 0,
                                     std::numeric_limits<int64_t>::max(),
                                     event.deviceFree, /*isRequired=*/false)
                        : getUnsigned(value, "addr", where, event.address))
    return error;
  if (Error error = getBytes(value, "size", where, event.bytes))
    return error;
  if (Error error = getUnsigned(value, "stream", where, event.stream))
    return error;
  if (Error error = getInteger(value, "time_us", where,
                               std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max(),
                               entry.microseconds, /*isRequired=*/false))
    return error;
  if (Error error = getPool(value, "pool_id", where, entry.pool))
    return error;
  if (Error error = getStack(value, where, entry.stack))
    return error;
  // Older versions do not have it.
  const PickleValue *metadata = values.find(value, "user_metadata");
  if (metadata && metadata->kind == Kind::Text)
    entry.metadata = metadata->text.str();
  trace.push_back(std::move(entry));
  return Error::success();
}

Error SnapshotReader::readSettings(const PickleValue &dict, StringRef prefix) {
  if (Error error = enter(dict, "allocator_settings"))
    return error;
  llvm::ArrayRef<PickleValue> elements = values.getElements(dict);
  for (size_t i = 0; i < elements.size(); i += 2) {
    const PickleValue &key = elements[i], &value = elements[i + 1];
    if (key.kind != Kind::Text)
      return fail("allocator_settings", "a key is not a text");
    std::string name = (prefix + key.text).str();
    if (value.kind == Kind::Dict && prefix.empty()) {
      if (Error error = readSettings(value, name + "."))
        return error;
      continue;
    }
    Snapshot::Value kept;
    switch (value.kind) {
    case Kind::Boolean:
      kept = value.integer != 0;
      break;
    case Kind::Integer:
    case Kind::Unsigned:
      kept = value.integer;
      break;
    case Kind::Float:
      kept = value.number;
      break;
    case Kind::Text:
      kept = value.text.str();
      break;
    default:
      break;
    }
    snapshot.settings.emplace_back(std::move(name), std::move(kept));
  }
  return Error::success();
}

llvm::Expected<Snapshot> SnapshotReader::read() {
  const PickleValue &root = values.getRoot();
  constexpr const char *kWhere = "snapshot";
  if (root.kind != Kind::Dict)
    return fail(kWhere, "it is not the dict of torch.cuda.memory._snapshot(), "
                        "which _dump_snapshot() writes");
  llvm::ArrayRef<PickleValue> segments, traces;
  if (Error error = getList(root, "segments", kWhere, segments))
    return error;
  if (Error error = getList(root, "device_traces", kWhere, traces))
    return error;
  for (auto [index, segment] : llvm::enumerate(segments))
    if (Error error = readSegment(segment, "segments[" + Twine(index) + "]"))
      return error;
  if (traces.size() > kMostDevices)
    return fail(kWhere, "'device_traces' has more than " + Twine(kMostDevices) +
                            " devices");
  for (auto [device, trace] : llvm::enumerate(traces)) {
    std::string where = ("device_traces[" + Twine(device) + "]").str();
    if (trace.kind != Kind::List)
      return fail(where, "it is not a list");
    snapshot.traces.emplace_back();
    for (auto [index, entry] : llvm::enumerate(values.getElements(trace)))
      if (Error error = readEntry(entry, where + "[" + Twine(index) + "]",
                                  snapshot.traces.back()))
        return error;
  }
  if (const PickleValue *settings = values.find(root, "allocator_settings"))
    if (Error error = readSettings(*settings, /*prefix=*/""))
      return error;
  return std::move(snapshot);
}

llvm::Expected<Snapshot> koila::readSnapshot(StringRef pickle) {
  llvm::Expected<PickleValues> values = PickleValues::read(pickle);
  if (!values)
    return values.takeError();
  return SnapshotReader(std::move(*values)).read();
}
