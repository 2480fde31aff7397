//===- ElementwiseBackward.cpp - Gradients of elementwise operators -------===//
//
// Source: tools/autograd/derivatives.yaml and FunctionsManual.cpp in
// torch/csrc/autograd: each formula is replayed in the order in which its
// tensors are made. What a statement makes lives to its end.
//
//===----------------------------------------------------------------------===//

#include "../../BackwardRules.h"
#include "../../Models.h"
#include "../Sum.h"
#include "ElementwiseFormula.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;
using Result = OpReplay::Result;
using Run = kernels::RunFormula;

Number Formula::getNumber(StringRef name) const {
  if (auto constant = getConstant(); constant && name == "other")
    return isa<FloatType>(getElementTypeOrSelf(constant.getResult().getType()))
               ? Number::Float
               : Number::Integer;
  Attribute attr = getOp()->getAttr(name);
  if (isa_and_nonnull<FloatAttr>(attr))
    return Number::Float;
  if (isa_and_nonnull<IntegerAttr>(attr))
    return Number::Integer;
  OperatorArguments arguments(getOp());
  Value value = arguments.has(name) ? arguments.getDynamic(name) : Value();
  return value && isa<FloatType>(value.getType()) ? Number::Float
                                                  : Number::Integer;
}

bool Formula::isOne(StringRef name) const {
  Attribute attr = getOp()->getAttr(name);
  if (!attr)
    return true;
  if (auto number = dyn_cast<FloatAttr>(attr))
    return number.getValueAsDouble() == 1;
  auto number = dyn_cast<IntegerAttr>(attr);
  return number && number.getInt() == 1;
}

//===----------------------------------------------------------------------===//
// One operand
//===----------------------------------------------------------------------===//

/// One kernel reads the gradient and what was saved.
static void runKernel(const Formula &of) {
  of.steps.give(0, of.steps.compute({of.gradient, of.self()}));
}

/// threshold_backward and leaky_relu_backward have the gradient as the second
/// operand (native/Activation.cpp): strides are those of the first.
static void runThreshold(const Formula &of) {
  of.steps.give(0, of.steps.compute({of.self(), of.gradient}));
}

/// In training the gradient times the noise, which is in rows; else as
/// leaky_relu. Source: rrelu_with_noise_backward in native/Activation.cpp.
static void runRrelu(const Formula &of) {
  auto training = of.getOp()->getAttrOfType<BoolAttr>("training");
  if (!training || !training.getValue())
    return runThreshold(of);
  ConcreteTensor noise = of.self();
  noise.contiguous = true;
  noise.strides.reset();
  of.steps.give(0, of.steps.compute({noise, of.gradient}));
  // Of what was saved the noise goes first.
  of.steps.freeOutside(of.rule.getReleasableBytes());
  of.steps.freeOutside(noise.numBytes());
}

/// oneDNN computes it of a contiguous input: it copies any other gradient, and
/// the result to the strides of that (measured).
static void runGelu(const Formula &of) {
  auto kind = of.getOp()->getAttrOfType<StringAttr>("approximate");
  ConcreteTensor self = of.self();
  MadeTensor result = of.steps.compute({of.gradient, self});
  bool isOneDnn = !readsAnyType(of.rule);
  bool copies = isOneDnn && kind && kind.getValue() == "none" &&
                self.contiguous && !of.gradient.contiguous &&
                self.elementType.isF32();
  if (isOneDnn && self.elementType.isBF16() && !of.gradient.contiguous)
    return of.rule.setInexact("the gradient of gelu of bfloat16");
  if (copies) {
    MadeTensor copy = of.steps.allocate(self);
    of.steps.allocateBriefly(result.contiguous ? 0 : self.numBytes());
    of.steps.free(copy);
  }
  of.steps.give(0, result);
}

void kernels::multiplyBy(const Formula &of, const MadeTensor &factor,
                         unsigned operand) {
  of.steps.give(operand, of.steps.compute({of.gradient, factor}));
  of.steps.free(factor);
}

/// grad / (2 * result)
static void runSqrt(const Formula &of) {
  multiplyBy(of, of.steps.compute(of.self(), Number::Integer));
}

