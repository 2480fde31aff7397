//===- Sort.cpp - What sorting and sums hold inside -----------------------===//
//
// Sources: native/Sorting.cpp, native/TensorTopk.cpp, native/ReduceOps.cpp
// (cumulative operators).
//
//===----------------------------------------------------------------------===//

#include "../Models.h"
#include "Reduction.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/Elementwise.h"
#include "koila/Dialect/Koila/IR/SortOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// One row of int64 places is moved at a time, on each thread; one of the two
/// results may be dropped. Source: sort_stable_kernel.
enum class Dropped { Nothing, Values, Places };
static void describeOrder(WorkspaceRule &rule, int64_t dim,
                          Dropped dropped = Dropped::Nothing) {
  constexpr int64_t kPlace = 8, kGrain = 32768;
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  if (!input)
    return rule.setInexact("the shape of what is sorted is unknown");
  int64_t rank = input->dims.size(), elements = input->numElements();
  int64_t row = rank == 0 ? 1 : input->dims[dim < 0 ? dim + rank : dim];
  int64_t inside = dropped == Dropped::Nothing  ? 0
                   : dropped == Dropped::Values ? input->numBytes()
                                                : elements * kPlace;
  bool isParallel = rule.getTarget().threads > 1 && elements >= kGrain;
  int64_t rows = isParallel ? rule.getTarget().threads : 1;
  int64_t moved = rank > 0 ? rows * row * kPlace : 0;
  // Integers may be sorted by digits, in a second set of values and places.
  if (isa<IntegerType>(input->elementType) && rank < 2) {
    if (elements >= kGrain)
      moved = std::max(moved, input->numBytes() + elements * kPlace);
    rule.setBound("a vector of integers may be sorted by digits");
  }
  if (isParallel)
    rule.setBound("threads that sort may not do so at once");
  if (!rule.isExact())
    return rule.setTransient(inside + moved);
  // Of both results the one that is dropped.
  AllocationTrace trace;
  AllocationTrace::Block other;
  if (dropped == Dropped::Values) {
    other = trace.allocate(inside);
    trace.allocate(elements * kPlace);
  } else if (dropped == Dropped::Places) {
    trace.allocate(input->numBytes());
    other = trace.allocate(inside);
  }
  trace.allocateTemporary(moved);
  trace.free(other);
  rule.setTrace(std::move(trace));
}

template <typename OpT, Dropped Other = Dropped::Nothing>
static void describeSort(WorkspaceRule &rule) {
  describeOrder(rule, cast<OpT>(rule.getOp()).getDim(), Other);
}

static void describeMsort(WorkspaceRule &rule) {
  describeOrder(rule, /*dim=*/0, Dropped::Places);
}

/// Values and places are moved about in copies. Source:
/// kthvalue_out_impl_cpu in native/Sorting.cpp.
static void describeSelection(WorkspaceRule &rule) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  if (!input)
    return rule.setInexact("a shape of the operator is unknown");
  constexpr int64_t kPlace = 8;
  if (input->dims.empty())
    return;
  AllocationTrace trace;
  trace.allocate(input->numBytes());
  trace.allocate(input->numElements() * kPlace);
  rule.setTrace(std::move(trace), 0);
}

/// The type of the number that is searched for; null if it is computed.
static Type getSearchedType(Operation *op) {
  auto number = dyn_cast_or_null<TypedAttr>(op->getAttr("self"));
  return number && !number.getType().isInteger(1) ? number.getType() : Type();
}

/// Where a number of type `number` meets elements of type `elements`.
static Type getComparedType(Type elements, Type number) {
  TensorInfo info;
  info.elementType = elements;
  info.dims.emplace(1, DimExpr::constant(elements.getContext(), 1));
  return rules::getCommonType(info, number);
}

