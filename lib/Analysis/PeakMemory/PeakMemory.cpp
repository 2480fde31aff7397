//===- PeakMemory.cpp - Peak of live memory of a call ---------------------===//
//
// Lifetimes are derived once from uses. For given values of the symbols the
// program is then run over byte counts instead of tensors: loops with known
// bounds run, so that every tile size is met, but a body whose sizes do not
// change between iterations is run once.
//
//===----------------------------------------------------------------------===//

#include "../Trace/ExecutionTrace.h"
#include "PeakMemoryImpl.h"
#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Analysis/ControlFlow.h"
#include "koila/Analysis/Target.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace koila;

PeakMemoryAnalysis::Impl::Impl(Operation *function,
                               const PeakMemoryOptions &options,
                               const DimAnalysis *known, const SymbolMap &fixed)
    : function(function), options(options),
      ownDims(known ? nullptr : std::make_unique<DimAnalysis>(function, fixed)),
      dims(known ? *known : *ownDims), fixed(fixed),
      ties(dims.hasDead() ? std::make_unique<StorageAnalysis>(function, dims)
                          : nullptr),
      storage(function, dims, ties.get()) {
  initialize();
}

PeakMemoryAnalysis::Impl::Impl(const Impl &general, const SymbolMap &fixed)
    : function(general.function), options(general.options),
      ownDims(std::make_unique<DimAnalysis>(function, fixed, general.dims)),
      dims(*ownDims), fixed(fixed),
      storage(function, dims,
              general.ties ? general.ties.get() : &general.storage),
      general(&general) {
  initialize();
}

/// The release of PyTorch whose rules a profile is for.
static std::string getRelease(const DeviceProfile *profile) {
  auto release = profile ? profile->getProperties().pytorch : std::nullopt;
  return release ? std::to_string(release->first) + "." +
                       std::to_string(release->second)
                 : kTorchVersion.str();
}

void PeakMemoryAnalysis::Impl::initialize() {
  if (general) {
    models = general->models;
    target = general->target;
  } else if (TargetAttr machine = getTarget(function, options)) {
    device = machine.getDevice();
    target = {machine.getThreads(), machine.getIsa().str(),
              machine.getL1Bytes(), machine.getL2Bytes()};
    models = KernelLibraries::find(device, function);
  }
  if (models) {
    device = models->getName();
    target.leaves = models->getLeaves();
    target.profile = models->getProfile();
  }
  if (options.torch.empty())
    options.torch = getRelease(target.profile);
  if (!dims.isValid() || !models)
    return;
  // Lifetimes are intervals of one list of operations.
  hasOneBlock = !function->getRegion(0).empty();
  if (Operation *branching = findSeveralBlocks(function)) {
    hasOneBlock = false;
    branching->emitError() << "cannot follow the memory of a "
                           << (branching == function ? "function" : "region")
                           << " with several blocks";
  }
  if (!hasOneBlock)
    return;
  sizes = collectSizes(dims);
  collectUnmodelled();
  for (const auto &[op, reason] : storage.getGuesses())
    guesses.try_emplace(op, reason);
  for (const std::unique_ptr<Storage> &entry : storage.getStorages())
    addLifetime(*entry);
  orderDeaths();
  if (records())
    collectGradients();
  module = function->getParentOfType<ModuleOp>();
  if (module)
    batchSymbol = getBatchSymbol(module).str();
  if (auto symbols =
          module ? module->getAttrOfType<ArrayAttr>(KoilaDialect::kSymbolsAttr)
                 : ArrayAttr())
    for (auto symbol : symbols.getAsRange<SymbolAttr>())
      if (symbol.getValue() >= 0)
        given[symbol.getName()] = symbol.getValue();
}

/// What an encoding makes of a tensor's bytes is not known.
static bool hasEncoding(Type type) {
  auto ranked = dyn_cast<RankedTensorType>(type);
  return ranked && ranked.getEncoding();
}