/// -0.5 * grad * result.pow(3)
static void runRsqrt(const Formula &of) {
  // The second factor first: GCC evaluates operands from the right.
  MadeTensor cube = of.steps.compute(of.self());
  MadeTensor half = of.steps.compute(of.gradient, Number::Float);
  of.steps.give(0, of.steps.compute({half, cube}));
  of.steps.free({cube, half});
}

/// grad * f(self)
static void runProduct(const Formula &of) {
  multiplyBy(of, of.steps.compute(of.self()));
}

/// grad * -self.sin()
static void runCos(const Formula &of) {
  MadeTensor sine = of.steps.compute(of.self());
  MadeTensor negated = of.steps.compute(sine);
  of.steps.give(0, of.steps.compute({of.gradient, negated}));
  of.steps.free({sine, negated});
}

/// -grad * result * result
static void runReciprocal(const Formula &of) {
  MadeTensor negated = of.steps.compute(of.gradient);
  MadeTensor square = of.steps.compute({of.self(), of.self()});
  of.steps.give(0, of.steps.compute({negated, square}));
  of.steps.free({negated, square});
}

static void negate(const Formula &of) {
  of.steps.give(0, of.steps.compute(of.gradient));
}

/// Of a number to a tensor: grad * (result * log(number)).
static void runExponent(const Formula &of) {
  Attribute base = of.getOp()->getAttr("self");
  auto integer = dyn_cast_if_present<IntegerAttr>(base);
  auto number = dyn_cast_if_present<FloatAttr>(base);
  bool isKnown = integer ? integer.getInt() != 0
                         : number && number.getValueAsDouble() != 0;
  if (!isKnown)
    return koila::detail::describeUnknownBackward(of.rule);
  MadeTensor scaled = of.steps.compute(of.self(), Number::Float);
  of.steps.give(0, of.steps.compute({of.gradient, scaled}));
  of.steps.free(scaled);
}

/// grad * (exponent * self.pow(exponent - 1))
static void runPower(const Formula &of) {
  Attribute exponent = of.getOp()->getAttr("exponent");
  auto integer = dyn_cast_if_present<IntegerAttr>(exponent);
  auto number = dyn_cast_if_present<FloatAttr>(exponent);
  // `square` has none; that of 2 ** x is another formula.
  bool isSquare = of.getOp()->getName().stripDialect() == "square";
  if (!isSquare && !integer && !number)
    return runExponent(of);
  if ((integer && integer.getInt() == 0) ||
      (number && number.getValueAsDouble() == 0))
    return of.steps.giveContiguous(0);
  MadeTensor power = of.steps.compute(of.self());
  MadeTensor scaled = of.steps.compute(power, Number::Float);
  of.steps.give(0, of.steps.compute({of.gradient, scaled}));
  of.steps.free({power, scaled});
}

/// where(self >= min, grad, 0), or both limits
static void runClamp(const Formula &of) {
  auto given = [&](StringRef name) {
    return of.getOp()->getAttr(name) != nullptr;
  };
  MadeTensor zero = of.steps.makeNumber(of.gradient);
  SmallVector<MadeTensor> masks;
  for (StringRef name : {"min", "max"})
    if (given(name))
      masks.push_back(
          of.steps.compute(of.self(), of.getNumber(name), Result::Bool));
  if (masks.empty())
    return koila::detail::describeUnknownBackward(of.rule);
  of.steps.give(0, of.steps.mask(masks.front(), of.gradient));
  of.steps.free(masks);
  of.steps.free(zero);
}

/// where(self >= min, grad, 0) of limits that are tensors and have no gradient.
static void runClampTensors(const Formula &of) {
  MadeTensor zero = of.steps.makeNumber(of.gradient);
  SmallVector<MadeTensor> masks;
  for (unsigned limit = 1; limit < of.getOp()->getNumOperands(); ++limit) {
    if (of.steps.wants(limit))
      return koila::detail::describeUnknownBackward(of.rule);
    masks.push_back(of.steps.compute({of.self(), of.steps.read(limit)},
                                     Number::None, Result::Bool));
  }
  of.steps.give(0, of.steps.mask(masks.front(), of.gradient));
  of.steps.free(masks);
  of.steps.free(zero);
}

