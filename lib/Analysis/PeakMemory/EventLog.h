//===- EventLog.h - The allocations of a run, in order ----------*- C++ -*-===//
//
// What a run over byte counts asks of the allocator and gives back, block by
// block. It is written where the run's sum of bytes changes, so that the
// largest sum of the events is the peak.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_PEAKMEMORY_EVENTLOG_H
#define KOILA_ANALYSIS_PEAKMEMORY_EVENTLOG_H

#include "koila/Interfaces/AllocationTrace.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <vector>

namespace koila {

struct Storage;

class EventLog {
public:
  struct Event {
    bool isFree;
    unsigned id;
    int64_t bytes;
    /// Null in the step of an optimizer.
    mlir::Operation *op;
    bool isBackward;
    /// One call of the allocator, not several or a bound.
    bool isExact;
    /// Of a block that a library takes when it first needs it on a thread, and
    /// keeps. Such blocks count in no sum.
    AllocationTrace::Library shared = AllocationTrace::Library::None;
  };

  /// What follows is of `op`, or of its backward pass.
  void enter(mlir::Operation *op, bool isBackward);
  /// What follows is of `op`, and of the backward pass if that is where it was.
  void follow(mlir::Operation &now) {
    if (op != &now)
      enter(&now, /*isBackward=*/false);
  }
  /// Storages that grow from now on are results of a kernel, whose places among
  /// its events finishKernel() finds.
  void beginKernel() { isWaiting = true; }
  /// What may go before a kernel ends, and goes with it.
  struct Outside {
    /// Gradients that have arrived, which go first.
    llvm::SmallVector<const Storage *, 1> arrived;
    llvm::SmallVector<const Storage *, 4> saved;
    /// Of some events of the trace: whose block goes, and which one of `count`;
    /// 0: of as many as there are.
    struct Known {
      size_t event;
      const Storage *entry;
      size_t number, count;
    };
    llvm::SmallVector<Known, 4> known;
  };
  /// Writes the events of a kernel: those of `trace`, with the storages that
  /// grew. `most` are the bytes that were there at its worst moment beyond
  /// those before it. What the trace frees of before is in one of `outside`.
  void finishKernel(const AllocationTrace &trace, int64_t most, bool isExact,
                    const Outside &outside);
  bool isInKernel() const { return isWaiting; }
  /// Writes the step of an optimizer: what `trace` leaves stays. Gives the
  /// blocks that do.
  llvm::SmallVector<unsigned> append(const AllocationTrace &trace);
  /// The blocks that `entry` has.
  llvm::SmallVector<unsigned> getBlocks(const Storage *entry) const;
  /// `entry`, which has just grown, is this block of the kernel's trace.
  void place(const Storage *entry, AllocationTrace::Block block) {
    if (!waiting.empty() && waiting.back().entry == entry)
      waiting.back().block = block;
  }
  /// `entry` has `bytes` more, which the kernel keeps for the gradient.
  void keep(const Storage *entry, int64_t bytes) {
    waiting.push_back({entry, bytes, /*isKept=*/true});
  }
  /// `entry` has `bytes` now.
  void resize(const Storage *entry, int64_t bytes);
  void release(const Storage *entry) { resize(entry, 0); }
  /// The blocks of `from` are part of `to` now.
  void move(const Storage *from, const Storage *to);
  /// Bytes that are there for a moment.
  void lump(int64_t bytes);

  /// No event from number `first` on is known to be one of the allocator.
  void doubtFrom(size_t first);
  /// Frees what `getBytes` says is not there.
  void reduce(llvm::function_ref<int64_t(const Storage *)> getBytes);

  llvm::ArrayRef<Event> getEvents() const { return events; }
  /// The largest sum, and the last one.
  __int128 getPeak() const { return peak; }
  __int128 getLive() const { return live; }

private:
  struct Block {
    unsigned id;
    int64_t bytes;
    bool isExact;
  };
  struct Waiting {
    const Storage *entry;
    int64_t bytes;
    bool isKept = false, isPlaced = false;
    /// Which one of the trace it is, if that is known.
    AllocationTrace::Block block = {};
  };
  using Blocks = llvm::SmallVector<Block, 1>;

  Block allocate(int64_t bytes, bool isExact);
  void share(const AllocationTrace::Event &event);
  void free(const Block &block);
  /// Which storage each block is of that `trace` leaves.
  llvm::SmallVector<const Storage *> placeResults(const AllocationTrace &trace);
  /// Whether `outside` has what `trace` frees of before.
  bool hasOutside(const AllocationTrace &trace, const Outside &outside) const;
  /// The numbers of the blocks that events of `trace` free, where `outside`
  /// says which they are.
  llvm::SmallDenseMap<size_t, unsigned> findKnown(const AllocationTrace &trace,
                                                  const Outside &outside) const;
  /// Frees the block `id`, or without it one of `bytes` that is none of
  /// `others`. Where several are as large it is not known which one, and no
  /// free of them is exact.
  void freeOutside(int64_t bytes, std::optional<unsigned> id,
                   const Outside &outside, llvm::ArrayRef<unsigned> others);
  /// False, and nothing is written, where the trace does not fit the figure.
  bool write(const AllocationTrace &trace, int64_t most, bool isExact,
             const Outside &outside);

  std::vector<Event> events;
  llvm::DenseMap<const Storage *, Blocks> blocks;
  llvm::SmallVector<Waiting, 2> waiting;
  mlir::Operation *op = nullptr;
  bool isBackward = false, isWaiting = false;
  unsigned nextId = 0;
  __int128 live = 0, peak = 0;
};

} // namespace koila

#endif // KOILA_ANALYSIS_PEAKMEMORY_EVENTLOG_H
