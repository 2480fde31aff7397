//===- PeakMemoryImpl.h - What the peak analysis is made of -----*- C++ -*-===//

#ifndef KOILA_ANALYSIS_PEAKMEMORY_PEAKMEMORYIMPL_H
#define KOILA_ANALYSIS_PEAKMEMORY_PEAKMEMORYIMPL_H

#include "EventLog.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Analysis/RequiresGradAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/KernelModels/KernelModel.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/PointerIntPair.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <map>

namespace koila {

class LeafGradOp;

struct PeakMemoryAnalysis::Impl {
  /// A tensor's size as the analysis needs it many times over.
  struct SizeFacts {
    llvm::SmallVector<DimExpr> dims;
    std::optional<llvm::SmallVector<DimExpr>> strides;
    mlir::Type elementType;
    bool known = false;
    /// Contiguous for every value of the symbols and nothing else.
    bool alwaysContiguous = false;
  };

  using SizeMap = llvm::DenseMap<mlir::Value, SizeFacts>;

  /// One run over byte counts.
  struct Run {
    /// What holds in the loops that run just now; null: `sizes`.
    const SizeMap *fixedSizes = nullptr;
    /// The numbers of those loops' symbols for which it holds.
    SymbolMap fixedSymbols;
    SymbolMap symbols;
    /// What extents that data decide can be at most; they may be less.
    SymbolMap most;
    /// Those that nothing bounds, and what they count.
    llvm::DenseMap<DimSymbol, llvm::StringRef> unbounded;
    llvm::DenseMap<const Storage *, int64_t> live;
    /// Wide: a sum of extents that each fit may not.
    __int128 liveBytes = 0;
    /// Of what branches made: how much of it may not be there.
    llvm::DenseMap<const Storage *, int64_t> perhaps;
    __int128 perhapsBytes = 0;
    /// What operations make of a storage that loops hand on.
    struct Made {
      llvm::DenseMap<mlir::Operation *, int64_t> byOp;
      __int128 outside = 0, inside = 0;
      /// Of what is made inside of loops.
      int64_t largest = 0;
    };
    llvm::DenseMap<const Storage *, Made> made;
    /// Of which more may be there at once than was counted.
    llvm::SmallPtrSet<const Storage *, 2> undercounted;
    int64_t peakBytes = 0;
    /// The most since a loop of the function's own block started, and what it
    /// was when each of them ended.
    int64_t loopPeak = 0;
    llvm::DenseMap<mlir::Operation *, int64_t> loopPeaks;
    /// The peak of what runs whichever way branches go that data decide.
    int64_t certainBytes = 0;
    /// Counts operations that ran; the peak is the first event that reached it.
    uint64_t event = 0, peakEvent = 0;
    /// Around what runs: loops of which it is not known how often they turn.
    unsigned unknownLoops = 0;
    /// Iterations of all loops that ran.
    int64_t iterations = 0;
    /// A part of a training step; all else is Forward.
    enum class Phase { Forward, Backward, Optimizer };
    /// Null in the optimizer's step.
    mlir::Operation *peakOp = nullptr;
    Phase peakPhase = Phase::Forward;
    /// A symbol that had no value where a size needed one.
    std::string missing;

    /// Whether the run notes the timeline and what is not exact.
    bool detailed = false;
    /// Where the run notes its allocations; null: nowhere. Then each iteration
    /// of a loop runs.
    EventLog *log = nullptr;
    /// The blocks of the log that the step of the optimizer leaves.
    llvm::SmallVector<unsigned> optimizerState;
    /// Stop here and keep what is live.
    std::optional<uint64_t> stopAt;
    bool stopped = false;
    int64_t transientAtStop = 0;
    /// By operation, and whether it is its backward pass.
    using Moment = llvm::PointerIntPair<mlir::Operation *, 1, bool>;
    llvm::MapVector<Moment, TimelineEntry> timeline;
    llvm::MapVector<mlir::Operation *, Doubts> doubts;
    /// Entries of `timeline` from and to which a storage lives.
    struct Span {
      size_t from, to;
      int64_t bytes;
      mlir::Operation *freedBy;
    };
    llvm::MapVector<const Storage *, Span> spans;

