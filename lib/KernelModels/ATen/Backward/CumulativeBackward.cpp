//===- CumulativeBackward.cpp - Gradients of cumulative operators ---------===//
//
// Source: cumprod_backward and logcumsumexp_backward in FunctionsManual.cpp;
// diff_helper in native/ReduceOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "BackwardModels.h"
#include "koila/Dialect/Koila/IR/SortOps.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;
using Result = OpReplay::Result;

/// f(tensor.flip(dim), dim).flip(dim), in rows.
static MadeTensor runFlipped(BackwardReplay &steps,
                             const ConcreteTensor &tensor) {
  MadeTensor turned = steps.allocate(tensor);
  MadeTensor summed = steps.allocate(tensor);
  MadeTensor made = steps.allocate(tensor);
  steps.free({turned, summed});
  return made;
}

/// Only where an element is zero: sums before the first zero of each row, then
/// those at it. Source: cumprod_backward.
static void runProductOfZeros(BackwardReplay &steps, const ConcreteTensor &self,
                              const ConcreteTensor &isZero, int64_t dim) {
  MLIRContext *context = self.elementType.getContext();
  MadeTensor made = steps.allocate(self);
  ConcreteTensor integers = isZero, row = self;
  integers.elementType = IntegerType::get(context, 64);
  MadeTensor count = steps.allocate(integers);
  steps.allocateTemporary(count.numBytes());
  MadeTensor isSeen = steps.allocate(isZero);
  MadeTensor isOther = steps.allocate(isZero);
  MadeTensor filled = steps.allocate(self);
  MadeTensor sums = runFlipped(steps, filled);
  steps.free({filled, isOther});
  steps.allocateTemporary(self.numBytes());
  row.dims[dim] = 1;
  ConcreteTensor place = row, values = row;
  place.elementType = count.elementType;
  values.elementType = isZero.elementType;
  values = steps.allocate(values);
  place = steps.allocate(place);
  steps.free(values);
  MadeTensor isFirst = steps.allocate(isZero);
  isOther = steps.allocate(isZero);
  filled = steps.allocate(self);
  MadeTensor products = steps.allocate(self);
  steps.free({filled, isOther});
  MadeTensor isNotSeen = steps.compute(count, Number::Integer, Result::Bool);
  MadeTensor masked = steps.allocate(self);
  steps.free(isNotSeen);
  MadeTensor before = steps.compute(place, Number::Integer);
  MadeTensor taken = steps.allocate(row);
  steps.free(steps.compute(place, Number::Integer, Result::Bool));
  steps.free(before);
  MadeTensor sum = steps.allocate(row);
  steps.free(masked);
  steps.allocateTemporary(self.numBytes());
  steps.free({sum, taken, products, isFirst, place, sums, isSeen, count, made});
}

/// (result * grad), summed up from the end, over self.
static void runCumprod(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0);
  int64_t rank = self.dims.size(), dim = cast<CumprodOp>(rule.getOp()).getDim();
  dim += dim < 0 ? rank : 0;
  if (rank == 0)
    return rule.forwardGrad(0);
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result || result->elementType != self.elementType ||
      isHalf(self.elementType))
    return koila::detail::describeUnknownBackward(rule);
  if (self.numElements() <= 1 || self.dims[dim] == 1)
    return rule.forwardGrad(0);
  MadeTensor product = steps.compute({*result, steps.getGradient()});
  MadeTensor isZero = steps.compute(self, Number::Integer, Result::Bool);
  ConcreteTensor isAny{{}, isZero.elementType};
  steps.allocate(isAny);
  steps.allocateBriefly(getPartialBytes(rule, isZero, isAny));
  steps.free(isAny);
  MadeTensor sums = runFlipped(steps, product);
  MadeTensor made = steps.compute({sums, self});
  steps.free({sums, made});
  runProductOfZeros(steps, self, isZero, dim);
  steps.give(0, steps.allocate(made));
  steps.free({product, isZero});
  rule.setBound("whether an element of a cumulative product is zero, data "
                "decide; the most counts");
}

/// exp(f(log(|grad|) - result) + self) of the positive and of the negative
/// elements of the gradient, where f sums exponentials up from the end.
static void runLogcumsumexp(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0), gradient = steps.getGradient();
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!result)
    return koila::detail::describeUnknownBackward(rule);
  if (gradient.dims.empty() || gradient.numElements() == 0)
    return rule.forwardGrad(0);
  MadeTensor least = steps.makeNumber(gradient);
  MadeTensor size = steps.compute(gradient);
  MadeTensor logs = steps.compute(size);
  steps.free(size);
  auto choose = [&] {
    MadeTensor isSigned =
        steps.compute(gradient, Number::Integer, Result::Bool);
    MadeTensor chosen = steps.mask(isSigned, logs);
    steps.free(isSigned);
    return chosen;
  };
  MadeTensor positive = choose(), negative = choose();
  auto sum = [&](const ConcreteTensor &chosen) {
    MadeTensor difference = steps.compute({chosen, *result});
    MadeTensor flipped = runFlipped(steps, difference);
    MadeTensor shifted = steps.compute({flipped, self});
    MadeTensor power = steps.compute(shifted);
    steps.free({difference, flipped, shifted});
    return power;
  };
  MadeTensor first = sum(positive), second = sum(negative);
  steps.give(0, steps.compute({first, second}));
  steps.free({least, logs, positive, negative, first, second});
}

/// The negated gradient and the gradient, each written into zeros by a node of
/// its own, and added up.
static void runDiff(BackwardRule &rule, BackwardReplay &steps) {
  auto op = cast<DiffOp>(rule.getOp());
  if (op.getN() != 1 || op.getPrepend() || op.getAppend() ||
      steps.read(0).elementType != steps.getGradient().elementType)
    return koila::detail::describeUnknownBackward(rule);
  MadeTensor negated = steps.compute(steps.getGradient());
  MadeTensor first = steps.allocate(steps.read(0));
  steps.freeOutside(rule.getReleasableBytes());
  MadeTensor second = steps.allocate(steps.read(0));
  steps.free({second, negated});
  steps.give(0, first);
}

void kernels::addCumulativeGradients(KernelLibrary &library) {
  library.add<CumprodOp>({.backward = ofRealGradient<runCumprod>});
  library.add<DiffOp>({.backward = ofRealGradient<runDiff>});
  library.add<LogcumsumexpOp>({.backward = ofRealGradient<runLogcumsumexp>});
}
