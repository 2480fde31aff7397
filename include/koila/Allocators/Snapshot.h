//===- Snapshot.h - torch.cuda.memory._snapshot() ---------------*- C++ -*-===//
//
// What PyTorch writes of its allocator for CUDA: segments and blocks, what
// happened before, and the settings. Files are pickles of plain values.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ALLOCATORS_SNAPSHOT_H
#define KOILA_ALLOCATORS_SNAPSHOT_H

#include "koila/Allocators/CachingAllocator.h"
#include "llvm/Support/raw_ostream.h"
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace koila {

struct Snapshot {
  struct Frame {
    std::string file;
    int64_t line = 0;
    std::string function;
    bool operator==(const Frame &other) const = default;
  };
  /// A list of frames, the innermost first, by its number in `stacks`.
  using Stack = uint32_t;
  static constexpr Stack kNoStack = ~Stack(0);
  /// (0, 0) is the pool of everything that is not of a CUDA graph or of
  /// `torch.cuda.use_mem_pool()`.
  using Pool = std::pair<int64_t, int64_t>;

  struct Block {
    uint64_t address = 0;
    int64_t size = 0;
    /// Older versions do not say, and some keep a past one of an inactive
    /// block.
    std::optional<int64_t> requested;
    CachingAllocator::BlockInfo::State state =
        CachingAllocator::BlockInfo::State::Inactive;
    Stack stack = kNoStack;
    bool operator==(const Block &other) const = default;
  };
  struct Segment {
    int64_t device = 0;
    uint64_t address = 0;
    int64_t size = 0;
    uint64_t stream = 0;
    bool isSmall = false, isExpandable = false;
    Pool pool;
    Stack stack = kNoStack;
    /// One after the other, without gaps.
    std::vector<Block> blocks;
    bool operator==(const Segment &other) const = default;
  };
  struct Entry {
    AllocatorEvent event;
    int64_t microseconds = 0;
    /// Up to PyTorch 2.12 or so, entries do not say.
    std::optional<Pool> pool;
    Stack stack = kNoStack;
    /// A text of the program's own, as `torch.cuda.memory._set_memory_metadata`
    /// gives.
    std::string metadata = {};
    bool operator==(const Entry &other) const = default;
  };
  /// None is a value that no setting has, as a list.
  using Value =
      std::variant<std::monostate, bool, int64_t, double, std::string>;

  std::vector<Segment> segments;
  /// By device, in the order of time.
  std::vector<std::vector<Entry>> traces;
  /// Actions of the traces that are left out, as they are not the allocator's.
  std::vector<std::string> otherActions;
  /// What `allocator_settings` has. An entry of a dict in it has the name
  /// "roundup_power2_divisions.1".
  std::vector<std::pair<std::string, Value>> settings;
  std::vector<Frame> frames;
  /// Numbers of frames.
  std::vector<std::vector<uint32_t>> stacks;

  Stack addStack(llvm::ArrayRef<Frame> innermostFirst);
};

/// Reads a pickle that anybody may have made: nothing in it is called. The
/// error says where it is wrong.
llvm::Expected<Snapshot> readSnapshot(llvm::StringRef pickle);

/// Protocol 2, with those instructions alone that PyTorch's viewer knows.
void writeSnapshot(llvm::raw_ostream &os, const Snapshot &snapshot);

/// Adds to a snapshot the segments of an allocator on device 0, and its
/// settings. A block in use has the stack of its allocation in the trace.
void addAllocator(Snapshot &snapshot, const CachingAllocator &allocator);

/// What the settings of a snapshot say. `unknown` gets the names of those that
/// koila does not know.
llvm::Expected<CachingAllocatorSettings>
getAllocatorSettings(const Snapshot &snapshot,
                     std::vector<std::string> &unknown);

} // namespace koila

#endif // KOILA_ALLOCATORS_SNAPSHOT_H