    /// Where the gradient of an operand goes.
    struct Edge {
      unsigned operand;
      mlir::Value value;
      /// None: a weight or an argument.
      std::optional<size_t> record;
    };
    /// What autograd recorded of an operation: lives as long as a tensor or a
    /// later record holds it.
    struct Record {
      /// What stands for the operation where a tensor has been written in
      /// place: a write into a view is the record of the tensor that is viewed
      /// (PyTorch's CopySlices); a view that is read after it comes of that
      /// tensor anew (AsStridedBackward).
      enum class Kind { Operation, CopySlices, AsStrided };
      Kind kind = Kind::Operation;
      /// Of such a view.
      mlir::Value view;
      mlir::Operation *op = nullptr;
      llvm::SmallVector<Edge, 2> edges;
      llvm::SmallVector<const Storage *, 3> saved;
      /// What the operation made for its gradient; null if nothing.
      const Storage *kept = nullptr;
      /// Of leaves that it hands a gradient to, and of their gradients: those
      /// live as long as it does, not only until it has run.
      llvm::SmallVector<const Storage *, 1> leaves;
      llvm::SmallVector<size_t, 2> operands;
      unsigned holders = 0;
      /// Whether to autograd its result is a view of the whole of another.
      bool isViewed = false;
    };
    std::vector<Record> records;
    llvm::DenseMap<mlir::Value, size_t> recordOf;
    /// Records that hand a leaf its gradient, if they are there.
    llvm::DenseMap<mlir::Value, llvm::SmallVector<size_t, 1>> recordsTo;
    /// By tensor: the record it has now, also where only views of it are left.
    llvm::DenseMap<mlir::Value, size_t> latest;
    /// By view: the write since it was made, and the record that it has got
    /// since, if something has read it.
    struct Outdated {
      size_t write;
      std::optional<size_t> record;
    };
    llvm::DenseMap<mlir::Value, Outdated> outdated;
    /// How many records keep a storage; and those that only records keep.
    llvm::DenseMap<const Storage *, unsigned> savedBy;
    llvm::SmallPtrSet<const Storage *, 8> onlySaved;
    /// Weights and arguments that got their gradient in this run, and what
    /// stands for it.
    llvm::DenseMap<const void *, const Storage *> leaves;
    /// How many of those have a gradient in one storage: views of one tensor.
    llvm::DenseMap<const Storage *, unsigned> sharers;
    /// Of what a backward pass was given and some of those got a view of: how
    /// many of these wait to be taken, and what stands for the views that were.
    /// The last that is there has the bytes: they are in `waiting` if that is
    /// one that waits.
    struct Lent {
      unsigned pending = 0;
      int64_t waiting = 0;
      /// Whether the allocation is there that they are views of: the next
      /// iteration of a loop makes another.
      bool isThere = true;
      llvm::SmallVector<const Storage *, 1> views;
    };
    llvm::DenseMap<const Storage *, Lent> lent;
    /// By such a view: what it is a view of.
    llvm::DenseMap<const Storage *, const Storage *> lenders;
  };

  /// `known` are the dims of `function`; null: they are computed, for these
  /// numbers of symbols.
  Impl(mlir::Operation *function, const PeakMemoryOptions &options,
       const DimAnalysis *known, const SymbolMap &fixed = SymbolMap());
  /// The same where symbols have these numbers. What is emitted does not depend
  /// on them: operations reuse storage where they do in `general`.
  Impl(const Impl &general, const SymbolMap &fixed);
  /// What both have in common, after `dims` and `storage` are there.
  void initialize();