//===----------------------------------------------------------------------===//
// Two operands
//===----------------------------------------------------------------------===//

static void runMul(const Formula &of) {
  if (!of.hasOther())
    return of.steps.give(0,
                         of.steps.compute(of.gradient, of.getNumber("other")));
  // In the order of their names.
  if (of.steps.wants(1))
    giveConjugated(of, 1, of.self());
  if (of.steps.wants(0))
    giveConjugated(of, 0, of.other());
}

/// grad / other, and -grad * ((self / other) / other)
static void runDiv(const Formula &of) {
  // zeros_like(grad), of what is rounded.
  if (of.getOp()->hasAttr("rounding_mode")) {
    for (unsigned operand : {1u, 0u})
      if (operand < 1u + of.hasOther() && of.steps.wants(operand))
        of.steps.give(operand, of.steps.makeLike(of.gradient));
    return;
  }
  if (!of.hasOther())
    return of.steps.give(0,
                         of.steps.compute(of.gradient, of.getNumber("other")));
  // In the order of their names.
  if (of.steps.wants(1)) {
    MadeTensor negated = of.steps.compute(of.gradient);
    MadeTensor quotient = of.steps.compute({of.self(), of.other()});
    MadeTensor again = of.steps.compute({quotient, of.other()});
    of.steps.give(1, of.steps.compute({negated, again}));
    of.steps.free({negated, quotient, again});
  }
  if (of.steps.wants(0))
    of.steps.give(0, of.steps.compute({of.gradient, of.other()}));
}

/// The gradient, times alpha.
static void passScaled(const Formula &of, unsigned operand) {
  if (of.isOne("alpha"))
    return of.rule.forwardGrad(operand);
  of.steps.give(operand, of.steps.compute(of.gradient, of.getNumber("alpha")));
}

static void passNegated(const Formula &of, unsigned operand) {
  MadeTensor negated = of.steps.compute(of.gradient);
  if (of.isOne("alpha"))
    return of.steps.give(operand, negated);
  of.steps.give(operand, of.steps.compute(negated, of.getNumber("alpha")));
  of.steps.free(negated);
}

static void runAdd(const Formula &of) {
  if (of.steps.wants(0))
    of.rule.forwardGrad(0);
  if (of.hasOther() && of.steps.wants(1))
    passScaled(of, 1);
}

static void runSub(const Formula &of) {
  if (of.steps.wants(0))
    of.rule.forwardGrad(0);
  if (of.hasOther() && of.steps.wants(1))
    passNegated(of, 1);
}

static void runReversedSub(const Formula &of) {
  if (of.steps.wants(0))
    passNegated(of, 0);
  if (of.hasOther() && of.steps.wants(1))
    of.rule.forwardGrad(1);
}

/// where(condition, grad, 0), and the reverse.
static void runWhere(const Formula &of) {
  ValueRange operands = of.getOp()->getOperands();
  // In the order of their names: other, then self.
  for (unsigned index = operands.size(); --index > 0;) {
    if (!isa<TensorType>(operands[index].getType()) || !of.steps.wants(index))
      continue;
    MadeTensor zero = of.steps.makeNumber(of.gradient);
    of.steps.give(index, of.steps.mask(of.steps.read(0), of.gradient));
    of.steps.free(zero);
  }
}

/// grad.masked_fill(mask, 0): a contiguous clone, filled.
static void runMaskedFill(const Formula &of) {
  if (of.getOp()->getNumOperands() > 2 && of.steps.wants(2))
    return koila::detail::describeUnknownBackward(of.rule);
  of.steps.give(0, of.steps.allocate(of.gradient));
}

/// The one it is, or a product with the mask.
static void runDropout(const Formula &of) {
  auto train = of.getOp()->getAttrOfType<BoolAttr>("train");
  if (!train)
    return koila::detail::describeUnknownBackward(of.rule);
  auto p = of.getOp()->getAttrOfType<FloatAttr>("p");
  if (!train.getValue() || (p && p.getValueAsDouble() == 0))
    return of.rule.setAbsent(0);
  of.steps.give(0, of.steps.compute({of.gradient, of.self()}));
}

