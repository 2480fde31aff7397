//===- RecomputePlan.h - What a backward pass computes again ----*- C++ -*-===//
//
// A backward pass in segments reads values of the forward pass. Each is kept as
// a whole, or made again in the tiles of the first segment that reads it and
// kept from there on, or made again by each segment that reads it. The plan
// that takes the least time within some bytes is looked for by eviction: all is
// kept at first, and of what is there at the peak that goes which costs the
// least time for its bytes. What went early and need not have gone comes back
// at the end.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_RECOMPUTEPLAN_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_RECOMPUTEPLAN_H

#include "CostEstimate.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
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

/// A gradient that the segment which takes it can make again: by
/// differentiating `ops`, which make `output` of `value` alone, from the
/// gradient of `output`.
struct GradientAgain {
  mlir::Value value, output;
  llvm::SmallVector<mlir::Operation *> ops;
};

/// A segment as the planner sees it.
struct SegmentReads {
  llvm::ArrayRef<mlir::Operation *> ops;
  /// Values of the forward pass that it reads.
  llvm::SetVector<mlir::Value> values;
  /// Values whose gradients it takes from others, and for others.
  llvm::SmallVector<mlir::Value> taken, made;
  /// Of those that it makes.
  std::vector<GradientAgain> again;
};

class RecomputePlanner {
public:
  /// Whole tensors at each step, in bytes, and time in picoseconds that is
  /// spent on what is made again.
  struct Figures {
    std::vector<int64_t> bytesAt;
    /// What a step has above its limit, the worst one and all together.
    int64_t over = 0;
    double excess = 0;
    double time = 0;
    /// What is there at the worst moment, and of what gradients are.
    llvm::SmallVector<mlir::Value> live, liveGradients;
  };

  /// `levels` says of operations of the forward pass how many cuts are before
  /// them; `segments` are in the order of the backward pass. Extents are those
  /// at `batch` samples. `isFree` says of an operation that it is always made
  /// again.
  RecomputePlanner(const DimAnalysis &dims, llvm::StringRef symbol,
                   int64_t batch, const CostTable &table,
                   llvm::DenseMap<mlir::Operation *, unsigned> levels,
                   llvm::SmallVector<SegmentReads> segments,
                   llvm::function_ref<bool(mlir::Operation *)> isFree,
                   llvm::function_ref<bool(mlir::Value)> isApart);

  /// Looks for the plan within `bytes` that takes least time: of whole tensors,
  /// and of `beside`, where that is known, in tiles of any size.
  void plan(int64_t bytes, llvm::ArrayRef<TileMemory> beside);
  Recompute lookup(mlir::Value value) const {
    return choices.ofValues.lookup(value);
  }
  /// How the gradient of `value` is made again by who takes it; null if it is
  /// kept.
  const GradientAgain *lookupGradient(mlir::Value value) const;
  /// Whether the forward pass makes `value` twice, and keeps it for no level
  /// but its own.
  bool runsTwice(mlir::Value value) const {
    return choices.twice.contains(value);
  }
  /// Of the plan that there is; `limits` are bytes of each step.
  Figures simulate(llvm::ArrayRef<int64_t> limits) const;
  /// Levels of the forward pass and segments.
  size_t countSteps() const { return countLevels() + segments.size(); }
  size_t countLevels() const { return levelCount; }

private:
  struct Simulation;
  /// What may be changed of a plan.
  struct Move {
    enum Kind {
      /// What becomes of a value for segments.
      Choose,
      /// Its gradient is made again, or not.
      ToggleGradient,
      /// The forward pass makes it twice, or not.
      ToggleTwice
    };
    mlir::Value value;
    Kind kind = Choose;
    Recompute choice = Recompute::Never;
    /// Of a choice, what becomes of others with it.
    llvm::SmallVector<std::pair<mlir::Value, Recompute>> others = {};
  };
  bool mayRecompute(mlir::Value value) const;
  bool mayRunTwice(mlir::Value value) const;
  llvm::SmallVector<Move> findMoves(const Figures &now) const;
  /// Moves of a value and of all that it is made again of, none of which then
  /// is there for anybody else.
  llvm::SmallVector<Move> findDeepMoves(const Figures &now) const;
  /// Returns what takes it back.
  Move apply(const Move &move);
  /// Evicts until no step is above its limit, or nothing helps.
  void evict(llvm::ArrayRef<int64_t> limits);
  void keepAgain(llvm::ArrayRef<int64_t> limits);
  double getTileTime(const Figures &figures, int64_t bytes,
                     llvm::ArrayRef<TileMemory> beside) const;

  CostEstimate costs;
  int64_t batch;
  size_t levelCount = 0;
  /// Of each step, what a tile takes whatever its size: it reads the weights,
  /// and adds to their gradients.
  std::vector<double> timeOfTile;
  llvm::DenseMap<mlir::Value, const GradientAgain *> waysAgain;
  llvm::DenseMap<mlir::Operation *, unsigned> levels;
  llvm::SmallVector<SegmentReads> segments;
  llvm::DenseSet<mlir::Operation *> always;
  llvm::DenseSet<mlir::Value> apart;
  struct Choices {
    llvm::DenseMap<mlir::Value, Recompute> ofValues;
    /// Those whose gradients are made again.
    llvm::DenseSet<mlir::Value> gradientsAgain;
    llvm::DenseSet<mlir::Value> twice;
  };
  Choices choices;
  /// The level of the last operation of the forward pass that reads it.
  llvm::MapVector<mlir::Value, unsigned> lastRead;
};

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_RECOMPUTEPLAN_H
