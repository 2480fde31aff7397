//===- Reduction.cpp - What reductions hold inside on a GPU ---------------===//
//
// Sources: native/ReduceOps.cpp, native/cuda/Reduce.cuh and the kernels beside
// it: all are one kernel, which casts half types to float32 itself. Compared
// with a recorded GPU by test/oracle/cuda_oracle.py.
//
//===----------------------------------------------------------------------===//

#include "../ATen/OpReplay.h"
#include "CUDAModels.h"
#include "Reduce.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

namespace {
/// A reduction with numbers for its shapes.
struct Reduced {
  WorkspaceRule &rule;
  ConcreteTensor input, result;
  SmallVector<bool> isReduced;
};
} // namespace

/// Which dims are reduced: those that an attribute names, else all.
static SmallVector<bool> findDims(Operation *op, size_t rank) {
  SmallVector<int64_t> dims;
  for (StringRef name : {"dim", "dims"}) {
    Attribute attr = op->getAttr(name);
    if (auto one = dyn_cast_or_null<IntegerAttr>(attr))
      dims.push_back(one.getInt());
    else if (auto list = dyn_cast_or_null<DenseI64ArrayAttr>(attr))
      llvm::append_range(dims, list.asArrayRef());
  }
  SmallVector<bool> isReduced(rank, dims.empty());
  for (int64_t dim : dims)
    if (rank > 0)
      isReduced[dim < 0 ? dim + rank : dim] = true;
  return isReduced;
}

/// None, and the rule says so, if a shape is unknown or a number complex.
static std::optional<Reduced> read(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  auto result = rule.tensor(op->getResult(0));
  if (!input || !result)
    rule.setInexact("a shape of the reduction is unknown");
  else if (isa<ComplexType>(input->elementType))
    rule.setInexact("a reduction of complex numbers on CUDA");
  else
    return Reduced{rule, *input, *result, findDims(op, input->dims.size())};
  return std::nullopt;
}

template <void (*Describe)(const Reduced &)>
static void ofReals(WorkspaceRule &rule) {
  if (auto reduced = read(rule))
    Describe(*reduced);
}

/// One kernel that adds up `bytes` for each result; 0: those of a sum.
template <int64_t bytes>
static void describeKernel(const Reduced &of) {
  AllocationTrace trace;
  cuda::Accumulator sum = cuda::getSumAccumulator(of.input.elementType);
  cuda::allocateReduction(trace, of.rule, of.input, of.isReduced,
                          bytes > 0 ? cuda::Accumulator{bytes} : sum);
  of.rule.setTrace(std::move(trace));
}

static void describeSum(const Reduced &of) {
  AllocationTrace trace;
  of.rule.getTarget().leaves->sum(trace, of.rule, of.input, of.result,
                                  of.isReduced);
  of.rule.setTrace(std::move(trace));
}

/// A norm in the type of the result.
static void describeNorm(const Reduced &of) {
  if (of.input.elementType != of.result.elementType &&
      !isHalf(of.input.elementType))
    return of.rule.setInexact("a norm in another type on CUDA");
  describeKernel<0>(of);
}

/// The largest elements, where they are infinite, and the sum of what is left.
static void describeLogSumExp(const Reduced &of) {
  using Number = OpReplay::Number;
  if (of.input.elementType != of.result.elementType)
    return of.rule.setInexact("logsumexp of integers on CUDA");
  OpReplay steps(of.rule);
  MadeTensor maxima = steps.allocate(of.result);
  cuda::allocateReduction(steps, of.rule, of.input, of.isReduced,
                          cuda::getSumAccumulator(of.input.elementType));
  MadeTensor sizes = steps.compute(maxima);
  MadeTensor mask = steps.compute(sizes, OpReplay::Result::Bool, Number::Float);
  steps.free({mask, sizes});
  MadeTensor powers = steps.allocate(of.input);
  MadeTensor result = steps.allocate(of.result);
  of.rule.getTarget().leaves->sum(steps, of.rule, powers, result, of.isReduced);
  steps.free({powers, maxima});
  steps.finish(result.numBytes());
}

void cuda::addReductionModels(KernelLibrary &library) {
  // Welford's sums: mean, deviation, and two counts.
  constexpr int64_t kMomentBytes = 16;
  // A value and where it is.
  constexpr int64_t kPlaceBytes = 16;
  library.add<AmaxOp, AminOp, MaxOp, MinOp>(
      {.forward = ofReals<describeKernel<0>>});
  library.add<ArgmaxOp, ArgminOp, MaxDimOp, MinDimOp>(
      {.forward = ofReals<describeKernel<kPlaceBytes>>});
  library.add<LinalgVectorNormOp, NormDimDtypeOp, NormDimOp, NormScalarOp>(
      {.forward = ofReals<describeNorm>});
  library.add<LogsumexpOp>({.forward = ofReals<describeLogSumExp>});
  library.add<MeanDimOp, MeanOp, ProdDimOp, ProdOp, SumDimOp, SumOp>(
      {.forward = ofReals<describeSum>});
  library.add<StdCorrectionOp, StdDimOp, StdMeanCorrectionOp, StdMeanDimOp,
              StdMeanOp, StdOp, VarCorrectionOp, VarDimOp, VarMeanCorrectionOp,
              VarMeanDimOp, VarMeanOp, VarOp>(
      {.forward = ofReals<describeKernel<kMomentBytes>>});
  kernels::addReductionGradients(library);
}
