//===- ReductionBackward.cpp - Gradients of reductions --------------------===//
//
// Source: sum_backward, mean_backward, var_backward, scale_grad_by_count and
// norm_backward in FunctionsManual.cpp.
//
//===----------------------------------------------------------------------===//

#include "BackwardModels.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"
#include <cmath>

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;

/// The gradient with the dims that were reduced, each of one element.
static ConcreteTensor restoreDims(Operation *op, const ConcreteTensor &gradient,
                                  const ConcreteTensor &self) {
  int64_t rank = self.dims.size();
  if (gradient.dims.size() == self.dims.size())
    return gradient;
  SmallVector<int64_t> dims;
  for (StringRef name : {"dim", "dims"})
    if (Attribute attr = op->getAttr(name)) {
      if (auto one = dyn_cast<IntegerAttr>(attr))
        dims.push_back(one.getInt());
      else if (auto list = dyn_cast<DenseI64ArrayAttr>(attr))
        dims.append(list.asArrayRef().begin(), list.asArrayRef().end());
    }
  for (int64_t &dim : dims)
    dim += dim < 0 ? rank : 0;
  llvm::sort(dims);
  if (gradient.dims.size() + dims.size() != self.dims.size())
    return gradient;
  ConcreteTensor whole = gradient;
  for (int64_t dim : dims)
    whole = unsqueeze(std::move(whole), dim);
  return withStrides(whole, whole.strides);
}

/// A cast by `dtype=` comes back by the engine.
static ConcreteTensor expandBack(Operation *op, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0);
  return expandTo(restoreDims(op, steps.getGradient(), self), self.dims);
}

/// mask.sum(dims, true), of the shape of `like`: of a copy as int64.
static MadeTensor countMask(BackwardRule &rule, BackwardReplay &steps,
                            const ConcreteTensor &mask,
                            const ConcreteTensor &like) {
  ConcreteTensor integers = like;
  integers.elementType = IntegerType::get(like.elementType.getContext(), 64);
  MadeTensor count = steps.allocate(integers);
  SmallVector<bool> isReduced(mask.dims.size(), true);
  if (like.dims.size() == mask.dims.size())
    for (auto [reduced, from, to] :
         llvm::zip_equal(isReduced, mask.dims, like.dims))
      reduced = from != to;
  allocateSum(rule, steps, mask, count, isReduced);
  return count;
}

/// grad / count * (self == result), where so many are the extremum.
static void runExtremum(BackwardRule &rule, BackwardReplay &steps) {
  Operation *op = rule.getOp();
  ConcreteTensor self = steps.read(0);
  ConcreteTensor gradient = restoreDims(op, steps.getGradient(), self);
  auto result = rule.tensor(op->getResult(0));
  if (!result)
    return koila::detail::describeUnknownBackward(rule);
  MadeTensor mask = steps.compute({restoreDims(op, *result, self), self},
                                  Number::None, OpReplay::Result::Bool);
  MadeTensor count = countMask(rule, steps, mask, gradient);
  MadeTensor share = steps.compute({gradient, count});
  steps.give(0, steps.compute({share, mask}));
  steps.free({mask, count, share});
}

/// grad / count * (self == result), of either extremum; the second one is added
/// to the first. Source: aminmax_backward.
static void runBothExtrema(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<AminmaxOp>(rule.getOp());
  ConcreteTensor self = steps.read(0);
  std::optional<MadeTensor> made;
  for (unsigned index : {0u, 1u}) {
    const ConcreteTensor *gradient = rule.getGradient(index);
    auto result = rule.tensor(op->getResult(index));
    if (!gradient)
      continue;
    if (!result || self.dims.empty())
      return koila::detail::describeUnknownBackward(rule);
    MadeTensor mask = steps.compute({restoreDims(op, *result, self), self},
                                    Number::None, OpReplay::Result::Bool);
    MadeTensor count = steps.OpReplay::sum(mask, op.getDim(), true);
    MadeTensor share = steps.compute({restoreDims(op, *gradient, self), count});
    MadeTensor part = steps.compute({share, mask});
    // The mask ends with the statement that adds the part.
    steps.free({count, share});
    if (made)
      steps.free(part);
    else
      made = part;
    steps.free(mask);
  }
  steps.give(0, *made);
}