PeakMemoryAnalysis::Impl::SizeMap
PeakMemoryAnalysis::Impl::collectSizes(const DimAnalysis &dims) const {
  SizeMap sizes;
  auto add = [&](Value value) {
    const ValueInfo &info = dims.lookup(value);
    if (!info.tensor)
      return;
    SizeFacts &facts = sizes[value];
    facts.elementType = info.tensor->elementType;
    facts.known = info.tensor->hasRank() && facts.elementType &&
                  !getDTypeName(facts.elementType).empty() &&
                  !hasEncoding(value.getType());
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
  return sizes;
}

/// What PyTorch calls devices of that type, whose cards have libraries of their
/// own.
static StringRef getDeviceType(const KernelLibrary *library) {
  StringRef type = "cpu";
  for (; library && library->getBase(); library = library->getBase())
    type = library->getName();
  return type;
}

/// One name for the same numbers, in whatever order they came.
static std::string spell(const SymbolMap &symbols) {
  SmallVector<std::string> names;
  for (auto [symbol, value] : symbols)
    names.push_back(
        (symbol.getName() + (symbol.isLocal() ? ":" : "") + "=" + Twine(value))
            .str());
  llvm::sort(names);
  return llvm::join(names, ",");
}

std::unique_ptr<PeakMemoryAnalysis::Impl>
PeakMemoryAnalysis::Impl::makeFixed(const SymbolMap &symbols) const {
  SymbolMap all = fixed;
  for (auto [symbol, value] : symbols)
    all[symbol] = value;
  // The program need not run at this size; then all that is known is what
  // holds for larger ones.
  ScopedDiagnosticHandler quiet(function->getContext(),
                                [](Diagnostic &) { return success(); });
  return std::make_unique<Impl>(*this, all);
}

const PeakMemoryAnalysis::Impl::FixedLoops &
PeakMemoryAnalysis::Impl::getFixedLoops(int64_t value) const {
  auto [entry, isNew] = ofFixedLoops.try_emplace(value);
  FixedLoops &loops = entry->second;
  if (!isNew)
    return loops;
  llvm::SmallPtrSet<Operation *, 16> apart;
  for (auto loop : function->getRegion(0).getOps<LoopLikeOpInterface>()) {
    const BodySymbols &used = getBodySymbols(loop);
    SmallVector<DimSymbol, 1> symbols;
    for (Value argument : loop.getRegionIterArgs())
      if (DimExpr integer = dims.lookup(argument).integer)
        if (DimSymbol symbol = integer.getSymbol();
            symbol && used.ofSizes.contains(symbol))
          symbols.push_back(symbol);
    if (symbols.size() != 1 || !used.isFixedAt(value))
      continue;
    apart.insert(loop);
    loops.symbols[symbols.front()] = value;
  }
  if (apart.size() < 2)
    return loops;
  loops.impl = makeFixed(loops.symbols);
  // What is known outside must not come of a loop's number: then what is known
  // in one of them comes of its own number alone.
  if (!loops.impl->dims.isValid() ||
      !dims.agreesWith(loops.impl->dims, function,
                       [&](Operation *op) { return apart.contains(op); }))
    loops.impl.reset();
  return loops;
}

const PeakMemoryAnalysis::Impl &
PeakMemoryAnalysis::Impl::getFixed(const Run &run) const {
  if (run.fixedSymbols.size() == 1) {
    auto [symbol, value] = *run.fixedSymbols.begin();
    const FixedLoops &loops = getFixedLoops(value);
    if (loops.impl && loops.symbols.contains(symbol))
      return *loops.impl;
  }
  std::unique_ptr<Impl> &entry = ofFixed[spell(run.fixedSymbols)];
  if (!entry)
    entry = makeFixed(run.fixedSymbols);
  return entry->dims.isValid() ? *entry : *this;
}

void PeakMemoryAnalysis::Impl::forEachUser(
    Value value, llvm::function_ref<void(Operation *)> callback) {
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

void PeakMemoryAnalysis::Impl::collectUnmodelled() {
  function->walk([&](Operation *op) {
    bool changes = isOrderedWrite(op) && op->getNumOperands() > 0 &&
                   !isa<TensorType>(op->getOperand(0).getType());
    // Objects may keep what they are given.
    bool mayKeep = mayWriteModuleState(op) &&
                   llvm::any_of(op->getOperandTypes(), holdsTensors);
    if (!changes && !mayKeep)
      return;
    growing.insert(op);
    unmodelled.try_emplace(
        op, "what a list or object that changes keeps alive is not known");
  });
}

/// Whether one of them runs, but not both: they are in different branches.
static bool areAlternatives(Operation *lhs, Operation *rhs) {
  Region *common = lhs->getParentRegion();
  while (!common->isAncestor(rhs->getParentRegion()))
    common = common->getParentRegion();
  Operation *outer = common->findAncestorOpInRegion(*lhs);
  return outer != lhs && outer == common->findAncestorOpInRegion(*rhs) &&
         isa<RegionBranchOpInterface>(outer);
}

PeakMemoryAnalysis::Impl::HandedOn
PeakMemoryAnalysis::Impl::classify(ArrayRef<OpResult> allocations,
                                   Block *block) {
  for (OpResult allocation : allocations)
    for (Operation *op = allocation.getOwner(); op->getBlock() != block;
         op = op->getParentOp())
      if (!isa<RegionBranchOpInterface>(op->getParentOp()) ||
          isa<LoopLikeOpInterface>(op->getParentOp()))
        return HandedOn::OfIteration;
  // Pairs are compared.
  constexpr size_t kMost = 32;
  if (allocations.size() > kMost)
    return HandedOn::Several;
  for (auto [index, allocation] : llvm::enumerate(allocations))
    for (OpResult other : allocations.take_front(index))
      if (!areAlternatives(allocation.getOwner(), other.getOwner()))
        return HandedOn::Several;
  return HandedOn::Once;
}

PeakMemoryAnalysis::Impl::Carried
PeakMemoryAnalysis::Impl::getCarried(const Storage &entry, Block *block) {
  Carried result;
  auto isInBranch = [&](OpResult allocation) {
    Operation *op = allocation.getOwner();
    while (op->getBlock() != block &&
           isa<RegionBranchOpInterface>(op->getParentOp()))
      op = op->getParentOp();
    return op->getBlock() == block;
  };
  // What is put into a container behind the loops is in their results as well.
  auto mayHoldSeveral = [&](Value holder) {
    return holder.getParentBlock() != block ||
           isa_and_nonnull<LoopLikeOpInterface>(holder.getDefiningOp());
  };
  if (!llvm::all_of(entry.allocations, isInBranch) ||
      llvm::any_of(entry.holders, mayHoldSeveral))
    return result;
  // A loop has what it carries in its variables, then in its results.
  llvm::MapVector<Operation *, llvm::SmallDenseMap<Region *, unsigned, 2>>
      loops;
  for (Value value : entry.values) {
    auto argument = dyn_cast<BlockArgument>(value);
    Operation *owner =
        argument ? argument.getOwner()->getParentOp() : value.getDefiningOp();
    if (isa<LoopLikeOpInterface>(owner))
      ++loops[owner][argument ? argument.getOwner()->getParent() : nullptr];
  }
  if (loops.empty())
    return result;
  result.variables = 0;
  for (const auto &[loop, counts] : loops)
    *result.variables += *llvm::max_element(llvm::make_second_range(counts));
  // One loop with all others in it, and who has what is made before it.
  Operation *outermost = block->findAncestorOpInBlock(*loops.front().first);
  llvm::SmallPtrSet<Operation *, 2> containers;
  for (Value holder : entry.holders)
    if (Operation *maker = holder.getDefiningOp())
      containers.insert(maker);
  auto isGone = [&](Value value) {
    Operation *maker = value.getDefiningOp();
    // Views of results have what is in those.
    if (value.getParentBlock() != block || maker == outermost ||
        (maker && outermost->isBeforeInBlock(maker) &&
         !llvm::is_contained(entry.allocations, value)))
      return true;
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      Operation *ancestor = block->findAncestorOpInBlock(*user);
      return user == outermost ||
             (ancestor && ancestor->isBeforeInBlock(outermost) &&
              !containers.contains(user));
    });
  };
  result.isStart = llvm::all_of(llvm::make_first_range(loops),
                                [&](Operation *loop) {
                                  return outermost->isAncestor(loop);
                                }) &&
                   llvm::all_of(entry.values, isGone);
  return result;
}