/// Rows of one type. A number becomes a 0-dim tensor.
/// Source: native/BucketizationUtils.h.
static void describeSearch(WorkspaceRule &rule, Value boundaries, Value wanted,
                           Value sorter) {
  auto among = rule.tensor(boundaries), order = rule.tensor(sorter);
  auto searched = rule.tensor(wanted);
  if (!wanted)
    if (Type type = getSearchedType(rule.getOp()))
      searched = ConcreteTensor{{}, type};
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result || !among || !searched || (sorter && !order) ||
      !among->getStrides() || !searched->getStrides())
    return rule.setInexact("what is searched is unknown");
  AllocationTrace trace;
  AllocationTrace::Block number;
  if (!wanted)
    number = trace.allocate(searched->numBytes());
  // The least and the greatest place are looked at.
  if (order && order->numElements() > 0)
    reduction::allocateExtremes(trace, *order);
  trace.allocate(result->numBytes());
  if (searched->numElements() == 0) {
    trace.free(number);
    return rule.setTrace(std::move(trace), result->numBytes());
  }
  AllocationTrace::Block values = allocateContiguous(trace, *searched);
  AllocationTrace::Block rows = allocateContiguous(trace, *among);
  AllocationTrace::Block places;
  if (order)
    places = allocateContiguous(trace, *order);
  Type common = searched->elementType;
  if (wanted && common != among->elementType)
    common = rules::promoteTypes(common, !searched->dims.empty(),
                                 among->elementType, !among->dims.empty());
  else if (!wanted)
    common = getComparedType(among->elementType, common);
  auto cast = [&](const ConcreteTensor &tensor, AllocationTrace::Block &block) {
    if (tensor.elementType == common)
      return;
    AllocationTrace::Block before = block;
    block = trace.allocate(countBytes(tensor, common));
    trace.free(before);
  };
  cast(*searched, values);
  cast(*among, rows);
  for (AllocationTrace::Block block : {places, rows, values, number})
    trace.free(block);
  rule.setTrace(std::move(trace), result->numBytes());
}

template <typename OpT>
static void describeSearchsorted(WorkspaceRule &rule) {
  auto op = cast<OpT>(rule.getOp());
  Value wanted;
  if constexpr (std::is_same_v<OpT, SearchsortedTensorOp>)
    wanted = op.getSelf();
  describeSearch(rule, op.getSortedSequence(), wanted, op.getSorter());
}

static void describeBucketize(WorkspaceRule &rule) {
  auto op = cast<BucketizeTensorOp>(rule.getOp());
  describeSearch(rule, op.getBoundaries(), op.getSelf(), /*sorter=*/{});
}

static void describeBucketizeNumber(WorkspaceRule &rule) {
  auto op = cast<BucketizeScalarOp>(rule.getOp());
  describeSearch(rule, op.getBoundaries(), /*wanted=*/{}, /*sorter=*/{});
}

/// Each difference is a tensor of its own; the one before it goes when the next
/// is there. Source: diff_helper in native/ReduceOps.cpp.
static void describeDiff(WorkspaceRule &rule) {
  auto op = cast<DiffOp>(rule.getOp());
  auto self = rule.tensor(op.getSelf());
  auto result = rule.tensor(op.getResult());
  if (!self || !result || self->dims.empty())
    return rule.setInexact("a shape of the operator is unknown");
  int64_t rank = self->dims.size(), dim = op.getDim(), times = op.getN();
  if (times <= 0)
    return;
  dim += dim < 0 ? rank : 0;
  int64_t length = 0;
  SmallVector<ConcreteTensor, 3> joined;
  for (Value part : {op.getPrepend(), op.getSelf(), op.getAppend()}) {
    if (!part)
      continue;
    auto tensor = rule.tensor(part);
    if (!tensor || tensor->dims.size() != self->dims.size())
      return rule.setInexact("a shape of the operator is unknown");
    length += tensor->dims[dim];
    joined.push_back(std::move(*tensor));
  }
  int64_t row = getElementBytes(result->elementType);
  for (int64_t other = 0; other < rank; ++other)
    row *= other == dim ? 1 : result->dims[other];
  AllocationTrace trace;
  AllocationTrace::Block whole, last;
  if (joined.size() > 1) {
    whole = trace.allocate(row * length);
    for (const ConcreteTensor &part : joined)
      if (part.elementType != result->elementType)
        trace.allocateTemporary(part.numBytes());
  }
  // Nothing is left after `length` steps.
  times = std::min(times, length);
  for (int64_t step = 1; step <= times; ++step) {
    AllocationTrace::Block before = last;
    last = trace.allocate(row * (length - step));
    trace.free(before);
  }
  trace.free(whole);
  rule.setTrace(std::move(trace));
}

