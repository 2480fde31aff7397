//===- PeakMemory.cpp - Peak of live memory of a call ---------------------===//
//
// Lifetimes are derived once from uses. For given values of the symbols the
// program is then run over byte counts instead of tensors: loops with known
// bounds run, so that every tile size is met, but a body whose sizes do not
// change between iterations is run once.
//
//===----------------------------------------------------------------------===//

#include "koila/Analysis/PeakMemory.h"
#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Support/CpuIsa.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include <unistd.h>

using namespace mlir;
using namespace koila;

namespace {
/// A tensor's size as the analysis needs it many times over.
struct SizeFacts {
  SmallVector<DimExpr> dims;
  std::optional<SmallVector<DimExpr>> strides;
  Type elementType;
  bool known = false;
  /// Contiguous for every value of the symbols and nothing else.
  bool alwaysContiguous = false;
};

/// The name of an expression that is just a symbol; empty otherwise.
std::string getSymbolName(DimExpr expr) {
  if (!expr)
    return {};
  std::string name;
  expr.forEachSymbol([&](StringRef symbol) { name = symbol.str(); });
  if (name.empty() || expr.getMultipleOf(name) != 1)
    return {};
  return name;
}

int64_t saturate(__int128 bytes) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return bytes > kMost ? kMost : static_cast<int64_t>(bytes);
}

/// One run over byte counts.
struct Run {
  llvm::StringMap<int64_t> symbols;
  llvm::DenseMap<const Storage *, int64_t> live;
  /// Wide: a sum of extents that each fit may not.
  __int128 liveBytes = 0;
  int64_t peakBytes = 0;
  /// Counts operations that ran; the peak is the first event that reached it.
  uint64_t event = 0, peakEvent = 0;
  /// Iterations of all loops that ran.
  int64_t iterations = 0;
  Operation *peakOp = nullptr;
  /// A symbol that had no value where a size needed one.
  std::string missing;

  // Filled only for a report.
  PeakReport *report = nullptr;
  /// Stop here and keep what is live.
  std::optional<uint64_t> stopAt;
  bool stopped = false;
  int64_t transientAtStop = 0;
  llvm::MapVector<Operation *, TimelineEntry> timeline;
  struct Doubt {
    std::string reason;
    bool isBound;
  };
  llvm::MapVector<Operation *, Doubt> inexact;
};
} // namespace

struct PeakMemoryAnalysis::Impl {
  Impl(Operation *function, const PeakMemoryOptions &options)
      : function(function), dims(function), storage(function, dims) {
    target.threads =
        options.threads > 0 ? options.threads : getDefaultThreads();
    target.isa = options.isa.empty() ? getCpuIsa() : options.isa;
    // A machine that is only named has caches of unknown size.
    if (options.isa.empty()) {
      target.l1Bytes = std::max<long>(sysconf(_SC_LEVEL1_DCACHE_SIZE), 0);
      target.l2Bytes = std::max<long>(sysconf(_SC_LEVEL2_CACHE_SIZE), 0);
    }
    if (!dims.isValid())
      return;
    collectSizes();
    collectUnmodelled();
    for (const std::unique_ptr<Storage> &entry : storage.getStorages())
      addLifetime(*entry);
    module = function->getParentOfType<ModuleOp>();
    if (auto symbols = module ? module->getAttrOfType<ArrayAttr>(
                                    KoilaDialect::kSymbolsAttr)
                              : ArrayAttr())
      for (auto symbol : symbols.getAsRange<SymbolAttr>())
        if (symbol.getValue() >= 0)
          given[symbol.getName()] = symbol.getValue();
  }

  //===--------------------------------------------------------------------===//
  // Once: sizes and lifetimes
  //===--------------------------------------------------------------------===//

  void collectSizes() {
    auto add = [&](Value value) {
      const ValueInfo &info = dims.lookup(value);
      if (!info.tensor)
        return;
      SizeFacts &facts = sizes[value];
      facts.elementType = info.tensor->elementType;
      facts.known = info.tensor->hasRank() && facts.elementType;
      if (!info.tensor->hasRank())
        return;
      facts.dims = *info.tensor->dims;
      facts.strides = info.tensor->strides;
      facts.alwaysContiguous =
          facts.strides &&
          facts.strides ==
              TensorInfo::contiguous(facts.dims, facts.elementType).strides;
    };
    function->walk<WalkOrder::PreOrder>([&](Operation *op) {
      for (Region &region : op->getRegions())
        for (Block &block : region)
          llvm::for_each(block.getArguments(), add);
      llvm::for_each(op->getResults(), add);
    });
  }

