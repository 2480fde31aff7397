//===- ComplexBackward.cpp - Gradients of complex numbers -----------------===//
//
// Formulas read conjugates, which are views with a mark: a kernel that has no
// code for these reads a copy. Sources: derivatives.yaml, FunctionsManual.cpp,
// and aten/src/ATen/ConjugateFallback.cpp.
//
//===----------------------------------------------------------------------===//

#include "../../ATenCPU/GemmOperandCopies.h"
#include "ElementwiseFormula.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Number = OpReplay::Number;
using Result = OpReplay::Result;

/// The real or imaginary parts of complex numbers, a view.
static ConcreteTensor viewPart(const ConcreteTensor &tensor) {
  ConcreteTensor part = tensor;
  part.elementType = cast<ComplexType>(tensor.elementType).getElementType();
  auto strides = tensor.getStrides();
  if (strides)
    for (int64_t &stride : *strides)
      stride *= 2;
  return withStrides(part, strides);
}

MadeTensor kernels::multiplyByComplex(const Formula &of,
                                      const ConcreteTensor &tensor) {
  ConcreteTensor number{
      {}, ComplexType::get(Float64Type::get(tensor.elementType.getContext()))};
  MadeTensor wrapped = of.steps.allocate(number);
  AllocationTrace::Block cast = of.steps.AllocationTrace::allocate(
      getCastBytes(number, tensor.elementType));
  MadeTensor product = of.steps.makeLike(tensor);
  of.steps.AllocationTrace::free(cast);
  of.steps.free(wrapped);
  return product;
}

void kernels::giveReal(const Formula &of, unsigned operand,
                       const ConcreteTensor &made) {
  if (!isa<ComplexType>(made.elementType) ||
      isa<ComplexType>(of.steps.read(operand).elementType))
    return of.steps.give(operand, made);
  of.rule.setNew(operand, viewPart(made), /*isViewed=*/true, made.numBytes());
}

void kernels::giveConjugated(const Formula &of, unsigned operand,
                             const ConcreteTensor &factor) {
  bool isCopied = isa<ComplexType>(factor.elementType);
  ConcreteTensor copy = isCopied ? of.steps.makeLike(factor) : factor;
  giveReal(of, operand, of.steps.compute({of.gradient, copy}));
  if (isCopied)
    of.steps.free(copy);
}

int64_t kernels::resolveConjugate(BackwardRule &rule, blas::Factor &factor) {
  if (!isa<ComplexType>(factor.type))
    return 0;
  ConcreteTensor read = withStrides({factor.dims, factor.type}, factor.strides);
  ConcreteTensor copy = BackwardReplay(rule).makeLike(read);
  factor.strides = *copy.getStrides();
  return copy.numBytes();
}

/// Real parts of the conjugated gradient times the sign of the result, and
/// times i * result. Source: polar_backward.
static void runPolar(const Formula &of) {
  auto result = of.rule.tensor(of.getOp()->getResult(0));
  if (!result)
    return koila::detail::describeUnknownBackward(of.rule);
  // Both are made, whatever is asked for.
  SmallVector<MadeTensor> unasked;
  for (unsigned operand : {0u, 1u}) {
    MadeTensor factor = operand == 0 ? of.steps.compute(*result)
                                     : multiplyByComplex(of, *result);
    MadeTensor copy = of.steps.makeLike(of.gradient);
    MadeTensor made = of.steps.compute({copy, factor});
    of.steps.free(copy);
    if (of.steps.wants(operand))
      giveReal(of, operand, made);
    else
      unasked.push_back(made);
    of.steps.free(factor);
  }
  of.steps.free(unasked);
}

/// Views of the parts of the gradient.
static void runParts(const Formula &of) {
  for (unsigned operand : {0u, 1u})
    if (of.steps.wants(operand))
      of.rule.setView(operand, viewPart(of.gradient));
}

/// grad / other.conj(), and -grad * ((self / other) / other).conj()
static void runQuotient(const Formula &of) {
  auto divide = [&](const ConcreteTensor &factor) {
    bool isCopied = isa<ComplexType>(factor.elementType);
    ConcreteTensor copy = isCopied ? of.steps.makeLike(factor) : factor;
    giveReal(of, 0, of.steps.compute({of.gradient, copy}));
    if (isCopied)
      of.steps.free(copy);
  };
  if (of.getOp()->hasAttr("rounding_mode"))
    return koila::detail::describeUnknownBackward(of.rule);
  if (!of.hasOther())
    return giveReal(of, 0,
                    of.steps.compute(of.gradient, of.getNumber("other")));
  if (of.steps.wants(1)) {
    MadeTensor negated = of.steps.compute(of.gradient);
    MadeTensor quotient = of.steps.compute({of.self(), of.other()});
    MadeTensor again = of.steps.compute({quotient, of.other()});
    MadeTensor copy = of.steps.makeLike(again);
    giveReal(of, 1, of.steps.compute({negated, copy}));
    of.steps.free({negated, quotient, again, copy});
  }
  if (of.steps.wants(0))
    divide(of.other());
}

/// grad * result.conj()
static void runExp(const Formula &of) {
  auto result = of.rule.tensor(of.getOp()->getResult(0));
  if (!result)
    return koila::detail::describeUnknownBackward(of.rule);
  giveConjugated(of, 0, *result);
}

void kernels::addComplexFormulas(llvm::StringMap<RunFormula> &table) {
  table["polar"] = runPolar;
  table["complex"] = runParts;
  table["div"] = runQuotient;
  table["exp"] = runExp;
}