/// grad * (self - result).exp()
static void runLogsumexp(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0);
  MadeTensor difference = steps.compute(self);
  MadeTensor power = steps.compute(difference);
  steps.give(0, steps.compute(power));
  steps.free({difference, power});
}

/// The order of a norm; none if it is computed.
static std::optional<double> getOrder(Operation *op) {
  Attribute order = op->getAttr(isa<NormDimOp>(op) ? "p" : "ord");
  if (!order)
    return isa<NormDimOp>(op) ? std::optional(2.0) : std::nullopt;
  if (auto number = dyn_cast<FloatAttr>(order))
    return number.getValueAsDouble();
  auto number = dyn_cast<IntegerAttr>(order);
  return number ? std::optional<double>(number.getInt()) : std::nullopt;
}

/// grad * (self / norm), which is filled with zeros where the norm is zero; of
/// order one grad * self.sgn(). Source: norm_backward.
static void runNorm(BackwardRule &rule, BackwardReplay &steps) {
  Operation *op = rule.getOp();
  auto order = getOrder(op);
  auto norm = rule.tensor(op->getResult(0));
  ConcreteTensor self = steps.read(0);
  if (!norm || norm->elementType != self.elementType || !order || *order < 1)
    return koila::detail::describeUnknownBackward(rule);
  ConcreteTensor gradient = restoreDims(op, steps.getGradient(), self);
  norm = restoreDims(op, *norm, self);
  if (*order == 1) {
    MadeTensor sign = steps.compute(self);
    steps.give(0, steps.compute({gradient, sign}));
    return steps.free(sign);
  }
  if (*order == 2) {
    MadeTensor quotient = steps.compute(self);
    MadeTensor isZero =
        steps.compute(*norm, Number::Integer, OpReplay::Result::Bool);
    steps.give(0, steps.compute(quotient));
    return steps.free({quotient, isZero});
  }
  if (std::isinf(*order)) {
    // self.sgn() * ((grad / mask.sum(dim, true)) * mask)
    MadeTensor size = steps.compute(self);
    MadeTensor equal =
        steps.compute(size, Number::None, OpReplay::Result::Bool);
    MadeTensor isNan =
        steps.compute(size, Number::None, OpReplay::Result::Bool);
    MadeTensor mask =
        steps.compute({equal, isNan}, Number::None, OpReplay::Result::Bool);
    steps.free({equal, isNan});
    MadeTensor count = countMask(rule, steps, mask, *norm);
    MadeTensor shares = steps.compute({gradient, count});
    MadeTensor spread = steps.compute({shares, mask});
    MadeTensor sign = steps.compute(self);
    steps.give(0, steps.compute({sign, spread}));
    return steps.free({size, mask, count, shares, spread, sign});
  }
  // self * self.abs().pow_(p - 2), or of an order below two the sign of it,
  // times grad / norm.pow(p - 1).
  MadeTensor size = steps.compute(self), sign = size;
  if (*order < 2)
    sign = steps.compute(self);
  MadeTensor scaled = steps.compute({self, size});
  if (*order < 2)
    steps.free(sign);
  steps.free(size);
  MadeTensor power = steps.compute(*norm);
  MadeTensor shares = steps.compute({gradient, power});
  steps.free(power);
  MadeTensor isZero =
      steps.compute(*norm, Number::Integer, OpReplay::Result::Bool);
  steps.free(isZero);
  steps.give(0, steps.compute({scaled, shares}));
  steps.free({scaled, shares});
}

