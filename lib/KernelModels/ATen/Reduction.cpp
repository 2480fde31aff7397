//===- Reduction.cpp - What a reduction holds inside ----------------------===//
//
// Sources: native/ReduceOps.cpp, native/LinearAlgebra.cpp (norms),
// native/Sorting.cpp (medians), native/SummaryOps and TensorCompare.cpp.
//
//===----------------------------------------------------------------------===//

#include "Reduction.h"
#include "../WorkspaceRules.h"
#include "Backward/BackwardReplay.h"
#include "koila/Dialect/Koila/IR/Elementwise.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"
#include "llvm/ADT/TypeSwitch.h"

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

/// (self != 0).sum(dim); bool is summed as it is.
static void describeCount(const Reduced &reduced) {
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

static void describeDeviation(const Reduced &reduced) {
  AllocationTrace trace;
  allocateDeviation(reduced.rule, trace, reduced.input, reduced.result);
  reduced.rule.setTrace(std::move(trace));
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

static void describeNorm(const Reduced &reduced, Attribute order) {
  // Reductions of one element are computed otherwise.
  if (auto number = rules::getLiteralNumber(
          reduced.rule.getOp(),
          reduced.rule.getOp()->hasAttr("ord") ? "ord" : "p");
      order && (!number || *number == 0))
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

/// The dim is made the last, and its elements neighbours.
/// Source: median_with_indices_impl in native/Sorting.cpp.
static void describeMedian(const Reduced &reduced, int64_t dim) {
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

void rules::describeReductionWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto result = rule.tensor(op->getResult(0));
  if (!input || !result)
    return rule.setInexact("a shape of the reduction is unknown");
  Reduced reduced{rule, *input, *result};
  if (isa<ComplexType>(input->elementType)) {
    if (isa<StdOp, StdDimOp, StdCorrectionOp, VarOp, VarDimOp, VarCorrectionOp>(
            op))
      return describeComplexDeviation(reduced, /*hasMean=*/false);
    if (isa<StdMeanOp, StdMeanDimOp, StdMeanCorrectionOp, VarMeanOp,
            VarMeanDimOp, VarMeanCorrectionOp>(op))
      return describeComplexDeviation(reduced, /*hasMean=*/true);
    if (!isa<SumOp, SumDimOp, MeanOp, MeanDimOp>(op))
      return rule.setInexact("a reduction of complex numbers");
  }
  llvm::TypeSwitch<Operation *>(op)
      .Case<NansumOp>([&](auto) {
        if (isa<FloatType>(input->elementType) &&
            !isa<FloatType>(result->elementType))
          return rule.setInexact("nansum of numbers as integers");
        reduced.describeCast();
      })
      .Case<SumOp, SumDimOp>([&](auto) { describeSum(reduced); })
      .Case<ProdOp, ProdDimOp>([&](auto) { reduced.describeCast(); })
      .Case<AllOp, AllDimOp, AllDimsOp, AnyOp, AnyDimOp, AnyDimsOp>([&](auto) {
        // A single element is cast to bool, even where that stays uint8.
        bool isOne =
            input->numElements() == 1 && !input->elementType.isInteger(1);
        if (!isOne)
          return reduced.describeCast();
        AllocationTrace trace;
        trace.allocateTemporary(1);
        rule.setTrace(std::move(trace));
      })
      .Case<MeanOp, MeanDimOp>([&](auto) { describeMean(reduced); })
      .Case<LogsumexpOp>([&](auto) { describeLogSumExp(reduced); })
      // No dims are all of them, by another kernel.
      .Case<CountNonzeroDimOp>([&](auto count) {
        if (!count.getDim().empty())
          describeCount(reduced);
      })
      .Case<CountNonzeroOp>([&](auto count) {
        if (count.getDim())
          describeCount(reduced);
      })
      .Case<StdOp, StdDimOp, StdCorrectionOp, VarOp, VarDimOp, VarCorrectionOp>(
          [&](auto) { describeDeviation(reduced); })
      .Case<NormScalarOp, NormDimOp, NormDimDtypeOp>(
          [&](auto norm) { describeNorm(reduced, norm.getPAttr()); })
      .Case<LinalgVectorNormOp>(
          [&](auto norm) { describeNorm(reduced, norm.getOrdAttr()); })
      .Case<AmaxOp, AminOp>(
          [&](auto) { rule.setTransient(reduced.getPartial()); })
      // Over all elements as a vector.
      .Case<MaxOp, MinOp>([&](auto) { describeRows(rule, *input); })
      .Case<ArgmaxOp, ArgminOp>([&](auto arg) {
        if (int64_t copy = getFlatCopyBytes(*input); copy && !arg.getDim())
          rule.setTransient(copy + getBlockBytes(*input));
      })
      .Case<AminmaxOp>([&](auto both) {
        if (!both.getDim())
          describeRows(rule, *input);
      })
      .Case<QuantileOp, QuantileScalarOp, NanquantileOp, NanquantileScalarOp>(
          [&](auto) { reduction::describeQuantile(rule); })
      .Case<ModeOp, MaxDimOp, MinDimOp, TraceOp, StdMeanOp, StdMeanDimOp,
            StdMeanCorrectionOp, VarMeanOp, VarMeanDimOp, VarMeanCorrectionOp>(
          [](auto) {})
      .Case<MedianOp, NanmedianOp>([&](auto) { describeMedianOfAll(reduced); })
      .Case<MedianDimOp, NanmedianDimOp>(
          [&](auto median) { describeMedian(reduced, median.getDim()); })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}