/// grad / (self + 1)
static void runLog1p(const Formula &of) {
  multiplyBy(of, of.steps.compute(of.self(), Number::Integer));
}

/// grad * -(1 + self.log())
static void runEntr(const Formula &of) {
  MadeTensor log = of.steps.compute(of.self());
  MadeTensor sum = of.steps.compute(log, Number::Integer);
  MadeTensor negated = of.steps.compute(sum);
  of.steps.give(0, of.steps.compute({of.gradient, negated}));
  of.steps.free({log, sum, negated});
}

/// 2 / sqrt(pi) * exp(-(self.pow(2))) * grad
static void runErf(const Formula &of) {
  MadeTensor square = of.steps.compute(of.self());
  MadeTensor negated = of.steps.compute(square);
  MadeTensor power = of.steps.compute(negated);
  MadeTensor scaled = of.steps.compute(power, Number::Float);
  of.steps.give(0, of.steps.compute({scaled, of.gradient}));
  of.steps.free({square, negated, power, scaled});
}

/// Each gradient is halved where both are equal, and zero where the other one
/// was taken.
static void runMaximum(const Formula &of) {
  for (unsigned operand : {1u, 0u}) {
    if (!of.steps.wants(operand))
      continue;
    MadeTensor half = of.steps.compute(of.gradient, Number::Integer);
    MadeTensor equal =
        of.steps.compute({of.self(), of.other()}, Number::None, Result::Bool);
    MadeTensor taken = of.steps.mask(equal, of.gradient);
    MadeTensor less =
        of.steps.compute({of.self(), of.other()}, Number::None, Result::Bool);
    of.steps.give(operand, taken);
    of.steps.free({half, equal, less});
  }
}

/// grad * (tensor * value), for both factors.
static void runProductSum(const Formula &of) {
  if (of.steps.wants(0))
    of.rule.forwardGrad(0);
  for (auto [operand, factor] : {std::pair(1u, 2u), std::pair(2u, 1u)}) {
    if (!of.steps.wants(operand))
      continue;
    MadeTensor scaled =
        of.steps.compute(of.steps.read(factor), of.getNumber("value"));
    of.steps.give(operand, of.steps.compute({of.gradient, scaled}));
    of.steps.free(scaled);
  }
}

/// grad * (1 - weight), and grad * weight: of a number, or of a tensor, of
/// which the gradient is grad * (end - self).
static void runLerp(const Formula &of) {
  if (of.getOp()->getNumOperands() > 2) {
    ConcreteTensor weight = of.steps.read(2);
    if (of.steps.wants(1))
      of.steps.give(1, of.steps.compute({of.gradient, weight}));
    if (of.steps.wants(0)) {
      MadeTensor rest = of.steps.makeLike(weight);
      of.steps.give(0, of.steps.compute({of.gradient, rest}));
      of.steps.free(rest);
    }
    if (of.steps.wants(2))
      multiplyBy(of, of.steps.compute({of.other(), of.self()}), 2);
    return;
  }
  for (unsigned operand : {1u, 0u})
    if (of.steps.wants(operand))
      of.steps.give(operand, of.steps.compute(of.gradient, Number::Float));
}

/// Powers of tensors: grad * where(self == 0 and exponent >= 0, 0, result *
/// self.log()), and where(exponent == 0, 0, grad * (exponent *
/// self.pow(exponent
/// - 1))).
static void runPowerOfTensors(const Formula &of) {
  ConcreteTensor self = of.self(), exponent = of.other();
  auto result = of.rule.tensor(of.getOp()->getResult(0));
  if (!result || self.elementType != exponent.elementType)
    return koila::detail::describeUnknownBackward(of.rule);
  if (of.steps.wants(1)) {
    MadeTensor isZero = of.steps.compute(self, Number::Integer, Result::Bool);
    MadeTensor isPositive =
        of.steps.compute(exponent, Number::Integer, Result::Bool);
    MadeTensor mask =
        of.steps.compute({isZero, isPositive}, Number::None, Result::Bool);
    of.steps.free({isZero, isPositive});
    MadeTensor log = of.steps.compute(self);
    MadeTensor product = of.steps.compute({*result, log});
    MadeTensor zero = of.steps.makeNumber(of.gradient);
    MadeTensor chosen = of.steps.mask(mask, product);
    of.steps.give(1, of.steps.compute({of.gradient, chosen}));
    of.steps.free({mask, log, product, zero, chosen});
  }
  if (of.steps.wants(0)) {
    MadeTensor less = of.steps.compute(exponent, Number::Integer);
    MadeTensor power = of.steps.compute({self, less});
    MadeTensor product = of.steps.compute({exponent, power});
    MadeTensor all = of.steps.compute({of.gradient, product});
    MadeTensor zero = of.steps.makeNumber(of.gradient);
    MadeTensor mask = of.steps.compute(exponent, Number::Float, Result::Bool);
    of.steps.give(0, of.steps.mask(mask, all));
    of.steps.free({less, power, product, all, zero, mask});
  }
}

