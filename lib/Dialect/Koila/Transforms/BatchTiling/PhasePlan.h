//===- PhasePlan.h - Which operations tile together -------------*- C++ -*-===//
//
// What mixes samples, and what koila does not know, is a barrier: it runs
// whole, and cuts the function into phases. The operations of a phase run in
// one nest of loops over tiles; tensors that cross from one phase to another,
// or to a barrier, are kept whole. Ordinary inference is one phase.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_PHASEPLAN_H
#define KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_PHASEPLAN_H

#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Analysis/RequiresGradAnalysis.h"
#include "koila/Analysis/Storage.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

namespace koila {

class LeafOp;
class LeafGradOp;

struct TilePhase {
  /// Run whole before the loops, in order.
  llvm::SmallVector<mlir::Operation *> whole;
  /// Run per tile, in order.
  llvm::SmallVector<mlir::Operation *> body;
  /// Tensors with the batch that the body reads and does not make.
  llvm::SetVector<mlir::Value> inputs;
  /// Tensors with the batch that others than the body read.
  llvm::SetVector<mlir::Value> outputs;
  /// Operations of the body whose results the tiles add up to.
  llvm::SmallVector<mlir::Operation *> combined;
};

/// The backward pass of a training step. Autograd would keep what every tile
/// saved until one backward pass after the loops; so each tile has its own, of
/// its part of the loss. That is right where the loss is a function of sums
/// over the samples whose gradient does not depend on those sums, which
/// autograd itself tells: nothing that it saves on the way is made of them.
struct BackwardPlan {
  /// Null if the function has none.
  mlir::Operation *backward = nullptr;
  /// What makes the loss of the reductions over the batch, in order. Runs in
  /// each tile, of its parts, and once on the whole for the value.
  llvm::SetVector<mlir::Operation *> head;
  /// What is made of weights alone, and what tiles read and differentiate, in
  /// order: each tile makes it again, since the backward pass of one would end
  /// it for all.
  llvm::SmallVector<mlir::Operation *> repeated;
  /// Read the gradients of what tiles have for leaves: slices of arguments,
  /// each with a gradient of its own.
  llvm::SmallVector<mlir::Operation *> gradients;
  /// What has been looked at on the way from tiles and the loss to weights.
  llvm::SmallPtrSet<mlir::Operation *, 16> reached;
  /// Whether the loss has a gradient that does not come of the tiles: a
  /// regulariser. It is added once.
  bool hasRest = false;
  /// Whether no tile may have a single sample, since PyTorch's gradients of one
  /// may be wrong. Then the first tile of an odd batch takes one more.
  bool needsPairs = false;
};

class PhasePlan {
public:
  /// Operations in `whole` run on the whole batch. `gradients` is null unless
  /// the function has a backward pass. The analyses have to outlive the plan.
  PhasePlan(mlir::FunctionOpInterface function, llvm::StringRef symbol,
            RandomMode random, const DimAnalysis &dims,
            const StorageAnalysis &storage,
            const RequiresGradAnalysis *gradients,
            const BatchAnalysis::Operations &whole)
      : function(function), symbol(symbol), random(random), dims(dims),
        batch(function, dims, symbol, BatchAnalysis::Barriers::Cut, whole),
        storage(storage), gradients(gradients), wholeOps(whole) {}

  /// Fails, after an error at the operation, where nothing can be tiled.
  llvm::LogicalResult compute();
  /// What makes rows that would have to cross to another phase with the samples
  /// apart. If there is any, the plan is none: those have to run whole.
  const BatchAnalysis::Operations &getInterleaved() const {
    return interleaved;
  }