  // Once: sizes and lifetimes.
  SizeMap collectSizes(const DimAnalysis &dims) const;
  /// What holds where symbols of loops have the numbers that they have in
  /// `run`.
  const Impl &getFixed(const Run &run) const;
  std::unique_ptr<Impl> makeFixed(const SymbolMap &symbols) const;
  /// What holds in several loops of the function's own block, each of which has
  /// one symbol that sizes depend on, where all these symbols have one number.
  /// Loops of tiles are such: an analysis for each would take as many times as
  /// long.
  struct FixedLoops {
    SymbolMap symbols;
    /// Null where one loop's number says something outside of it.
    std::unique_ptr<Impl> impl;
  };
  const FixedLoops &getFixedLoops(int64_t value) const;
  /// Calls `callback` with everything that uses `value`, through containers.
  void forEachUser(mlir::Value value,
                   llvm::function_ref<void(mlir::Operation *)> callback);
  /// What keeps tensors alive in a way that lifetimes do not show.
  void collectUnmodelled();
  void addLifetime(const Storage &entry);
  /// Those that end in one operation, in the order in which it drops them.
  void orderDeaths();
  /// What branches and loops do with a storage that they hand on.
  enum class HandedOn {
    /// A call makes it at most once, in one of several branches.
    Once,
    /// It is one of several tensors; all of them are counted.
    Several,
    /// Which iteration's it is, only a run would tell; see Carried.
    OfIteration
  };
  /// How many tensors of a storage that a loop hands on may be there at once,
  /// beside those that the iteration has made which runs.
  struct Carried {
    /// Variables of loops: each has one tensor. None where containers have
    /// them, or operations that may run what is in them in another way.
    std::optional<unsigned> variables;
    /// Whether what is made outside is there only in variables of the outermost
    /// loop, once that has started.
    bool isStart = false;
  };
  /// Of a storage that lives in `block`, the function's.
  static Carried getCarried(const Storage &entry, mlir::Block *block);
  /// `allocations` are those in `block` and in what is inside of it.
  static HandedOn classify(llvm::ArrayRef<mlir::OpResult> allocations,
                           mlir::Block *block);

  // Autograd (AutogradGraph.cpp).
  bool records() const { return options.mode != PeakMemoryMode::Inference; }
  /// Whether all records of `block` end in it.
  bool ownsRecords(mlir::Block &block);
  /// Finds the values to which a gradient flows, and where their lives end.
  void collectGradients();
  void checkUnrecorded(mlir::Operation &op);
  /// Notes what `op`, which is recorded, saves and keeps.
  void addRecord(mlir::Operation &op, const SavedRule &rule, Run &run) const;
  /// Whether `op` takes tensors out of a list or tuple, each with the record
  /// that it had when it was put in.
  bool handsOnElements(mlir::Operation &op) const;
  /// Gives the results of such an operation these records.
  void handOnRecords(mlir::Operation &op, Run &run) const;
  /// The value that `value` is, before it was put into lists and tuples.
  static mlir::Value skipContainers(mlir::Value value);
  /// Lets the record keep `entry` as long as it is there.
  void holdLeaf(Run::Record &record, const Storage *entry, Run &run) const;
  /// What is known of the records of results of `op`, which runs again.
  void forgetRecords(mlir::Operation &op, Run &run) const;
  // Writes in place (CopySlices.cpp).
  /// Whether it is known which tensors share the storage that `op` writes, so
  /// that the record of the write is that of all of them.
  bool isModelledWrite(mlir::Operation &op) const;
  /// Whether `op` writes into a view in place, or into what has views.
  bool writesView(mlir::Operation &op) const;
  /// Notes the writes between which and `last` a tensor is alive.
  void noteRewrites(mlir::Value value, mlir::Operation &last);
  /// Whether a gradient flows to `value` after what has been written so far.
  bool wantsNow(mlir::Value value, Run &run) const;
  /// Whether autograd records `op` after what has been written so far.
  bool isRecordedNow(mlir::Operation &op, Run &run) const;
  /// Whether PyTorch gives the first operand back, not a view of it.
  bool returnsOperand(mlir::Operation &op, Run &run) const;
  /// The value by which a tensor was made that `value` is: other than a view of
  /// it.
  mlir::Value getObject(mlir::Value value, Run &run) const;
  /// The tensor that `value` is a view of, or itself.
  mlir::Value getBase(mlir::Value value, Run &run) const;
  /// Gives `value`, which something reads, the record that it has got by writes
  /// since it was made.
  void updateRecord(mlir::Value value, Run &run) const;
  /// What shares the storage that `op` writes comes of its record from now on.
  void replaceRecords(mlir::Operation &op, size_t index, Run &run) const;
  /// The last use of `value` was in `op`.
  void dropHandle(mlir::Value value, mlir::Operation &op, Run &run) const;
  /// A record keeps `storages` no more.
  void letGo(llvm::ArrayRef<const Storage *> storages, mlir::Operation &op,
             Run &run) const;
  /// Frees what only `record` keeps.
  void release(Run::Record &record, mlir::Operation &op, Run &run) const;
  void freeStorage(const Storage *entry, mlir::Operation &op, Run &run) const;
  /// `entry` has `bytes` now.
  static void setLive(const Storage *entry, int64_t bytes, Run &run);