/// grad * other * recip and grad * -self * recip, of the reciprocal of
/// self * self + other * other, which is filled with zeros where that is zero.
static void runAtan2(const Formula &of) {
  ConcreteTensor self = of.self(), other = of.other();
  MadeTensor first = of.steps.compute(self), second = of.steps.compute(other);
  MadeTensor sum = of.steps.compute({first, second});
  of.steps.free({first, second});
  MadeTensor inverse = of.steps.compute(sum);
  of.steps.free(of.steps.compute(sum, Number::Integer, Result::Bool));
  SmallVector<MadeTensor> made{sum, inverse};
  if (of.steps.wants(0)) {
    made.push_back(of.steps.compute({of.gradient, other}));
    of.steps.give(0, of.steps.compute({made.back(), inverse}));
  }
  if (of.steps.wants(1)) {
    MadeTensor negated = of.steps.compute(self);
    MadeTensor product = of.steps.compute({of.gradient, negated});
    of.steps.give(1, of.steps.compute({product, inverse}));
    made.append({negated, product});
  }
  of.steps.free(made);
}

/// grad * self / result
static void runHypot(const Formula &of) {
  auto result = of.rule.tensor(of.getOp()->getResult(0));
  if (!result)
    return koila::detail::describeUnknownBackward(of.rule);
  for (unsigned operand : {1u, 0u}) {
    if (!of.steps.wants(operand))
      continue;
    MadeTensor product =
        of.steps.compute({of.gradient, of.steps.read(operand)});
    of.steps.give(operand, of.steps.compute({product, *result}));
    of.steps.free(product);
  }
}

/// The gradient itself, and -grad * self.div(other), rounded.
static void runRemainder(const Formula &of) {
  if (of.steps.wants(0))
    of.rule.forwardGrad(0);
  if (!of.hasOther() || !of.steps.wants(1))
    return;
  MadeTensor negated = of.steps.compute(of.gradient);
  MadeTensor quotient = of.steps.compute({of.self(), of.other()});
  of.steps.give(1, of.steps.compute({negated, quotient}));
  of.steps.free({negated, quotient});
}

/// grad / (1 + exp(other - self)), and the reverse.
template <Number number>
static void runLogOfSum(const Formula &of) {
  for (unsigned operand : {1u, 0u}) {
    if (!of.steps.wants(operand))
      continue;
    MadeTensor difference = of.steps.compute({of.self(), of.other()});
    // A number to the power of a tensor: the result comes before it.
    MadeTensor power = of.steps.allocate(difference);
    if (number == Number::Integer)
      allocateInteger(of.steps, difference.elementType);
    MadeTensor sum = of.steps.compute(power, Number::Integer);
    multiplyBy(of, sum, operand);
    of.steps.free({difference, power});
  }
}

/// grad * (value / tensor2), and -grad * (value * tensor1 / (tensor2 *
/// tensor2)).
static void runQuotientSum(const Formula &of) {
  if (of.steps.wants(0))
    of.rule.forwardGrad(0);
  ConcreteTensor above = of.steps.read(1), below = of.steps.read(2);
  if (of.steps.wants(1))
    multiplyBy(of, of.steps.makeLike(below), 1);
  if (!of.steps.wants(2))
    return;
  MadeTensor negated = of.steps.compute(of.gradient);
  MadeTensor scaled = of.steps.compute(above, of.getNumber("value"));
  MadeTensor square = of.steps.compute(below);
  MadeTensor quotient = of.steps.compute({scaled, square});
  of.steps.give(2, of.steps.compute({negated, quotient}));
  of.steps.free({negated, scaled, square, quotient});
}