  const DimAnalysis &getDims() const { return dims; }
  const BatchAnalysis &getBatch() const { return batch; }
  llvm::ArrayRef<TilePhase> getPhases() const { return phases; }
  /// What runs after the last phase: barriers and what follows them.
  llvm::ArrayRef<mlir::Operation *> getRest() const { return rest; }
  /// Containers built of outputs, after everything else.
  llvm::ArrayRef<mlir::Operation *> getContainers() const { return containers; }
  /// Where samples are mixed, with the reason.
  llvm::ArrayRef<std::pair<mlir::Operation *, std::string>>
  getBarriers() const {
    return barriers;
  }
  const BackwardPlan &getBackward() const { return backward; }
  /// Whether `value` is one to which a gradient flows in a training step.
  bool wantsGradient(mlir::Value value) const {
    return gradients && gradients->wants(value);
  }
  /// Whether `op` makes such a value.
  bool makesGradient(mlir::Operation *op) const;
  /// Whether `op` is of a segment of the backward pass.
  static bool isInSegment(mlir::Operation *op);
  /// Whether the tiles of `phase` run the backward pass.
  bool differentiates(const TilePhase &phase) const {
    return llvm::any_of(phase.combined,
                        [&](mlir::Operation *op) { return makesGradient(op); });
  }
  /// Whether `value` is made of the tiles' parts of the loss.
  bool isOfParts(mlir::Value value) const {
    mlir::Operation *op = value.getDefiningOp();
    return op && wantsGradient(value) &&
           (combined.contains(op) || backward.head.contains(op));
  }
  /// Whether no tile of `phase` may have a single sample.
  bool needsPairs(const TilePhase &phase) const {
    return (backward.needsPairs &&
            (differentiates(phase) || llvm::any_of(phase.body, isInSegment))) ||
           llvm::any_of(phase.body, hasOwnStatistics);
  }
  /// Normalisations by statistics of each tile, in order.
  llvm::SmallVector<mlir::Operation *> getStatistics() const {
    return llvm::filter_to_vector(tiled, hasOwnStatistics);
  }
  /// What draws random numbers, in order.
  llvm::ArrayRef<mlir::Operation *> getDraws() const { return draws; }
  /// Whether `op` draws anew in each tile.
  bool drawsInTiles(mlir::Operation &op) const;
  /// Whether `op` runs per tile.
  bool isTiled(mlir::Operation *op) const { return tiledSet.contains(op); }
  /// Whether `value` is made per tile.
  bool isTiled(mlir::Value value) const;
  /// Whether `op` is asked at most for what is known without it.
  bool isNeedless(mlir::Operation *op) const { return needless.contains(op); }
  /// How the tiles' results make those of `op`; None if it is no reduction
  /// that runs in them.
  Combine getCombine(mlir::Operation *op) const { return combined.lookup(op); }
  /// Whether `value`, which `op` reads and which is made per tile, is asked for
  /// its type alone: any number of samples gives the same results.
  bool isUnread(mlir::Operation *op, mlir::Value value) const;
  /// Whether `value`, the view without the batch among views of an operation,
  /// does not depend on `operand`: any number of samples gives the same.
  bool ignores(mlir::Value value, mlir::Value operand) const;
  /// Whether `value` is cheap, and made again wherever it is needed: a view, or
  /// a list of sizes.
  bool isRepeated(mlir::Value value) const;
  /// Whether `value` is an integer that the extents of arguments give, of an
  /// operation that need not run for it.
  bool isNumber(mlir::Value value) const;
  /// The expression over them; null if there is none.
  DimExpr getNumber(mlir::Value value) const;
  /// Whether `value` is a multiple of the number of samples, in a tile of those
  /// of the tile.
  bool isSamples(mlir::Value value) const;

  /// Whether tiles copy their samples of `value`, to view them otherwise than
  /// they lie in it.
  bool isPacked(mlir::Value value) const { return packed.contains(value); }

  /// Whether the tie of `op` is to a tensor of `shown`: those from outside of
  /// the loop of which a tile has a slice, that the next tile reads as well.
  /// Adds to `shown` what is a view of them.
  bool writesShown(mlir::Operation *op,
                   llvm::SmallDenseSet<mlir::Value> &shown) const;