  /// Calls `callback` with everything that uses `value`, through containers.
  void forEachUser(Value value,
                   llvm::function_ref<void(Operation *)> callback) {
    SmallVector<Value> values{value};
    for (size_t index = 0; index < values.size(); ++index)
      for (Operation *user : values[index].getUsers()) {
        callback(user);
        for (Value result : user->getResults())
          if (!isa<TensorType>(result.getType()) &&
              !result.getType().isIntOrIndexOrFloat() &&
              !llvm::is_contained(values, result))
            values.push_back(result);
      }
  }

  static bool holdsTensors(Type type) {
    return isa<TensorType>(type) || isMutable(type);
  }

  /// What keeps tensors alive in a way that lifetimes do not show.
  void collectUnmodelled() {
    function->walk([&](Operation *op) {
      auto opaque = dyn_cast<TorchOpaqueOp>(op);
      bool changes = isOrderedWrite(op) && op->getNumOperands() > 0 &&
                     !isa<TensorType>(op->getOperand(0).getType());
      // Objects may keep what they are given.
      bool mayKeep = opaque && opaque.getEffects() == Effects::Unknown &&
                     llvm::any_of(op->getOperandTypes(), holdsTensors);
      if (changes || mayKeep)
        unmodelled.try_emplace(
            op, "what a list or object that changes keeps alive is not known");
    });
  }

  void addLifetime(const Storage &entry) {
    if (entry.allocations.empty())
      return;
    if (entry.external)
      for (OpResult allocation : entry.allocations)
        unmodelled.try_emplace(allocation.getOwner(),
                               "a branch or loop hands on this tensor or one "
                               "of the caller");
    Operation *first = entry.allocations.front().getOwner();
    for (OpResult allocation : entry.allocations)
      births[allocation.getOwner()].emplace_back(&entry, allocation);
    // A storage that a loop or branch hands on lives in the function's block:
    // which iteration's it is, only a run would tell.
    Block *block = first->getBlock();
    Block *functionBlock = &function->getRegion(0).front();
    bool handedOn = entry.allocations.size() > 1;
    for (Value value : entry.values)
      forEachUser(value, [&](Operation *user) {
        Operation *ancestor = block->findAncestorOpInBlock(*user);
        if (!ancestor || (block != functionBlock &&
                          ancestor->hasTrait<OpTrait::IsTerminator>()))
          handedOn = true;
      });
    if (handedOn && block != functionBlock) {
      block = functionBlock;
      first = block->findAncestorOpInBlock(*first);
    }
    if (handedOn)
      handedOnStorages.push_back(&entry);
    Operation *last = first;
    for (OpResult allocation : entry.allocations)
      if (Operation *ancestor =
              block->findAncestorOpInBlock(*allocation.getOwner()))
        if (last->isBeforeInBlock(ancestor))
          last = ancestor;
    for (Value value : entry.values)
      forEachUser(value, [&](Operation *user) {
        Operation *ancestor = block->findAncestorOpInBlock(*user);
        if (ancestor && last->isBeforeInBlock(ancestor))
          last = ancestor;
      });
    if (last->hasTrait<OpTrait::IsTerminator>() && block == functionBlock)
      returned.insert(&entry);
    else
      deaths[last].push_back(&entry);
  }

  //===--------------------------------------------------------------------===//
  // A run
  //===--------------------------------------------------------------------===//

  std::optional<int64_t> evaluate(DimExpr expr, Run &run) const {
    if (!expr)
      return std::nullopt;
    std::string missing;
    auto value = expr.evaluate([&](StringRef name) -> std::optional<int64_t> {
      auto found = run.symbols.find(name);
      if (found != run.symbols.end())
        return found->second;
      missing = name.str();
      return std::nullopt;
    });
    // A symbol of the program can be given a value; a local one (data decides
    // it) cannot.
    if (!missing.empty() && missing.front() != '_' && run.missing.empty())
      run.missing = missing;
    return value;
  }

