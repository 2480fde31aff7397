//===- BatchTiling.h - Batch tiling as a library ----------------*- C++ -*-===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_H

#include "koila/Analysis/PeakMemory.h"
#include "koila/KernelModels/CostTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/STLExtras.h"

namespace koila {

/// What becomes of random operators.
enum class RandomMode {
  /// They are an error: tiles would draw other numbers.
  Refuse,
  /// They draw for the whole batch, what the untiled program draws.
  FullBatch,
  /// They draw in each tile, equal in distribution only.
  PerTile
};

/// On a function whose dropouts draw their masks for the whole batch: "cuda"
/// where these are those of the one kernel that a dropout is on a GPU, "cpu"
/// where they are those of the operators that it is on the CPU. Of the other
/// the untiled program draws other ones.
inline constexpr llvm::StringLiteral kDrawsOnAttr = "koila.draws_on";

/// What becomes of normalisations by statistics of the batch.
enum class StatisticsMode {
  /// They run whole, and are an error where nothing else is left to tile, or a
  /// gradient flows through them.
  Refuse,
  /// They are those of the whole batch: a training step takes them in tiles
  /// first, and runs its backward pass in segments.
  Exact,
  /// Each tile is normalised by itself: other results, and running statistics
  /// are updated with each tile.
  PerTile
};

/// What becomes of a training step in which samples are mixed on the way to the
/// loss, or of which the smallest tile takes too much.
enum class RecomputeMode {
  /// It is an error.
  Never,
  /// Where samples are mixed, its forward pass records nothing, and its
  /// backward pass runs in segments between the operations that mix samples,
  /// each of which runs again what of the forward pass has not been kept for
  /// it. Where a tile takes too much, its backward pass runs in parts, each of
  /// which runs again its part of the forward pass.
  Auto
};

/// What tiles of so many samples hold beside whole tensors, in bytes, at each
/// step of a program with a backward pass in segments: the levels of the
/// forward pass, and then the segments.
struct TileMemory {
  int64_t tile;
  std::vector<int64_t> bytesAt;
};

/// What a step may keep.
struct RecomputeBudget {
  /// Samples.
  int64_t batch;
  /// Where the backward pass runs in segments: of whole tensors, and of what
  /// `beside` says of tiles.
  int64_t bytes;
  /// What autograd may keep for a part of a backward pass, of what it keeps for
  /// the largest backward pass as a whole. 1: none runs in parts.
  double share = 1;
  /// What the choice goes by.
  const CostTable *costs = &CostTable::getShipped();
  /// Of a plan like the one that is wanted, from the largest tile; empty where
  /// nothing is known.
  llvm::ArrayRef<TileMemory> beside;
  /// Whether a step runs in segments where it could run without them, as one
  /// whose batch normalisations are of frozen layers: those run whole there.
  bool splits = false;
};

/// What such a step does again.
struct RecomputeFigures {
  /// Between what mixes samples; 0 where the backward pass has none.
  int64_t segments = 0;
  /// The most parts that a backward pass has.
  int64_t parts = 1;
  /// Whole tensors as the plan counts them, in bytes, at each step.
  std::vector<int64_t> wholeBytesAt;
  /// Of the time of the forward pass, estimated.
  double share = 0;
};

/// Of the error that no tile fits the budget: an attribute of its metadata, in
/// bytes, in a dictionary.
inline constexpr llvm::StringLiteral kSmallestBudget = "smallest_budget";

/// In the same way of an error that has nothing to say against the program but
/// that its figures may be too small to promise a budget: true.
inline constexpr llvm::StringLiteral kIsUnpromised = "is_unpromised";

struct TilingOptions {
  /// Samples per tile, a power of two; 0: by budget.
  int64_t tile = 0;
  /// Bytes that the call may hold at its peak.
  std::optional<int64_t> budget;
  /// "warn" or "raise".
  std::string guard = "warn";
  RandomMode random = RandomMode::Refuse;
  StatisticsMode statistics = StatisticsMode::Exact;
  RecomputeMode recompute = RecomputeMode::Auto;
  /// The most plans that the program has, for budgets around `budget`.
  int64_t plans = 1;
  /// By which what runs again is chosen.
  CostTable costs = CostTable::getShipped();
  /// In mode Train: the loss that the step was made with; see
  /// KoilaTorchImportOptions.
  std::string loss;
  /// In mode Train the function has to be a training step.
  PeakMemoryOptions analysis;
};

/// The loops of one phase: their tile and the number of its bits are constants
/// of the program.
struct PhaseLoops {
  mlir::Operation *tile, *bits;
  /// Of the first operation in a tile.
  mlir::Location loc;
  /// The fewest samples of a tile, 1 or 2. With 2 the first tile of an odd
  /// batch has one more than the others.
  int64_t least = 1;
  /// The outermost loop, in the function's own block.
  mlir::Operation *loop = nullptr;
  /// Which step of a plan in segments it is, if it is of one.
  std::optional<int64_t> step;
};

/// A function rewritten to run its batch in tiles, in one nest of loops for
/// each phase between barriers. The tiles are constants of the program that can
/// be changed, so that one rewrite serves the search.
class TiledFunction {
public:
  /// Rewrites `function`, whose shapes are inferred, in place. Fails, after an
  /// error at the operation where samples are mixed; random operators may then
  /// have got storage of their own, means in a training step be quotients, and
  /// its backward pass be in segments. What was decided is a remark each,
  /// unless `isTrial`. Without `budget` segments make again what they read of
  /// themselves, and all else is kept.
  static llvm::FailureOr<TiledFunction>
  create(mlir::FunctionOpInterface function, llvm::StringRef batchSymbol,
         RandomMode random = RandomMode::Refuse,
         StatisticsMode statistics = StatisticsMode::Refuse,
         RecomputeMode recompute = RecomputeMode::Never, bool isTrial = false,
         std::optional<RecomputeBudget> budget = std::nullopt);
  llvm::ArrayRef<PhaseLoops> getPhases() const { return phases; }
  /// Sets the samples per tile, a power of two, of all phases or of one.
  void setTile(int64_t tile);
  void setTile(size_t phase, int64_t tile);
  /// Of each phase; there is at least one.
  llvm::ArrayRef<int64_t> getTiles() const { return tiles; }
  /// The smallest.
  int64_t getTile() const { return *llvm::min_element(tiles); }
  /// The least batch for which the program has the shapes that were tiled: a
  /// squeeze() drops the dim of a batch of one. Smaller ones must run untiled.
  /// Of no samples the original runs in any case.
  int64_t getLeastBatch() const { return leastBatch; }
  /// The smallest tile that all phases can have.
  int64_t getLeastTile() const;
  /// How random numbers are drawn; Refuse if there are none.
  RandomMode getRandom() const { return random; }
  /// Refuse if there are none.
  StatisticsMode getStatistics() const { return statistics; }
  /// Never if the step has one backward pass a tile, and as a whole.
  RecomputeMode getRecompute() const {
    return figures.segments > 0 || figures.parts > 1 ? RecomputeMode::Auto
                                                     : RecomputeMode::Never;
  }
  const RecomputeFigures &getRecomputed() const { return figures; }

private:
  TiledFunction(llvm::SmallVector<PhaseLoops> phases, int64_t leastBatch,
                RandomMode random, StatisticsMode statistics,
                RecomputeFigures figures)
      : phases(std::move(phases)), tiles(this->phases.size(), 1),
        leastBatch(leastBatch), random(random), statistics(statistics),
        figures(figures) {}

