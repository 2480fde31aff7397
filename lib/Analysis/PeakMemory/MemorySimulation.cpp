//===- MemorySimulation.cpp - A program run over byte counts --------------===//

#include "../../KernelModels/ATen/TensorBytes.h"
#include "../Trace/ExecutionTrace.h"
#include "BackwardSimulation.h"
#include "koila/Analysis/HostResults.h"
#include "koila/Analysis/MetaKernelShapes.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include <algorithm>
#include <limits>

using namespace mlir;
using namespace koila;

int64_t koila::saturate(__int128 value) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(),
                    kLeast = std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(std::clamp<__int128>(value, kLeast, kMost));
}

int64_t TimelineEntry::getTotalBytes() const {
  return saturate(__int128(liveBytes) + transientBytes);
}

std::string koila::getOperatorName(Operation &op) {
  if (auto opaque = dyn_cast<TorchOpaqueOp>(op))
    return opaque.getCallee().str();
  return op.getName().getStringRef().str();
}

std::optional<int64_t> PeakMemoryAnalysis::Impl::evaluate(DimExpr expr,
                                                          Run &run) const {
  if (!expr)
    return std::nullopt;
  DimSymbol missing;
  auto value = expr.evaluate([&](DimSymbol symbol) -> std::optional<int64_t> {
    auto found = run.symbols.find(symbol);
    if (found != run.symbols.end())
      return found->second;
    missing = symbol;
    return std::nullopt;
  });
  // A symbol of the program can be given a value; a local one cannot.
  if (missing && missing.isNamed() && run.missing.empty())
    run.missing = missing.getName().str();
  return value;
}

std::optional<ConcreteTensor>
PeakMemoryAnalysis::Impl::getConcrete(Value value, Run &run) const {
  const SizeMap &current = run.fixedSizes ? *run.fixedSizes : sizes;
  auto found = current.find(value);
  if (found == current.end() || !found->second.known)
    return std::nullopt;
  ConcreteTensor tensor;
  tensor.elementType = found->second.elementType;
  for (DimExpr dim : found->second.dims) {
    auto extent = evaluateMost(dim, run);
    if (!extent)
      return std::nullopt;
    // Empty batches can make an intermediate expression negative.
    tensor.dims.push_back(std::max<int64_t>(*extent, 0));
  }
  if (!found->second.alwaysContiguous)
    setLayout(tensor, found->second, run);
  return tensor;
}