  // A run over byte counts.
  std::optional<int64_t> evaluate(DimExpr expr, Run &run) const;
  std::optional<ConcreteTensor> getConcrete(mlir::Value value, Run &run) const;
  /// Strides, and whether they are those of a contiguous tensor.
  void setLayout(ConcreteTensor &tensor, const SizeFacts &facts,
                 Run &run) const;
  void runBlock(mlir::Block &block, Run &run) const;
  /// The operation's entry in the timeline, and the storages it makes.
  void record(mlir::Operation &op, int64_t transient, Run &run) const;
  void endSpan(const Storage *entry, mlir::Operation &op, Run &run) const;
  void markInexact(mlir::Operation &op, const llvm::Twine &reason, Run &run,
                   bool isBound = false) const;
  /// Those of a rule that was asked about `op`.
  void addDoubts(mlir::Operation &op, const WorkspaceRule &rule,
                 Run &run) const;
  /// Storages are decided for symbols of two or more, unless they are fixed. At
  /// one or none a view may be possible where a copy was needed, or the
  /// reverse: then the figure is not exact.
  void checkStorage(mlir::Operation &op, Run &run) const;
  /// The storages that `op` makes; `rule` may know better how large they are.
  void allocateResults(mlir::Operation &op, const WorkspaceRule &rule,
                       Run &run) const;
  /// The bytes of a storage of which `op` makes `bytes`, with what is there of
  /// it before.
  int64_t getLiveBytes(const Storage *entry, mlir::Operation &op, int64_t bytes,
                       Run &run) const;
  void runLoopOfUnknownTrips(mlir::LoopLikeOpInterface loop, Run &run) const;
  /// An extent below zero that `value` would have; none if there is none.
  std::optional<int64_t> getNegativeExtent(mlir::Value value, Run &run) const;
  void runOperation(mlir::Operation &op, Run &run) const;
  /// The result of `op`, which is the gradient of a leaf, is what stood for it.
  /// False if that is not known.
  bool takeGradient(LeafGradOp op, Run &run) const;
  /// A moment at which `held` bytes are there beside what is live. Whether the
  /// run notes its timeline.
  bool reach(mlir::Operation *op, Run::Phase phase, int64_t held,
             Run &run) const;
  /// What the table says of the figure of `op`'s rule on this machine.
  void checkTable(TorchOperatorInterface op, WorkspaceRule &rule,
                  Run &run) const;
  /// The only branch of `op` that a call gets to; null if that is not known.
  mlir::Region *getTaken(mlir::Operation *op) const;
  /// The branches of `op` to one of which a call gets; a null stands for going
  /// on without any.
  llvm::SmallVector<mlir::Region *, 2> getAlternatives(mlir::Operation &op,
                                                       Run &run) const;
  /// Notes the events of a kernel, `most` bytes at its worst moment.
  void logKernel(mlir::Operation &op, const AllocationTrace &trace,
                 int64_t most, Run &run,
                 const EventLog::Outside &outside = {}) const;
  /// Each branch from the same start; the larger peak counts.
  void runBranches(mlir::Operation &op, Run &run) const;
  /// The symbols on which sizes, and those on which inner bounds of a loop's
  /// body depend.
  struct BodySymbols {
    llvm::DenseSet<DimSymbol> ofSizes, ofBounds;
    /// Whether views and copies are told apart in the body only where the
    /// numbers of its symbols are known.
    bool guesses = false;
    /// Whether a storage that is made in the body may outlive an iteration.
    bool handsOn = false;
    bool contains(DimSymbol symbol) const {
      return ofSizes.contains(symbol) || ofBounds.contains(symbol);
    }
    /// Whether what holds for larger numbers need not hold for this one.
    bool isFixedAt(int64_t value) const { return guesses || value < 2; }
  };
  const BodySymbols &getBodySymbols(mlir::Operation *loop) const;
  std::optional<int64_t> evaluate(mlir::OpFoldResult value, Run &run) const;
  void runLoop(mlir::LoopLikeOpInterface loop, Run &run) const;
  void execute(Run &run) const;
  /// The step of the optimizer, after the program.
  void runOptimizer(Run &run) const;
  /// The weights that are trained, in the order of the module.
  llvm::SmallVector<TrainedWeight> getTrainedWeights(Run &run) const;
  Run start(const llvm::StringMap<int64_t> &symbols) const;

