//===- Reduction.cpp - What a reduction holds inside ----------------------===//
//
// Sources: native/ReduceOps.cpp, native/LinearAlgebra.cpp (norms),
// native/Sorting.cpp (medians), native/SummaryOps and TensorCompare.cpp.
//
//===----------------------------------------------------------------------===//

#include "Reduction.h"
#include "../Models.h"
#include "Backward/BackwardReplay.h"
#include "koila/Dialect/Koila/IR/Elementwise.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

namespace {
/// A reduction with numbers for its shapes.
struct Reduced {
  WorkspaceRule &rule;
  ConcreteTensor input, result;

  int64_t getPartial() const { return getPartialBytes(rule, input, result); }
  /// The input in the type of the result, then the reduction.
  void describeCast() const {
    AllocationTrace trace;
    trace.allocate(getCastBytes(input, result.elementType));
    trace.allocate(getPartial());
    rule.setTrace(std::move(trace), 0);
  }
  bool isEmpty() const { return input.numElements() == 0; }
};
} // namespace

/// None, and the rule says so, if a shape is unknown.
static std::optional<Reduced> getReduced(WorkspaceRule &rule) {
  auto input = rule.tensor(rule.getOp()->getOperand(0));
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (input && result)
    return Reduced{rule, *input, *result};
  rule.setInexact("a shape of the reduction is unknown");
  return std::nullopt;
}

/// A function of a reduction as the model `forward`.
template <void (*Describe)(const Reduced &)>
static void ofNumbers(WorkspaceRule &rule) {
  if (auto reduced = getReduced(rule))
    Describe(*reduced);
}

/// The same if it is of real numbers only.
template <void (*Describe)(const Reduced &)>
static void ofReals(WorkspaceRule &rule) {
  auto reduced = getReduced(rule);
  if (reduced && isa<ComplexType>(reduced->input.elementType))
    return rule.setInexact("a reduction of complex numbers");
  if (reduced)
    Describe(*reduced);
}

/// Nothing but the results.
static void describeNothing(const Reduced &) {}

/// Which dims of the input a sum is over; all if none is named.
static SmallVector<bool> findReduced(Operation *op, size_t rank) {
  auto dims = op->getAttrOfType<DenseI64ArrayAttr>("dim");
  bool isAll = !dims || dims.empty();
  SmallVector<bool> isReduced(rank, isAll);
  if (isAll)
    return isReduced;
  for (int64_t dim : dims.asArrayRef())
    if (rank > 0)
      isReduced[dim < 0 ? dim + rank : dim] = true;
  return isReduced;
}

/// exp(self - max) is as large as the operand.
static void describeLogSumExp(const Reduced &reduced) {
  using Number = OpReplay::Number;
  Type type = reduced.result.elementType;
  OpReplay steps(reduced.rule);
  AllocationTrace::Block cast =
      steps.allocate(getCastBytes(reduced.input, type));
  MadeTensor maxima;
  if (!reduced.isEmpty()) {
    maxima = steps.allocate(reduced.result);
    steps.allocateTemporary(reduced.getPartial());
    // maxes.masked_fill_(maxes.abs() == INFINITY, 0)
    MadeTensor sizes = steps.compute(maxima);
    MadeTensor mask =
        steps.compute(sizes, OpReplay::Result::Bool, Number::Float);
    steps.free({mask, sizes});
  }
  SmallVector<bool> isReduced =
      findReduced(reduced.rule.getOp(), reduced.input.dims.size());
  ConcreteTensor input = reduced.input, most{input.dims, type};
  input.elementType = type;
  for (auto [extent, isGone] : llvm::zip_equal(most.dims, isReduced))
    extent = isGone ? 1 : extent;
  ConcreteTensor exponentials = addStrides(input, most);
  AllocationTrace::Block made = steps.allocate(exponentials.numBytes());
  MadeTensor result = steps.allocate(reduced.result);
  allocateSum(reduced.rule, steps, exponentials, result, isReduced);
  steps.AllocationTrace::free(made);
  steps.free(maxima);
  steps.AllocationTrace::free(cast);
  steps.finish(result.numBytes());
}