void PeakMemoryAnalysis::Impl::addLifetime(const Storage &entry) {
  auto isTaken = [&](OpResult allocation) {
    return !dims.isDead(allocation.getOwner());
  };
  SmallVector<OpResult, 1> allocations(
      llvm::make_filter_range(entry.allocations, isTaken));
  if (allocations.empty())
    return;
  Operation *first = allocations.front().getOwner();
  for (OpResult allocation : allocations)
    births[allocation.getOwner()].emplace_back(&entry, allocation);
  Block *block = first->getBlock();
  Block *functionBlock = &function->getRegion(0).front();
  // Who uses the tensor, or a container that it is in.
  llvm::SetVector<Operation *> users;
  for (Value value : entry.values)
    users.insert_range(value.getUsers());
  for (Value holder : entry.holders)
    users.insert_range(holder.getUsers());
  auto escapes = [&]() {
    return llvm::any_of(users, [&](Operation *user) {
      Operation *ancestor = block->findAncestorOpInBlock(*user);
      return !ancestor || (block != functionBlock &&
                           ancestor->hasTrait<OpTrait::IsTerminator>());
    });
  };
  // A branch that every call takes is a part of the block around it.
  bool handedOn = allocations.size() > 1 || escapes();
  while (handedOn && allocations.size() == 1 &&
         getTaken(block->getParentOp()) == block->getParent()) {
    first = block->getParentOp();
    block = first->getBlock();
    handedOn = escapes();
  }
  // What other branches hand on lives in the block around them.
  auto leaves = [&] {
    return escapes() || llvm::any_of(allocations, [&](OpResult allocation) {
             return !block->findAncestorOpInBlock(*allocation.getOwner());
           });
  };
  while (handedOn && block != functionBlock && leaves()) {
    first = block->getParentOp();
    block = first->getBlock();
  }
  std::optional<HandedOn> how;
  if (handedOn)
    how = classify(allocations, block);
  if (how == HandedOn::OfIteration) {
    block = functionBlock;
    first = block->findAncestorOpInBlock(*first);
    carried[&entry] = getCarried(entry, block);
  }
  if (how) {
    handedOnStorages.emplace_back(&entry, *how);
    llvm::SetVector<Operation *> around;
    for (OpResult allocation : allocations)
      for (Operation *op = allocation.getOwner()->getParentOp(); op != function;
           op = op->getParentOp())
        around.insert(op);
    for (Operation *op : around)
      handedOnIn[op].push_back(&entry);
  }
  // Of those of a loop all are counted.
  if (entry.external && (!how || how == HandedOn::OfIteration) &&
      !carried.lookup(&entry).variables)
    for (OpResult allocation : allocations)
      unmodelled.try_emplace(allocation.getOwner(),
                             "a branch or loop hands on this tensor or one "
                             "of the caller");
  Operation *last = first;
  for (OpResult allocation : allocations)
    if (Operation *ancestor =
            block->findAncestorOpInBlock(*allocation.getOwner()))
      if (last->isBeforeInBlock(ancestor))
        last = ancestor;
  for (Operation *user : users) {
    Operation *ancestor = block->findAncestorOpInBlock(*user);
    if (ancestor && last->isBeforeInBlock(ancestor))
      last = ancestor;
  }
  if (last->hasTrait<OpTrait::IsTerminator>() && block == functionBlock)
    returned.insert(&entry);
  else
    deaths[last].push_back(&entry);
}