/// The gradient turned around, summed up, and turned again.
static void runCumsum(const Formula &of) {
  auto dim = of.getOp()->getAttrOfType<IntegerAttr>("dim");
  int64_t rank = of.gradient.dims.size(), place = dim ? dim.getInt() : rank;
  place += place < 0 ? rank : 0;
  if (of.self().elementType != of.gradient.elementType || place < 0 ||
      place >= rank)
    return koila::detail::describeUnknownBackward(of.rule);
  if (of.gradient.numElements() <= 1 || of.gradient.dims[place] == 1)
    return of.rule.forwardGrad(0);
  MadeTensor turned = of.steps.allocate(of.gradient);
  MadeTensor summed = of.steps.allocate(of.gradient);
  of.steps.give(0, of.steps.allocate(of.gradient));
  of.steps.free({turned, summed});
}

/// Zeros, into which the gradient of what was taken is written.
static void fillZeros(const Formula &of) { of.steps.giveScattered(0); }

/// grad * f(g(self) + 1), and the like: a chain of kernels, then a product.
template <Number... numbers>
static void runChain(const Formula &of) {
  SmallVector<MadeTensor> made;
  ConcreteTensor last = of.self();
  for (Number number : {numbers...}) {
    made.push_back(of.steps.compute(last, number));
    last = made.back();
  }
  of.steps.give(0, of.steps.compute({of.gradient, last}));
  of.steps.free(made);
}

/// grad * result * ln(2)
static void runExp2(const Formula &of) {
  MadeTensor product = of.steps.compute({of.gradient, of.self()});
  of.steps.give(0, of.steps.compute(product, Number::Float));
  of.steps.free(product);
}

static void passOn(const Formula &of) { of.rule.forwardGrad(0); }

/// zeros_like(grad)
static void giveZeros(const Formula &of) {
  of.steps.give(0, of.steps.makeLike(of.gradient));
}

/// Zeros for what was there before, in rows, and the gradient itself for what
/// was copied. Source: CopyBackwards in autograd/functions/tensor.cpp.
static void runCopy(const Formula &of) {
  if (of.steps.wants(0)) {
    ConcreteTensor zeros = of.gradient;
    zeros.contiguous = true;
    zeros.strides.reset();
    of.steps.give(0, of.steps.allocate(zeros));
  }
  if (!of.steps.wants(1))
    return;
  ConcreteTensor source = of.steps.read(1);
  if (source.elementType == of.gradient.elementType)
    return of.rule.forwardGrad(1);
  source = of.gradient;
  source.elementType = of.steps.read(1).elementType;
  of.steps.give(1, of.steps.makeLike(source));
}

/// zeros_like(grad), and grad.sum() for a tensor that fills.
static void runFill(const Formula &of) {
  if (of.steps.wants(0))
    giveZeros(of);
  Operation *op = of.rule.getOp();
  if (op->getNumOperands() < 2 || !isa<TensorType>(op->getOperand(1).getType()))
    return;
  if (of.steps.wants(1)) {
    MadeTensor sum = of.steps.makeNumber(of.gradient);
    of.steps.allocateBriefly(getPartialBytes(of.rule, of.gradient, sum));
    of.steps.give(1, sum);
  }
}

/// grad * isfinite(self), which is (self == self) * (abs(self) != inf)
static void runNanToNum(const Formula &of) {
  MadeTensor size = of.steps.compute(of.self());
  MadeTensor bounded = of.steps.compute(size, Number::Float, Result::Bool);
  MadeTensor same = of.steps.compute(of.self(), Number::None, Result::Bool);
  MadeTensor finite = of.steps.compute({same, bounded});
  of.steps.free({size, bounded, same});
  of.steps.give(0, of.steps.compute({of.gradient, finite}));
  of.steps.free(finite);
}

/// The two parts of one tensor, of a contiguous operand.
static void runGlu(const Formula &of) {
  if (!of.self().contiguous)
    return koila::detail::describeUnknownBackward(of.rule);
  of.steps.giveContiguous(0);
}