  std::optional<ConcreteTensor> getConcrete(Value value, Run &run) const {
    auto found = sizes.find(value);
    if (found == sizes.end() || !found->second.known)
      return std::nullopt;
    ConcreteTensor tensor;
    tensor.elementType = found->second.elementType;
    for (DimExpr dim : found->second.dims) {
      auto extent = evaluate(dim, run);
      if (!extent)
        return std::nullopt;
      // Empty batches can make an intermediate expression negative.
      tensor.dims.push_back(std::max<int64_t>(*extent, 0));
    }
    if (!found->second.alwaysContiguous)
      setLayout(tensor, found->second, run);
    return tensor;
  }

  /// Contiguous and channels-last as the numbers say; both can hold at once.
  void setLayout(ConcreteTensor &tensor, const SizeFacts &facts,
                 Run &run) const {
    tensor.contiguous = tensor.channelsLast = false;
    if (!facts.strides)
      return;
    SmallVector<int64_t> strides;
    for (DimExpr stride : *facts.strides) {
      auto value = evaluate(stride, run);
      if (!value)
        return;
      strides.push_back(*value);
    }
    tensor.strides = strides;
    tensor.contiguous = true;
    int64_t expected = 1;
    for (int64_t dim = static_cast<int64_t>(strides.size()) - 1; dim >= 0;
         --dim) {
      if (tensor.dims[dim] != 1 && strides[dim] != expected)
        tensor.contiguous = false;
      expected *= std::max<int64_t>(tensor.dims[dim], 1);
    }
    // c10::is_channels_last_strides_2d: strides alone decide, so that a tensor
    // of one channel may be either.
    if (strides.size() != 4 || strides[1] == 0)
      return;
    int64_t least = 0;
    for (int64_t dim : {1, 3, 2, 0}) {
      if (tensor.dims[dim] == 0 || strides[dim] < least ||
          (dim == 0 && least == strides[1]))
        return;
      least = strides[dim] * std::max<int64_t>(tensor.dims[dim], 1);
    }
    tensor.channelsLast = true;
  }

  void runBlock(Block &block, Run &run) const {
    for (Operation &op : block) {
      if (run.stopped)
        return;
      if (isa<LoopLikeOpInterface>(op))
        runLoop(cast<LoopLikeOpInterface>(op), run);
      else if (op.getNumRegions() > 0)
        runBranches(op, run);
      else
        runOperation(op, run);
      if (run.stopped)
        return;
      auto dying = deaths.find(&op);
      if (dying != deaths.end())
        for (const Storage *entry : dying->second) {
          auto found = run.live.find(entry);
          if (found == run.live.end())
            continue;
          run.liveBytes -= found->second;
          run.live.erase(found);
        }
    }
  }

  void markInexact(Operation &op, const Twine &reason, Run &run,
                   bool isBound = false) const {
    if (!run.report)
      return;
    Run::Doubt &doubt =
        run.inexact.try_emplace(&op, Run::Doubt{reason.str(), isBound})
            .first->second;
    if (doubt.isBound && !isBound)
      doubt = {reason.str(), isBound};
  }

  /// Storages are decided for symbols of two or more. At one or none a view may
  /// be possible where a copy was needed, or the reverse: then the figure is
  /// not exact.
  void checkStorage(Operation &op, Run &run) const {
    auto rule = dyn_cast<MemoryRuleInterface>(op);
    bool small = llvm::any_of(run.symbols, [](const auto &symbol) {
      return symbol.getValue() < 2;
    });
    if (!rule || !small || !run.report)
      return;
    auto symbolic = [&](Value value) { return dims.lookup(value); };
    auto concrete = [&](Value value) {
      ValueInfo info = dims.lookup(value);
      auto fix = [&](SmallVector<DimExpr> &exprs) {
        for (DimExpr &expr : exprs)
          if (auto number = evaluate(expr, run))
            expr = DimExpr::constant(op.getContext(), *number);
      };
      if (info.tensor && info.tensor->dims)
        fix(*info.tensor->dims);
      if (info.tensor && info.tensor->strides)
        fix(*info.tensor->strides);
      return info;
    };
    StorageRule decided(&op, symbolic), here(&op, concrete);
    rule.describeStorage(decided);
    rule.describeStorage(here);
    for (auto [lhs, rhs] :
         llvm::zip_equal(decided.getResults(), here.getResults()))
      if (lhs.kind != rhs.kind)
        markInexact(op,
                    "at this batch PyTorch takes a view where it copies at "
                    "larger ones, or the reverse",
                    run);
  }