/// Whether a count names no dim.
static bool isOverAll(Operation *op) {
  if (auto count = dyn_cast<CountNonzeroOp>(op))
    return !count.getDim();
  return cast<CountNonzeroDimOp>(op).getDim().empty();
}

/// (self != 0).sum(dim); bool is summed as it is.
static void describeCount(const Reduced &reduced) {
  // All dims, if none is named, by another kernel.
  if (isOverAll(reduced.rule.getOp()))
    return;
  OpReplay steps(reduced.rule);
  MadeTensor mask;
  if (!reduced.input.elementType.isInteger(1))
    mask = steps.compute(reduced.input, OpReplay::Result::Bool,
                         OpReplay::Number::Integer);
  MadeTensor result = steps.allocate(reduced.result);
  AllocationTrace::Block cast =
      steps.allocate(countBytes(reduced.input, result.elementType));
  steps.allocateTemporary(reduced.getPartial());
  steps.AllocationTrace::free(cast);
  steps.free(mask);
  steps.finish(result.numBytes());
}

void reduction::allocateExtremes(AllocationTrace &trace,
                                 const ConcreteTensor &tensor) {
  int64_t element = getElementBytes(tensor.elementType);
  AllocationTrace::Block least = trace.allocate(element);
  AllocationTrace::Block most = trace.allocate(element);
  trace.free(allocateContiguous(trace, tensor));
  trace.free(least);
  trace.free(most);
}

/// All elements of float32 or float64 at once: by way of the mean.
/// Source: std_var_all_cpu in native/ReduceOps.cpp.
static void allocateDeviation(WorkspaceRule &rule, AllocationTrace &trace,
                              const ConcreteTensor &input,
                              const ConcreteTensor &result) {
  if (isHalf(result.elementType) || input.numElements() == 0 ||
      result.numElements() != 1)
    return;
  AllocationTrace::Block mean = trace.allocate(result.numBytes());
  allocateMean(rule, trace, input, result);
  trace.free(mean);
}

/// The real and the imaginary parts by themselves, with their means where
/// `hasMean`; then what both results are made of.
/// Source: std_var_out and std_var_mean_out in native/ReduceOps.cpp.
static void describeComplexDeviation(const Reduced &reduced, bool hasMean) {
  ConcreteTensor part = reduced.input;
  part.elementType = reduced.result.elementType;
  if (auto strides = part.getStrides()) {
    for (int64_t &stride : *strides)
      stride *= 2;
    part.strides = strides;
  }
  part.contiguous = false;
  int64_t bytes = reduced.result.numBytes();
  AllocationTrace trace;
  SmallVector<AllocationTrace::Block, 4> ofParts;
  for (int count = 0; count < 2; ++count) {
    ofParts.push_back(trace.allocate(bytes));
    if (hasMean)
      ofParts.push_back(trace.allocate(bytes));
    else
      allocateDeviation(reduced.rule, trace, part, reduced.result);
  }
  trace.allocate(bytes);
  if (hasMean)
    trace.allocate(2 * bytes);
  for (AllocationTrace::Block block : llvm::reverse(ofParts))
    trace.free(block);
  reduced.rule.setTrace(std::move(trace));
}

static void describeDeviation(const Reduced &reduced) {
  if (isa<ComplexType>(reduced.input.elementType))
    return describeComplexDeviation(reduced, /*hasMean=*/false);
  AllocationTrace trace;
  allocateDeviation(reduced.rule, trace, reduced.input, reduced.result);
  reduced.rule.setTrace(std::move(trace));
}

/// One kernel computes both.
static void describeDeviationAndMean(const Reduced &reduced) {
  if (isa<ComplexType>(reduced.input.elementType))
    describeComplexDeviation(reduced, /*hasMean=*/true);
}