  /// The dims of what crosses from the outermost in memory; empty: as they are.
  llvm::ArrayRef<int64_t> getOrder(mlir::Value value) const {
    auto found = orders.find(value);
    return found == orders.end() ? llvm::ArrayRef<int64_t>()
                                 : llvm::ArrayRef<int64_t>(found->second);
  }

  /// An argument's dim that is the batch symbol times `batchFactor`.
  mlir::BlockArgument batchArgument;
  int64_t batchDim = 0, batchFactor = 1;
  /// Where each symbol can be read at run time.
  llvm::DenseMap<DimSymbol, std::pair<mlir::BlockArgument, int64_t>> symbolDims;

private:
  llvm::LogicalResult planArguments();
  llvm::LogicalResult classify(mlir::Operation &op);
  llvm::LogicalResult classifySegment(mlir::Operation &op);
  bool accumulatesInTiles(mlir::Operation &op) const;
  /// What the rule of `op` says of its results, of its operands as they are
  /// read in tiles.
  llvm::SmallVector<BatchFact, 1> askRule(BatchRuleInterface op) const;
  llvm::LogicalResult classifyLeaf(LeafOp op);
  llvm::LogicalResult classifyGradient(LeafGradOp op);
  Combine findCombine(mlir::Operation &op) const;
  /// What `value` is of, through what is repeated.
  mlir::Value getBase(mlir::Value value) const;
  /// Whether tiles make a tensor that `op` reads, or that it reads views of.
  bool readsTiles(mlir::Operation &op) const;
  void collectWrites();
  void collectParamUses();
  mlir::Operation *findWriteAfter(mlir::Value value, mlir::Operation &op) const;
  bool isWrittenAfter(mlir::Value value, mlir::Operation &op) const;
  bool readsBeforeNoWrite(mlir::Operation &op) const;
  bool isSizedByBatch(mlir::Value value) const;
  bool isPure(mlir::Operation &op) const;
  std::string findReasonInside(mlir::Operation &op) const;
  bool isInBody(mlir::Operation *op) const {
    return tiledSet.contains(op) || combined.contains(op);
  }
  llvm::LogicalResult checkDraws(mlir::Operation &op);
  /// Whether `op` has no effect but draws that each tile may make anew.
  bool mayDrawInTiles(mlir::Operation &op) const;
  static bool hasOwnStatistics(mlir::Operation *op) {
    return op->hasAttr(KoilaDialect::kPerTileAttr);
  }
  /// Whether `op` has no effect but that it updates, with each tile, what
  /// nothing else touches.
  bool mayUpdateInTiles(mlir::Operation &op) const;
  /// Whether `op` draws whole, and waits for no tensor.
  bool drawsEarly(mlir::Operation &op) const;
  /// Whether `op` makes a tensor of numbers alone, for what draws whole.
  bool isStorageOfDraws(mlir::Operation &op) const;
  void addBarrier(mlir::Operation &op);
  /// An error at the first barrier that is one by itself.
  llvm::LogicalResult refuseBarriers() const;
  bool canMaterialize(DimExpr expr) const;
  /// The first phase whose loops, or for whole operations whose start, can
  /// read the operands of `op`.
  unsigned getTime(mlir::Operation *op, bool isTiledReader) const;
  unsigned getTime(mlir::Value value, bool isTiledReader) const;
  /// Finds where towers begin if one follows the other; whether there are any.
  bool separateTowers();
  /// What makes the tensors that `op` reads, through what is repeated.
  llvm::SmallVector<mlir::Operation *> getMakers(mlir::Operation *op) const;
  /// Of the segment that `op` is of: its operations run together.
  unsigned getSegmentTime(mlir::Operation *op);
  void dropNeedless();
  // LocalStorage.cpp
  /// Finds storage that is made, written and read of samples alone.
  void findLocalStorage();
  /// Gives up storage in which writes would be seen by what copies it, or is a
  /// copy, of several samples alone.
  void dropViewsOfOne(mlir::Operation *op);
  llvm::SmallVector<const Storage *>
  getLocalStorages(mlir::Operation *op) const;
  /// Whether `op` touches such storage no later than its last write, and
  /// nothing else that is written later.
  bool fillsLocalStorage(mlir::Operation &op) const;
  /// Lets what does so wait for the last write; whether that changes anything.
  bool gatherLocalStorage();
  /// Places operations, those in one phase.
  void placeWithLocalStorage();
  /// Gives up storage of which not all could be placed so: it is interleaved.
  void checkLocalStorage();
  // Backward.cpp
  llvm::LogicalResult findBackward();
  llvm::LogicalResult planBackward();
  llvm::LogicalResult refuseStep(mlir::Operation *op,
                                 const llvm::Twine &reason) const;
  /// An error at the barrier because of which `op` runs whole.
  llvm::LogicalResult refuseMeeting(mlir::Operation *op) const;
  llvm::LogicalResult collectHead(mlir::Value value);
  llvm::LogicalResult checkHead(mlir::Operation &op);
  /// Whether the gradients of tiles add up to those of the batch, whatever the
  /// loss is.
  llvm::LogicalResult checkWeights();
  llvm::LogicalResult checkTiledGradient(mlir::Operation &op);
  llvm::LogicalResult collectRepeated();
  llvm::LogicalResult checkGradients();
  /// The first phase in which the tiles can run their backward pass.
  unsigned findBackwardPhase();
  void placeOperations();
  llvm::LogicalResult schedule();
  void
  forEachReader(mlir::Value value,
                llvm::function_ref<bool(mlir::Operation *)> callback) const;
  int64_t estimateBytes(mlir::Value value) const;
  int64_t estimateKept(mlir::Value value, mlir::Operation *op,
                       unsigned phase) const;
  /// Moves what only later phases read to the first of them, where no more is
  /// kept whole for it.
  void sink();
  void markInterleaved(mlir::Value value);
  void checkRows(mlir::Operation *op);
  void require(mlir::Value value, unsigned phase);
  bool isReturnedWhole(mlir::Value value) const;
  void requireWhole(mlir::Value value);
  llvm::LogicalResult checkOutput(mlir::Value value, bool crosses);
  llvm::LogicalResult checkOutputs();