  void runOperation(Operation &op, Run &run) const {
    auto born = births.find(&op);
    if (born != births.end())
      for (auto [entry, value] : born->second) {
        auto tensor = getConcrete(value, run);
        if (!tensor && run.missing.empty())
          markInexact(op,
                      "the size of a result is not known; it is counted "
                      "as 0 bytes",
                      run);
        int64_t bytes = tensor ? tensor->numBytes() : 0;
        run.live[entry] += bytes;
        run.liveBytes += bytes;
      }
    if (auto found = unmodelled.find(&op); found != unmodelled.end())
      markInexact(op, found->second, run);
    checkStorage(op, run);
    int64_t transient = 0;
    if (auto rule = dyn_cast<MemoryRuleInterface>(op)) {
      auto lookup = [&](Value value) { return getConcrete(value, run); };
      WorkspaceRule workspace(&op, target, lookup);
      rule.describeWorkspace(workspace);
      transient = workspace.getTransient();
      if (!workspace.isExact() && run.missing.empty())
        markInexact(op, workspace.getReason(), run, workspace.isBounded());
    } else if (llvm::any_of(op.getResultTypes(), llvm::IsaPred<TensorType>)) {
      markInexact(op,
                  "koila has no memory rule for '" + getOperatorName(op) + "'",
                  run);
    }
    ++run.event;
    int64_t total = saturate(run.liveBytes + transient);
    if (total > run.peakBytes) {
      run.peakBytes = total;
      run.peakEvent = run.event;
      run.peakOp = &op;
    }
    if (run.stopAt && run.event == *run.stopAt) {
      run.stopped = true;
      run.transientAtStop = transient;
      return;
    }
    bool moves = born != births.end() || transient > 0 ||
                 deaths.find(&op) != deaths.end();
    if (run.report && !run.stopAt && moves) {
      TimelineEntry &entry = run.timeline[&op];
      if (entry.op.empty() || total > entry.liveBytes + entry.transientBytes) {
        entry.op = getOperatorName(op);
        entry.place = getSourcePlace(op.getLoc());
        entry.liveBytes = saturate(run.liveBytes);
        entry.transientBytes = transient;
      }
    }
  }

  static std::string getOperatorName(Operation &op) {
    if (auto opaque = dyn_cast<TorchOpaqueOp>(op))
      return opaque.getCallee().str();
    return op.getName().getStringRef().str();
  }

  /// Each branch from the same start; the larger peak counts.
  void runBranches(Operation &op, Run &run) const {
    for (Region &region : op.getRegions()) {
      // What the assumptions rule out does not run.
      if (region.empty() || dims.isDead(&region.front()))
        continue;
      auto live = run.live;
      __int128 liveBytes = run.liveBytes;
      for (Block &block : region)
        runBlock(block, run);
      if (run.stopped)
        return;
      // What the branch hands on stays, at the size of the last branch.
      for (const Storage *entry : handedOnStorages)
        if (auto found = run.live.find(entry);
            found != run.live.end() && !live.contains(entry)) {
          live[entry] = found->second;
          liveBytes += found->second;
        }
      run.live = std::move(live);
      run.liveBytes = liveBytes;
    }
    // What makes results of its own is an operation like any other.
    if (!isa<RegionBranchOpInterface>(op))
      runOperation(op, run);
  }

