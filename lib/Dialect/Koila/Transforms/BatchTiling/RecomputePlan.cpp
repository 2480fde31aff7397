//===- RecomputePlan.cpp - What a backward pass computes again ------------===//

#include "RecomputePlan.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

RecomputePlanner::RecomputePlanner(
    const DimAnalysis &dims, StringRef symbol, int64_t batch,
    const CostTable &table, llvm::DenseMap<Operation *, unsigned> levelsOf,
    SmallVector<SegmentReads> segments,
    llvm::function_ref<bool(Operation *)> isFree,
    llvm::function_ref<bool(Value)> isApart)
    : costs(dims, symbol, batch, table), batch(batch),
      levels(std::move(levelsOf)), segments(std::move(segments)) {
  for (auto [op, level] : levels) {
    levelCount = std::max<size_t>(levelCount, level + 1);
    if (isFree(op))
      always.insert(op);
    for (Value result : op->getResults())
      if (isApart(result))
        apart.insert(result);
  }
  // In the order of the program, for the same plan at each run.
  SmallVector<Operation *> ordered(llvm::make_first_range(levels));
  llvm::sort(ordered, [](Operation *lhs, Operation *rhs) {
    return lhs->isBeforeInBlock(rhs);
  });
  timeOfTile.assign(countSteps(), 0);
  auto countTile = [&](Operation *op, size_t step, double passes) {
    for (Value operand : op->getOperands())
      if (operand.getDefiningOp<ParamGetOp>())
        timeOfTile[step] +=
            passes * costs.getByteTime() * costs.getBytes(operand);
    timeOfTile[step] += passes * costs.getCallTime();
  };
  for (Operation *op : ordered)
    countTile(op, levels.lookup(op), 1);
  // Gradients of inputs read a weight, that of the weight is written, read, and
  // added to what is read and written.
  constexpr double kPasses = 5;
  llvm::DenseSet<Value> read;
  for (auto [index, segment] : llvm::enumerate(this->segments)) {
    read.insert_range(segment.values);
    for (Operation *op : segment.ops)
      countTile(op, countLevels() + index, kPasses);
    for (const GradientAgain &again : segment.again)
      waysAgain[again.value] = &again;
  }
  for (Operation *op : ordered) {
    for (Value result : op->getResults()) {
      if (!apart.contains(result))
        continue;
      // What is within one segment nobody keeps.
      if (!read.contains(result))
        choices.ofValues[result] = Recompute::Always;
      unsigned last = levels.lookup(op);
      SmallVector<Value> work{result};
      while (!work.empty())
        for (Operation *user : work.pop_back_val().getUsers()) {
          last = std::max(last, levels.lookup(user));
          // Reads of what is made again are reads of what it is made of.
          if (always.contains(user))
            llvm::append_range(work, user->getResults());
        }
      lastRead[result] = last;
    }
  }
}

bool RecomputePlanner::mayRecompute(Value value) const {
  return apart.contains(value) && !always.contains(value.getDefiningOp());
}

/// Where it is made of what is there anyway, as a layer of the inputs is, and
/// only the next level reads it.
bool RecomputePlanner::mayRunTwice(Value value) const {
  Operation *op = value.getDefiningOp();
  return mayRecompute(value) && op->getNumResults() == 1 &&
         lastRead.lookup(value) == levels.lookup(op) + 1 &&
         llvm::none_of(op->getOperands(),
                       [&](Value operand) { return apart.contains(operand); });
}

namespace {
/// When a tensor is there as a whole, in steps of the program.
struct Span {
  size_t first, last;
};
} // namespace

/// Follows one plan through the program: the levels of the forward pass, and
/// then the segments.
struct RecomputePlanner::Simulation {
  explicit Simulation(const RecomputePlanner &planner)
      : planner(planner), forward(planner.countLevels()) {}

  /// What segment `step` reads `value` for.
  void read(Value value, size_t step, llvm::DenseSet<Operation *> &made) {
    Operation *op = value.getDefiningOp();
    if (!op || !planner.apart.contains(value))
      return;
    Recompute choice =
        planner.always.contains(op) ? Recompute::Always : planner.lookup(value);
    if (choice == Recompute::Never || restored.contains(value)) {
      auto [span, isNew] = spans.try_emplace(value, Span{step, step});
      span->second.last = std::max(span->second.last, step);
      return;
    }
    if (choice == Recompute::Once) {
      restored.insert(value);
      again.insert({value, Span{step, step}});
    }
    if (!made.insert(op).second)
      return;
    time += planner.costs.getTime(op);
    for (Value operand : op->getOperands())
      read(operand, step, made);
  }

  Figures run(ArrayRef<int64_t> limits) {
    for (auto [index, segment] : llvm::enumerate(planner.segments)) {
      llvm::DenseSet<Operation *> made;
      for (Value value : segment.values)
        read(value, forward + index, made);
      for (Value value : segment.made)
        gradients.insert({value, Span{forward + index, forward + index}});
      for (Value value : segment.taken)
        if (auto *found = gradients.find(value); found != gradients.end())
          found->second.last = forward + index;
    }
    return measure(limits);
  }