/// Gradients of both operands in one kernel; that of the weight is summed.
static void runPrelu(const Formula &of) {
  ConcreteTensor self = of.self(), weight = of.other();
  ConcreteTensor spread{SmallVector<int64_t>(self.dims.size(), 1),
                        weight.elementType};
  bool isOne = weight.numElements() == 1;
  if (!isOne)
    spread.dims[std::min<size_t>(self.dims.size() - 1, 1)] =
        weight.numElements();
  if (self.dims.empty())
    return koila::detail::describeUnknownBackward(of.rule);
  MadeTensor own = of.steps.compute({self, spread, of.gradient});
  MadeTensor all = of.steps.compute({self, spread, of.gradient});
  if (of.steps.wants(1)) {
    MadeTensor sum = of.steps.allocate(spread);
    SmallVector<bool> isReduced;
    for (auto [own, given] : llvm::zip_equal(spread.dims, all.dims))
      isReduced.push_back(own != given);
    allocateSum(of.rule, of.steps, all, sum, isReduced);
    sum.dims = weight.dims;
    of.steps.give(1, sum, /*isViewed=*/true);
  }
  of.steps.free(all);
  if (of.steps.wants(0))
    of.steps.give(0, own);
  else
    of.steps.free(own);
}

static const llvm::StringMap<Run> &getFormulas() {
  static const llvm::StringMap<Run> formulas = [] {
    llvm::StringMap<Run> table;
    for (StringRef name : {"silu", "sigmoid", "tanh", "hardtanh", "hardswish",
                           "hardsigmoid", "elu", "selu", "celu", "softplus",
                           "mish", "exp", "log", "relu6", "log_sigmoid"})
      table[name] = runKernel;
    for (StringRef name : {"relu", "leaky_relu", "threshold"})
      table[name] = runThreshold;
    for (StringRef name : {"abs", "sin"})
      table[name] = runProduct;
    table["rrelu"] = runRrelu;
    table["gelu"] = runGelu;
    table["sqrt"] = runSqrt;
    table["rsqrt"] = runRsqrt;
    table["cos"] = runCos;
    table["reciprocal"] = runReciprocal;
    table["neg"] = negate;
    table["pow"] = table["square"] = runPower;
    for (StringRef name : {"clamp", "clip", "clamp_min", "clamp_max"})
      table[name] = runClamp;
    table["mul"] = runMul;
    table["div"] = table["true_divide"] = runDiv;
    table["add"] = runAdd;
    table["sub"] = runSub;
    table["rsub"] = runReversedSub;
    table["where"] = runWhere;
    table["masked_fill"] = runMaskedFill;
    table["dropout"] = table["feature_dropout"] = runDropout;
    table["log1p"] = runLog1p;
    table["special_entr"] = runEntr;
    table["erf"] = runErf;
    for (StringRef name : {"maximum", "minimum", "max", "min"})
      table[name] = runMaximum;
    table["addcmul"] = runProductSum;
    table["addcdiv"] = runQuotientSum;
    table["lerp"] = runLerp;
    table["atan2"] = runAtan2;
    table["hypot"] = runHypot;
    table["fmod"] = table["remainder"] = runRemainder;
    table["logaddexp"] = runLogOfSum<Number::None>;
    table["logaddexp2"] = runLogOfSum<Number::Integer>;
    table["cummax"] = table["cummin"] = fillZeros;
    table["cumsum"] = runCumsum;
    table["topk"] = table["sort"] = table["kthvalue"] = fillZeros;
    for (StringRef name : {"softshrink", "hardshrink", "logit"})
      table[name] = runKernel;
    for (StringRef name : {"sinh", "cosh", "lgamma", "digamma"})
      table[name] = runProduct;
    table["log2"] = table["log10"] = runChain<Number::Float>;
    table["expm1"] = runChain<Number::Integer>;
    table["tan"] = table["atan"] = runChain<Number::None, Number::Integer>;
    table["asinh"] = table["acosh"] =
        runChain<Number::None, Number::Integer, Number::None>;
    table["asin"] =
        runChain<Number::None, Number::None, Number::Integer, Number::None>;
    table["acos"] = runChain<Number::None, Number::None, Number::Integer,
                             Number::None, Number::None>;
    table["erfc"] = runErf;
    table["exp2"] = runExp2;
    table["frac"] = passOn;
    for (StringRef name : {"trunc", "round", "floor", "ceil", "sign"})
      table[name] = giveZeros;
    table["rad2deg"] = table["deg2rad"] = [](const Formula &of) {
      of.steps.give(0, of.steps.compute(of.gradient, Number::Float));
    };
    table["copy"] = runCopy;
    table["fill"] = table["zero"] = runFill;
    table["nan_to_num"] = runNanToNum;
    table["glu"] = runGlu;
    table["prelu"] = runPrelu;
    addSpecialFormulas(table);
    return table;
  }();
  return formulas;
}