/// Which operands of `op` are optional tensors.
static SmallVector<bool> findOptional(Operation &op) {
  SmallVector<bool> isOptional(op.getNumOperands());
  auto torchOp = dyn_cast<TorchOperatorInterface>(op);
  if (!torchOp)
    return isOptional;
  auto segments = op.getAttrOfType<DenseI32ArrayAttr>("operandSegmentSizes");
  unsigned argument = 0, operand = 0;
  for (StringRef text : llvm::split(torchOp.getTorchSchema(), ',')) {
    if (!text.contains("Tensor"))
      continue;
    // Only with segments there are several that may be missing.
    unsigned count = !segments ? 1
                     : argument < static_cast<unsigned>(segments.size())
                         ? segments[argument]
                         : 0;
    for (++argument; count > 0 && operand < isOptional.size(); --count)
      isOptional[operand++] = text.contains("Tensor?");
  }
  return isOptional;
}

/// A kernel's optional arguments are moved from the stack, and end with its
/// call; then the stack drops the others, the first one first. Sources:
/// call_functor_with_args_from_stack_ in aten/src/ATen/core/boxing, drop() in
/// aten/src/ATen/core/stack.h.
void PeakMemoryAnalysis::Impl::orderDeaths() {
  for (auto &[op, entries] : deaths) {
    if (entries.size() < 2)
      continue;
    SmallVector<bool> isOptional = findOptional(*op);
    auto getPlace = [&, op = op](const Storage *entry) {
      std::pair<bool, unsigned> place(true, op->getNumOperands());
      for (OpOperand &operand : op->getOpOperands())
        if (unsigned index = operand.getOperandNumber();
            storage.lookup(operand.get()) == entry)
          place = {!isOptional[index], index};
      return place;
    };
    llvm::stable_sort(entries, [&](const Storage *lhs, const Storage *rhs) {
      return getPlace(lhs) < getPlace(rhs);
    });
  }
}