  /// The symbols on which sizes and inner bounds of a loop's body depend.
  const llvm::StringSet<> &getBodySymbols(Operation *loop) const {
    auto [entry, isNew] = bodySymbols.try_emplace(loop);
    if (!isNew)
      return entry->second;
    llvm::StringSet<> symbols;
    auto add = [&](DimExpr expr) {
      if (expr)
        expr.forEachSymbol([&](StringRef name) { symbols.insert(name); });
    };
    loop->walk([&](Operation *op) {
      for (Value result : op->getResults())
        if (auto found = sizes.find(result); found != sizes.end())
          llvm::for_each(found->second.dims, add);
      if (op != loop && isa<LoopLikeOpInterface>(op))
        for (Value operand : op->getOperands())
          if (!isa<TensorType>(operand.getType()))
            add(dims.lookup(operand).integer);
    });
    return bodySymbols[loop] = std::move(symbols);
  }

  std::optional<int64_t> evaluate(OpFoldResult value, Run &run) const {
    if (auto attr = dyn_cast<Attribute>(value))
      return cast<IntegerAttr>(attr).getInt();
    return evaluate(dims.lookup(cast<Value>(value)).integer, run);
  }

  void runLoop(LoopLikeOpInterface loop, Run &run) const {
    auto lower = loop.getLoopLowerBounds(), upper = loop.getLoopUpperBounds(),
         steps = loop.getLoopSteps();
    std::optional<int64_t> from, to, step;
    if (lower && upper && steps && lower->size() == 1) {
      from = evaluate(lower->front(), run);
      to = evaluate(upper->front(), run);
      step = evaluate(steps->front(), run);
    }
    Region &body = *loop.getLoopRegions().front();
    if (!from || !to || !step || *step <= 0) {
      if (run.missing.empty())
        markInexact(*loop, "the trip count of a loop is not known", run);
      for (Region *region : loop.getLoopRegions())
        for (Block &block : *region)
          runBlock(block, run);
      return;
    }
    // The integers that change from iteration to iteration.
    std::string counter;
    if (auto variables = loop.getLoopInductionVars())
      counter = getSymbolName(dims.lookup(variables->front()).integer);
    struct Carried {
      std::string name;
      DimExpr next;
      int64_t value;
      std::string result;
    };
    SmallVector<Carried> carried;
    auto results = loop.getLoopResults();
    for (auto [index, argument] : llvm::enumerate(loop.getRegionIterArgs())) {
      if (isa<TensorType>(argument.getType()))
        continue;
      std::string name = getSymbolName(dims.lookup(argument).integer);
      auto init = evaluate(dims.lookup(loop.getInits()[index]).integer, run);
      if (name.empty() || !init)
        continue;
      carried.push_back(
          {name, dims.lookup(loop.getYieldedValues()[index]).integer, *init,
           results ? getSymbolName(dims.lookup((*results)[index]).integer)
                   : std::string()});
    }
    int64_t trips = *to > *from ? (*to - *from + *step - 1) / *step : 0;
    const llvm::StringSet<> &used = getBodySymbols(loop);
    bool varies = used.contains(counter);
    for (const Carried &entry : carried)
      varies |= used.contains(entry.name);
    // A loop without end, or nearly, must not hang the analysis.
    constexpr int64_t kMostTrips = 1 << 16;
    for (int64_t trip = 0; trip < trips && !run.stopped; ++trip) {
      if (run.iterations++ >= kMostTrips) {
        markInexact(*loop,
                    "a loop has too many different iterations; not all "
                    "were looked at",
                    run);
        break;
      }
      if (!counter.empty())
        run.symbols[counter] = *from + trip * *step;
      for (const Carried &entry : carried)
        run.symbols[entry.name] = entry.value;
      if (varies || trip == 0)
        for (Block &block : body)
          runBlock(block, run);
      if (run.stopped)
        return;
      int64_t repeats = varies ? 1 : trips - trip;
      bool jumped = repeats > 1;
      SmallVector<int64_t> next;
      for (const Carried &entry : carried) {
        auto value = evaluate(entry.next, run);
        next.push_back(value.value_or(entry.value));
        // All remaining iterations at once where the step is constant.
        if (jumped && entry.next &&
            !(entry.next - DimExpr::symbol(entry.next.getContext(), entry.name))
                 .getConstant()) {
          DimExpr delta =
              entry.next - DimExpr::symbol(entry.next.getContext(), entry.name);
          bool invariant = !delta.dependsOn(counter);
          for (const Carried &other : carried)
            invariant &= !delta.dependsOn(other.name);
          jumped &= invariant;
        }
      }
      for (auto [entry, value] : llvm::zip_equal(carried, next))
        entry.value += (value - entry.value) * (jumped ? repeats : 1);
      if (jumped)
        break;
    }
    for (const Carried &entry : carried)
      if (!entry.result.empty())
        run.symbols[entry.result] = entry.value;
  }