  // Extents that data decide (DataExtents.cpp).
  /// The most that `expr` can be; none if that is not known.
  std::optional<int64_t> evaluateMost(DimExpr expr, Run &run) const;
  /// Notes what those of the results of `op` can be at most.
  void boundExtents(mlir::Operation &op, Run &run) const;
  /// Why the size of `value` has no bound; empty if that is not why.
  std::string getWhyUnbounded(mlir::Value value, Run &run) const;
  /// Those that the operands and results of `op` depend on.
  llvm::SmallVector<DimSymbol, 2> getDecided(mlir::Operation &op,
                                             Run &run) const;
  /// The most that `op` holds inside where they are less than the most that
  /// they can be, of which `rule` tells.
  int64_t getTransientBelow(mlir::Operation &op,
                            llvm::ArrayRef<DimSymbol> decided,
                            const SavedRule &rule, Run &run) const;
  /// Views and copies are told apart for symbols of two or more. Says where
  /// there may be more bytes if data make it one or none.
  void checkStorageBelow(mlir::Operation &op, llvm::ArrayRef<DimSymbol> decided,
                         Run &run) const;

  // Of a report.
  /// The batch, and which executors the figures are for.
  void fillBatch(const Run &run, PeakReport &report) const;
  /// What makes the figure of the whole call doubtful.
  void fillCallDoubts(Run &run, PeakReport &report) const;
  /// Which storages branches and loops hand on.
  void fillHandedOn(const Run &run, PeakReport &report) const;
  /// Says where an argument cannot have the extents that the symbols give.
  void checkArguments(Run &run, PeakReport &report) const;
  LiveTensor describe(const Storage &entry, int64_t bytes, Run &run) const;
  void fillPlaces(Run &run, PeakReport &report) const;
  void fillLive(const llvm::StringMap<int64_t> &symbols, uint64_t event,
                PeakReport &report) const;
  void fillSpans(Run &run, PeakReport &report) const;
  void fillBytes(Run &run, PeakReport &report) const;

