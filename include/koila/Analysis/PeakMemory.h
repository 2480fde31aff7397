//===- PeakMemory.h - Peak of live memory of a call -------------*- C++ -*-===//
//
// Liveness with TorchScript's freeing rule: a value dies after its last use;
// when that lies inside a loop or branch, after the whole loop or branch; the
// operands of an operation stay live while it runs. The peak is the maximum
// over operations of the live storages plus what the operation holds inside.
// Usable on any function whose operations implement the koila interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_ANALYSIS_PEAKMEMORY_H
#define KOILA_ANALYSIS_PEAKMEMORY_H

#include "koila/Analysis/BatchCurve.h"
#include "koila/Analysis/DeviceMemory.h"
#include "koila/Analysis/Storage.h"
#include "koila/KernelModels/Optimizer.h"
#include "koila/KernelModels/WorkspaceTable.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/JSON.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace koila {

/// What runs: a forward call without gradients, one that autograd records, so
/// that tensors stay for a backward pass that does not run, or a training step,
/// which has its own backward pass (koila.backward).
enum class PeakMemoryMode { Inference, ForwardWithGrad, Train };
llvm::StringRef getModeName(PeakMemoryMode mode);

/// On a function that was made of a program in which tensors live longer: a
/// text that says why. A rewritten program has the lives of the function
/// itself.
inline constexpr llvm::StringLiteral kLifetimesAttr = "koila.lifetimes";

/// On an operation that changes nothing, as `x + 0`: LibTorch drops it where it
/// can, so that it makes a tensor or none.
inline constexpr llvm::StringLiteral kIdleAttr = "koila.idle";

struct PeakMemoryOptions {
  PeakMemoryMode mode = PeakMemoryMode::Inference;
  /// Of a training step: whether all weights have a `.grad` when it starts, as
  /// they have from the second step on. They are not counted then; else the
  /// step makes them.
  bool hasGradients = true;
  /// Of a training step: whose step() follows. Its state is there with the
  /// gradients; without them it is made, too.
  std::optional<Optimizer> optimizer;
  /// The function; empty: the only public one.
  std::string function;
  /// The target whose kernels run (KernelModels/KernelModel.h); empty: that of
  /// the module (Analysis/Target.h), else `cpu`.
  std::string device;
  /// Threads of the run; 0: those of the module's target, else OMP_NUM_THREADS,
  /// else the cores.
  int64_t threads = 0;
  /// oneDNN's name of the instruction set; empty: that of the module's target,
  /// else this machine's.
  std::string isa;
  /// PyTorch's version; empty: the one that koila was built with.
  std::string torch;
  /// Where the rules hold; null: the table that koila ships.
  std::shared_ptr<const WorkspaceTable> workspaces;
  /// The report gives the peak at every batch from 1 to this one; 0: at none.
  int64_t batches = 0;
  /// The report gives the largest batch within these bytes.
  std::optional<int64_t> budgetBytes;
  /// Entries of the timeline have all frames of their operation.
  bool frames = false;
};

/// A place in the user's source.
struct SourcePlace {
  std::string file;
  unsigned line = 0, column = 0;
  std::string function;
  /// Path of the module in the model, for example `layer1.0.conv1`.
  std::string module;
  bool isKnown() const { return !file.empty(); }
};

/// The innermost frame outside site-packages and the standard library, else
/// the leaf.
SourcePlace getSourcePlace(mlir::Location location);

/// All frames, innermost first: without the module, and also those of
/// libraries.
std::vector<SourcePlace> getSourceFrames(mlir::Location location);

struct LiveTensor {
  std::string name;
  int64_t bytes = 0;
  std::string type;
  /// "activation", "saved" (made for the gradient alone), "gradient",
  /// "workspace" or "output".
  std::string kind;
  SourcePlace place;
};

/// A storage from the operation that allocates it to the one after which it is
/// freed.
struct StorageSpan {
  /// At its largest, if a loop makes it several times.
  LiveTensor tensor;
  /// Entries of the timeline, both included.
  size_t from = 0, to = 0;
  /// The operation that used it last; empty: the caller gets it.
  std::string freedBy;
  SourcePlace freedPlace;
};

