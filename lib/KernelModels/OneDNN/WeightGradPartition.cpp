//===- WeightGradPartition.cpp - How threads share a weight's gradient ----===//
//
// Threads that share the samples have a weight each, which oneDNN books in the
// scratchpad and adds up.
//
//===----------------------------------------------------------------------===//

#include "ConvWeightGrad.h"

using namespace koila;
using namespace koila::conv;

// Each flag is a page, on a page.
int64_t conv::barriers(int64_t count) { return bookedPage(count * Page); }

/// Calls `visit` with all ways to split, the inputs taking what is left.
template <typename Visitor>
static void forEachShares(int64_t threads, const ShareCosts &costs,
                          Visitor visit) {
  for (int64_t samples = 1; samples <= std::min(threads, costs.mostSamples);
       ++samples) {
    int64_t left = threads / samples;
    for (int64_t outputs = 1; outputs <= std::min(left, costs.outputBlocks);
         ++outputs)
      visit(Shares{samples, outputs,
                   std::min(left / outputs, costs.inputBlocks)});
  }
}

Shares conv::findShares(int64_t threads, const ShareCosts &costs) {
  Shares best;
  int64_t leastMemory = costs.memory(best);
  forEachShares(threads, costs, [&](const Shares &shares) {
    int64_t memory = costs.memory(shares);
    if (memory > leastMemory)
      return;
    leastMemory = memory;
    best = shares;
  });
  if (!costs.compute)
    return best;
  // A tenth more memory is fine for no more work; any for a quarter less.
  int64_t leastWork = costs.compute(best);
  forEachShares(threads, costs, [&](const Shares &shares) {
    int64_t work = costs.compute(shares);
    bool isClose = costs.memory(shares) < 1.1 * leastMemory;
    if (!(work <= leastWork && isClose) && 4 * work > 3 * leastWork)
      return;
    leastWork = work;
    best = shares;
  });
  return best;
}

int64_t conv::findDepthwiseThreads(const Geometry &g) {
  int64_t blocks = llvm::divideCeilSigned(g.groups, g.lanes);
  int64_t registers = g.lanes == 16 ? 31 : 15;
  int64_t together =
      std::min(blocks, std::min<int64_t>(4, registers / (2 * g.kernelW)));
  int64_t channels = llvm::divideCeilSigned(blocks, together), most = 1;
  for (int64_t i = 1; i <= std::min(g.threads, channels); ++i)
    for (int64_t j = 1; j <= std::min(g.threads / i, g.batch); ++j)
      most = std::max(most, i * j * std::min(g.threads / (i * j), g.outputH));
  return most;
}

namespace {
/// `count` groups of `threads`, each of at most `jobs`.
struct Groups {
  int64_t count, threads, jobs;
};
} // namespace

/// Source: reduce_balancer_t::balance.
static Groups groupJobs(int64_t threads, int64_t elements, int64_t jobs,
                        int64_t terms, int64_t mostElements) {
  auto split = [&](int64_t jobsOfGroup) {
    int64_t count = std::min(jobs / jobsOfGroup, threads);
    return Groups{count, std::min(threads / count, terms),
                  llvm::divideCeilSigned(jobs, count)};
  };
  if (threads == 1)
    return {1, 1, jobs};
  int64_t least = std::max<int64_t>(1, jobs / threads);
  int64_t most = std::max<int64_t>(1, mostElements / (threads * elements));
  Groups best = split(least);
  int64_t leastWork = jobs * elements * terms;
  // As many jobs in a group as make another number of groups.
  for (int64_t jobsOfGroup = least; jobsOfGroup < jobs;
       jobsOfGroup = jobs / (jobs / jobsOfGroup) + 1) {
    Groups groups = split(jobsOfGroup);
    if (groups.threads > 1 && groups.jobs > most)
      continue;
    int64_t work =
        elements * groups.jobs *
        (llvm::divideCeilSigned(terms, groups.threads) + (groups.threads > 1));
    if (work >= leastWork)
      continue;
    leastWork = work;
    best = groups;
  }
  return best;
}

int64_t conv::reducerScratchpad(int64_t threads, int64_t elements, int64_t jobs,
                                int64_t terms, int64_t mostElements) {
  Groups groups = groupJobs(threads, elements, jobs, terms, mostElements);
  if (groups.threads == 1)
    return 0;
  int64_t sums = groups.count * (groups.threads - 1) * groups.jobs * elements;
  return bookedPage(sums * FloatBytes) + barriers(groups.count);
}

int64_t conv::planeReducerScratchpad(int64_t threads, int64_t elements,
                                     int64_t jobs, int64_t terms,
                                     int64_t mostElements) {
  Groups groups = groupJobs(threads, elements, jobs, terms, mostElements);
  if (groups.threads == 1)
    return 0;
  int64_t sums = groups.count * groups.threads * groups.jobs * elements;
  return booked(sums * FloatBytes) + barriers(groups.count);
}
