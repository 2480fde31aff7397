//===- SpecialBackward.cpp - Gradients of special functions ---------------===//
//
// Source: derivatives.yaml and FunctionsManual.cpp in torch/csrc/autograd.
//
//===----------------------------------------------------------------------===//

#include "ElementwiseFormula.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;
using Result = OpReplay::Result;

//===----------------------------------------------------------------------===//
// One operand
//===----------------------------------------------------------------------===//

/// where(self * self * pi == 0, 0, grad * ((self * pi * cos(self * pi) -
/// sin(self * pi)) / (self * self * pi))). Source: sinc_backward.
static void runSinc(const Formula &of) {
  ConcreteTensor self = of.self();
  MadeTensor angle = of.steps.compute(self, Number::Float);
  MadeTensor square = of.steps.compute({self, self});
  MadeTensor area = of.steps.compute(square, Number::Float);
  of.steps.free(square);
  MadeTensor cosine = of.steps.compute(angle);
  MadeTensor product = of.steps.compute({angle, cosine});
  MadeTensor sine = of.steps.compute(angle);
  MadeTensor difference = of.steps.compute({product, sine});
  MadeTensor quotient = of.steps.compute({difference, area});
  MadeTensor made = of.steps.compute({of.gradient, quotient});
  of.steps.free({cosine, product, sine, difference, quotient});
  MadeTensor zero = of.steps.makeNumber(of.gradient);
  MadeTensor isZero = of.steps.compute(area, Number::Float, Result::Bool);
  of.steps.give(0, of.steps.mask(isZero, made));
  of.steps.free({angle, area, made, zero, isZero});
}

/// 0.5 * sqrt(pi) * exp(self.erfinv().pow(2)) * grad
static void runErfinv(const Formula &of) {
  MadeTensor inverse = of.steps.compute(of.self());
  MadeTensor square = of.steps.compute(inverse);
  MadeTensor power = of.steps.compute(square);
  MadeTensor scaled = of.steps.compute(power, Number::Float);
  of.steps.give(0, of.steps.compute({scaled, of.gradient}));
  of.steps.free({inverse, square, power, scaled});
}

/// grad * 1 / (1 - self.pow(2))
static void runAtanh(const Formula &of) {
  MadeTensor square = of.steps.compute(of.self());
  MadeTensor rest = of.steps.subtractFromNumber(square);
  MadeTensor same = of.steps.compute(of.gradient, Number::Integer);
  of.steps.give(0, of.steps.compute({same, rest}));
  of.steps.free({square, rest, same});
}

/// Of real numbers zeros; else where(self == 0, 0, grad * self / |self|^2 * i).
/// Source: angle_backward.
static void runAngle(const Formula &of) {
  ConcreteTensor self = of.self();
  if (!isa<ComplexType>(self.elementType))
    return of.steps.give(0, of.steps.makeLike(self));
  // The divisor first: GCC evaluates operands from the right.
  MadeTensor size = of.steps.allocate(of.gradient);
  of.steps.allocateBriefly(self.numBytes());
  MadeTensor square = of.steps.compute(size);
  MadeTensor product = of.steps.compute({of.gradient, self});
  MadeTensor quotient = of.steps.compute({product, square});
  MadeTensor turned = multiplyByComplex(of, quotient);
  MadeTensor zero = of.steps.makeNumber(self);
  MadeTensor isZero = of.steps.compute(self, Number::Float, Result::Bool);
  of.steps.give(0, of.steps.mask(isZero, turned));
  of.steps.free({size, square, product, quotient, turned, zero, isZero});
}

//===----------------------------------------------------------------------===//
// Two operands
//===----------------------------------------------------------------------===//

/// grad * self / other, and xlogy(grad, other), which is filled with zeros
/// where (self == 0) & (other <= 0).
static void runXlogy(const Formula &of) {
  if (of.getOp()->hasAttr("self")) {
    MadeTensor product = of.steps.compute(of.gradient, of.getNumber("self"));
    of.steps.give(0, of.steps.compute({product, of.self()}));
    return of.steps.free(product);
  }
  if (of.getOp()->hasAttr("other"))
    return koila::detail::describeUnknownBackward(of.rule);
  ConcreteTensor self = of.self(), other = of.other();
  if (of.steps.wants(1)) {
    MadeTensor product = of.steps.compute({of.gradient, self});
    of.steps.give(1, of.steps.compute({product, other}));
    of.steps.free(product);
  }
  if (of.steps.wants(0)) {
    MadeTensor logs = of.steps.compute({of.gradient, other});
    MadeTensor isLess = of.steps.compute(other, Number::Float, Result::Bool);
    MadeTensor isZero = of.steps.compute(self, Number::Float, Result::Bool);
    MadeTensor isBoth = of.steps.compute({isZero, isLess});
    of.steps.give(0, of.steps.allocate(logs));
    of.steps.free({logs, isLess, isZero, isBoth});
  }
}

/// grad * (result / self), filled with zeros where self is zero; zeros for what
/// has the sign. Source: copysign_tensor_self_backward.
static void runCopysign(const Formula &of) {
  auto result = of.rule.tensor(of.getOp()->getResult(0));
  if (!result)
    return koila::detail::describeUnknownBackward(of.rule);
  if (of.hasOther() && of.steps.wants(1))
    of.steps.give(1, of.steps.makeLike(of.other()));
  if (!of.steps.wants(0))
    return;
  MadeTensor ratio = of.steps.compute({*result, of.self()});
  of.steps.free(of.steps.compute(of.self(), Number::Integer, Result::Bool));
  multiplyBy(of, ratio);
}

/// grad.masked_fill(mask, 0), of (self >= other) | other.isnan() or what that
/// is not. Each is a contiguous copy.
static void runFmax(const Formula &of) {
  for (unsigned operand : {1u, 0u}) {
    if (!of.steps.wants(operand))
      continue;
    MadeTensor isTaken =
        of.steps.compute({of.self(), of.other()}, Number::None, Result::Bool);
    MadeTensor isNan = of.steps.compute(of.other(), Number::None, Result::Bool);
    of.steps.give(operand, of.steps.allocate(of.gradient));
    of.steps.free({isTaken, isNan});
  }
}

void kernels::addSpecialFormulas(llvm::StringMap<RunFormula> &table) {
  table["sinc"] = runSinc;
  table["erfinv"] = runErfinv;
  table["atanh"] = runAtanh;
  table["angle"] = runAngle;
  table["xlogy"] = runXlogy;
  table["copysign"] = runCopysign;
  table["fmax"] = table["fmin"] = runFmax;
}