static void describeNorm(const Reduced &reduced) {
  Operation *op = reduced.rule.getOp();
  StringRef order = isa<LinalgVectorNormOp>(op) ? "ord" : "p";
  // Reductions of one element are computed otherwise.
  if (auto number = rules::getLiteralNumber(op, order);
      op->hasAttr(order) && (!number || *number == 0))
    return reduced.rule.setInexact("a norm that counts elements");
  reduced.rule.setTransient(
      getCastBytes(reduced.input, reduced.result.elementType));
}

/// Of rows that are contiguous.
static void describeRows(WorkspaceRule &rule, const ConcreteTensor &rows) {
  AllocationTrace trace;
  allocateContiguous(trace, rows);
  rule.setTrace(std::move(trace), 0);
}

/// Over all elements as a vector.
static void describeExtremum(const Reduced &reduced) {
  describeRows(reduced.rule, reduced.input);
}

static void describeExtrema(const Reduced &reduced) {
  if (!cast<AminmaxOp>(reduced.rule.getOp()).getDim())
    describeRows(reduced.rule, reduced.input);
}

static void describeExtremumOfDims(const Reduced &reduced) {
  reduced.rule.setTransient(reduced.getPartial());
}

template <typename OpT>
static void describePlace(const Reduced &reduced) {
  auto op = cast<OpT>(reduced.rule.getOp());
  if (int64_t copy = getFlatCopyBytes(reduced.input); copy && !op.getDim())
    reduced.rule.setTransient(copy + getBlockBytes(reduced.input));
}

/// The dim is made the last, and its elements neighbours.
/// Source: median_with_indices_impl in native/Sorting.cpp.
template <typename OpT>
static void describeMedian(const Reduced &reduced) {
  int64_t dim = cast<OpT>(reduced.rule.getOp()).getDim();
  ConcreteTensor rows = reduced.input;
  auto strides = rows.getStrides();
  int64_t rank = rows.dims.size();
  if (!strides)
    return reduced.rule.setInexact("the strides of the input are unknown");
  dim += dim < 0 ? rank : 0;
  if (rank == 0 || (*strides)[dim] <= 1)
    return;
  std::rotate(rows.dims.begin() + dim, rows.dims.begin() + dim + 1,
              rows.dims.end());
  std::rotate(strides->begin() + dim, strides->begin() + dim + 1,
              strides->end());
  rows.strides = strides;
  rows.contiguous = true;
  int64_t expected = 1;
  for (int64_t place = rank - 1; place >= 0; --place) {
    rows.contiguous &= rows.dims[place] == 1 || (*strides)[place] == expected;
    expected *= std::max<int64_t>(rows.dims[place], 1);
  }
  describeRows(reduced.rule, rows);
}

static void describeSum(const Reduced &reduced) {
  const ConcreteTensor &input = reduced.input;
  SmallVector<bool> isReduced =
      findReduced(reduced.rule.getOp(), input.dims.size());
  AllocationTrace trace;
  allocateSum(reduced.rule, trace, input, reduced.result, isReduced);
  reduced.rule.setTrace(std::move(trace));
}

static void describeMean(const Reduced &reduced) {
  AllocationTrace trace;
  allocateMean(reduced.rule, trace, reduced.input, reduced.result);
  reduced.rule.setTrace(std::move(trace));
}

/// The elements are put in order in a copy.
static void describeMedianOfAll(const Reduced &reduced) {
  if (reduced.isEmpty())
    return reduced.rule.setInexact("a median of nothing");
  AllocationTrace trace;
  AllocationTrace::Block copy = trace.allocate(reduced.input.numBytes());
  trace.allocate(reduced.result.numBytes());
  trace.free(copy);
  reduced.rule.setTrace(std::move(trace));
}

static void describeCast(const Reduced &reduced) { reduced.describeCast(); }

/// Integers are all numbers. Source: nansum_out in native/ReduceOps.cpp.
static void describeNansum(const Reduced &reduced) {
  if (isa<IntegerType>(reduced.input.elementType))
    return describeSum(reduced);
  if (isa<FloatType>(reduced.input.elementType) &&
      !isa<FloatType>(reduced.result.elementType))
    return reduced.rule.setInexact("nansum of numbers as integers");
  reduced.describeCast();
}