/// A call as one list of operations, and its analysis.
struct PeakMemoryAnalysis::Traced {
  /// Analyses `trace`, made for these numbers of symbols.
  void analyse(const Impl &general, const SymbolMap &fixed);
  /// The figure at these numbers, if it is right or an upper bound.
  std::optional<int64_t> getBound(const SymbolMap &numbers) const;
  /// Of the ways that data may make the call go the one that needs most; null
  /// if that is not known. `tracedOperations` grows by what is traced.
  Impl *selectWay(const Impl &general, const SymbolMap &fixed,
                  const SymbolMap &numbers, uint64_t &tracedOperations);

  /// None if it could not be followed.
  std::optional<ExecutionTrace> trace;
  std::unique_ptr<Impl> impl;
  /// Made when needed.
  std::optional<std::vector<std::unique_ptr<Traced>>> ways;
};

void PeakMemoryAnalysis::Traced::analyse(const Impl &general,
                                         const SymbolMap &fixed) {
  impl =
      std::make_unique<Impl>(trace->function, general.options, nullptr, fixed);
  if (trace->turnsRecordingOn && !general.records())
    impl->recordingDoubt =
        "the program itself turns on that gradients are recorded";
  else if (trace->unknownRecording)
    impl->recordingDoubt = "data decide whether the program records gradients";
  impl->replaced = trace->replaced;
  impl->forked = trace->forked;
  impl->unsteady = trace->unsteady;
  impl->late = trace->late;
  if (!impl->dims.isValid())
    trace.reset();
}

std::optional<int64_t>
PeakMemoryAnalysis::Traced::getBound(const SymbolMap &numbers) const {
  Impl::Run run = impl->start({});
  run.symbols = numbers;
  run.detailed = true;
  impl->execute(run);
  bool isBounded = run.missing.empty() && impl->recordingDoubt.empty() &&
                   !impl->unsteady && !impl->late &&
                   llvm::all_of(run.doubts, [](const auto &entry) {
                     return entry.second.getTrust() <= Trust::UpperBound;
                   });
  return isBounded ? std::optional(run.peakBytes) : std::nullopt;
}

