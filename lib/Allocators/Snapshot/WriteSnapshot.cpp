//===- WriteSnapshot.cpp - Snapshots as pickles ---------------------------===//
//
// PyTorch's viewer (torch/utils/viz/MemoryViz.js) has a reader of its own,
// which knows few instructions; these are all that are written.
//
//===----------------------------------------------------------------------===//

#include "koila/Allocators/Snapshot.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/EndianStream.h"
#include "llvm/Support/JSON.h"

using namespace koila;
using State = CachingAllocator::BlockInfo::State;
using llvm::StringRef;

namespace {
class PickleWriter {
public:
  explicit PickleWriter(llvm::raw_ostream &os)
      : os(os, llvm::endianness::little) {
    this->os.OS << "\x80\x02"; // PROTO 2
  }
  void finish() { code('.'); }

  void write(bool value) { code(value ? '\x88' : '\x89'); }
  void write(int64_t value);
  void write(uint64_t value);
  void write(double value);
  /// Each text is written once.
  void write(StringRef text);
  // It is no flag.
  void write(const char *text) { write(StringRef(text)); }
  void write(const Snapshot::Pool &pool) {
    write(pool.first);
    write(pool.second);
    code('\x86'); // TUPLE2
  }
  // Containers. Elements stand between begin and end.
  void beginList() {
    code(']');
    code('(');
  }
  void endList() { code('e'); }
  void beginDict() {
    code('}');
    code('(');
  }
  void endDict() { code('u'); }
  void writeNone() { code('N'); }
  /// The value on top, and again.
  uint32_t remember();
  void recall(uint32_t index);

  template <typename Value>
  void entry(StringRef key, const Value &value) {
    write(key);
    write(value);
  }

private:
  void code(char instruction) { os.OS << instruction; }

  llvm::support::endian::Writer os;
  llvm::StringMap<uint32_t> texts;
  uint32_t numRemembered = 0;
};

class SnapshotWriter {
public:
  SnapshotWriter(llvm::raw_ostream &os, const Snapshot &snapshot)
      : pickle(os), snapshot(snapshot),
        frames(snapshot.frames.size(), kUnwritten),
        stacks(snapshot.stacks.size(), kUnwritten) {}

  void write();

private:
  static constexpr uint32_t kUnwritten = ~uint32_t(0);

  void writeFrame(uint32_t frame);
  void writeStack(Snapshot::Stack stack);
  void writeBlock(const Snapshot::Block &block);
  void writeSegment(const Snapshot::Segment &segment);
  void writeEntry(const Snapshot::Entry &entry);
  void writeSettings();
  void writeValue(const Snapshot::Value &value);

  PickleWriter pickle;
  const Snapshot &snapshot;
  /// Where those are remembered that were written.
  std::vector<uint32_t> frames, stacks;
};
} // namespace

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

void PickleWriter::write(int64_t value) {
  if (value >= 0 && value < 256) {
    code('K'); // BININT1
    os.write(static_cast<uint8_t>(value));
  } else if (llvm::isInt<32>(value)) {
    code('J'); // BININT
    os.write(static_cast<int32_t>(value));
  } else {
    code('\x8a'); // LONG1
    os.write(uint8_t(8));
    os.write(value);
  }
}

void PickleWriter::write(uint64_t value) {
  if (llvm::isInt<64>(value) && static_cast<int64_t>(value) >= 0) {
    write(static_cast<int64_t>(value));
    return;
  }
  code('\x8a'); // LONG1, with a byte for the sign
  os.write(uint8_t(9));
  os.write(value);
  os.write(uint8_t(0));
}

void PickleWriter::write(double value) {
  code('G'); // BINFLOAT, the one value with its highest byte first
  llvm::support::endian::write(os.OS, llvm::bit_cast<uint64_t>(value),
                               llvm::endianness::big);
}

uint32_t PickleWriter::remember() {
  code('r'); // LONG_BINPUT
  os.write(numRemembered);
  return numRemembered++;
}

void PickleWriter::recall(uint32_t index) {
  code('j'); // LONG_BINGET
  os.write(index);
}

void PickleWriter::write(StringRef text) {
  auto [known, isNew] = texts.try_emplace(text, 0);
  if (!isNew) {
    recall(known->second);
    return;
  }
  std::string valid = llvm::json::fixUTF8(text);
  code('X'); // BINUNICODE
  os.write(static_cast<uint32_t>(valid.size()));
  os.OS << valid;
  known->second = remember();
}

//===----------------------------------------------------------------------===//
// Parts of a snapshot
//===----------------------------------------------------------------------===//

void SnapshotWriter::writeFrame(uint32_t number) {
  if (frames[number] != kUnwritten) {
    pickle.recall(frames[number]);
    return;
  }
  const Snapshot::Frame &frame = snapshot.frames[number];
  pickle.beginDict();
  pickle.entry("filename", StringRef(frame.file));
  pickle.entry("line", frame.line);
  pickle.entry("name", StringRef(frame.function));
  pickle.endDict();
  frames[number] = pickle.remember();
}