  Figures measure(ArrayRef<int64_t> limits) {
    std::vector<int64_t> change(limits.size() + 1, 0);
    std::vector<std::pair<Value, Span>> all;
    auto add = [&](Value value, Span span) {
      change[span.first] += planner.costs.getBytes(value);
      change[span.last + 1] -= planner.costs.getBytes(value);
      all.push_back({value, span});
    };
    for (auto [value, last] : planner.lastRead) {
      if (planner.always.contains(value.getDefiningOp()))
        continue;
      size_t from = planner.levels.lookup(value.getDefiningOp());
      auto kept = spans.find(value);
      bool isKept = kept != spans.end() && !restored.contains(value);
      if (!isKept && planner.runsTwice(value)) {
        time += planner.costs.getTime(value.getDefiningOp());
        continue;
      }
      // Within one level it is in the tiles alone.
      if (isKept || last > from)
        add(value, {from, isKept ? kept->second.last : last});
    }
    for (auto [value, span] : again) {
      auto kept = spans.find(value);
      size_t last = kept == spans.end() ? span.last : kept->second.last;
      if (last > span.first)
        add(value, {span.first, last});
    }
    for (auto [index, segment] : llvm::enumerate(planner.segments))
      for (const GradientAgain &again : segment.again) {
        auto *found = gradients.find(again.value);
        if (!planner.choices.gradientsAgain.contains(again.value) ||
            found == gradients.end())
          continue;
        add(again.output, {forward + index, found->second.last});
        gradients.erase(again.value);
        // A backward pass takes about twice the time of what it is of.
        for (Operation *op : again.ops)
          time += 3 * planner.costs.getTime(op);
      }
    for (auto [value, span] : gradients)
      if (span.last > span.first)
        add(value, span);
    Figures figures;
    int64_t bytes = 0;
    size_t worst = 0;
    std::optional<int64_t> most;
    for (auto [step, limit] : llvm::enumerate(limits)) {
      bytes += change[step];
      figures.bytesAt.push_back(bytes);
      figures.excess += std::max<int64_t>(bytes - limit, 0);
      if (!most || bytes - limit > *most) {
        most = bytes - limit;
        worst = step;
      }
    }
    figures.over = std::max<int64_t>(most.value_or(0), 0);
    figures.time = time;
    for (auto [value, span] : all)
      if (span.first <= worst && worst <= span.last)
        figures.live.push_back(value);
    for (auto [value, span] : gradients)
      if (span.first < span.last && span.first <= worst && worst <= span.last)
        figures.liveGradients.push_back(value);
    return figures;
  }

  const RecomputePlanner &planner;
  size_t forward;
  double time = 0;
  llvm::DenseSet<Value> restored;
  llvm::DenseMap<Value, Span> spans;
  llvm::MapVector<Value, Span> again, gradients;
};

RecomputePlanner::Figures
RecomputePlanner::simulate(ArrayRef<int64_t> limits) const {
  return Simulation(*this).run(limits);
}

const GradientAgain *RecomputePlanner::lookupGradient(Value value) const {
  return choices.gradientsAgain.contains(value) ? waysAgain.lookup(value)
                                                : nullptr;
}

SmallVector<RecomputePlanner::Move>
RecomputePlanner::findMoves(const Figures &now) const {
  constexpr size_t kMostValues = 24;
  SmallVector<Value> candidates =
      llvm::filter_to_vector(now.live, [&](Value value) {
        return mayRecompute(value) && lookup(value) != Recompute::Always;
      });
  llvm::stable_sort(candidates, [&](Value lhs, Value rhs) {
    return costs.getBytes(lhs) > costs.getBytes(rhs);
  });
  if (candidates.size() > kMostValues)
    candidates.resize(kMostValues);
  SmallVector<Move> moves;
  for (Value value : candidates)
    for (Recompute choice : {Recompute::Once, Recompute::Always})
      if (lookup(value) < choice)
        moves.push_back({value, Move::Choose, choice});
  // What segments keep is there for the forward pass as well.
  for (Value value : now.live)
    if (!choices.twice.contains(value) && lookup(value) != Recompute::Never &&
        mayRunTwice(value))
      moves.push_back({value, Move::ToggleTwice});
  for (Value value : now.liveGradients)
    if (const GradientAgain *again = waysAgain.lookup(value))
      if (costs.getBytes(again->output) < costs.getBytes(value))
        moves.push_back({value, Move::ToggleGradient});
  return moves;
}