PeakMemoryAnalysis::Impl *PeakMemoryAnalysis::Traced::selectWay(
    const Impl &general, const SymbolMap &fixed, const SymbolMap &numbers,
    uint64_t &tracedOperations) {
  if (!ways) {
    ways.emplace();
    // The program need not run at this size, nor all ways.
    ScopedDiagnosticHandler quiet(general.function->getContext(),
                                  [](Diagnostic &) { return success(); });
    std::optional<DimAnalysis> own;
    if (!fixed.empty())
      own.emplace(general.function, fixed);
    const DimAnalysis &dims = own ? *own : general.dims;
    std::vector<ExecutionTrace> traces;
    if (dims.isValid())
      traces = traceWays(cast<FunctionOpInterface>(general.function), dims,
                         {general.records(), getDeviceType(general.models)});
    for (ExecutionTrace &found : traces) {
      tracedOperations += found.operations;
      auto way = std::make_unique<Traced>();
      way->trace = std::move(found);
      way->analyse(general, fixed);
      // What PyTorch refuses, no call does.
      if (way->trace)
        ways->push_back(std::move(way));
    }
  }
  Impl *most = nullptr;
  int64_t bytes = -1;
  for (const std::unique_ptr<Traced> &way : *ways) {
    std::optional<int64_t> bound = way->getBound(numbers);
    // It says itself why; so does the trace of all ways, if there is one.
    if (!bound)
      return trace ? nullptr : way->impl.get();
    if (*bound > bytes) {
      bytes = *bound;
      most = way->impl.get();
    }
  }
  return most;
}

PeakMemoryAnalysis::PeakMemoryAnalysis(Operation *function,
                                       const PeakMemoryOptions &options)
    : impl(std::make_unique<Impl>(function, options, nullptr)),
      isTraced(isValid() && isWorthTracing(function)) {}

PeakMemoryAnalysis::PeakMemoryAnalysis(Operation *function,
                                       const PeakMemoryOptions &options,
                                       const DimAnalysis &dims)
    : impl(std::make_unique<Impl>(function, options, &dims)),
      isTraced(isValid() && isWorthTracing(function)) {}

PeakMemoryAnalysis::~PeakMemoryAnalysis() = default;

bool PeakMemoryAnalysis::isValid() const {
  return impl->dims.isValid() && impl->models && impl->hasOneBlock;
}

PeakMemoryAnalysis::Impl &
PeakMemoryAnalysis::select(const llvm::StringMap<int64_t> &symbols) const {
  SymbolMap fixed;
  for (auto [symbol, value] : impl->start(symbols).symbols)
    if (value < 2)
      fixed[symbol] = value;
  if (!isValid())
    return *impl;
  if (isTraced)
    if (Impl *traced = selectTrace(impl->start(symbols).symbols, fixed))
      return *traced;
  if (fixed.empty())
    return *impl;
  std::unique_ptr<Impl> &made = small[spell(fixed)];
  if (!made) {
    // The program need not run at this size; then all that is known is what
    // holds for larger ones.
    ScopedDiagnosticHandler quiet(impl->function->getContext(),
                                  [](Diagnostic &) { return success(); });
    made = std::make_unique<Impl>(*impl, fixed);
  }
  return made->dims.isValid() ? *made : *impl;
}

PeakMemoryAnalysis::Traced &
PeakMemoryAnalysis::trace(const SymbolMap &fixed) const {
  std::unique_ptr<Traced> &made = traces[spell(fixed)];
  if (made)
    return *made;
  made = std::make_unique<Traced>();
  // The program need not run at this size.
  ScopedDiagnosticHandler quiet(impl->function->getContext(),
                                [](Diagnostic &) { return success(); });
  std::optional<DimAnalysis> own;
  if (!fixed.empty())
    own.emplace(impl->function, fixed);
  const DimAnalysis &dims = own ? *own : impl->dims;
  if (dims.isValid())
    made->trace =
        traceExecution(cast<FunctionOpInterface>(impl->function), dims,
                       {impl->records(), getDeviceType(impl->models)});
  if (made->trace) {
    tracedOperations += made->trace->operations;
    made->analyse(*impl, fixed);
  }
  return *made;
}