  mlir::FunctionOpInterface function;
  llvm::StringRef symbol;
  RandomMode random;
  const DimAnalysis &dims;
  BatchAnalysis batch;
  const StorageAnalysis &storage;
  const RequiresGradAnalysis *gradients;
  BackwardPlan backward;
  /// The phase of everything through which a gradient flows: what one tile
  /// saved ends with its backward pass.
  unsigned backwardPhase = 0;
  std::vector<TilePhase> phases;
  llvm::SmallVector<mlir::Operation *> rest, containers, draws;
  llvm::SmallVector<std::pair<mlir::Operation *, std::string>> barriers;
  BatchAnalysis::Operations interleaved;
  /// The last write to a storage of the function; null: to all others.
  llvm::DenseMap<const Storage *, mlir::Operation *> lastWrites;
  /// What each tile has for itself, and its phase.
  llvm::DenseSet<const Storage *> local;
  llvm::DenseMap<const Storage *, unsigned> localTimes;
  /// The first phase of operations of towers that follow others.
  llvm::DenseMap<mlir::Operation *, unsigned> towerTimes;
  /// What was asked to run whole.
  BatchAnalysis::Operations wholeOps;
  /// The last operation that may write to any of them.
  mlir::Operation *lastUnknownWrite = nullptr;
  /// How often a weight, or what shares storage with it, is read.
  llvm::DenseMap<mlir::Attribute, unsigned> paramUses;
  /// For the declarations of weights.
  mutable mlir::SymbolTableCollection symbols;
  llvm::DenseMap<mlir::Operation *, Combine> combined;
  /// In order.
  llvm::SmallVector<mlir::Operation *> tiled, whole;
  llvm::SmallPtrSet<mlir::Operation *, 16> tiledSet, repeated, skipped, numbers,
      needless;
  llvm::DenseSet<mlir::Value> repeatedWhole;
  /// What getTime() said, of readers in tiles (1) and of others (0).
  mutable llvm::DenseMap<mlir::Operation *, unsigned> times[2];
  llvm::DenseSet<mlir::Value> crossing, packed;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<int64_t>> orders;
  llvm::DenseMap<mlir::Operation *, unsigned> phaseOf, slotOf;
  /// Operations of each segment of the backward pass, in order, and when they
  /// run.
  llvm::DenseMap<mlir::Attribute, llvm::SmallVector<mlir::Operation *>>
      segments;
  llvm::DenseMap<mlir::Attribute, unsigned> segmentTimes;
  /// Of the last segment in tiles that has a time.
  std::optional<unsigned> lastSegmentTime;
  /// Operations of each phase; those that are repeated only where needed.
  llvm::SmallVector<llvm::SmallPtrSet<mlir::Operation *, 16>> bodies;
};

/// Runs the phases of `plan` in loops, of one sample per tile for now.
llvm::SmallVector<PhaseLoops> rewriteInTiles(mlir::FunctionOpInterface function,
                                             const PhasePlan &plan);
/// Gives every operator that draws by shape alone storage of its own, so that
/// it need not wait for the tensor whose shape it is. Fails, after an error,
/// where draws for the whole batch are not those of the untiled program.
llvm::LogicalResult separateDraws(mlir::FunctionOpInterface function);
/// Remarks of where random numbers are drawn, and a warning if tiles draw.
void reportDraws(mlir::FunctionOpInterface function, const PhasePlan &plan);

/// Lets operations that touch nothing which is written keep no order with
/// writes, where all that is written are tensors of the module.
void releaseReaders(mlir::FunctionOpInterface function);
/// Lets each tile be normalised by itself.
void markStatistics(mlir::FunctionOpInterface function);
/// A warning if it is.
void reportStatistics(const PhasePlan &plan);

/// The operands of `op`, and what its regions read of outside.
llvm::SmallVector<mlir::Value> getReads(mlir::Operation *op);

/// `last` and the operations that it is made of, in the order of their block:
/// `getMakers` says of each which are next.
llvm::SmallVector<mlir::Operation *> collectMakers(
    mlir::Operation *last,
    llvm::function_ref<llvm::SmallVector<mlir::Operation *>(mlir::Operation *)>
        getMakers);

/// Whether what makes `op` run whole is only that it touches storage which
/// something else writes.
bool onlyReadsMutableStorage(mlir::Operation &op);
/// Whether the results of `op` are views of operands, or no tensors at all.
bool makesNoTensor(mlir::Operation &op, const DimAnalysis &dims);
/// Whether a result of `op` is a view of an operand with some strides of it: a
/// copy of several samples may be a view of one, as that of a transposed
/// tensor.
bool mayBeView(mlir::Operation *op, const DimAnalysis &dims);
/// `argument 'x'`, of which it is a leaf.
std::string describeLeaf(LeafOp leaf);
/// The extent of `loss`, which has no gradient of its own, where it is not one;
/// null if it is.
DimExpr findLossExtent(const DimAnalysis &dims, mlir::Value loss);
/// What the user calls it, or MLIR.
llvm::StringRef getCallee(mlir::Operation &op);
/// ` at file.py:46 (layer1.0)`, or nothing.
std::string describePlace(mlir::Operation *op);

/// Makes quotients of sums of means over what masks select.
void expandSelectedMeans(mlir::FunctionOpInterface function);

} // namespace koila

#endif // KOILA_DIALECT_KOILA_TRANSFORMS_BATCHTILING_PHASEPLAN_H
