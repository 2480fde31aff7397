//===- RulesSortMemory.cpp - What sorting and sums hold inside ------------===//
//
// Sources: native/Sorting.cpp, native/TensorTopk.cpp, native/ReduceOps.cpp
// (cumulative operators).
//
//===----------------------------------------------------------------------===//

#include "Footprint.h"
#include "koila/Dialect/Koila/IR/ElementwiseRules.h"
#include "koila/Dialect/Koila/IR/KoilaSortOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;

/// One row of int64 places is moved at a time, on each thread; argsort also
/// drops the values. Source: sort_stable_kernel.
static void describeOrder(WorkspaceRule &rule, int64_t dim, bool dropsValues) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  if (!input)
    return rule.setInexact("the shape of what is sorted is unknown");
  int64_t rank = input->dims.size(), elements = input->numElements();
  if (isa<IntegerType>(input->elementType) && rank < 2)
    return rule.setInexact("a vector of integers may be sorted by digits");
  int64_t row = rank == 0 ? 1 : input->dims[dim < 0 ? dim + rank : dim];
  int64_t values = dropsValues ? input->numBytes() : 0;
  constexpr int64_t kPlace = 8, kGrain = 32768;
  bool isParallel = rule.getTarget().threads > 1 && elements >= kGrain;
  int64_t rows = isParallel ? rule.getTarget().threads : 1;
  if (rank > 0)
    values += rows * row * kPlace;
  rule.setTransient(values);
  if (isParallel)
    rule.setBound("threads that sort may not do so at once");
}

/// Each difference is a tensor of its own; the one before it goes when the next
/// is there. Source: diff_helper in native/ReduceOps.cpp.
static void describeDiff(WorkspaceRule &rule, DiffOp op) {
  auto self = rule.tensor(op.getSelf());
  auto result = rule.tensor(op.getResult());
  if (!self || !result || self->dims.empty())
    return rule.setInexact("a shape of the operator is unknown");
  int64_t rank = self->dims.size(), dim = op.getDim(), times = op.getN();
  if (times <= 0)
    return;
  dim += dim < 0 ? rank : 0;
  int64_t length = self->dims[dim];
  bool joins = false;
  for (Value more : {op.getPrepend(), op.getAppend()}) {
    if (!more)
      continue;
    auto tensor = rule.tensor(more);
    if (!tensor || tensor->dims.size() != self->dims.size())
      return rule.setInexact("a shape of the operator is unknown");
    length += tensor->dims[dim];
    joins = true;
  }
  int64_t row = getElementBytes(result->elementType);
  for (int64_t other = 0; other < rank; ++other)
    row *= other == dim ? 1 : result->dims[other];
  // Nothing is left after `length` steps. The second one holds the most: what
  // the first made, and its own.
  times = std::min(times, length);
  int64_t most = std::max<int64_t>(times > 1 ? 2 * length - 3 : length - 1, 0);
  rule.setTransient(row * ((joins ? length : 0) + most - (length - times)));
}

void rules::describeSortWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  llvm::TypeSwitch<Operation *>(op)
      .Case<SortOp, SortStableOp>(
          [&](auto sort) { describeOrder(rule, sort.getDim(), false); })
      .Case<ArgsortOp, ArgsortStableOp>(
          [&](auto sort) { describeOrder(rule, sort.getDim(), true); })
      .Case<DiffOp>([&](auto diff) { describeDiff(rule, diff); })
      .Case<TopkOp, CummaxOp, CumminOp, LogcumsumexpOp>([](auto) {})
      .Case<CumsumOp, CumprodOp>([&](auto) {
        auto input = rule.tensor(op->getOperand(0));
        auto result = rule.tensor(op->getResult(0));
        if (!input || !result)
          return rule.setInexact("a shape of the operator is unknown");
        if (isa<ComplexType>(result->elementType))
          return rule.setInexact("a cumulative operator of complex numbers");
        // A single number is just copied.
        if (input->dims.empty() && isInPlace(op))
          return rule.setInexact("a cumulative operator writes one number");
        if (!input->dims.empty())
          rule.setTransient(getCastBytes(*input, result->elementType));
      })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}