/// The gradient in the type of the input, expanded, times
/// self.isnan().logical_not(). Source: nansum in derivatives.yaml.
static void runNansum(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0), gradient = steps.getGradient();
  MadeTensor cast;
  if (gradient.elementType != self.elementType) {
    gradient.elementType = self.elementType;
    gradient = cast = steps.makeLike(gradient);
  }
  ConcreteTensor expanded =
      expandTo(restoreDims(rule.getOp(), gradient, self), self.dims);
  MadeTensor isNan = steps.compute(self, Number::None, OpReplay::Result::Bool);
  MadeTensor isNumber =
      steps.compute(isNan, Number::None, OpReplay::Result::Bool);
  steps.give(0, steps.compute({expanded, isNumber}));
  steps.free({isNan, isNumber});
  if (!cast.block.isEmpty())
    steps.free(cast);
}

/// Products of all elements but one: from both ends along `dim`, times each
/// other, times the gradient. Source: prod_safe_zeros_backward.
static void multiplyOthers(BackwardReplay &steps, const ConcreteTensor &self,
                           int64_t dim) {
  if (self.dims[dim] == 1)
    return;
  ConcreteTensor slice = self, rest = self;
  slice.dims[dim] = 1;
  rest.dims[dim] -= 1;
  slice = steps.allocate(slice);
  MadeTensor before = steps.allocate(self), upTo = steps.allocate(self);
  rest = steps.allocate(rest);
  MadeTensor after = steps.allocate(self);
  steps.free({slice, rest});
  MadeTensor turned = steps.allocate(self), from = steps.allocate(self);
  steps.free(turned);
  MadeTensor others = steps.allocate(self), made = steps.allocate(self);
  steps.free({others, made, from, after, upTo, before});
}

/// grad * (result / self), which says nothing of zeros. Where there are some,
/// the others are multiplied; where there are several among all elements,
/// nothing is left. Source: prod_backward.
static void runProd(BackwardRule &rule, BackwardReplay &steps) {
  Operation *op = rule.getOp();
  ConcreteTensor self = steps.read(0);
  auto result = rule.tensor(op->getResult(0));
  auto along = op->getAttrOfType<IntegerAttr>("dim");
  // All elements are a view only where they are in order.
  bool isRun = along ? kernels::isDense(self) : self.contiguous;
  if (!result || result->elementType != self.elementType || self.dims.empty() ||
      self.numElements() == 0 || !isRun)
    return koila::detail::describeUnknownBackward(rule);
  ConcreteTensor gradient = restoreDims(op, steps.getGradient(), self);
  int64_t rank = self.dims.size(), dim = along ? along.getInt() : 0;
  dim += dim < 0 ? rank : 0;
  MadeTensor isZero =
      steps.compute(self, Number::Integer, OpReplay::Result::Bool);
  ConcreteTensor row = self, zeros;
  if (along) {
    zeros = steps.OpReplay::sum(isZero, dim, /*keepdim=*/true);
    steps.free(steps.OpReplay::sum(zeros));
  } else {
    row.dims = {self.numElements()};
    zeros = {{self.numElements(), rank},
             IntegerType::get(op->getContext(), 64)};
    zeros = steps.allocate(zeros);
    steps.free(isZero);
    steps.allocateTemporary(self.numBytes());
    steps.free(zeros);
    zeros.dims.front() = 1;
    zeros = steps.allocate(zeros);
  }
  MadeTensor quotient = steps.compute({restoreDims(op, *result, self), self});
  MadeTensor made = steps.compute({gradient, quotient});
  steps.free({quotient, made});
  multiplyOthers(steps, row, dim);
  steps.allocate(made);
  steps.give(0, made);
  steps.free(zeros);
  if (along)
    steps.free(isZero);
  rule.setBound(
      "whether an element of a product is zero, data decide; the most counts");
}