  void execute(Run &run) const {
    for (Block &block : function->getRegion(0))
      runBlock(block, run);
  }

  Run start(const llvm::StringMap<int64_t> &symbols) const {
    Run run;
    for (const auto &entry : given)
      run.symbols[entry.getKey()] = entry.getValue();
    for (const auto &entry : symbols)
      run.symbols[entry.getKey()] = entry.getValue();
    return run;
  }

  void fillPlaces(Run &run, PeakReport &report) const;
  void fillLive(const llvm::StringMap<int64_t> &symbols, uint64_t event,
                PeakReport &report) const;
  void fillBytes(Run &run, PeakReport &report) const;

  Operation *function;
  ModuleOp module;
  WorkspaceTarget target;
  DimAnalysis dims;
  StorageAnalysis storage;
  llvm::DenseMap<Value, SizeFacts> sizes;
  llvm::DenseMap<Operation *,
                 SmallVector<std::pair<const Storage *, OpResult>, 1>>
      births;
  llvm::DenseMap<Operation *, StringRef> unmodelled;
  llvm::DenseMap<Operation *, SmallVector<const Storage *, 2>> deaths;
  llvm::SmallPtrSet<const Storage *, 4> returned;
  SmallVector<const Storage *> handedOnStorages;
  llvm::StringMap<int64_t> given;
  mutable llvm::DenseMap<Operation *, llvm::StringSet<>> bodySymbols;
};

//===----------------------------------------------------------------------===//
// The report
//===----------------------------------------------------------------------===//

/// What the user would call the value that `op` computes.
static std::string getTensorName(Operation *op) {
  SourcePlace place = getSourcePlace(op->getLoc());
  if (!place.module.empty())
    return place.module;
  if (auto opaque = dyn_cast<TorchOpaqueOp>(op))
    return opaque.getCallee().str();
  return op->getName().stripDialect().str();
}

static std::string toString(const ConcreteTensor &tensor) {
  std::string text = "tensor<";
  llvm::raw_string_ostream os(text);
  for (int64_t dim : tensor.dims)
    os << dim << 'x';
  os << tensor.elementType << '>';
  return text;
}

void PeakMemoryAnalysis::Impl::fillPlaces(Run &run, PeakReport &report) const {
  if (run.peakOp) {
    report.peakPlace = getSourcePlace(run.peakOp->getLoc());
    report.peakOp = getOperatorName(*run.peakOp);
  }
  for (auto &entry : run.timeline) {
    entry.second.index = report.timeline.size();
    report.timeline.push_back(entry.second);
  }
  for (auto &entry : run.inexact)
    report.inexact.push_back({getOperatorName(*entry.first),
                              getSourcePlace(entry.first->getLoc()),
                              entry.second.reason, entry.second.isBound});
  for (const auto &guess : storage.getGuesses())
    report.inexact.push_back({getOperatorName(*guess.first),
                              getSourcePlace(guess.first->getLoc()),
                              guess.second});
  for (const Storage *entry : handedOnStorages) {
    Operation *op = entry->allocations.front().getOwner();
    report.inexact.push_back({getOperatorName(*op),
                              getSourcePlace(op->getLoc()),
                              "its storage is handed on by a loop or branch"});
  }
}

