//===- ControlFlowSimulation.cpp - Branches and loops over byte counts ----===//

#include "PeakMemoryImpl.h"
#include "koila/Analysis/ControlFlow.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include <limits>

using namespace mlir;
using namespace koila;

/// The symbol that an expression is; null for any other.
static DimSymbol getSymbol(DimExpr expr) {
  return expr ? expr.getSymbol() : DimSymbol();
}

//===----------------------------------------------------------------------===//
// Branches
//===----------------------------------------------------------------------===//

Region *PeakMemoryAnalysis::Impl::getTaken(Operation *op) const {
  if (!isa<RegionBranchOpInterface>(op) || isa<LoopLikeOpInterface>(op))
    return nullptr;
  Region *taken = nullptr;
  bool isDecided = false;
  for (Region &region : op->getRegions()) {
    if (region.empty())
      continue;
    if (dims.isDead(&region.front()))
      isDecided = true;
    else if (std::exchange(taken, &region))
      return nullptr;
  }
  return isDecided ? taken : nullptr;
}

SmallVector<Region *, 2>
PeakMemoryAnalysis::Impl::getAlternatives(Operation &op, Run &run) const {
  SmallVector<Region *, 2> alternatives;
  auto branch = dyn_cast<RegionBranchOpInterface>(op);
  if (!branch) {
    for (Region &region : op.getRegions())
      if (!region.empty())
        alternatives.push_back(&region);
    return alternatives;
  }
  SmallVector<Attribute> operands;
  for (Value operand : op.getOperands()) {
    Attribute constant;
    if (!matchPattern(operand, m_Constant(&constant)))
      constant = {};
    operands.push_back(constant);
  }
  SmallVector<RegionSuccessor> successors;
  branch.getEntrySuccessorRegions(operands, successors);
  for (RegionSuccessor &successor : successors) {
    Region *region = successor.isParent() ? nullptr : successor.getSuccessor();
    // What the assumptions rule out does not run.
    if (!region || (!region->empty() && !dims.isDead(&region->front())))
      alternatives.push_back(region);
  }
  return alternatives;
}

/// Whether PyTorch leaves the program in `region`, by an exception.
static bool raises(Region &region) {
  return llvm::any_of(region.getOps<TorchOpaqueOp>(), [](TorchOpaqueOp op) {
    return op.getCallee() == "prim::RaiseException";
  });
}

