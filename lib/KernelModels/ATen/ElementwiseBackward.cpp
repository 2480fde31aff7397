//===- ElementwiseBackward.cpp - Gradients of elementwise operators -------===//
//
// Source: tools/autograd/derivatives.yaml and FunctionsManual.cpp in
// torch/csrc/autograd: each formula is replayed in the order in which its
// tensors are made. What a statement makes lives to its end.
//
//===----------------------------------------------------------------------===//

#include "../BackwardRules.h"
#include "BackwardFormulas.h"
#include "BackwardReplay.h"
#include "Sum.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;
using Result = OpReplay::Result;

void koila::detail::describeUnknownBackward(BackwardRule &rule) {
  rule.setInexact("what its backward pass allocates is not known");
}

namespace {
struct Formula {
  BackwardRule &rule;
  BackwardReplay &steps;
  const ConcreteTensor &gradient;

  Operation *getOp() const { return rule.getOp(); }
  /// Whether there is a second tensor, not a number or a constant that is taken
  /// as one.
  bool hasOther() const {
    return getOp()->getNumOperands() > 1 &&
           isa<TensorType>(getOp()->getOperand(1).getType()) && !getConstant();
  }
  ParamGetOp getConstant() const {
    if (getOp()->getNumOperands() < 2)
      return {};
    auto read = getOp()->getOperand(1).getDefiningOp<ParamGetOp>();
    return read && read->hasAttr("wrapped") ? read : ParamGetOp();
  }
  ConcreteTensor self() const { return steps.read(0); }
  ConcreteTensor other() const { return steps.read(1); }
  /// What the argument `name`, a number, becomes.
  Number getNumber(StringRef name) const;
  /// Whether it is the number one.
  bool isOne(StringRef name) const;
};
} // namespace

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
}

/// oneDNN computes it of a contiguous input: it copies any other gradient, and
/// the result to the strides of that (measured).
static void runGelu(const Formula &of) {
  auto kind = of.getOp()->getAttrOfType<StringAttr>("approximate");
  ConcreteTensor self = of.self();
  ConcreteTensor result = of.steps.compute({of.gradient, self});
  bool copies = kind && kind.getValue() == "none" && self.contiguous &&
                !of.gradient.contiguous && self.elementType.isF32();
  if (self.elementType.isBF16() && !of.gradient.contiguous)
    return of.rule.setInexact("the gradient of gelu of bfloat16");
  if (copies)
    of.steps.allocateTemporary(self.numBytes() +
                               (result.contiguous ? 0 : self.numBytes()));
  of.steps.give(0, result);
}

/// grad * factor, or divided by it: the factor is freed.
static void multiplyBy(const Formula &of, const ConcreteTensor &factor) {
  of.steps.give(0, of.steps.compute({of.gradient, factor}));
  of.steps.free(factor);
}

/// grad / (2 * result)
static void runSqrt(const Formula &of) {
  multiplyBy(of, of.steps.compute(of.self(), Number::Integer));
}

/// -0.5 * grad * result.pow(3)
static void runRsqrt(const Formula &of) {
  ConcreteTensor half = of.steps.compute(of.gradient, Number::Float);
  ConcreteTensor cube = of.steps.compute(of.self());
  of.steps.give(0, of.steps.compute({half, cube}));
  of.steps.free({half, cube});
}

/// grad * f(self)
static void runProduct(const Formula &of) {
  multiplyBy(of, of.steps.compute(of.self()));
}

/// grad * -self.sin()
static void runCos(const Formula &of) {
  ConcreteTensor sine = of.steps.compute(of.self());
  ConcreteTensor negated = of.steps.compute(sine);
  of.steps.give(0, of.steps.compute({of.gradient, negated}));
  of.steps.free({sine, negated});
}

/// -grad * result * result
static void runReciprocal(const Formula &of) {
  ConcreteTensor negated = of.steps.compute(of.gradient);
  ConcreteTensor square = of.steps.compute({of.self(), of.self()});
  of.steps.give(0, of.steps.compute({negated, square}));
  of.steps.free({negated, square});
}

static void negate(const Formula &of) {
  of.steps.give(0, of.steps.compute(of.gradient));
}