/// Bytes at the peak that share a line, a module or a kind.
struct MemoryGroup {
  std::string name;
  int64_t bytes = 0;
  unsigned tensors = 0;
};

struct TimelineEntry {
  unsigned index = 0;
  std::string op;
  SourcePlace place;
  /// None unless they were asked for.
  std::optional<std::vector<SourcePlace>> frames;
  /// Bytes live while the operation runs, its results included.
  int64_t liveBytes = 0;
  /// Bytes it holds inside at its worst moment, beyond the results.
  int64_t transientBytes = 0;

  /// Both; no more than fits.
  int64_t getTotalBytes() const;
};

/// A call of the allocator, or several of which no more is known.
struct MemoryEvent {
  bool isFree = false;
  /// Of a block, from its allocation to its free.
  unsigned id = 0;
  /// As asked for, before an allocator rounds them.
  int64_t bytes = 0;
  /// As in a timeline: `(backward)` behind an operator.
  std::string op;
  SourcePlace place;
  /// Whether it is one call of the allocator, of as many bytes.
  bool isExact = true;
  /// Of a block that a library takes when it first needs one for this on a
  /// thread, and keeps, `cuBLAS` for one. It counts in no sum.
  std::string shared = {};
  /// Of a block that is there at the end: `gradient`, `optimizer` or `output`.
  std::string left = {};
};

/// What one batch allocates and frees.
struct BatchEvents {
  int64_t batch = 0;
  std::vector<MemoryEvent> events;
};

/// `{schema, events}` and `{schema, batches}` of docs/user/Reports.md.
void printEvents(llvm::ArrayRef<MemoryEvent> events, llvm::raw_ostream &os);
void printEvents(llvm::ArrayRef<BatchEvents> batches, llvm::raw_ostream &os);

/// Why a figure may differ from the measured one.
struct Inexactness {
  std::string op;
  SourcePlace place;
  std::string reason;
  /// The figure may be too large, but never too small.
  bool isBound = false;
  /// Where the figure is from, if it was not derived.
  std::string source = {};
};

struct Promise {
  int64_t budgetBytes = 0;
  int64_t tile = 0;
  int64_t holdsFrom = 0, holdsTo = 0;
};

struct PeakReport {
  std::string function;
  PeakMemoryMode mode = PeakMemoryMode::Inference;
  std::string device;
  int64_t threads = 1;
  std::string isa, torch;
  /// Whether the figures hold for LibTorch's profiling executor, too: of a step
  /// that koila writes, which leaves that nothing to change
  /// (ExecutorBarriers.h).
  bool anyExecutor = false;
  std::string batchSymbol;
  std::optional<int64_t> batchValue;
  /// None: a symbol has no value; `missing` names it.
  std::optional<int64_t> peakBytes;
  std::string missing;
  int64_t parameterBytes = 0;
  /// Of a training step: the gradients of the weights that it trains, made in
  /// it or before.
  int64_t gradientBytes = 0;
  /// Whether the gradients, and the optimizer's state, were there before.
  bool hasGradients = true;
  int64_t optimizerBytes = 0;
  std::optional<int64_t> inputBytes, outputBytes;
  std::optional<int64_t> floorBytes;
  SourcePlace peakPlace;
  std::string peakOp;
  std::vector<LiveTensor> liveAtPeak;
  std::vector<TimelineEntry> timeline;
  /// Of all operations, in the order in which they are allocated.
  std::vector<StorageSpan> storages;
  /// The peak at every batch from the first piece's first to the last one's
  /// last; as exact as the report is.
  std::vector<BatchPiece> batchPieces;
  /// None without a budget.
  std::optional<BatchLimit> maxBatch;
  std::optional<Promise> promise;
  /// Under `allocator=cuda`.
  std::optional<DeviceMemory> deviceMemory;
  std::vector<Inexactness> inexact;
  bool exact() const { return inexact.empty() && peakBytes.has_value(); }
  /// What is alive at the peak, most bytes first.
  std::vector<MemoryGroup> groupByLine() const;
  std::vector<MemoryGroup> groupByModule() const;
  std::vector<MemoryGroup> groupByKind() const;
  /// The first reason for which more than `peakBytes` may be needed.
  const Inexactness *getUnbounded() const;