/// nansum, by how many elements are numbers. Source: nanmean in
/// native/ReduceOps.cpp.
static void describeNanmean(const Reduced &reduced) {
  OpReplay steps(reduced.rule);
  const ConcreteTensor &input = reduced.input;
  MLIRContext *context = input.elementType.getContext();
  MadeTensor mask = steps.compute({input, input}, OpReplay::Result::Bool);
  MadeTensor count = steps.allocate(
      ConcreteTensor{reduced.result.dims, IntegerType::get(context, 64)});
  AllocationTrace::Block cast =
      steps.allocate(countBytes(input, count.elementType));
  steps.allocateTemporary(getPartialBytes(reduced.rule, mask, count));
  steps.AllocationTrace::free(cast);
  steps.free(mask);
  MadeTensor sum = steps.allocate(reduced.result);
  cast = steps.allocate(getCastBytes(input, sum.elementType));
  steps.allocateTemporary(reduced.getPartial());
  steps.AllocationTrace::free(cast);
  MadeTensor mean = steps.compute({sum, count});
  steps.free({sum, count});
  steps.finish(mean.numBytes());
}

/// A single element is cast to bool, even where that stays uint8.
static void describeTruth(const Reduced &reduced) {
  if (reduced.input.numElements() != 1 ||
      reduced.input.elementType.isInteger(1))
    return reduced.describeCast();
  AllocationTrace trace;
  trace.allocateTemporary(1);
  reduced.rule.setTrace(std::move(trace));
}

void kernels::addReductionModels(KernelLibrary &library) {
  library.add<AllDimOp, AllDimsOp, AllOp, AnyDimOp, AnyDimsOp, AnyOp>(
      {.forward = ofReals<describeTruth>});
  library.add<AmaxOp, AminOp>({.forward = ofReals<describeExtremumOfDims>});
  library.add<AminmaxOp>({.forward = ofReals<describeExtrema>});
  library.add<ArgmaxOp>({.forward = ofReals<describePlace<ArgmaxOp>>});
  library.add<ArgminOp>({.forward = ofReals<describePlace<ArgminOp>>});
  library.add<CountNonzeroDimOp, CountNonzeroOp>(
      {.forward = ofReals<describeCount>});
  library.add<LinalgVectorNormOp, NormDimDtypeOp, NormDimOp, NormScalarOp>(
      {.forward = ofReals<describeNorm>});
  library.add<LogsumexpOp>({.forward = ofReals<describeLogSumExp>});
  library.add<MaxDimOp, MinDimOp, ModeOp, TraceOp>(
      {.forward = ofReals<describeNothing>});
  library.add<MaxOp, MinOp>({.forward = ofReals<describeExtremum>});
  library.add<MeanDimOp, MeanOp>({.forward = ofNumbers<describeMean>});
  library.add<MedianDimOp>({.forward = ofReals<describeMedian<MedianDimOp>>});
  library.add<MedianOp, NanmedianOp>({.forward = ofReals<describeMedianOfAll>});
  library.add<NanmeanOp>({.forward = ofReals<describeNanmean>});
  library.add<NanmedianDimOp>(
      {.forward = ofReals<describeMedian<NanmedianDimOp>>});
  library.add<NansumOp>({.forward = ofReals<describeNansum>});
  library.add<ProdDimOp, ProdOp>({.forward = ofReals<describeCast>});
  library
      .add<StdCorrectionOp, StdDimOp, StdOp, VarCorrectionOp, VarDimOp, VarOp>(
          {.forward = ofNumbers<describeDeviation>});
  library.add<StdMeanCorrectionOp, StdMeanDimOp, StdMeanOp, VarMeanCorrectionOp,
              VarMeanDimOp, VarMeanOp>(
      {.forward = ofNumbers<describeDeviationAndMean>});
  library.add<SumDimOp, SumOp>({.forward = ofNumbers<describeSum>});
}
