//===- AllocatorTrace.h - What an allocator does, event by event *- C++ -*-===//
//
// The events that torch.cuda.memory._record_memory_history() records, in its
// order: a segment comes before the block that it was taken for.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ALLOCATORS_ALLOCATORTRACE_H
#define KOILA_ALLOCATORS_ALLOCATORTRACE_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <functional>
#include <optional>

namespace koila {

enum class AllocatorAction : uint8_t {
  Alloc,
  /// free() was called; other streams may still use the block.
  FreeRequested,
  /// The block is free for others.
  FreeCompleted,
  /// cudaMalloc() and cudaFree().
  SegmentAlloc,
  SegmentFree,
  /// Pages of an expandable segment.
  SegmentMap,
  SegmentUnmap,
  OutOfMemory
};
inline constexpr unsigned kNumAllocatorActions = 8;

/// The name in a snapshot, as "free_requested".
llvm::StringRef getName(AllocatorAction action);
std::optional<AllocatorAction> parseAllocatorAction(llvm::StringRef name);

struct AllocatorEvent {
  AllocatorAction action = AllocatorAction::Alloc;
  /// Of the block or of the pages; zero if memory is exhausted.
  uint64_t address = 0;
  /// What was asked for, and not what the block has; of a segment its bytes; if
  /// memory is exhausted, what was asked for in whole blocks.
  int64_t bytes = 0;
  uint64_t stream = 0;
  /// What the device has left, if memory is exhausted.
  int64_t deviceFree = 0;

  bool operator==(const AllocatorEvent &other) const = default;
};

using AllocatorObserver = std::function<void(const AllocatorEvent &)>;

} // namespace koila

#endif // KOILA_ALLOCATORS_ALLOCATORTRACE_H