  /// The report of docs/user/Reports.md, schema 1.
  llvm::json::Value toJSON() const;
  /// A table, the live tensors at the peak, and a sparkline.
  void print(llvm::raw_ostream &os) const;
  /// One HTML file with everything in it: timeline by storage, what is alive at
  /// the peak, and the peak by batch.
  void printPage(llvm::raw_ostream &os) const;
};

/// The analysis of one function. Construction derives storages and lifetimes;
/// `evaluate` is cheap and may be called for many values of the symbols.
/// Constants with which loops start and end are read anew each time: they may
/// be changed as long as no loop starts or ceases to run once or not at all, of
/// which shapes are known better.
class PeakMemoryAnalysis {
public:
  PeakMemoryAnalysis(mlir::Operation *function,
                     const PeakMemoryOptions &options = {});
  /// With the dims of `function`, which outlive the analysis.
  PeakMemoryAnalysis(mlir::Operation *function,
                     const PeakMemoryOptions &options, const DimAnalysis &dims);
  ~PeakMemoryAnalysis();

  bool isValid() const;
  /// The peak in bytes; none if a symbol without value is needed. Values not
  /// given are taken from `koila.symbols`.
  std::optional<int64_t>
  evaluate(const llvm::StringMap<int64_t> &symbols = {}) const;
  /// The same. `loops` gets, of each loop of the function's own block that ran,
  /// the most bytes that were live while it did; none where a trace is run in
  /// place of the function.
  std::optional<int64_t>
  evaluate(const llvm::StringMap<int64_t> &symbols,
           llvm::DenseMap<mlir::Operation *, int64_t> &loops) const;
  /// What the call allocates and frees, in order; the largest sum of their
  /// bytes is the peak. Of branches that data decide, the one that needs most.
  /// None if a symbol without value is needed; `missing` names it.
  std::optional<std::vector<MemoryEvent>>
  listEvents(std::string &missing,
             const llvm::StringMap<int64_t> &symbols = {}) const;
  /// The bytes of each storage of the inputs, in their order, as far as they
  /// are known.
  std::vector<int64_t>
  listInputs(const llvm::StringMap<int64_t> &symbols = {}) const;
  /// The whole report at the values of `koila.symbols` and `symbols`.
  PeakReport report(const llvm::StringMap<int64_t> &symbols = {}) const;

private:
  struct Impl;
  struct Traced;
  /// What to run at these values: with a symbol of one or none PyTorch takes
  /// some views for copies, and the reverse. Where the program branches, turns
  /// or fills lists, it is the trace of a call.
  Impl &select(const llvm::StringMap<int64_t> &symbols) const;
  void fillCurve(const llvm::StringMap<int64_t> &symbols, bool isCertain,
                 PeakReport &report) const;

  std::unique_ptr<Impl> impl;
  /// By the values of the symbols that are below two; made when first needed.
  mutable llvm::StringMap<std::unique_ptr<Impl>> small;
  /// The trace of a call at these values; null if there is none.
  Impl *selectTrace(const SymbolMap &numbers, const SymbolMap &fixed) const;
  Traced &trace(const SymbolMap &fixed) const;
  /// By the values that it is for.
  mutable llvm::StringMap<std::unique_ptr<Traced>> traces;
  bool isTraced;
  mutable uint64_t tracedOperations = 0;
  /// Whether numbers decide what symbols do not.
  mutable bool numbersHelp = true;
};

/// Runs the analysis on one function of `module`. Fails, after a diagnostic,
/// if there is no such function or a shape rule refuses its operands.
llvm::FailureOr<PeakReport>
computePeakMemory(mlir::ModuleOp module, const PeakMemoryOptions &options = {});

} // namespace koila

#endif // KOILA_ANALYSIS_PEAKMEMORY_H