/// Formulas of gradients that are complex numbers.
static const llvm::StringMap<Run> &getComplexFormulas() {
  static const llvm::StringMap<Run> formulas = [] {
    llvm::StringMap<Run> table;
    table["mul"] = runMul;
    table["add"] = runAdd;
    table["sub"] = runSub;
    table["neg"] = negate;
    table["where"] = runWhere;
    table["masked_fill"] = runMaskedFill;
    table["copy"] = runCopy;
    table["fill"] = table["zero"] = runFill;
    addComplexFormulas(table);
    return table;
  }();
  return formulas;
}

/// None where the formula is not known. Of sums with real numbers a view of the
/// gradient is handed on, and a complex number takes more than a real one.
static Run findComplexFormula(const BackwardRule &rule, StringRef name) {
  Operation *op = rule.getOp();
  Attribute other = op->getAttr("other");
  auto found = getComplexFormulas().find(name);
  if (found == getComplexFormulas().end() ||
      (other && !isa<IntegerAttr, FloatAttr>(other)))
    return nullptr;
  Run run = found->second;
  bool handsOn = llvm::is_contained({runAdd, runSub, runWhere, runCopy}, run);
  bool isMixed = llvm::any_of(op->getOpOperands(), [&](OpOperand &operand) {
    return rule.wantsOperand(operand.getOperandNumber()) &&
           !isa<ComplexType>(getElementTypeOrSelf(operand.get().getType()));
  });
  return handsOn && isMixed ? nullptr : run;
}

/// Whether there is one for operators of this base name, `mul` for one.
static bool hasFormula(StringRef name) {
  return getFormulas().contains(name) || getComplexFormulas().contains(name);
}

void kernels::addBackwardFormulas(KernelLibrary &library, MLIRContext &context,
                                  llvm::function_ref<bool(StringRef)> holds) {
  for (RegisteredOperationName name : context.getRegisteredOperationsByDialect(
           KoilaDialect::getDialectNamespace())) {
    auto *op = name.getInterface<TorchOperatorInterface>();
    if (!op || library.find(name.getTypeID()).backward)
      continue;
    StringRef schema = op->getTorchSchema();
    schema.consume_front("aten::");
    StringRef base =
        schema.take_until([](char c) { return c == '.' || c == '('; });
    if (hasFormula(base) && holds(base))
      library.insert(name.getTypeID(), name.getStringRef(),
                     {nullptr, nullptr, rules::describeBackward});
  }
}

void rules::describeBackward(BackwardRule &rule) {
  auto op = cast<TorchOperatorInterface>(rule.getOp());
  StringRef schema = op.getTorchSchema();
  schema.consume_front("aten::");
  StringRef name =
      schema.take_until([](char c) { return c == '.' || c == '('; });
  if (!hasFormula(name) || !rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  // Powers of and to tensors, limits that are tensors.
  Run run = getFormulas().lookup(name);
  if (llvm::count_if(op->getOperandTypes(), llvm::IsaPred<TensorType>) > 1)
    run = run == runPower   ? runPowerOfTensors
          : run == runClamp ? runClampTensors
                            : run;
  if (isa<ComplexType>(rule.getGradient()->elementType))
    run = findComplexFormula(rule, name);
  if (!run)
    return rule.setInexact("gradients that are complex numbers");
  BackwardReplay steps(rule);
  run({rule, steps, *rule.getGradient()});
  steps.finish();
}