void PeakMemoryAnalysis::Impl::fillLive(const llvm::StringMap<int64_t> &symbols,
                                        uint64_t event,
                                        PeakReport &report) const {
  Run run = start(symbols);
  run.stopAt = event;
  execute(run);
  for (auto [entry, bytes] : run.live) {
    if (bytes == 0)
      continue;
    OpResult value = entry->allocations.front();
    LiveTensor tensor;
    tensor.name = getTensorName(value.getOwner());
    tensor.bytes = bytes;
    if (auto concrete = getConcrete(value, run))
      tensor.type = toString(*concrete);
    tensor.kind = returned.contains(entry) ? "output" : "activation";
    tensor.place = getSourcePlace(value.getLoc());
    report.liveAtPeak.push_back(std::move(tensor));
  }
  if (run.transientAtStop > 0 && run.event == event)
    report.liveAtPeak.push_back({report.peakOp, run.transientAtStop, "",
                                 "workspace", report.peakPlace});
  llvm::sort(
      report.liveAtPeak, [](const LiveTensor &lhs, const LiveTensor &rhs) {
        if (lhs.bytes != rhs.bytes)
          return lhs.bytes > rhs.bytes;
        return std::tie(lhs.name, lhs.type) < std::tie(rhs.name, rhs.type);
      });
}

void PeakMemoryAnalysis::Impl::fillBytes(Run &run, PeakReport &report) const {
  llvm::StringSet<> seen;
  if (module)
    for (auto param : ModuleOp(module).getOps<ParamOp>()) {
      // Tied weights are one declaration; views into one storage are several.
      if (!param.getStorage().empty() &&
          !seen.insert(param.getStorage()).second)
        continue;
      auto type = cast<RankedTensorType>(param.getType());
      report.parameterBytes +=
          type.getNumElements() * getElementBytes(type.getElementType());
    }
  auto sum = [&](auto &&values) -> std::optional<int64_t> {
    int64_t total = 0;
    llvm::SmallPtrSet<const Storage *, 4> counted;
    for (Value value : values) {
      if (!isa<TensorType>(value.getType()))
        continue;
      if (const Storage *entry = storage.lookup(value);
          entry && !counted.insert(entry).second)
        continue;
      auto tensor = getConcrete(value, run);
      if (!tensor)
        return std::nullopt;
      total += tensor->numBytes();
    }
    return total;
  };
  Block &entry = function->getRegion(0).front();
  report.inputBytes = sum(entry.getArguments());
  SmallVector<Value> outputs;
  for (const std::unique_ptr<Storage> &candidate : storage.getStorages())
    if (returned.contains(candidate.get()))
      outputs.push_back(candidate->allocations.front());
  report.outputBytes = sum(outputs);
}

PeakMemoryAnalysis::PeakMemoryAnalysis(Operation *function,
                                       const PeakMemoryOptions &options)
    : impl(std::make_unique<Impl>(function, options)) {}

PeakMemoryAnalysis::~PeakMemoryAnalysis() = default;

bool PeakMemoryAnalysis::isValid() const { return impl->dims.isValid(); }

std::optional<int64_t>
PeakMemoryAnalysis::evaluate(const llvm::StringMap<int64_t> &symbols) const {
  Run run = impl->start(symbols);
  impl->execute(run);
  if (!run.missing.empty())
    return std::nullopt;
  return run.peakBytes;
}

PeakReport
PeakMemoryAnalysis::report(const llvm::StringMap<int64_t> &symbols) const {
  PeakReport report;
  if (auto function = dyn_cast<FunctionOpInterface>(impl->function))
    report.function = function.getName().str();
  report.threads = impl->target.threads;
  report.isa = impl->target.isa;
  Run run = impl->start(symbols);
  run.report = &report;
  if (impl->module) {
    report.batchSymbol = getBatchSymbol(impl->module).str();
    auto value = run.symbols.find(report.batchSymbol);
    if (value != run.symbols.end())
      report.batchValue = value->second;
  }
  impl->execute(run);
  report.missing = run.missing;
  impl->fillBytes(run, report);
  if (!run.missing.empty())
    return report;
  report.peakBytes = run.peakBytes;
  impl->fillPlaces(run, report);
  impl->fillLive(symbols, run.peakEvent, report);
  return report;
}

FailureOr<PeakReport>
koila::computePeakMemory(ModuleOp module, const PeakMemoryOptions &options) {
  FunctionOpInterface function = findFunction(module, options.function);
  if (!function)
    return failure();
  PeakMemoryAnalysis analysis(function, options);
  if (!analysis.isValid())
    return failure();
  return analysis.report();
}