  llvm::SmallVector<PhaseLoops> phases;
  llvm::SmallVector<int64_t> tiles;
  int64_t leastBatch = 1;
  RandomMode random;
  StatisticsMode statistics;
  RecomputeFigures figures;
};

/// Whether `function` is a training step: it has a `koila.backward`.
bool runsBackward(mlir::FunctionOpInterface function);

/// Fails with an error unless `function` is a training step, made with the loss
/// of that name; empty: any.
llvm::LogicalResult checkTrainStep(mlir::FunctionOpInterface function,
                                   llvm::StringRef loss);

/// Tiles the function that `options.analysis` names, by tile or by budget;
/// leaves it alone where the untiled program fits. The report of the result is
/// left on `module` as `koila.report`. What `--koila-tile-batch` runs.
llvm::LogicalResult tileBatch(mlir::ModuleOp module,
                              const TilingOptions &options);

/// The least peak in bytes that any tile has over all batches up to `batch`;
/// none if the function that `options` name cannot be tiled or draws random
/// numbers.
std::optional<int64_t> computeFloor(mlir::ModuleOp module,
                                    const PeakMemoryOptions &options,
                                    int64_t batch);

/// The most bytes the function holds for any batch from 1 to `batch`. A tiled
/// program's peak grows with the batch while the same tiles run, so that one
/// batch per tile size, the largest that runs it, bounds all others. `tiles`
/// are those of the phases. `loops`, if there, gets the same of each loop of
/// the function's own block.
std::optional<int64_t>
getPeakUpTo(const PeakMemoryAnalysis &analysis, llvm::StringRef batchSymbol,
            int64_t batch, llvm::ArrayRef<int64_t> tiles,
            llvm::DenseMap<mlir::Operation *, int64_t> *loops = nullptr);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_H
