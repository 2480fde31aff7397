//===- RecomputePlan.cpp - What a backward pass computes again ------------===//

#include "RecomputePlan.h"

using namespace mlir;
using namespace koila;

RecomputePlanner::RecomputePlanner(
    const DimAnalysis &dims, StringRef symbol, int64_t batch,
    const llvm::DenseMap<Operation *, unsigned> &levels,
    SmallVector<SegmentReads> segments,
    llvm::function_ref<bool(Operation *)> isFree,
    llvm::function_ref<bool(Value)> isApart)
    : costs(dims, symbol, batch), levels(levels),
      segments(std::move(segments)) {
  for (auto [op, level] : levels) {
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
  llvm::DenseSet<Value> read;
  for (const SegmentReads &segment : this->segments)
    read.insert_range(segment.values);
  for (Operation *op : ordered) {
    forwardTime += costs.getTime(op);
    for (Value result : op->getResults()) {
      if (!apart.contains(result))
        continue;
      // What is within one segment nobody keeps.
      if (!read.contains(result))
        choices[result] = Recompute::Always;
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

namespace {
/// When a tensor is there as a whole, in steps of the program.
struct Span {
  size_t first, last;
};
} // namespace

/// Follows one plan through the program: the levels of the forward pass, and
/// then the segments.
struct RecomputePlanner::Simulation {
  explicit Simulation(const RecomputePlanner &planner) : planner(planner) {
    for (unsigned level : llvm::make_second_range(planner.levels))
      forward = std::max<size_t>(forward, level + 1);
  }

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

  Figures run(int64_t wanted) {
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
    return measure(wanted);
  }

  Figures measure(int64_t wanted) {
    std::vector<int64_t> change(forward + planner.segments.size() + 2, 0);
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
    for (auto [value, span] : gradients)
      if (span.last > span.first)
        add(value, span);
    Figures figures;
    figures.time = time;
    int64_t bytes = 0;
    size_t worst = 0;
    for (auto [step, delta] : llvm::enumerate(change)) {
      bytes += delta;
      figures.excess += std::max<int64_t>(bytes - wanted, 0);
      if (bytes > figures.bytes) {
        figures.bytes = bytes;
        worst = step;
      }
    }
    for (auto [value, span] : all)
      if (span.first <= worst && worst <= span.last)
        figures.live.push_back(value);
    return figures;
  }

  const RecomputePlanner &planner;
  size_t forward = 0;
  double time = 0;
  llvm::DenseSet<Value> restored;
  llvm::DenseMap<Value, Span> spans;
  llvm::MapVector<Value, Span> again, gradients;
};

RecomputePlanner::Figures RecomputePlanner::simulate(int64_t wanted) const {
  return Simulation(*this).run(wanted);
}

void RecomputePlanner::evict(int64_t bytes) {
  constexpr size_t kMostMoves = 24;
  Figures now = simulate(bytes);
  while (now.bytes > bytes) {
    SmallVector<Value> candidates =
        llvm::filter_to_vector(now.live, [&](Value value) {
          return mayRecompute(value) && lookup(value) != Recompute::Always;
        });
    llvm::stable_sort(candidates, [&](Value lhs, Value rhs) {
      return costs.getBytes(lhs) > costs.getBytes(rhs);
    });
    if (candidates.size() > kMostMoves)
      candidates.resize(kMostMoves);
    std::optional<Figures> best;
    std::pair<Value, Recompute> move;
    double price = 0;
    for (Value value : candidates)
      for (Recompute choice : {Recompute::Once, Recompute::Always}) {
        Recompute before = lookup(value);
        if (before >= choice)
          continue;
        choices[value] = choice;
        Figures then = simulate(bytes);
        choices[value] = before;
        // Not of the peak alone: the next one may be as high.
        double saved = now.excess - then.excess;
        if (saved <= 0)
          continue;
        double paid = (then.time - now.time) / saved;
        if (best && paid >= price)
          continue;
        price = paid;
        move = {value, choice};
        best = std::move(then);
      }
    if (!best)
      return;
    choices[move.first] = move.second;
    now = *best;
  }
}