void PeakMemoryAnalysis::Impl::setLayout(ConcreteTensor &tensor,
                                         const SizeFacts &facts,
                                         Run &run) const {
  tensor.contiguous = false;
  if (!facts.strides)
    return;
  SmallVector<int64_t> strides;
  for (DimExpr stride : *facts.strides) {
    auto value = evaluateMost(stride, run);
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
}

void PeakMemoryAnalysis::Impl::runBlock(Block &block, Run &run) const {
  for (Operation &op : block) {
    if (run.stopped)
      return;
    if (auto found = unmodelled.find(&op); found != unmodelled.end() &&
                                           op.getNumRegions() > 0 &&
                                           !isa<LoopLikeOpInterface>(op))
      markInexact(op, found->second, run);
    if (auto loop = dyn_cast<LoopLikeOpInterface>(op)) {
      bool isOutermost = block.getParentOp() == function;
      if (isOutermost)
        run.loopPeak = 0;
      runLoop(loop, run);
      if (isOutermost)
        run.loopPeaks[loop] = run.loopPeak;
    } else if (op.getNumRegions() > 0)
      runBranches(op, run);
    else
      runOperation(op, run);
    if (run.stopped)
      return;
    auto dying = deaths.find(&op);
    if (dying != deaths.end())
      for (const Storage *entry : dying->second) {
        if (run.savedBy.lookup(entry) > 0)
          run.onlySaved.insert(entry);
        else
          freeStorage(entry, op, run);
      }
    auto dropped = handles.find(&op);
    if (dropped != handles.end())
      for (Value value : dropped->second)
        dropHandle(value, op, run);
  }
}

void PeakMemoryAnalysis::Impl::freeStorage(const Storage *entry, Operation &op,
                                           Run &run) const {
  auto found = run.live.find(entry);
  if (found == run.live.end())
    return;
  int64_t bytes = found->second;
  run.live.erase(found);
  if (run.log)
    run.log->follow(op);
  auto lender = run.lenders.find(entry);
  bool isView = lender != run.lenders.end();
  auto lent = run.lent.find(isView ? lender->second : entry);
  auto isLive = [&](const Storage *view) { return run.live.contains(view); };
  // Views keep them.
  bool isKept = lent != run.lent.end() &&
                (isView || std::exchange(lent->second.isThere, false));
  auto *view = isKept ? llvm::find_if(lent->second.views, isLive) : nullptr;
  if (isKept && view != lent->second.views.end()) {
    run.live[*view] += bytes;
    if (run.log)
      run.log->move(entry, *view);
  } else if (isKept && lent->second.pending > 0) {
    lent->second.waiting += bytes;
    if (run.log)
      run.log->move(entry, lent->first);
  } else {
    run.liveBytes -= bytes;
    if (run.log)
      run.log->release(entry);
  }
  if (auto perhaps = run.perhaps.find(entry); perhaps != run.perhaps.end()) {
    run.perhapsBytes -= perhaps->second;
    run.perhaps.erase(perhaps);
  }
  endSpan(entry, op, run);
}

void PeakMemoryAnalysis::Impl::setLive(const Storage *entry, int64_t bytes,
                                       Run &run) {
  int64_t &live = run.live[entry];
  run.liveBytes += __int128(bytes) - live;
  live = bytes;
  if (run.log)
    run.log->resize(entry, bytes);
}

void PeakMemoryAnalysis::Impl::endSpan(const Storage *entry, Operation &op,
                                       Run &run) const {
  auto span = run.spans.find(entry);
  if (span == run.spans.end() || run.timeline.empty())
    return;
  span->second.to = std::max(span->second.to, run.timeline.size() - 1);
  span->second.freedBy = &op;
}

/// An operation of a loop may say the same each time. Of what data decide
/// boundExtents() has said the same, and behind it what is counted.
static void addOnce(Doubts &doubts, Doubt doubt) {
  if (llvm::none_of(doubts.getAll(), [&](const Doubt &said) {
        return said.trust >= doubt.trust && said.source == doubt.source &&
               StringRef(said.reason).starts_with(doubt.reason);
      }))
    doubts.add(std::move(doubt));
}

void PeakMemoryAnalysis::Impl::markInexact(Operation &op, const Twine &reason,
                                           Run &run, bool isBound) const {
  if (run.detailed)
    addOnce(run.doubts[&op],
            {isBound ? Trust::UpperBound : Trust::Unknown, reason.str()});
}

void PeakMemoryAnalysis::Impl::addDoubts(Operation &op,
                                         const WorkspaceRule &rule,
                                         Run &run) const {
  // A number that is missing says so itself.
  if (!run.detailed || !run.missing.empty())
    return;
  for (const Doubt &doubt : rule.getDoubts().getAll())
    addOnce(run.doubts[&op], doubt);
  // A program registers its rules for the CPU.
  if (auto custom = dyn_cast<CustomOp>(op); custom && device != "cpu")
    markInexact(op, "the rules of '" + custom.getCallee() + "' hold on the CPU",
                run);
}

void PeakMemoryAnalysis::Impl::checkStorage(Operation &op, Run &run) const {
  // Only doubts come of it.
  if (!run.detailed)
    return;
  auto rule = dyn_cast<MemoryRuleInterface>(op);
  bool small = llvm::any_of(
      run.symbols, [](const auto &symbol) { return symbol.second < 2; });
  if (!rule || !small)
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

std::optional<int64_t>
PeakMemoryAnalysis::Impl::getNegativeExtent(Value value, Run &run) const {
  const SizeMap &current = run.fixedSizes ? *run.fixedSizes : sizes;
  auto found = current.find(value);
  if (found != current.end())
    for (DimExpr dim : found->second.dims)
      if (auto extent = evaluate(dim, run); extent && *extent < 0)
        return extent;
  return std::nullopt;
}

/// Whether `op`, which has no memory rule, is known to make nothing that has
/// bytes: it computes numbers, or has effects that allocate nothing.
static bool makesNothing(Operation &op) {
  if (isa_and_nonnull<KoilaDialect>(op.getDialect()))
    return llvm::none_of(op.getResultTypes(), llvm::IsaPred<TensorType>);
  // Of koila's types a foreign operation can only hand on what there is.
  if (!llvm::all_of(op.getResultTypes(), [](Type type) {
        return type.isIntOrIndexOrFloat() ||
               isa<KoilaDialect>(type.getDialect());
      }))
    return false;
  if (op.mightHaveTrait<OpTrait::IsTerminator>() && !op.getNextNode())
    return true;
  return isMemoryEffectFree(&op) || (isa<MemoryEffectOpInterface>(op) &&
                                     !hasEffect<MemoryEffects::Allocate>(&op));
}

void PeakMemoryAnalysis::Impl::allocateResults(Operation &op,
                                               const WorkspaceRule &rule,
                                               Run &run) const {
  auto born = births.find(&op);
  if (born == births.end())
    return;
  for (auto [entry, value] : born->second) {
    auto tensor = getConcrete(value, run);
    auto storage = rule.getStorageBytes(value);
    bool isNone = isa_and_nonnull<UnitAttr>(dims.lookup(value).literal);
    if (!tensor && !storage && !isNone && run.missing.empty()) {
      std::string why = getWhyUnbounded(value, run);
      markInexact(op,
                  "the size of a result is not known; it is counted "
                  "as 0 bytes" +
                      (why.empty() ? why : "; " + why),
                  run);
    }
    // Empty batches can make one, and then nothing is there.
    if (run.detailed && llvm::none_of(run.symbols, [](const auto &symbol) {
          return symbol.second == 0;
        }))
      if (auto extent = getNegativeExtent(value, run))
        markInexact(op,
                    "a result would have extent " + Twine(*extent) +
                        "; no such call runs",
                    run);
    int64_t bytes = storage.value_or(tensor ? tensor->numBytes() : 0);
    if (isHostResult(&op))
      bytes = 0;
    setLive(entry, getLiveBytes(entry, op, bytes, run), run);
  }
}

int64_t PeakMemoryAnalysis::Impl::getLiveBytes(const Storage *entry,
                                               Operation &op, int64_t bytes,
                                               Run &run) const {
  auto found = carried.find(entry);
  if (found == carried.end() || run.undercounted.contains(entry))
    return saturate(__int128(run.live.lookup(entry)) + bytes);
  Run::Made &made = run.made[entry];
  bool isInside = static_cast<bool>(op.getParentOfType<LoopLikeOpInterface>());
  int64_t &most = made.byOp[&op];
  (isInside ? made.inside : made.outside) += std::max(bytes - most, int64_t(0));
  most = std::max(most, bytes);
  if (isInside)
    made.largest = std::max(made.largest, bytes);
  auto variables = static_cast<int64_t>(found->second.variables.value_or(0));
  // A variable has either what the loop starts with or what it made.
  if (found->second.isStart)
    return saturate(made.inside + __int128(variables - 1) * made.largest +
                    std::max(made.outside, __int128(made.largest)));
  return saturate(made.inside + __int128(variables) * made.largest +
                  made.outside);
}

static StringRef getMemoryFormat(const ConcreteTensor &tensor) {
  return tensor.contiguous                       ? "contiguous"
         : kernels::suggestsChannelsLast(tensor) ? "channels_last"
                                                 : "strided";
}

void PeakMemoryAnalysis::Impl::checkTable(TorchOperatorInterface op,
                                          WorkspaceRule &rule, Run &run) const {
  // It says where koila's own models of the CPU hold; extensions vouch for
  // theirs, and other targets have profiles.
  if (!isa<KoilaDialect>(op->getDialect()) || device != "cpu")
    return;
  WorkspaceKey key;
  Type type;
  auto first = llvm::find_if(op->getOperands(), [](Value operand) {
    return isa<TensorType>(operand.getType());
  });
  if (first != op->operand_end())
    if (auto tensor = getConcrete(*first, run)) {
      type = tensor->elementType;
      key.memoryFormat = getMemoryFormat(*tensor);
    }
  const WorkspaceTable &table =
      options.workspaces ? *options.workspaces : WorkspaceTable::getShipped();
  key.op = op.getTorchSchema().take_until(
      [](char c) { return c == '.' || c == '('; });
  key.dtype = type ? getDTypeName(type) : StringRef();
  key.isa = target.isa;
  key.threads = target.threads;
  key.torch = options.torch;
  auto [entry, isNew] = rows.try_emplace(
      RowKey{op->getName().getAsOpaquePointer(), type, key.memoryFormat});
  if (isNew)
    entry->second = table.find(key);
  const WorkspaceRow *row = entry->second;
  if (!row)
    rule.setInexact("the table of workspaces has no row for " + key.op +
                    " of " + key.dtype + ", " + key.memoryFormat + ", on '" +
                    key.isa + "' with " + Twine(key.threads) +
                    " threads and torch " + key.torch +
                    "; koila-run --calibrate measures one");
  else if (row->trust == Trust::UpperBound)
    rule.setBound(row->why);
  else if (row->trust == Trust::Unknown)
    rule.setInexact(row->why);
}

bool PeakMemoryAnalysis::Impl::takeGradient(LeafGradOp op, Run &run) const {
  auto found = run.leaves.find(op.getLeaf().getAsOpaquePointer());
  auto born = births.find(op);
  if (found == run.leaves.end() || !found->second || born == births.end()) {
    markInexact(*op, "no backward pass that is known has left it", run);
    return false;
  }
  auto isLater = [&](Operation *user) {
    Operation *ancestor = op->getBlock()->findAncestorOpInBlock(*user);
    return !ancestor || op->isBeforeInBlock(ancestor);
  };
  if (llvm::any_of(op.getLeaf().getUsers(), isLater))
    markInexact(*op, "the leaf, which has the gradient, too, lives on", run);
  if (!ofGradients.contains(found->second)) {
    // A view of what the backward pass was given: it keeps that alive, or is
    // outlived by it.
    const Storage *given = found->second;
    Run::Lent &lent = run.lent[given];
    --lent.pending;
    run.leaves.erase(found);
    Block *block = op->getBlock();
    bool isInside = llvm::any_of(given->allocations, [&](OpResult allocation) {
      return block->findAncestorOpInBlock(*allocation.getOwner());
    });
    if (!isInside)
      return true;
    const Storage *taken = born->second.front().first;
    run.live[taken] = std::exchange(lent.waiting, 0);
    if (run.log)
      run.log->move(given, taken);
    lent.views.push_back(taken);
    run.lenders[taken] = given;
    return true;
  }
  const Storage *gradient = found->second;
  int64_t size = run.live.lookup(gradient);
  const Storage *taken = born->second.front().first;
  if (run.log)
    run.log->move(gradient, taken);
  freeStorage(gradient, *op, run);
  run.leaves.erase(found);
  // What others got a view of lives as long as theirs.
  auto sharing = run.sharers.find(gradient);
  unsigned others = sharing == run.sharers.end() ? 0 : sharing->second - 1;
  run.sharers.erase(gradient);
  if (others > 0)
    run.lent[taken] = Run::Lent();
  for (auto other = run.leaves.begin(); others > 0 && other != run.leaves.end();
       ++other)
    if (other->second == gradient) {
      other->second = taken;
      ++run.lent[taken].pending;
      --others;
    }
  for (size_t record : run.recordsTo.lookup(op.getLeaf()))
    if (run.records[record].holders > 0)
      holdLeaf(run.records[record], taken, run);
  setLive(taken, size, run);
  return true;
}

/// Whether the operator gives nothing but what is in its operands.
static bool movesElements(Operation &op) {
  auto opaque = dyn_cast<TorchOpaqueOp>(op);
  return opaque && getElementFlow(opaque);
}

/// Whether the first result is an operand, of which nothing is written, as of a
/// dropout outside training.
static bool isAlias(Operation &op, const DimAnalysis &dims) {
  auto memory = dyn_cast<MemoryRuleInterface>(op);
  if (!memory)
    return false;
  auto facts = [&](Value value) { return dims.lookup(value); };
  StorageRule rule(&op, facts);
  memory.describeStorage(rule);
  return rule.getResults().front().kind == StorageFact::Kind::Alias;
}

void PeakMemoryAnalysis::Impl::runOperation(Operation &op, Run &run) const {
  boundExtents(op, run);
  auto lookup = [&](Value value) { return getConcrete(value, run); };
  auto wants = [&](Value value) { return wantsNow(value, run); };
  SavedRule workspace(&op, target, lookup,
                      records() && !op.hasAttr(kUnrecordedAttr)
                          ? WorkspaceRule::Wants(wants)
                          : WorkspaceRule::Wants());
  auto rule = dyn_cast<MemoryRuleInterface>(op);
  if (kept.contains(&op))
    forgetRecords(op, run);
  bool isRecorded = isRecordedNow(op, run);
  if (rule)
    models->describeForward(workspace);
  if (auto into = op.getAttrOfType<BoolAttr>(kIntoAttr)) {
    if (into.getValue())
      workspace.setStorageBytes(op.getResult(0), 0);
    else
      workspace.setBound("what it writes into is not contiguous; a tensor "
                         "beside it is counted");
  }
  bool isHandedOn = isRecorded && handsOnElements(op);
  // Containers hold what others made.
  if (rule && isRecorded && !isHandedOn &&
      llvm::any_of(op.getResultTypes(), llvm::IsaPred<TensorType>))
    models->describeSaved(workspace);
  size_t firstEvent = 0;
  if (run.log) {
    firstEvent = run.log->getEvents().size();
    run.log->enter(&op, /*isBackward=*/false);
    run.log->beginKernel();
  }
  __int128 before = run.liveBytes;
  auto gradient = dyn_cast<LeafGradOp>(op);
  if (!gradient || !takeGradient(gradient, run))
    allocateResults(op, workspace, run);
  if (growing.contains(&op) && run.unknownLoops > 0)
    markInexact(op,
                "no upper bound: a list or object may grow with each iteration "
                "of a loop, and how many there are is not known; where sizes "
                "and numbers of the program decide how many there are, what it "
                "keeps is known",
                run);
  else if (auto found = unmodelled.find(&op); found != unmodelled.end())
    markInexact(op, found->second, run);
  if (auto found = guesses.find(&op); found != guesses.end())
    markInexact(op, found->second, run);
  // In place is how the program has it.
  auto torchOp = dyn_cast<TorchOperatorInterface>(op);
  if (torchOp && torchOp.isTied() && !isOrderedWrite(&op) &&
      !storage.mayReuse(&op) && !isAlias(op, dims)) {
    // A view would keep all of what it is a view of.
    const Storage *written = storage.lookup(op.getOperand(0));
    auto result = getConcrete(op.getResult(0), run);
    bool fills =
        written && result &&
        (written->external || run.live.lookup(written) <= result->numBytes());
    markInexact(op,
                "its result is counted as a new tensor, since what it writes "
                "may be read again",
                run, /*isBound=*/fills);
  }
  // Without it, what it reads lives on; with it, its result as well.
  if (op.hasAttr(kIdleAttr))
    markInexact(op,
                "LibTorch drops an operation that adds zero or multiplies by "
                "one where it can",
                run, /*isBound=*/true);
  checkStorage(op, run);
  SmallVector<DimSymbol, 2> decided = getDecided(op, run);
  if (!decided.empty())
    checkStorageBelow(op, decided, run);
  if (auto backward = dyn_cast<BackwardOp>(op)) {
    if (options.mode == PeakMemoryMode::Train) {
      logKernel(op, AllocationTrace(), 0, run);
      return BackwardSimulation(*this, op, run)
          .execute(backward.getSelf(), backward.getGradient());
    }
    markInexact(op, "a backward pass; mode=train has its memory", run);
  }
  int64_t transient = workspace.getTransient();
  if (isRecorded)
    transient = std::max(transient, workspace.getKept());
  if (!decided.empty())
    transient =
        std::max(transient, getTransientBelow(op, decided, workspace, run));
  if (torchOp && run.detailed && workspace.isBounded() &&
      (transient > 0 || births.contains(&op) || torchOp.isTied()))
    checkTable(torchOp, workspace, run);
  if (rule) {
    addDoubts(op, workspace, run);
  } else if (!makesNothing(op) && !(run.detailed && movesElements(op))) {
    markInexact(
        op, "koila has no memory rule for '" + getOperatorName(op) + "'", run);
  }
  bool isNoted = reach(&op, Run::Phase::Forward, transient, run);
  if (run.stopped)
    return;
  bool moves = births.contains(&op) || transient > 0 || deaths.contains(&op);
  if (isNoted && moves)
    record(op, transient, run);
  int64_t most = saturate(run.liveBytes - before + transient);
  if (isHandedOn)
    handOnRecords(op, run);
  else if (isRecorded)
    addRecord(op, workspace, run);
  logKernel(op, workspace.getTrace(), most, run);
  // Of what data decide the most is counted.
  if (run.log && !decided.empty())
    run.log->doubtFrom(firstEvent);
}

void PeakMemoryAnalysis::Impl::logKernel(
    Operation &op, const AllocationTrace &trace, int64_t most, Run &run,
    const EventLog::Outside &outside) const {
  if (!run.log)
    return;
  auto found = run.doubts.find(&op);
  bool isExact =
      found == run.doubts.end() || found->second.getTrust() == Trust::Exact;
  run.log->finishKernel(trace, most, isExact, outside);
}

bool PeakMemoryAnalysis::Impl::reach(Operation *op, Run::Phase phase,
                                     int64_t held, Run &run) const {
  ++run.event;
  if (run.log && !run.log->isInKernel()) {
    run.log->enter(op, phase == Run::Phase::Backward);
    run.log->lump(held);
  }
  int64_t total = saturate(run.liveBytes + held);
  if (total == std::numeric_limits<int64_t>::max() && run.detailed)
    markInexact(op ? *op : *function, "needs more bytes than 64 bits can count",
                run);
  run.certainBytes =
      std::max(run.certainBytes, saturate(total - run.perhapsBytes));
  run.loopPeak = std::max(run.loopPeak, total);
  if (total > run.peakBytes) {
    run.peakBytes = total;
    run.peakEvent = run.event;
    run.peakOp = op;
    run.peakPhase = phase;
  }
  if (run.stopAt && run.event == *run.stopAt) {
    run.stopped = true;
    run.transientAtStop = held;
  }
  return run.detailed && !run.stopAt;
}

void PeakMemoryAnalysis::Impl::record(Operation &op, int64_t transient,
                                      Run &run) const {
  auto found = run.timeline.try_emplace(Run::Moment(&op, false)).first;
  TimelineEntry &entry = found->second;
  int64_t total = saturate(run.liveBytes + transient);
  if (entry.op.empty() || total > entry.getTotalBytes()) {
    entry.op = getOperatorName(op);
    entry.place = getSourcePlace(op.getLoc());
    if (options.frames)
      entry.frames = getSourceFrames(op.getLoc());
    entry.liveBytes = saturate(run.liveBytes);
    entry.transientBytes = transient;
  }
  auto born = births.find(&op);
  if (born == births.end())
    return;
  size_t index = found - run.timeline.begin();
  for (const Storage *storage : llvm::make_first_range(born->second)) {
    Run::Span &span =
        run.spans.try_emplace(storage, Run::Span{index, index, 0, nullptr})
            .first->second;
    span.bytes = std::max(span.bytes, run.live.lookup(storage));
  }
}

void PeakMemoryAnalysis::Impl::execute(Run &run) const {
  for (Block &block : function->getRegion(0))
    runBlock(block, run);
  if (options.optimizer && !run.stopped)
    runOptimizer(run);
  if (run.certainBytes < run.peakBytes)
    markInexact(run.peakOp ? *run.peakOp : *function,
                "which branch a call takes, data decide; others may need less",
                run, /*isBound=*/true);
}

SmallVector<TrainedWeight>
PeakMemoryAnalysis::Impl::getTrainedWeights(Run &run) const {
  llvm::DenseMap<Attribute, TrainedWeight> weights;
  function->walk([&](ParamGetOp get) {
    auto weight = getConcrete(get.getResult(), run);
    if (weight && gradients->wants(get.getResult()))
      weights[get.getParamAttr().getAttr()] = {weight->dims,
                                               weight->numBytes()};
  });
  SmallVector<TrainedWeight> ordered;
  if (module)
    for (auto param : ModuleOp(module).getOps<ParamOp>())
      if (auto found = weights.find(param.getSymNameAttr());
          found != weights.end())
        ordered.push_back(found->second);
  return ordered;
}

void PeakMemoryAnalysis::Impl::runOptimizer(Run &run) const {
  const Optimizer &optimizer = *options.optimizer;
  SmallVector<TrainedWeight> weights = getTrainedWeights(run);
  function->walk([&](ParamGetOp get) {
    if (gradients->wants(get.getResult()) &&
        !getElementTypeOrSelf(get.getResult()).isF32())
      markInexact(*get, "an optimizer of weights that are not float32", run);
  });
  auto trace = target.leaves
                   ? target.leaves->traceStep(optimizer, weights, target,
                                              /*isFirst=*/!options.hasGradients)
                   : std::nullopt;
  if (!trace)
    markInexact(*function,
                "no kernel model of the step of '" + optimizer.getName() +
                    "' on '" + device + "'",
                run);
  int64_t held = trace ? trace->getPeak() : 0;
  if (run.log && trace) {
    run.log->enter(nullptr, /*isBackward=*/false);
    run.optimizerState = run.log->append(*trace);
    run.log->beginKernel();
  }
  bool isNoted = reach(nullptr, Run::Phase::Optimizer, held, run);
  if (run.log && trace)
    run.log->finishKernel(AllocationTrace(), 0, /*isExact=*/true, {});
  if (!isNoted)
    return;
  TimelineEntry &entry = run.timeline[Run::Moment(function, false)];
  entry.op = (optimizer.getName() + ".step()").str();
  entry.liveBytes = saturate(run.liveBytes);
  entry.transientBytes = held;
}

PeakMemoryAnalysis::Impl::Run
PeakMemoryAnalysis::Impl::start(const llvm::StringMap<int64_t> &symbols) const {
  Run run;
  for (const auto *values : {&given, &symbols})
    for (const auto &entry : *values)
      run.symbols[DimSymbol::get(function->getContext(), entry.getKey())] =
          entry.getValue();
  return run;
}