void SnapshotWriter::writeStack(Snapshot::Stack stack) {
  pickle.write("frames");
  if (stack != Snapshot::kNoStack && stacks[stack] != kUnwritten) {
    pickle.recall(stacks[stack]);
    return;
  }
  pickle.beginList();
  if (stack != Snapshot::kNoStack)
    for (uint32_t frame : snapshot.stacks[stack])
      writeFrame(frame);
  pickle.endList();
  if (stack != Snapshot::kNoStack)
    stacks[stack] = pickle.remember();
}

static StringRef getName(State state) {
  return state == State::Allocated     ? "active_allocated"
         : state == State::PendingFree ? "active_pending_free"
                                       : "inactive";
}

void SnapshotWriter::writeBlock(const Snapshot::Block &block) {
  pickle.beginDict();
  pickle.entry("address", block.address);
  pickle.entry("size", block.size);
  pickle.entry("requested_size", block.requested.value_or(0));
  pickle.entry("state", getName(block.state));
  writeStack(block.stack);
  pickle.endDict();
}

void SnapshotWriter::writeSegment(const Snapshot::Segment &segment) {
  int64_t allocated = 0, active = 0, requested = 0;
  for (const Snapshot::Block &block : segment.blocks) {
    if (block.state == State::Inactive)
      continue;
    active += block.size;
    requested += block.requested.value_or(0);
    allocated += block.state == State::Allocated ? block.size : 0;
  }
  pickle.beginDict();
  pickle.entry("device", segment.device);
  pickle.entry("address", segment.address);
  pickle.entry("total_size", segment.size);
  pickle.entry("allocated_size", allocated);
  pickle.entry("active_size", active);
  pickle.entry("requested_size", requested);
  pickle.entry("stream", segment.stream);
  pickle.entry("segment_type", StringRef(segment.isSmall ? "small" : "large"));
  pickle.entry("segment_pool_id", segment.pool);
  pickle.entry("is_expandable", segment.isExpandable);
  writeStack(segment.stack);
  pickle.write("blocks");
  pickle.beginList();
  for (const Snapshot::Block &block : segment.blocks)
    writeBlock(block);
  pickle.endList();
  pickle.endDict();
}

void SnapshotWriter::writeEntry(const Snapshot::Entry &entry) {
  const AllocatorEvent &event = entry.event;
  pickle.beginDict();
  pickle.entry("action", getName(event.action));
  if (event.action == AllocatorAction::OutOfMemory)
    pickle.entry("device_free", event.deviceFree);
  else
    pickle.entry("addr", event.address);
  pickle.entry("size", event.bytes);
  pickle.entry("stream", event.stream);
  pickle.entry("time_us", entry.microseconds);
  pickle.entry("compile_context", StringRef("N/A"));
  pickle.entry("user_metadata", StringRef(entry.metadata));
  pickle.entry("pool_id", entry.pool.value_or(Snapshot::Pool()));
  writeStack(entry.stack);
  pickle.endDict();
}

void SnapshotWriter::writeValue(const Snapshot::Value &value) {
  if (const auto *text = std::get_if<std::string>(&value))
    pickle.write(StringRef(*text));
  else if (const auto *flag = std::get_if<bool>(&value))
    pickle.write(*flag);
  else if (const auto *integer = std::get_if<int64_t>(&value))
    pickle.write(*integer);
  else if (const auto *number = std::get_if<double>(&value))
    pickle.write(*number);
  else
    pickle.writeNone();
}

/// What has a point in its name is of a dict, with those that follow it.
void SnapshotWriter::writeSettings() {
  StringRef open;
  pickle.beginDict();
  for (const auto &[name, value] : snapshot.settings) {
    auto [dict, key] = StringRef(name).split('.');
    if (key.empty())
      dict = "";
    if (dict != open && !open.empty())
      pickle.endDict();
    if (dict != open && !dict.empty()) {
      pickle.write(dict);
      pickle.beginDict();
    }
    open = dict;
    pickle.write(key.empty() ? StringRef(name) : key);
    writeValue(value);
  }
  if (!open.empty())
    pickle.endDict();
  pickle.endDict();
}

void SnapshotWriter::write() {
  pickle.beginDict();
  pickle.write("segments");
  pickle.beginList();
  for (const Snapshot::Segment &segment : snapshot.segments)
    writeSegment(segment);
  pickle.endList();
  pickle.write("device_traces");
  pickle.beginList();
  for (const std::vector<Snapshot::Entry> &trace : snapshot.traces) {
    pickle.beginList();
    for (const Snapshot::Entry &entry : trace)
      writeEntry(entry);
    pickle.endList();
  }
  pickle.endList();
  pickle.write("allocator_settings");
  writeSettings();
  pickle.write("external_annotations");
  pickle.beginList();
  pickle.endList();
  pickle.endDict();
  pickle.finish();
}

void koila::writeSnapshot(llvm::raw_ostream &os, const Snapshot &snapshot) {
  SnapshotWriter(os, snapshot).write();
}