/// Elements are sorted with their places, and counts are differences of places.
/// Source: unique_cpu_sorted_template and unique_consecutive_cpu_template in
/// native/Unique.cpp.
static void describeUnique(WorkspaceRule &rule, bool sorts, bool counts) {
  constexpr int64_t kPlace = 8, kGrain = 32768;
  Operation *op = rule.getOp();
  auto self = rule.tensor(op->getOperand(0));
  int64_t results = 0;
  for (Value result : op->getResults()) {
    auto tensor = rule.tensor(result);
    if (!tensor)
      return rule.setInexact("a shape of the operator is unknown");
    results += tensor->numBytes();
  }
  if (!self)
    return rule.setInexact("a shape of the operator is unknown");
  int64_t elements = self->numElements();
  AllocationTrace trace;
  allocateContiguous(trace, *self);
  // Of bools it is enough to look which there are.
  if (sorts && elements > 0 && !self->elementType.isInteger(1)) {
    int64_t sorted = self->numBytes() + elements * kPlace;
    // Integers may be sorted by digits, in a second set of both.
    bool byDigits = isa<IntegerType>(self->elementType) && elements >= kGrain;
    trace.allocate(sorted);
    trace.allocateTemporary(byDigits ? sorted : elements * kPlace);
    if (counts)
      trace.allocate((elements + 1) * kPlace);
  }
  trace.allocate(results);
  rule.setTrace(std::move(trace), results);
  rule.setBound("how many elements differ is decided by data");
}

static void describeUnique2(WorkspaceRule &rule) {
  describeUnique(rule, /*sorts=*/true,
                 cast<Unique2Op>(rule.getOp()).getReturnCounts());
}

static void describeUniqueConsecutive(WorkspaceRule &rule) {
  auto op = cast<UniqueConsecutiveOp>(rule.getOp());
  if (op.getDim())
    return rule.setInexact("unique_consecutive compares and stacks slices");
  describeUnique(rule, /*sorts=*/false, op.getReturnCounts());
}

/// The input in the type of the result.
static void describeCumulative(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto result = rule.tensor(op->getResult(0));
  if (!input || !result)
    return rule.setInexact("a shape of the operator is unknown");
  if (isa<ComplexType>(result->elementType))
    return rule.setInexact("a cumulative operator of complex numbers");
  // A single number is just copied.
  if (input->dims.empty() && rules::isInPlace(op))
    return rule.setInexact("a cumulative operator writes one number");
  if (!input->dims.empty())
    rule.setTransient(getCastBytes(*input, result->elementType));
}

void kernels::addSortModels(KernelLibrary &library) {
  library.add<ArgsortOp>({.forward = describeSort<ArgsortOp, Dropped::Values>});
  library.add<ArgsortStableOp>(
      {.forward = describeSort<ArgsortStableOp, Dropped::Values>});
  library.add<BucketizeScalarOp>({.forward = describeBucketizeNumber});
  library.add<BucketizeTensorOp>({.forward = describeBucketize});
  library.add<CummaxOp, CumminOp, LogcumsumexpOp, TopkOp>(
      {.forward = allocateNothing});
  library.add<CumprodOp, CumsumOp>({.forward = describeCumulative});
  library.add<DiffOp>({.forward = describeDiff});
  library.add<KthvalueOp>({.forward = describeSelection});
  library.add<MsortOp>({.forward = describeMsort});
  library.add<SearchsortedScalarOp>(
      {.forward = describeSearchsorted<SearchsortedScalarOp>});
  library.add<SearchsortedTensorOp>(
      {.forward = describeSearchsorted<SearchsortedTensorOp>});
  library.add<SortOp>({.forward = describeSort<SortOp>});
  library.add<SortStableOp>({.forward = describeSort<SortStableOp>});
  library.add<Unique2Op>({.forward = describeUnique2});
  library.add<UniqueConsecutiveOp>({.forward = describeUniqueConsecutive});
}