void PeakMemoryAnalysis::Impl::runBranches(Operation &op, Run &run) const {
  if (Region *taken = getTaken(&op)) {
    for (Block &block : *taken)
      runBlock(block, run);
    return;
  }
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t certain = kNone, before = run.certainBytes;
  // Of what the branches hand on: the most and the least that is there.
  llvm::MapVector<const Storage *, std::pair<int64_t, int64_t>> handed;
  for (const Storage *entry : handedOnIn.lookup(&op))
    handed[entry] = {0, kNone};
  // Of the events those of the branch that needs most are listed.
  EventLog unbranched, worst;
  if (run.log)
    unbranched = worst = *run.log;
  for (Region *region : getAlternatives(op, run)) {
    auto live = run.live;
    auto perhaps = run.perhaps;
    if (run.log)
      *run.log = unbranched;
    __int128 liveBytes = run.liveBytes, perhapsBytes = run.perhapsBytes;
    run.certainBytes = 0;
    if (region)
      for (Block &block : *region)
        runBlock(block, run);
    if (run.stopped)
      return;
    if (run.log && std::pair(run.log->getPeak(), run.log->getLive()) >=
                       std::pair(worst.getPeak(), worst.getLive()))
      worst = *run.log;
    // Of a call that ends in an exception there is no figure.
    if (!region || !raises(*region)) {
      certain = std::min(certain, run.certainBytes);
      for (auto &[entry, bytes] : handed) {
        int64_t now = run.live.lookup(entry);
        bytes.first = std::max(bytes.first, now);
        bytes.second = std::min(bytes.second, now - run.perhaps.lookup(entry));
      }
    }
    run.live = std::move(live);
    run.perhaps = std::move(perhaps);
    run.liveBytes = liveBytes;
    run.perhapsBytes = perhapsBytes;
  }
  if (run.log) {
    *run.log = worst;
    // Those of the other branches are there as well.
    run.log->follow(op);
    run.log->reduce([&](const Storage *entry) {
      return handed.contains(entry) ? std::numeric_limits<int64_t>::max()
                                    : run.live.lookup(entry);
    });
  }
  for (const auto &[entry, bytes] : handed) {
    auto [most, least] = bytes;
    // None is there if all branches end in an exception.
    if (least == kNone || most == run.live.lookup(entry)) {
      if (run.log)
        run.log->resize(entry, run.live.lookup(entry));
      continue;
    }
    setLive(entry, most, run);
    if (most == least)
      continue;
    run.perhapsBytes += most - least - run.perhaps.lookup(entry);
    run.perhaps[entry] = most - least;
  }
  if (run.log)
    run.log->doubtFrom(unbranched.getEvents().size());
  run.certainBytes = std::max(before, certain == kNone ? 0 : certain);
  // What makes results of its own is an operation like any other.
  if (!isa<RegionBranchOpInterface>(op))
    runOperation(op, run);
  else if (!op.hasTrait<OpTrait::HasRecursiveMemoryEffects>())
    markInexact(
        op, "koila has no memory rule for '" + getOperatorName(op) + "'", run);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

const PeakMemoryAnalysis::Impl::BodySymbols &
PeakMemoryAnalysis::Impl::getBodySymbols(Operation *loop) const {
  if (auto found = bodySymbols.find(loop); found != bodySymbols.end())
    return *found->second;
  auto made = std::make_unique<BodySymbols>();
  BodySymbols &symbols = *made;
  auto add = [](DimExpr expr, llvm::DenseSet<DimSymbol> &found) {
    if (expr)
      expr.forEachSymbol([&](DimSymbol symbol) { found.insert(symbol); });
  };
  auto entries = llvm::make_first_range(handedOnStorages);
  llvm::SmallPtrSet<const Storage *, 8> handedOn(entries.begin(),
                                                 entries.end());
  loop->walk([&](Operation *op) {
    symbols.guesses |= guesses.contains(op);
    if (auto born = births.find(op); born != births.end())
      symbols.handsOn |= llvm::any_of(
          llvm::make_first_range(born->second),
          [&](const Storage *entry) { return handedOn.contains(entry); });
    for (Value result : op->getResults())
      if (auto found = sizes.find(result); found != sizes.end())
        for (DimExpr dim : found->second.dims)
          add(dim, symbols.ofSizes);
    if (op != loop && isa<LoopLikeOpInterface>(op))
      for (Value operand : op->getOperands())
        if (!isa<TensorType>(operand.getType()))
          add(dims.lookup(operand).integer, symbols.ofBounds);
  });
  bodySymbols[loop] = std::move(made);
  return symbols;
}

std::optional<int64_t> PeakMemoryAnalysis::Impl::evaluate(OpFoldResult value,
                                                          Run &run) const {
  if (auto attr = dyn_cast<Attribute>(value))
    return cast<IntegerAttr>(attr).getInt();
  // They may have changed since the analysis was made.
  APInt constant;
  if (matchPattern(cast<Value>(value), m_ConstantInt(&constant)) &&
      constant.getBitWidth() > 1 && constant.getSignificantBits() <= 64)
    return constant.getSExtValue();
  return evaluate(dims.lookup(cast<Value>(value)).integer, run);
}

void PeakMemoryAnalysis::Impl::runLoopOfUnknownTrips(LoopLikeOpInterface loop,
                                                     Run &run) const {
  // Each iteration needs what the others need, but for what is handed on. What
  // is made of it has the records of all of them.
  if (unmodelled.contains(loop))
    markInexact(*loop,
                "no upper bound: each iteration keeps what its gradient needs, "
                "and how many there are is not known; under torch.no_grad(), "
                "or where sizes and numbers of the program decide how many "
                "there are, there is one",
                run);
  else if (run.missing.empty())
    markInexact(*loop, "the trip count of a loop is not known", run,
                /*isBound=*/true);
  // The second time it is known how much the first hands on.
  bool handsOn =
      llvm::any_of(handedOnIn.lookup(loop), [&](const Storage *entry) {
        return carried.contains(entry);
      });
  ++run.unknownLoops;
  for (int turn = 0; turn < (handsOn ? 2 : 1); ++turn)
    for (Region *region : loop.getLoopRegions())
      for (Block &block : *region)
        runBlock(block, run);
  --run.unknownLoops;
}

void PeakMemoryAnalysis::Impl::runLoop(LoopLikeOpInterface loop,
                                       Run &run) const {
  auto lower = loop.getLoopLowerBounds(), upper = loop.getLoopUpperBounds(),
       steps = loop.getLoopSteps();
  std::optional<int64_t> from, to, step;
  if (lower && upper && steps && lower->size() == 1) {
    from = evaluate(lower->front(), run);
    to = evaluate(upper->front(), run);
    step = evaluate(steps->front(), run);
  }
  Region &body = *loop.getLoopRegions().front();
  if (loop->hasTrait<OpTrait::HasParallelRegion>())
    markInexact(*loop,
                "its iterations may run at the same time; one at a time is "
                "counted",
                run);
  bool wraps = countsUnsigned(loop) && from && to && (*from < 0 || *to < 0);
  if (!from || !to || !step || *step <= 0 || wraps)
    return runLoopOfUnknownTrips(loop, run);
  if (auto found = unmodelled.find(loop); found != unmodelled.end())
    markInexact(*loop, found->second, run);
  for (const Storage *entry : handedOnIn.lookup(loop))
    run.undercounted.insert(entry);
  // The integers that change from iteration to iteration.
  DimSymbol counter;
  if (auto variables = loop.getLoopInductionVars())
    counter = getSymbol(dims.lookup(variables->front()).integer);
  struct Carried {
    DimSymbol symbol;
    DimExpr next;
    int64_t value;
    DimSymbol result;
  };
  SmallVector<Carried> carried;
  auto results = loop.getLoopResults();
  for (auto [index, argument] : llvm::enumerate(loop.getRegionIterArgs())) {
    if (isa<TensorType>(argument.getType()))
      continue;
    DimSymbol symbol = getSymbol(dims.lookup(argument).integer);
    auto init = evaluate(OpFoldResult(loop.getInits()[index]), run);
    if (!symbol || !init)
      continue;
    carried.push_back(
        {symbol, dims.lookup(loop.getYieldedValues()[index]).integer, *init,
         results ? getSymbol(dims.lookup((*results)[index]).integer)
                 : DimSymbol()});
  }
  __int128 distance = __int128(*to) - *from;
  int64_t trips = distance > 0 ? saturate((distance + *step - 1) / *step) : 0;
  const BodySymbols &used = getBodySymbols(loop);
  bool varies = used.contains(counter);
  for (const Carried &entry : carried)
    varies |= used.contains(entry.symbol);
  // A loop without end, or nearly, must not hang the analysis.
  constexpr int64_t kMostTrips = 1 << 16;
  // Events are of each iteration, but where the sum of bytes is not.
  size_t firstEvent = run.log ? run.log->getEvents().size() : 0;
  bool isListed = run.log && handedOnIn.lookup(loop).empty() &&
                  trips <= kMostTrips - run.iterations;
  varies |= isListed;
  // The first tile makes the gradients of weights, to which others add.
  bool isNew = true;
  for (int64_t trip = 0; trip < trips && !run.stopped; ++trip) {
    if (run.iterations++ >= kMostTrips) {
      markInexact(*loop,
                  "a loop has too many different iterations; not all "
                  "were looked at",
                  run);
      break;
    }
    if (counter)
      run.symbols[counter] = saturate(*from + __int128(trip) * *step);
    for (const Carried &entry : carried)
      run.symbols[entry.symbol] = entry.value;
    if (varies || isNew) {
      size_t leaves = run.leaves.size();
      auto outerSizes = run.fixedSizes;
      auto outerSymbols = run.fixedSymbols;
      const Impl *here = this;
      bool isFixed = false;
      for (const Carried &entry : carried)
        if (used.isFixedAt(entry.value) &&
            used.ofSizes.contains(entry.symbol)) {
          run.fixedSymbols[entry.symbol] = entry.value;
          isFixed = true;
        }
      if (isFixed) {
        const Impl &there = getFixed(run);
        run.fixedSizes = &there.sizes;
        // What autograd keeps may outlive an iteration as well.
        bool isOver = !records() || llvm::all_of(body, [&](Block &block) {
          return ownRecords.lookup(&block) && there.ownRecords.lookup(&block);
        });
        if (isOver && !there.getBodySymbols(loop).handsOn)
          here = &there;
      }
      for (Block &block : body)
        here->runBlock(block, run);
      run.fixedSizes = outerSizes;
      run.fixedSymbols = std::move(outerSymbols);
      isNew = run.leaves.size() != leaves;
    }
    if (run.stopped)
      return;
    int64_t repeats = varies || isNew ? 1 : trips - trip;
    bool jumped = repeats > 1;
    SmallVector<int64_t> next;
    for (const Carried &entry : carried) {
      auto value = evaluate(entry.next, run);
      if (!value && trip + 1 < trips && used.contains(entry.symbol))
        markInexact(*loop, "a number that the loop computes is not known", run);
      next.push_back(value.value_or(entry.value));
      // All remaining iterations at once where the step is constant.
      if (jumped && entry.next &&
          !(entry.next - DimExpr::symbol(entry.symbol)).getConstant()) {
        DimExpr delta = entry.next - DimExpr::symbol(entry.symbol);
        bool invariant = !delta.dependsOn(counter);
        for (const Carried &other : carried)
          invariant &= !delta.dependsOn(other.symbol);
        jumped &= invariant;
      }
    }
    for (auto [entry, value] : llvm::zip_equal(carried, next))
      entry.value = saturate(entry.value + (__int128(value) - entry.value) *
                                               (jumped ? repeats : 1));
    if (jumped)
      break;
  }
  if (run.log && !isListed && trips > 1)
    run.log->doubtFrom(firstEvent);
  for (const Carried &entry : carried)
    if (entry.result)
      run.symbols[entry.result] = entry.value;
}