/// Whether a variance over so many elements has no degree of freedom. None if
/// its correction is computed.
static std::optional<bool> lacksFreedom(Operation *op, int64_t elements) {
  if (auto unbiased = op->getAttrOfType<BoolAttr>("unbiased"))
    return elements <= (unbiased.getValue() ? 1 : 0);
  if (OperatorArguments(op).getDynamic("correction"))
    return std::nullopt;
  Attribute correction = op->getAttr("correction");
  if (auto number = dyn_cast_or_null<FloatAttr>(correction))
    return static_cast<double>(elements) <= number.getValueAsDouble();
  auto number = dyn_cast_or_null<IntegerAttr>(correction);
  return elements <= (number ? number.getInt() : 1);
}

/// 2 / (count - correction) * grad * (self - self.mean()); over all elements,
/// without a degree of freedom, grad * where(self == self.mean(), nan, inf).
/// Source: var_backward.
static MadeTensor runVariance(BackwardRule &rule, BackwardReplay &steps,
                              ConcreteTensor gradient) {
  Operation *op = rule.getOp();
  ConcreteTensor self = steps.read(0);
  gradient = restoreDims(op, gradient, self);
  ConcreteTensor average{{}, self.elementType};
  auto dims = op->getAttrOfType<DenseI64ArrayAttr>("dim");
  // A number has dim 0 and -1, too.
  if (dims && !dims.empty() && !self.dims.empty()) {
    average.dims = self.dims;
    for (int64_t dim : dims.asArrayRef())
      average.dims[dim < 0 ? dim + self.dims.size() : dim] = 1;
  }
  MadeTensor mean = steps.allocate(average);
  allocateMean(rule, steps, self, mean);
  if (self.dims.empty() || !dims) {
    auto lacks = lacksFreedom(op, self.numElements());
    if (!lacks)
      rule.setInexact("the correction of a variance is computed");
    if (lacks.value_or(false)) {
      MadeTensor equal =
          steps.compute({self, mean}, Number::None, OpReplay::Result::Bool);
      // Numbers are of the default type.
      ConcreteTensor number{{}, Float32Type::get(op->getContext())};
      MadeTensor nan = steps.allocate(number), inf = steps.allocate(number);
      MadeTensor chosen = steps.mask(equal, number);
      steps.free({nan, inf});
      MadeTensor made = steps.compute({gradient, chosen});
      steps.free({mean, equal, chosen});
      return made;
    }
  }
  MadeTensor difference = steps.compute({self, mean});
  MadeTensor scaled = steps.compute(gradient, Number::Float);
  MadeTensor made = steps.compute({scaled, difference});
  steps.free({mean, difference, scaled});
  return made;
}

/// That of the variance, of (grad / (result * 2)).masked_fill_(result == 0, 0)
static MadeTensor runDeviation(BackwardRule &rule, BackwardReplay &steps) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result) {
    koila::detail::describeUnknownBackward(rule);
    return {steps.getGradient(), {}};
  }
  MadeTensor twice = steps.compute(*result, Number::Integer);
  MadeTensor gradient = steps.compute({steps.getGradient(), twice});
  MadeTensor isZero =
      steps.compute(*result, Number::Integer, OpReplay::Result::Bool);
  steps.free({twice, isZero});
  MadeTensor made = runVariance(rule, steps, gradient);
  steps.free(gradient);
  return made;
}

/// That of the variance or deviation, and grad / count of the mean, added up.
/// Either may be missing. Source: var_mean_backward, std_mean_backward.
static void runWithMean(BackwardRule &rule, BackwardReplay &steps) {
  Operation *op = rule.getOp();
  std::optional<MadeTensor> made;
  if (rule.getGradient())
    made = isa<StdMeanOp, StdMeanDimOp, StdMeanCorrectionOp>(op)
               ? runDeviation(rule, steps)
               : runVariance(rule, steps, steps.getGradient());
  const ConcreteTensor *ofMean = rule.getGradient(1);
  if (ofMean) {
    ConcreteTensor self = steps.read(0);
    MadeTensor share = steps.compute(
        expandTo(restoreDims(op, *ofMean, self), self.dims), Number::Integer);
    if (made) {
      MadeTensor sum = steps.compute({*made, share});
      // It is assigned to the first, before the second ends.
      steps.free(*made);
      steps.free(share);
      share = sum;
    }
    made = share;
  }
  steps.give(0, *made);
}