PeakMemoryAnalysis::Impl *
PeakMemoryAnalysis::selectTrace(const SymbolMap &numbers,
                                const SymbolMap &fixed) const {
  Traced &general = trace(fixed);
  Traced *better = &general;
  bool isDecided = general.trace && general.trace->undecided == 0;
  if (!isDecided && numbersHelp && numbers.size() > fixed.size()) {
    Traced &own = trace(numbers);
    numbersHelp = own.trace && (!general.trace || own.trace->undecided <
                                                      general.trace->undecided);
    better = numbersHelp ? &own : &general;
  }
  if (better->trace && (!better->trace->forks || better->getBound(numbers)))
    return better->impl.get();
  Impl *way = general.selectWay(*impl, fixed, numbers, tracedOperations);
  if (!way && numbers.size() > fixed.size())
    way = trace(numbers).selectWay(*impl, numbers, numbers, tracedOperations);
  if (way)
    return way;
  return better->trace ? better->impl.get() : nullptr;
}

std::optional<int64_t>
PeakMemoryAnalysis::evaluate(const llvm::StringMap<int64_t> &symbols) const {
  llvm::DenseMap<Operation *, int64_t> loops;
  return evaluate(symbols, loops);
}

std::optional<int64_t> PeakMemoryAnalysis::evaluate(
    const llvm::StringMap<int64_t> &symbols,
    llvm::DenseMap<Operation *, int64_t> &loops) const {
  const Impl &at = select(symbols);
  Impl::Run run = at.start(symbols);
  at.execute(run);
  if (!run.missing.empty())
    return std::nullopt;
  loops.clear();
  if (at.function == impl->function)
    loops = std::move(run.loopPeaks);
  return run.peakBytes;
}

/// The peak as a function of the batch, and the largest batch that fits.
void PeakMemoryAnalysis::fillCurve(const llvm::StringMap<int64_t> &symbols,
                                   bool isCertain, PeakReport &report) const {
  if (report.batchSymbol.empty())
    return;
  llvm::StringMap<int64_t> values = symbols;
  uint64_t events = 0;
  bool isLastCertain = true;
  auto peak = [&](int64_t batch) -> std::optional<int64_t> {
    values[report.batchSymbol] = batch;
    uint64_t traced = tracedOperations;
    const Impl &at = select(values);
    Impl::Run run = at.start(values);
    at.execute(run);
    // To trace an operation takes as long as to run it this many times.
    constexpr uint64_t kEventsOfTracing = 64;
    events += run.event + (tracedOperations - traced) * kEventsOfTracing;
    isLastCertain = run.certainBytes == run.peakBytes;
    if (!run.missing.empty())
      return std::nullopt;
    return run.peakBytes;
  };
  if (impl->options.batches > 0) {
    // Large programs get a shorter curve; its last piece says how far it goes.
    constexpr uint64_t kMostEvents = 1 << 19;
    // Where the report is exact, the curve has exact figures alone.
    auto bounded = [&](int64_t batch) {
      auto bytes = events > kMostEvents ? std::nullopt : peak(batch);
      return isCertain && !isLastCertain ? std::nullopt : bytes;
    };
    // A figure that holds for larger batches is no part of an exact curve.
    values[report.batchSymbol] = 1;
    int64_t first = &select(values) == impl.get() ? 2 : 1;
    report.batchPieces =
        computeBatchPieces(bounded, first, impl->options.batches);
  }
  if (impl->options.budgetBytes)
    report.maxBatch = findMaxBatch(peak, *impl->options.budgetBytes);
}

