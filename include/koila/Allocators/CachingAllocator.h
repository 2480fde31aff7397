//===- CachingAllocator.h - PyTorch's CUDA caching allocator ----*- C++ -*-===//
//
// A simulation of PyTorch's allocator on one device, to the byte: what it
// reserves, where it puts each block, and when it runs out of memory. It needs
// no device. docs/design/Allocators.md has the rules.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ALLOCATORS_CACHINGALLOCATOR_H
#define KOILA_ALLOCATORS_CACHINGALLOCATOR_H

#include "koila/Allocators/AllocatorTrace.h"
#include "koila/Allocators/CachingAllocatorSettings.h"
#include "koila/Allocators/CachingAllocatorStats.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace koila {

/// Why a request was not met.
struct AllocatorOutOfMemory {
  enum class Kind : uint8_t {
    /// Neither the device nor the limit of the process leaves enough, after all
    /// that is cached was released.
    Exhausted,
    /// `throw_on_cudamalloc_oom` refused it without releasing anything.
    Rejected,
    /// An exabyte or more.
    TooLarge
  };
  Kind kind = Kind::Exhausted;
  /// What was asked for, and what of that the device was asked for.
  int64_t requested = 0, segment = 0;
  int64_t deviceTotal = 0, deviceFree = 0;
  /// What the process may reserve, if that is limited.
  std::optional<int64_t> allowed;
  int64_t allocated = 0, reserved = 0;

  /// The text of PyTorch's exception, without its pages and without what the
  /// driver says about other processes.
  std::string getMessage() const;

  bool operator==(const AllocatorOutOfMemory &other) const = default;
};

/// What is not of PyTorch's configuration.
struct CachingAllocatorOptions {
  enum class EqualBlocks : uint8_t {
    /// PyTorch 2.13: that of the oldest segment goes first.
    BySegmentBirth,
    /// Up to PyTorch 2.11: that of the lowest address.
    ByAddress
  };
  EqualBlocks equalBlocks = EqualBlocks::BySegmentBirth;
  /// Is told each event once it has happened.
  AllocatorObserver observer;
  /// Whether the driver gives so many bytes, and limits that are not known here
  /// allow them: asked for each segment, and for each range of pages. Without
  /// it, as far as the device has them.
  std::function<bool(int64_t bytes)> hasMemory;
  /// The address of a new segment or reservation of so many bytes. Without it
  /// they lie one behind the other.
  std::function<uint64_t(int64_t bytes)> chooseAddress;
};

class CachingAllocator {
public:
  /// A number in place of a stream's address, of which the allocator knows the
  /// order alone; 0 is the default stream.
  using Stream = uint64_t;

  struct Device {
    /// Of which fractions are taken, and for which addresses are reserved.
    int64_t totalBytes = 0;
    /// What the driver can hand out: without contexts and other processes.
    int64_t freeBytes = 0;
  };

  /// What allocate() gave, by its number in the order of allocations; nothing
  /// for zero bytes.
  class Allocation {
  public:
    Allocation() = default;
    explicit Allocation(uint64_t number) : number(number) {}
    bool isEmpty() const { return number == kEmpty; }
    uint64_t getNumber() const { return number; }
    bool operator==(const Allocation &other) const = default;

  private:
    static constexpr uint64_t kEmpty = std::numeric_limits<uint64_t>::max();
    uint64_t number = kEmpty;
  };
  using Result = std::variant<Allocation, AllocatorOutOfMemory>;

  struct BlockInfo {
    enum class State : uint8_t {
      Allocated,
      /// Freed, and in use on other streams.
      PendingFree,
      Inactive
    };
    int64_t size = 0;
    /// Zero if inactive.
    int64_t requested = 0;
    State state = State::Inactive;
    bool operator==(const BlockInfo &other) const = default;
  };
  /// What a snapshot of PyTorch calls a segment: what one cudaMalloc() gave, or
  /// a range of an expandable segment whose pages are mapped.
  struct SegmentInfo {
    /// The number of its cudaMalloc() or reservation, from 0 on.
    int64_t birth = 0;
    /// Not zero in expandable segments alone.
    int64_t offset = 0;
    Stream stream = 0;
    bool isSmall = false, isExpandable = false;
    /// One after the other, without gaps.
    std::vector<BlockInfo> blocks;
    bool operator==(const SegmentInfo &other) const = default;
  };
  struct Place {
    int64_t birth = 0, offset = 0;
    bool operator==(const Place &other) const = default;
  };

  /// A block that is there from the start.
  struct InitialBlock {
    int64_t size = 0, requested = 0;
    BlockInfo::State state = BlockInfo::State::Inactive;
    /// False of addresses without memory in an expandable segment.
    bool isMapped = true;
    /// Which stream a block waits for that is freed and in use.
    Stream waitsFor = 0;
  };
  /// A segment that is there from the start: all that cudaMalloc() gave, or a
  /// whole reservation. Its blocks follow each other without gaps.
  struct InitialSegment {
    uint64_t address = 0;
    Stream stream = 0;
    bool isSmall = false, isExpandable = false;
    std::vector<InitialBlock> blocks;
  };

  CachingAllocator(const CachingAllocatorSettings &settings, Device device,
                   CachingAllocatorOptions options = {});
  ~CachingAllocator();
  CachingAllocator(CachingAllocator &&) noexcept;
  CachingAllocator &operator=(CachingAllocator &&) noexcept;

  /// Before all else: what a recording begins with. The allocations are those
  /// of the blocks in use, in their order. The order of the segments is that of
  /// their births.
  llvm::Expected<std::vector<Allocation>>
  restore(llvm::ArrayRef<InitialSegment> initial);

  Result allocate(int64_t bytes, Stream stream = 0);
  /// Nothing happens for an empty allocation. Fails for one that is not live.
  llvm::Error free(Allocation allocation);
  /// `Tensor.record_stream()`: another stream uses it. What is freed then waits
  /// for the other streams' work up to that point.
  llvm::Error recordStream(Allocation allocation, Stream stream);
  /// All work that the stream got so far is done. The allocator sees that at
  /// the next allocation.
  void synchronize(Stream stream);
  /// Sees it now, and frees what waited for it.
  void processEvents();
  /// `torch.cuda.empty_cache()`.
  void emptyCache();
  /// `torch.cuda.set_per_process_memory_fraction()`.
  llvm::Error setMemoryFraction(double fraction);

  const CachingAllocatorStats &getStats() const;
  void resetPeakStats();
  void resetAccumulatedStats();

  /// Of a live allocation.
  Place getPlace(Allocation allocation) const;
  int64_t getBlockBytes(Allocation allocation) const;
  /// In the order of their births and offsets.
  std::vector<SegmentInfo> getSegments() const;
  /// Of the start of a segment that is there.
  uint64_t getAddress(int64_t birth) const;
  const CachingAllocatorSettings &getSettings() const;

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace koila

#endif // KOILA_ALLOCATORS_CACHINGALLOCATOR_H
