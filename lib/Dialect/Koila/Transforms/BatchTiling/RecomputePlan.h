//===- RecomputePlan.h - What a backward pass computes again ----*- C++ -*-===//
//
// A backward pass in segments reads values of the forward pass. Each is kept as
// a whole, or made again in the tiles of the first segment that reads it and
// kept from there on, or made again by each segment that reads it. The plan
// that takes the least time within some bytes is looked for by eviction: all is
// kept at first, and of what is there at the peak that goes which costs the
// least time for its bytes.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_RECOMPUTEPLAN_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_RECOMPUTEPLAN_H

#include "CostEstimate.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace koila {

/// What becomes of a value of the forward pass.
enum class Recompute {
  /// It is kept.
  Never,
  /// The first segment that reads it makes it again, for those after it, too.
  Once,
  /// Each segment that reads it makes it again.
  Always
};

/// A segment as the planner sees it.
struct SegmentReads {
  /// Values of the forward pass that it reads.
  llvm::SetVector<mlir::Value> values;
  /// Values whose gradients it takes from others, and for others.
  llvm::SmallVector<mlir::Value> taken, made;
};

class RecomputePlanner {
public:
  /// Whole tensors at the worst moment, in bytes, and time in picoseconds that
  /// is spent on what is made again.
  struct Figures {
    int64_t bytes = 0;
    /// What all steps together have above the bytes that are wanted.
    double excess = 0;
    double time = 0;
    /// What is there at the worst moment.
    llvm::SmallVector<mlir::Value> live;
  };

  /// `levels` says of operations of the forward pass how many cuts are before
  /// them; `segments` are in the order of the backward pass. Extents are those
  /// at `batch` samples. `isFree` says of an operation that it is always made
  /// again.
  RecomputePlanner(const DimAnalysis &dims, llvm::StringRef symbol,
                   int64_t batch,
                   const llvm::DenseMap<mlir::Operation *, unsigned> &levels,
                   llvm::SmallVector<SegmentReads> segments,
                   llvm::function_ref<bool(mlir::Operation *)> isFree,
                   llvm::function_ref<bool(mlir::Value)> isApart);

  /// Evicts until whole tensors take at most `bytes`, or nothing helps.
  void evict(int64_t bytes);
  Recompute lookup(mlir::Value value) const { return choices.lookup(value); }
  /// Of the plan that there is; `wanted` are bytes.
  Figures simulate(int64_t wanted) const;
  /// The time of the forward pass, in picoseconds.
  double getForwardTime() const { return forwardTime; }

private:
  struct Simulation;
  bool mayRecompute(mlir::Value value) const;

  CostEstimate costs;
  const llvm::DenseMap<mlir::Operation *, unsigned> &levels;
  llvm::SmallVector<SegmentReads> segments;
  double forwardTime = 0;
  llvm::DenseSet<mlir::Operation *> always;
  llvm::DenseSet<mlir::Value> apart;
  llvm::DenseMap<mlir::Value, Recompute> choices;
  /// The level of the last operation of the forward pass that reads it.
  llvm::MapVector<mlir::Value, unsigned> lastRead;
};

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_RECOMPUTEPLAN_H