/// grad * (exponent * self.pow(exponent - 1))
static void runPower(const Formula &of) {
  Attribute exponent = of.getOp()->getAttr("exponent");
  auto integer = dyn_cast_if_present<IntegerAttr>(exponent);
  auto number = dyn_cast_if_present<FloatAttr>(exponent);
  // `square` has none; that of 2 ** x is another formula.
  bool isSquare = of.getOp()->getName().stripDialect() == "square";
  if (!isSquare && !integer && !number)
    return koila::detail::describeUnknownBackward(of.rule);
  if ((integer && integer.getInt() == 0) ||
      (number && number.getValueAsDouble() == 0))
    return of.steps.giveContiguous(0);
  ConcreteTensor power = of.steps.compute(of.self());
  ConcreteTensor scaled = of.steps.compute(power, Number::Float);
  of.steps.give(0, of.steps.compute({of.gradient, scaled}));
  of.steps.free({power, scaled});
}

/// where(self >= min, grad, 0), or both limits
static void runClamp(const Formula &of) {
  auto given = [&](StringRef name) {
    return of.getOp()->getAttr(name) != nullptr;
  };
  ConcreteTensor zero = of.steps.makeNumber(of.gradient);
  SmallVector<ConcreteTensor> masks;
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

//===----------------------------------------------------------------------===//
// Two operands
//===----------------------------------------------------------------------===//

static void runMul(const Formula &of) {
  if (!of.hasOther())
    return of.steps.give(0,
                         of.steps.compute(of.gradient, of.getNumber("other")));
  // In the order of their names.
  if (of.steps.wants(1))
    of.steps.give(1, of.steps.compute({of.gradient, of.self()}));
  if (of.steps.wants(0))
    of.steps.give(0, of.steps.compute({of.gradient, of.other()}));
}

/// grad / other, and -grad * ((self / other) / other)
static void runDiv(const Formula &of) {
  // zeros_like(grad), of what is rounded.
  if (of.getOp()->hasAttr("rounding_mode")) {
    for (unsigned operand : {1u, 0u})
      if (operand < 1 + of.hasOther() && of.steps.wants(operand))
        of.steps.give(operand, of.steps.makeLike(of.gradient));
    return;
  }
  if (!of.hasOther())
    return of.steps.give(0,
                         of.steps.compute(of.gradient, of.getNumber("other")));
  // In the order of their names.
  if (of.steps.wants(1)) {
    ConcreteTensor negated = of.steps.compute(of.gradient);
    ConcreteTensor quotient = of.steps.compute({of.self(), of.other()});
    ConcreteTensor again = of.steps.compute({quotient, of.other()});
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
  ConcreteTensor negated = of.steps.compute(of.gradient);
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
  for (unsigned index = 1; index < operands.size(); ++index) {
    if (!isa<TensorType>(operands[index].getType()) || !of.steps.wants(index))
      continue;
    ConcreteTensor zero = of.steps.makeNumber(of.gradient);
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
  ConcreteTensor log = of.steps.compute(of.self());
  ConcreteTensor sum = of.steps.compute(log, Number::Integer);
  ConcreteTensor negated = of.steps.compute(sum);
  of.steps.give(0, of.steps.compute({of.gradient, negated}));
  of.steps.free({log, sum, negated});
}

/// 2 / sqrt(pi) * exp(-(self.pow(2))) * grad
static void runErf(const Formula &of) {
  ConcreteTensor square = of.steps.compute(of.self());
  ConcreteTensor negated = of.steps.compute(square);
  ConcreteTensor power = of.steps.compute(negated);
  ConcreteTensor scaled = of.steps.compute(power, Number::Float);
  of.steps.give(0, of.steps.compute({scaled, of.gradient}));
  of.steps.free({square, negated, power, scaled});
}

/// Each gradient is halved where both are equal, and zero where the other one
/// was taken.
static void runMaximum(const Formula &of) {
  for (unsigned operand : {1u, 0u}) {
    if (!of.steps.wants(operand))
      continue;
    ConcreteTensor half = of.steps.compute(of.gradient, Number::Integer);
    ConcreteTensor equal =
        of.steps.compute({of.self(), of.other()}, Number::None, Result::Bool);
    ConcreteTensor taken = of.steps.mask(equal, of.gradient);
    ConcreteTensor less =
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
    ConcreteTensor scaled =
        of.steps.compute(of.steps.read(factor), of.getNumber("value"));
    of.steps.give(operand, of.steps.compute({of.gradient, scaled}));
    of.steps.free(scaled);
  }
}

/// grad * (1 - weight), and grad * weight, a number.
static void runLerp(const Formula &of) {
  if (of.getOp()->getNumOperands() > 2)
    return koila::detail::describeUnknownBackward(of.rule);
  for (unsigned operand : {1u, 0u})
    if (of.steps.wants(operand))
      of.steps.give(operand, of.steps.compute(of.gradient, Number::Float));
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
  ConcreteTensor turned = of.steps.allocate(of.gradient);
  ConcreteTensor summed = of.steps.allocate(of.gradient);
  of.steps.give(0, of.steps.allocate(of.gradient));
  of.steps.free({turned, summed});
}

/// Zeros, into which the gradient of what was taken is written.
static void fillZeros(const Formula &of) { of.steps.giveContiguous(0); }

/// grad * f(g(self) + 1), and the like: a chain of kernels, then a product.
template <Number... numbers>
static void runChain(const Formula &of) {
  SmallVector<ConcreteTensor> made;
  ConcreteTensor last = of.self();
  for (Number number : {numbers...}) {
    last = of.steps.compute(last, number);
    made.push_back(last);
  }
  of.steps.give(0, of.steps.compute({of.gradient, last}));
  of.steps.free(made);
}

/// grad * result * ln(2)
static void runExp2(const Formula &of) {
  ConcreteTensor product = of.steps.compute({of.gradient, of.self()});
  of.steps.give(0, of.steps.compute(product, Number::Float));
  of.steps.free(product);
}

static void passOn(const Formula &of) { of.rule.forwardGrad(0); }

/// zeros_like(grad)
static void giveZeros(const Formula &of) {
  of.steps.give(0, of.steps.makeLike(of.gradient));
}

/// grad * isfinite(self), which is (self == self) * (abs(self) != inf)
static void runNanToNum(const Formula &of) {
  ConcreteTensor size = of.steps.compute(of.self());
  ConcreteTensor bounded = of.steps.compute(size, Number::Float, Result::Bool);
  ConcreteTensor same = of.steps.compute(of.self(), Number::None, Result::Bool);
  ConcreteTensor finite = of.steps.compute({same, bounded});
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
  ConcreteTensor own = of.steps.compute({self, spread, of.gradient});
  ConcreteTensor all = of.steps.compute({self, spread, of.gradient});
  if (of.steps.wants(1)) {
    ConcreteTensor sum = of.steps.allocate(spread);
    SmallVector<bool> isReduced;
    for (auto [own, given] : llvm::zip_equal(spread.dims, all.dims))
      isReduced.push_back(own != given);
    of.steps.allocateTemporary(getSumBytes(of.rule, all, sum, isReduced));
    sum.dims = weight.dims;
    of.steps.give(1, sum, /*isViewed=*/true);
  }
  of.steps.free(all);
  if (of.steps.wants(0))
    of.steps.give(0, own);
  else
    of.steps.free(own);
}

using Run = void (*)(const Formula &);

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
    table["clamp"] = table["clamp_min"] = table["clamp_max"] = runClamp;
    table["mul"] = runMul;
    table["div"] = runDiv;
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
    table["lerp"] = runLerp;
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
    table["nan_to_num"] = runNanToNum;
    table["glu"] = runGlu;
    table["prelu"] = runPrelu;
    return table;
  }();
  return formulas;
}

/// Rules of operators that are no formula.
static const llvm::StringMap<void (*)(BackwardRule &)> &getRules() {
  static const llvm::StringMap<void (*)(BackwardRule &)> own = {
      {"pairwise_distance", rules::describeDistanceBackward},
      {"cosine_similarity", rules::describeDistanceBackward},
      {"cdist", rules::describeDistanceBackward},
      {"_cdist_forward", rules::describeDistanceBackward},
      {"grid_sampler", rules::describeGridBackward},
      {"grid_sampler_2d", rules::describeGridBackward},
      {"grid_sampler_3d", rules::describeGridBackward},
      {"affine_grid_generator", rules::describeGridBackward},
  };
  return own;
}

bool rules::hasBackwardFormula(StringRef name) {
  return getFormulas().contains(name) || getRules().contains(name);
}

void rules::describeBackward(BackwardRule &rule) {
  auto op = cast<TorchOperatorInterface>(rule.getOp());
  StringRef schema = op.getTorchSchema();
  schema.consume_front("aten::");
  StringRef name =
      schema.take_until([](char c) { return c == '.' || c == '('; });
  if (auto own = getRules().find(name);
      own != getRules().end() && rule.getGradient())
    return own->second(rule);
  auto found = getFormulas().find(name);
  if (found == getFormulas().end() || !rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  // Powers of and to tensors, limits that are tensors.
  bool isOfOne = found->second == runPower || found->second == runClamp;
  if (isOfOne &&
      llvm::count_if(op->getOperandTypes(), llvm::IsaPred<TensorType>) > 1)
    return koila::detail::describeUnknownBackward(rule);
  if (isa<ComplexType>(rule.getGradient()->elementType))
    return rule.setInexact("gradients that are complex numbers");
  BackwardReplay steps(rule);
  found->second({rule, steps, *rule.getGradient()});
  steps.finish();
}