SmallVector<RecomputePlanner::Move>
RecomputePlanner::findDeepMoves(const Figures &now) const {
  SmallVector<Move> moves;
  for (Value value : now.live) {
    if (!mayRecompute(value) || lookup(value) == Recompute::Always)
      continue;
    Move move{value, Move::Choose, Recompute::Always};
    llvm::SetVector<Value> sources;
    sources.insert(value);
    for (size_t next = 0; next < sources.size(); ++next)
      for (Value operand : sources[next].getDefiningOp()->getOperands()) {
        Operation *maker = operand.getDefiningOp();
        bool isThere =
            !maker || !apart.contains(operand) ||
            (!always.contains(maker) && lookup(operand) == Recompute::Never);
        if (isThere)
          continue;
        if (sources.insert(operand) && lookup(operand) == Recompute::Once)
          move.others.push_back({operand, Recompute::Always});
      }
    if (!move.others.empty())
      moves.push_back(std::move(move));
  }
  return moves;
}

RecomputePlanner::Move RecomputePlanner::apply(const Move &move) {
  if (move.kind == Move::Choose) {
    Move back{move.value, Move::Choose, lookup(move.value)};
    choices.ofValues[move.value] = move.choice;
    for (auto [value, choice] : move.others) {
      back.others.push_back({value, lookup(value)});
      choices.ofValues[value] = choice;
    }
    return back;
  }
  llvm::DenseSet<Value> &toggled = move.kind == Move::ToggleGradient
                                       ? choices.gradientsAgain
                                       : choices.twice;
  if (!toggled.erase(move.value))
    toggled.insert(move.value);
  return move;
}

void RecomputePlanner::evict(ArrayRef<int64_t> limits) {
  Figures now = simulate(limits);
  while (now.over > 0) {
    std::optional<Figures> best;
    Move chosen;
    double price = 0;
    auto consider = [&](const Move &move) {
      Move back = apply(move);
      Figures then = simulate(limits);
      apply(back);
      // Not of the peak alone: the next one may be as high.
      double saved = now.excess - then.excess;
      if (saved <= 0)
        return;
      double paid = (then.time - now.time) / saved;
      if (best && paid >= price)
        return;
      price = paid;
      chosen = move;
      best = std::move(then);
    };
    llvm::for_each(findMoves(now), consider);
    // What is made again of what is there for others would be there earlier.
    if (!best)
      llvm::for_each(findDeepMoves(now), consider);
    if (!best)
      return;
    apply(chosen);
    now = std::move(*best);
  }
  keepAgain(limits);
}

/// Takes back what the plan does not need to stay within `limits`, from what
/// costs most time on.
void RecomputePlanner::keepAgain(ArrayRef<int64_t> limits) {
  SmallVector<std::pair<double, Move>> moves;
  double time = simulate(limits).time;
  auto consider = [&](const Move &move) {
    Move back = apply(move);
    Figures then = simulate(limits);
    apply(back);
    if (then.over == 0 && then.time < time)
      moves.push_back({time - then.time, move});
  };
  for (auto [value, last] : lastRead) {
    for (Recompute choice : {Recompute::Never, Recompute::Once})
      if (mayRecompute(value) && choice < lookup(value))
        consider({value, Move::Choose, choice});
    if (runsTwice(value))
      consider({value, Move::ToggleTwice});
  }
  for (const SegmentReads &segment : segments)
    for (const GradientAgain &again : segment.again)
      if (choices.gradientsAgain.contains(again.value))
        consider({again.value, Move::ToggleGradient});
  llvm::stable_sort(moves, [](const auto &lhs, const auto &rhs) {
    return lhs.first > rhs.first;
  });
  for (auto &[saved, move] : moves) {
    if (move.kind == Move::Choose && lookup(move.value) <= move.choice)
      continue;
    Move back = apply(move);
    Figures then = simulate(limits);
    if (then.over == 0 && then.time < time)
      time = then.time;
    else
      apply(back);
  }
}

/// What all tiles take for themselves, where each step has the largest that are
/// within `bytes`.
double RecomputePlanner::getTileTime(const Figures &figures, int64_t bytes,
                                     ArrayRef<TileMemory> beside) const {
  double time = 0;
  for (auto [step, timeOfOne] : llvm::enumerate(timeOfTile)) {
    int64_t tile = 1;
    for (const TileMemory &held : beside)
      if (figures.bytesAt[step] + held.bytesAt[step] <= bytes)
        tile = std::max(tile, held.tile);
    time += timeOfOne * llvm::divideCeil(batch, tile);
  }
  return time;
}

void RecomputePlanner::plan(int64_t bytes, ArrayRef<TileMemory> beside) {
  if (beside.empty())
    return evict(std::vector<int64_t>(countSteps(), bytes));
  Choices initial = choices, best;
  std::optional<double> least;
  for (const TileMemory &held : beside) {
    std::vector<int64_t> limits;
    for (int64_t bytesOfTile : held.bytesAt)
      limits.push_back(bytes - bytesOfTile);
    choices = initial;
    evict(limits);
    Figures found = simulate(limits);
    // Where nothing fits, the smallest tiles come closest.
    bool isLast = &held == &beside.back() && !least;
    if (found.over > 0 && !isLast)
      continue;
    double time = found.time + getTileTime(found, bytes, beside);
    if (least && time >= *least)
      continue;
    least = time;
    best = choices;
  }
  choices = std::move(best);
}
