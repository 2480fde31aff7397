//===- AllocationTrace.h - What a kernel allocates, in order ----*- C++ -*-===//
//
// What a kernel asks of its device's allocator and gives back, one event for
// each block, in the order of its calls. All that is said of a kernel's memory
// is read from this list: the sum of its bytes is the figure of reports, and a
// caching allocator is fed with the events themselves. Bytes are those asked
// for, before an allocator rounds them.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INTERFACES_ALLOCATIONTRACE_H
#define KOILA_INTERFACES_ALLOCATIONTRACE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

namespace koila {

class AllocationTrace {
public:
  /// One block of the allocator, from its allocation on; its number in the
  /// order of allocations. Nothing is allocated for zero bytes.
  class Block {
  public:
    Block() = default;
    explicit Block(uint32_t index) : index(index) {}
    bool isEmpty() const { return index == kEmpty; }
    uint32_t getIndex() const { return index; }
    bool operator==(const Block &other) const = default;

  private:
    static constexpr uint32_t kEmpty = std::numeric_limits<uint32_t>::max();
    uint32_t index = kEmpty;
  };
  /// Who takes a shared block.
  enum class Library : uint8_t { None, CuBLAS };
  struct Event {
    enum class Kind : uint8_t {
      Allocate,
      Free,
      /// Bytes that are there for a moment: which blocks they are, and in which
      /// order they come and go, is not known.
      Lump,
      /// Bytes go that were there before the trace.
      FreeOutside,
      /// A block that a library takes when it first needs it on a thread, and
      /// keeps. It counts in no sum: it is there before, but for the first
      /// call.
      Shared
    };
    Kind kind;
    /// Of a shared block.
    Library library = Library::None;
    Block block;
    int64_t bytes;
  };

  /// One allocation. What is not freed at the end is a result, or is kept for
  /// the gradient.
  Block allocate(int64_t bytes);
  void free(Block block);
  /// Frees the block of these bytes that was allocated last; several that were
  /// allocated last if they add up; else bytes from outside of the trace.
  void free(int64_t bytes);
  /// A block of these bytes goes that was there before the trace.
  void freeOutside(int64_t bytes);
  /// What is left goes, the last block first.
  void freeAll();
  /// A block that is gone before the next event.
  void allocateTemporary(int64_t bytes) { free(allocate(bytes)); }
  /// `bytes` at the worst moment of steps that are not told apart.
  void lump(int64_t bytes);
  /// The block of a library, of which there is one for each thread.
  void share(Library library, int64_t bytes);
  /// A block of these bytes is not freed: what is kept for the gradient. The
  /// first such block that nothing else keeps; none if there is none.
  std::optional<Block> keep(int64_t bytes);
  /// This one.
  void keep(Block block);

  /// The most there was, and what is left.
  int64_t getPeak() const { return narrow(peak); }
  int64_t getLeft() const { return narrow(live); }
  /// The most there was beyond what is left.
  int64_t getTransient() const { return narrow(peak - live); }

  llvm::ArrayRef<Event> getEvents() const { return events; }
  int64_t getBytes(Block block) const { return blocks[block.getIndex()].bytes; }
  /// Whether `block` is there at the end.
  bool isLeft(Block block) const { return blocks[block.getIndex()].isLive; }
  bool isKept(Block block) const { return blocks[block.getIndex()].isKept; }
  size_t getNumBlocks() const { return blocks.size(); }
  /// Whether each event is one of the allocator.
  bool isItemized() const;

private:
  static int64_t narrow(__int128 bytes) {
    constexpr __int128 kMost = std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(std::min(bytes, kMost));
  }
  void add(const Event &event);
  void count(const Event &event);

  struct State {
    int64_t bytes;
    bool isLive = true, isKept = false;
  };
  llvm::SmallVector<Event, 6> events;
  llvm::SmallVector<State, 4> blocks;
  /// Wide: a sum of sizes that each fit may not.
  __int128 live = 0, peak = 0;
};

} // namespace koila

#endif // KOILA_INTERFACES_ALLOCATIONTRACE_H