/// grad / count, written into zeros where the extremum is.
static void spreadExtremum(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0);
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result)
    return koila::detail::describeUnknownBackward(rule);
  MadeTensor isNan =
      steps.compute(*result, Number::None, OpReplay::Result::Bool);
  MadeTensor mask =
      steps.compute({self, *result}, Number::None, OpReplay::Result::Bool);
  steps.free(isNan);
  steps.giveContiguous(0);
  MadeTensor count = steps.sum(mask);
  steps.free(steps.compute({steps.getGradient(), count}));
  steps.free({mask, count});
}

static void giveExpanded(BackwardRule &rule, BackwardReplay &steps) {
  rule.setView(0, expandBack(rule.getOp(), steps));
}

static void giveShare(BackwardRule &rule, BackwardReplay &steps) {
  steps.give(0,
             steps.compute(expandBack(rule.getOp(), steps), Number::Integer));
}

/// Written where the element was found.
static void giveFound(BackwardRule &, BackwardReplay &steps) {
  steps.giveScattered(0);
}

static void giveVariance(BackwardRule &rule, BackwardReplay &steps) {
  steps.give(0, runVariance(rule, steps, steps.getGradient()));
}

static void giveDeviation(BackwardRule &rule, BackwardReplay &steps) {
  steps.give(0, runDeviation(rule, steps));
}

/// Zeros, with the places of the diagonal beside them.
static void runTrace(BackwardRule &, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0);
  steps.giveContiguous(0);
  steps.allocateBriefly(std::min(self.dims[0], self.dims[1]) *
                        int64_t(sizeof(int64_t)));
}

void kernels::addReductionGradients(KernelLibrary &library) {
  // Sums and means read nothing that would have to be conjugated.
  library.add<SumDimOp, SumOp>({.backward = ofGradient<giveExpanded>});
  library.add<MeanDimOp, MeanOp>({.backward = ofGradient<giveShare>});
  library.add<AmaxOp, AminOp>({.backward = ofRealGradient<runExtremum>});
  library.add<AminmaxOp>({.backward = ofRealGradient<runBothExtrema>});
  library.add<LinalgVectorNormOp, NormDimOp>(
      {.backward = ofRealGradient<runNorm>});
  library.add<LogsumexpOp>({.backward = ofRealGradient<runLogsumexp>});
  library.add<MaxDimOp, MedianDimOp, MinDimOp, ModeOp, NanmedianDimOp>(
      {.backward = ofRealGradient<giveFound>});
  library.add<MaxOp, MedianOp, MinOp, NanmedianOp>(
      {.backward = ofRealGradient<spreadExtremum>});
  library.add<NansumOp>({.backward = ofRealGradient<runNansum>});
  library.add<ProdDimOp, ProdOp>({.backward = ofRealGradient<runProd>});
  library.add<StdCorrectionOp, StdDimOp, StdOp>(
      {.backward = ofRealGradient<giveDeviation>});
  library.add<StdMeanCorrectionOp, StdMeanDimOp, StdMeanOp, VarMeanCorrectionOp,
              VarMeanDimOp, VarMeanOp>(
      {.backward = ofRealGradient<runWithMean>});
  library.add<TraceOp>({.backward = ofRealGradient<runTrace>});
  library.add<VarCorrectionOp, VarDimOp, VarOp>(
      {.backward = ofRealGradient<giveVariance>});
}
