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
  int64_t getCastAndPartial() const {
    return getCastBytes(input, result.elementType) + getPartial();
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
  Type type = reduced.result.elementType;
  AllocationTrace trace;
  trace.allocate(getCastBytes(reduced.input, type));
  int64_t maxima = reduced.result.numBytes();
  if (!reduced.isEmpty()) {
    trace.allocate(maxima);
    trace.allocateTemporary(reduced.getPartial());
    // maxes.masked_fill_(maxes.abs() == INFINITY, 0)
    trace.allocateTemporary(maxima + reduced.result.numElements() +
                            getFloatBytes(type));
  }
  SmallVector<bool> isReduced =
      findReduced(reduced.rule.getOp(), reduced.input.dims.size());
  ConcreteTensor input = reduced.input, most{input.dims, type};
  input.elementType = type;
  for (auto [extent, isGone] : llvm::zip_equal(most.dims, isReduced))
    extent = isGone ? 1 : extent;
  ConcreteTensor exponentials = addStrides(input, most);
  trace.allocate(exponentials.numBytes());
  trace.allocate(reduced.result.numBytes());
  trace.allocateTemporary(
      getSumBytes(reduced.rule, exponentials, reduced.result, isReduced));
  trace.free(exponentials.numBytes());
  if (!reduced.isEmpty())
    trace.free(maxima);
  trace.free(getCastBytes(reduced.input, type));
  reduced.rule.setTransient(trace.getTransient());
}

/// (self != 0).sum(dim); bool is summed as it is.
static void describeCount(const Reduced &reduced) {
  int64_t elements = reduced.input.numElements();
  bool isBool = reduced.input.elementType.isInteger(1);
  int64_t mask = isBool ? 0 : elements;
  AllocationTrace trace;
  trace.allocate(mask);
  if (!isBool)
    trace.allocateTemporary(getIntegerBytes(reduced.input.elementType));
  trace.allocate(reduced.result.numBytes());
  trace.allocateTemporary(
      countBytes(reduced.input, reduced.result.elementType) +
      reduced.getPartial());
  trace.free(mask);
  reduced.rule.setTransient(trace.getTransient());
}

/// All elements of float32 or float64 at once: by way of the mean.
static int64_t getDeviationBytes(WorkspaceRule &rule,
                                 const ConcreteTensor &input,
                                 const ConcreteTensor &result) {
  if (isHalf(result.elementType) || input.numElements() == 0 ||
      result.numElements() != 1)
    return 0;
  return result.numBytes() + getMeanBytes(rule, input, result);
}

static void describeDeviation(const Reduced &reduced) {
  reduced.rule.setTransient(
      getDeviationBytes(reduced.rule, reduced.input, reduced.result));
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
  int64_t one = reduced.result.numBytes() * (hasMean ? 2 : 1);
  int64_t inside =
      hasMean ? 0 : getDeviationBytes(reduced.rule, part, reduced.result);
  AllocationTrace trace;
  for (int count = 0; count < 2; ++count) {
    trace.allocate(one);
    trace.allocateTemporary(inside);
  }
  trace.allocate(reduced.result.numBytes());
  if (hasMean)
    trace.allocate(2 * reduced.result.numBytes());
  trace.free(2 * one);
  reduced.rule.setTransient(trace.getTransient());
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

/// Of all elements, which are read in rows.
static void describeVector(const Reduced &reduced) {
  reduced.rule.setTransient(getCopyBytes(reduced.input) +
                            getBlockBytes(reduced.input));
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
  reduced.rule.setTransient(getCopyBytes(rows) + getBlockBytes(rows));
}

static void describeSum(const Reduced &reduced) {
  const ConcreteTensor &input = reduced.input;
  SmallVector<bool> isReduced =
      findReduced(reduced.rule.getOp(), input.dims.size());
  reduced.rule.setTransient(
      getCastBytes(input, reduced.result.elementType) +
      getSumBytes(reduced.rule, input, reduced.result, isReduced));
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
        rule.setTransient(reduced.getCastAndPartial());
      })
      .Case<SumOp, SumDimOp>([&](auto) { describeSum(reduced); })
      .Case<ProdOp, ProdDimOp>(
          [&](auto) { rule.setTransient(reduced.getCastAndPartial()); })
      .Case<AllOp, AllDimOp, AllDimsOp, AnyOp, AnyDimOp, AnyDimsOp>([&](auto) {
        // A single element is cast to bool, even where that stays uint8.
        bool isOne =
            input->numElements() == 1 && !input->elementType.isInteger(1);
        rule.setTransient(isOne ? 1 : reduced.getCastAndPartial());
      })
      .Case<MeanOp, MeanDimOp>(
          [&](auto) { rule.setTransient(getMeanBytes(rule, *input, *result)); })
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
      .Case<MaxOp, MinOp>([&](auto) { describeVector(reduced); })
      .Case<ArgmaxOp, ArgminOp>([&](auto arg) {
        if (int64_t copy = getFlatCopyBytes(*input); copy && !arg.getDim())
          rule.setTransient(copy + getBlockBytes(*input));
      })
      .Case<AminmaxOp>([&](auto both) {
        if (!both.getDim())
          describeVector(reduced);
      })
      .Case<QuantileOp, QuantileScalarOp, NanquantileOp, NanquantileScalarOp>(
          [&](auto) { reduction::describeQuantile(rule); })
      .Case<ModeOp, MaxDimOp, MinDimOp, TraceOp, StdMeanOp, StdMeanDimOp,
            StdMeanCorrectionOp, VarMeanOp, VarMeanDimOp, VarMeanCorrectionOp>(
          [](auto) {})
      // The elements are put in order in a copy.
      .Case<MedianOp, NanmedianOp>([&](auto) {
        if (reduced.isEmpty())
          return rule.setInexact("a median of nothing");
        rule.setTransient(input->numBytes());
      })
      .Case<MedianDimOp, NanmedianDimOp>(
          [&](auto median) { describeMedian(reduced, median.getDim()); })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}