  mlir::Operation *function;
  PeakMemoryOptions options;
  mlir::ModuleOp module;
  /// Whether `function` has structured control flow only.
  bool hasOneBlock = true;
  /// Why nobody knows whether gradients are recorded; empty if that is known.
  llvm::StringRef recordingDoubt;
  /// See ExecutionTrace.
  mlir::Operation *replaced = nullptr, *forked = nullptr, *unsteady = nullptr,
                  *late = nullptr;
  std::string batchSymbol;
  WorkspaceTarget target;
  /// Whose kernels run, and their models: null if there are none, which has
  /// been said.
  llvm::StringRef device;
  const KernelLibrary *models = nullptr;
  /// Null where a caller has them.
  std::unique_ptr<DimAnalysis> ownDims;
  const DimAnalysis &dims;
  /// Numbers of symbols for which `dims` holds.
  SymbolMap fixed;
  /// Where operations reuse storage, if that is not `storage` itself.
  std::unique_ptr<StorageAnalysis> ties;
  StorageAnalysis storage;
  SizeMap sizes;
  /// What holds in loops: where a tile is one sample, or none, strides, and
  /// with them views and what operations hold, differ. By symbols; made when
  /// needed.
  mutable llvm::StringMap<std::unique_ptr<Impl>> ofFixed;
  mutable std::map<int64_t, FixedLoops> ofFixedLoops;
  /// Operations of which `storage` does not know whether they make views.
  llvm::DenseMap<mlir::Operation *, llvm::StringRef> guesses;
  llvm::DenseMap<
      mlir::Operation *,
      llvm::SmallVector<std::pair<const Storage *, mlir::OpResult>, 1>>
      births;
  llvm::DenseMap<mlir::Operation *, llvm::StringRef> unmodelled;
  /// Of those, the ones that change a list or object, which may grow.
  llvm::SmallPtrSet<mlir::Operation *, 4> growing;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<const Storage *, 2>>
      deaths;
  llvm::SmallPtrSet<const Storage *, 4> returned;
  /// None unless the mode records.
  std::optional<RequiresGradAnalysis> gradients;
  /// Of values to which a gradient flows, the ones whose last use is in an
  /// operation.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Value, 2>> handles;
  /// Of a write: what shares the storage and is alive then.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Value, 2>> rewrites;
  /// Those writes, by what they write, and all that are modelled.
  llvm::DenseMap<const Storage *, llvm::SmallVector<mlir::Operation *, 2>>
      writesOf;
  llvm::SmallPtrSet<mlir::Operation *, 4> modelledWrites;
  /// What others than those write.
  llvm::SmallPtrSet<const Storage *, 4> unmodelledWrites;
  /// What ownsRecords() said.
  llvm::DenseMap<mlir::Block *, bool> ownRecords;
  // The backward pass (BackwardSimulation.h).
  class BackwardSimulation;
  /// Stand for the gradients of operands.
  mutable llvm::DenseMap<std::pair<mlir::Operation *, unsigned>,
                         llvm::SmallVector<std::unique_ptr<Storage>, 1>>
      gradientEntries;
  mutable llvm::SmallPtrSet<const Storage *, 8> ofGradients;
  /// What stands for what operations make for their gradients.
  mutable llvm::SmallPtrSet<const Storage *, 8> ofSaved;
  /// What this was made of, with numbers for more symbols; null: nothing. A run
  /// there goes through loops here, and describes what it meets.
  const Impl *general = nullptr;
  /// Stands for what an operation makes for its gradient.
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<Storage>> kept;
  llvm::SmallVector<std::pair<const Storage *, HandedOn>> handedOnStorages;
  /// Of those that are HandedOn::OfIteration.
  llvm::DenseMap<const Storage *, Carried> carried;
  /// Those that are made inside of an operation.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<const Storage *, 2>>
      handedOnIn;
  llvm::StringMap<int64_t> given;
  /// Each at a place of its own: one of an outer loop is read while those of
  /// loops inside of it are made.
  mutable llvm::DenseMap<mlir::Operation *, std::unique_ptr<BodySymbols>>
      bodySymbols;
  /// Rows that were found, by what differs within a program: name, element type
  /// and memory format.
  using RowKey = std::tuple<const void *, mlir::Type, llvm::StringRef>;
  mutable llvm::DenseMap<RowKey, const WorkspaceRow *> rows;
};

/// The nearest number of 64 bits: sums of extents that each fit may not.
int64_t saturate(__int128 value);

/// What PyTorch calls the operator, as far as that is known.
std::string getOperatorName(mlir::Operation &op);

} // namespace koila

#endif // KOILA_ANALYSIS_PEAKMEMORY_PEAKMEMORYIMPL_H