std::optional<std::vector<MemoryEvent>>
PeakMemoryAnalysis::listEvents(std::string &missing,
                               const llvm::StringMap<int64_t> &symbols) const {
  Impl &at = select(symbols);
  EventLog log;
  Impl::Run run = at.start(symbols);
  run.detailed = true;
  run.log = &log;
  at.execute(run);
  missing = run.missing;
  if (!missing.empty())
    return std::nullopt;
  // Doubts that are of no single operation are of all events.
  PeakReport doubts;
  at.fillBatch(run, doubts);
  at.fillCallDoubts(run, doubts);
  at.fillHandedOn(run, doubts);
  if (!doubts.inexact.empty())
    log.doubtFrom(0);
  llvm::DenseMap<unsigned, StringRef> left;
  for (unsigned id : run.optimizerState)
    left[id] = "optimizer";
  for (const Storage *gradient : llvm::make_second_range(run.leaves))
    for (unsigned id : log.getBlocks(gradient))
      left[id] = "gradient";
  llvm::DenseSet<unsigned> freed;
  for (const EventLog::Event &event : log.getEvents())
    if (event.isFree)
      freed.insert(event.id);
  llvm::DenseMap<Operation *, std::pair<std::string, SourcePlace>> known;
  std::vector<MemoryEvent> events;
  events.reserve(log.getEvents().size());
  for (const EventLog::Event &event : log.getEvents()) {
    auto [found, isNew] = known.try_emplace(event.op);
    auto &[name, place] = found->second;
    if (isNew && event.op) {
      name = getOperatorName(*event.op);
      place = getSourcePlace(event.op->getLoc());
    } else if (isNew) {
      name = (at.options.optimizer->getName() + ".step()").str();
    }
    // Some doubts came up after the event.
    auto doubts = run.doubts.find(event.op);
    bool isExact =
        event.isExact && (event.isFree || doubts == run.doubts.end());
    StringRef kind, shared;
    if (event.shared == AllocationTrace::Library::CuBLAS)
      shared = "cuBLAS";
    else if (!event.isFree && !freed.contains(event.id))
      kind = left.lookup_or(event.id, "output");
    events.push_back({event.isFree, event.id, event.bytes,
                      name + (event.isBackward ? " (backward)" : ""), place,
                      isExact, shared.str(), kind.str()});
  }
  return events;
}

std::vector<int64_t>
PeakMemoryAnalysis::listInputs(const llvm::StringMap<int64_t> &symbols) const {
  Impl &at = select(symbols);
  Impl::Run run = at.start(symbols);
  llvm::SmallPtrSet<const Storage *, 4> seen;
  std::vector<int64_t> inputs;
  for (BlockArgument argument : at.function->getRegion(0).getArguments()) {
    const Storage *entry = at.storage.lookup(argument);
    if (!isa<TensorType>(argument.getType()) ||
        (entry && !seen.insert(entry).second))
      continue;
    if (auto tensor = at.getConcrete(argument, run))
      inputs.push_back(tensor->numBytes());
  }
  return inputs;
}

/// The function's name behind those of the modules around it.
static std::string getPath(Operation *function) {
  std::string path;
  for (Operation *op = function; op; op = op->getParentOp())
    if (auto name =
            op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()))
      path = name.str() + (path.empty() ? "" : "::") + path;
  return path;
}

PeakReport
PeakMemoryAnalysis::report(const llvm::StringMap<int64_t> &symbols) const {
  PeakReport report;
  Impl &at = select(symbols);
  if (isa<FunctionOpInterface>(at.function))
    report.function = getPath(impl->function);
  report.mode = impl->options.mode;
  report.device = at.device;
  report.threads = at.target.threads;
  report.isa = at.target.isa;
  report.torch = at.options.torch;
  Impl::Run run = at.start(symbols);
  run.detailed = true;
  at.fillBatch(run, report);
  at.execute(run);
  at.fillBytes(run, report);
  // Also what only the size of an argument depends on.
  report.missing = run.missing;
  fillCurve(symbols, run.certainBytes == run.peakBytes, report);
  if (!run.missing.empty())
    return report;
  report.peakBytes = run.peakBytes;
  at.fillCallDoubts(run, report);
  at.fillPlaces(run, report);
  at.fillSpans(run, report);
  at.fillLive(symbols, run.peakEvent, report);
  return report;
}

FailureOr<PeakReport>
koila::computePeakMemory(ModuleOp module, const PeakMemoryOptions &options) {
  FunctionOpInterface function = findFunction(module, options.function);
  if (!function)
    return failure();
  PeakMemoryAnalysis analysis(function, options);
  if (!analysis.isValid() || failed(verifyGivenSizes(function)))
    return failure();
  return analysis.report();
}
