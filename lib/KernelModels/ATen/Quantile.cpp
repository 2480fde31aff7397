//===- Quantile.cpp - What quantiles hold inside --------------------------===//
//
// Source: quantile_compute in native/Sorting.cpp: rows are sorted, and elements
// at the ranks of the quantiles gathered and mixed.
//
//===----------------------------------------------------------------------===//

#include "../Models.h"
#include "Backward/AutogradReplay.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = AutogradReplay::Number;
using Result = AutogradReplay::Result;

namespace {
/// A call in numbers.
struct Quantile {
  AutogradReplay &steps;
  Term self;
  /// Rows, and the elements of one.
  int64_t rows, row;
  bool ignoresNan;
  StringRef interpolation;
  /// Threads that may sort at once.
  int64_t sorters;

  Type getPlaceType() const {
    return IntegerType::get(self.elementType.getContext(), 64);
  }
};
} // namespace

/// Whether all quantiles are between zero and one.
static void checkQuantiles(AutogradReplay &steps, const Term &quantiles) {
  Term above =
      steps.compute("ge.Scalar", quantiles, Result::Bool, Number::Integer);
  Term below =
      steps.compute("le.Scalar", quantiles, Result::Bool, Number::Integer);
  ConcreteTensor truth{{}, above.elementType};
  Term all = steps.allocate(truth);
  steps.free({below, above});
  steps.allocateTemporary(truth.numBytes());
  steps.free(all);
}

/// The values of Tensor::sort, whose places the gradient needs.
static Term sortRows(const Quantile &of, int64_t flatCopy) {
  AutogradReplay &steps = of.steps;
  steps.AllocationTrace::allocate(flatCopy);
  Term sorted = steps.allocate({{of.rows, of.row}, of.self.elementType});
  Term places = steps.allocate({{of.rows, of.row}, of.getPlaceType()});
  // Each thread moves one row of places at a time.
  ConcreteTensor moved{{of.sorters, of.row}, of.getPlaceType()};
  steps.allocateTemporary(moved.numBytes());
  steps.follow(of.self, sorted);
  if (steps.wants(sorted))
    steps.save(places);
  steps.free(places);
  steps.AllocationTrace::free(flatCopy);
  return sorted;
}

/// The rank of each quantile in each row.
static Term rankRows(const Quantile &of, const Term &quantiles,
                     const Term &sorted, WorkspaceRule &rule) {
  AutogradReplay &steps = of.steps;
  auto isNan = [&] { return steps.compute("isnan", sorted, Result::Bool); };
  Type bit = IntegerType::get(of.self.elementType.getContext(), 1);
  ConcreteTensor shape{{of.rows, quantiles.numElements()}, of.self.elementType};
  if (!of.ignoresNan) {
    Term scaled =
        steps.compute("mul.Scalar", quantiles, Result::Common, Number::Integer);
    Term mask = isNan();
    Term any = steps.allocate({{of.rows, 1}, bit});
    steps.allocateTemporary(getPartialBytes(rule, mask, any));
    steps.free(mask);
    Term ranks = steps.allocate(shape);
    steps.record("masked_fill.Scalar", {scaled, any}, ranks);
    steps.free({scaled, any});
    return ranks;
  }
  Term mask = isNan();
  Term counted = steps.sum(mask, -1, /*keepdim=*/true);
  Term last =
      steps.compute("sub.Scalar", counted, Result::Common, Number::Integer);
  Term ranks = steps.compute("mul.Tensor", {quantiles, last});
  steps.free({last, counted, mask});
  Term negative =
      steps.compute("lt.Scalar", ranks, Result::Bool, Number::Integer);
  steps.record("masked_fill_.Scalar", {ranks, negative}, ranks);
  steps.free(negative);
  return ranks;
}

static void describe(const Quantile &of, const Term &quantiles,
                     int64_t flatCopy, WorkspaceRule &rule) {
  AutogradReplay &steps = of.steps;
  checkQuantiles(steps, quantiles);
  Term sorted = sortRows(of, flatCopy);
  Term ranks = rankRows(of, quantiles, sorted, rule);
  auto gather = [&] {
    Term places = steps.allocate({ranks.dims, of.getPlaceType()});
    Term values = steps.allocate(ranks);
    steps.record("gather", {sorted, places}, values);
    return std::pair(places, values);
  };
  auto [places, values] = gather();
  if (of.interpolation == "linear" || of.interpolation == "midpoint") {
    Term weights = of.interpolation == "midpoint"
                       ? steps.allocate(ranks)
                       : steps.compute("sub.Tensor", {ranks, places});
    Term above = gather().second;
    steps.write("lerp_.Tensor", {values, above, weights});
  }
  steps.finish(values);
}

/// Quantiles are given as a tensor, or as one number.
template <typename OpT>
static void describeQuantile(WorkspaceRule &rule) {
  constexpr bool kIsGiven = llvm::is_one_of<OpT, NanquantileOp, QuantileOp>();
  constexpr bool kIgnoresNan =
      llvm::is_one_of<OpT, NanquantileOp, NanquantileScalarOp>();
  auto op = cast<OpT>(rule.getOp());
  AutogradReplay steps(rule, /*saved=*/nullptr);
  auto terms = readReals(steps, rule, op->getOperands(), /*needsStrides=*/true);
  if (!terms)
    return;
  Term self = terms->front();
  int64_t rank = self.dims.size(), elements = self.numElements();
  // The ranks of quantiles that want a gradient are rounded in place.
  if (rank == 0 || elements == 0 || (kIsGiven && steps.wants((*terms)[1])))
    return rule.setInexact("quantiles of nothing, or that want a gradient");
  int64_t dim = op.getDim().value_or(0);
  int64_t row = op.getDim() ? self.dims[dim < 0 ? dim + rank : dim] : elements;
  constexpr int64_t kGrain = 32768;
  bool isParallel = rule.getTarget().threads > 1 && elements >= kGrain;
  Quantile of{steps,
              self,
              elements / row,
              row,
              kIgnoresNan,
              op.getInterpolation(),
              isParallel ? rule.getTarget().threads : 1};
  Term quantiles =
      kIsGiven ? (*terms)[1] : steps.allocate({{}, self.elementType});
  describe(of, quantiles, op.getDim() ? 0 : getFlatCopyBytes(self), rule);
  if (isParallel)
    rule.setBound("threads that sort may not do so at once");
}

void kernels::addQuantileModels(KernelLibrary &library) {
  library.add<NanquantileOp>({.forward = describeQuantile<NanquantileOp>});
  library.add<NanquantileScalarOp>(
      {.forward = describeQuantile<NanquantileScalarOp>});
  library.add<QuantileOp>({.forward = describeQuantile<QuantileOp>});
  library.add<QuantileScalarOp>(
      {.forward = describeQuantile<QuantileScalarOp>});
}
