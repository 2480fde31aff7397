//===- Spectral.cpp - What Fourier transforms hold inside -----------------===//
//
// Source: native/SpectralOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "../WorkspaceRules.h"
#include "StftOperands.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/SpectralOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using rules::Fourier;
using namespace koila::spectral;

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

Fourier spectral::getKind(Operation *op) {
  return llvm::TypeSwitch<Operation *, Fourier>(op)
      .Case<FftRfftOp, FftIhfftOp, FftRfft2Op, FftRfftnOp>(
          [](auto) { return Fourier::RealToHalf; })
      .Case<FftIhfft2Op, FftIhfftnOp>(
          [](auto) { return Fourier::RealToHalfLastFirst; })
      .Case<FftIrfftOp, FftHfftOp, FftIrfft2Op, FftHfft2Op, FftIrfftnOp,
            FftHfftnOp>([](auto) { return Fourier::HalfToReal; })
      .Default([](Operation *) { return Fourier::Complex; });
}

/// An integer that a program computes of the sizes of tensors.
static std::optional<int64_t> evaluate(const WorkspaceRule &rule, Value value) {
  if (APInt number; matchPattern(value, m_ConstantInt(&number)))
    return number.getSExtValue();
  Operation *maker = value.getDefiningOp();
  if (auto size = dyn_cast_or_null<SizeIntOp>(maker)) {
    auto tensor = rule.tensor(size.getSelf());
    int64_t rank = tensor ? tensor->dims.size() : 0;
    auto dim = static_cast<int64_t>(size.getDim());
    dim += dim < 0 ? rank : 0;
    return tensor && dim >= 0 && dim < rank ? std::optional(tensor->dims[dim])
                                            : std::nullopt;
  }
  if (auto read = dyn_cast_or_null<IntTensorOp>(maker))
    return evaluate(rule, read.getA());
  // The number is the last operand.
  if (isa_and_present<NumToTensorOp>(maker) && maker->getNumOperands() > 0)
    return evaluate(rule, maker->getOperands().back());
  if (!isa_and_present<arith::AddIOp, arith::SubIOp, arith::MulIOp>(maker))
    return std::nullopt;
  auto lhs = evaluate(rule, maker->getOperand(0)),
       rhs = evaluate(rule, maker->getOperand(1));
  int64_t result = 0;
  if (!lhs || !rhs ||
      (isa<arith::AddIOp>(maker)   ? llvm::AddOverflow(*lhs, *rhs, result)
       : isa<arith::SubIOp>(maker) ? llvm::SubOverflow(*lhs, *rhs, result)
                                   : llvm::MulOverflow(*lhs, *rhs, result)))
    return std::nullopt;
  return result;
}

std::optional<int64_t> spectral::getLastSize(const WorkspaceRule &rule,
                                             ArrayRef<int64_t> dims,
                                             ArrayRef<int64_t> before,
                                             int64_t half) {
  Operation *op = rule.getOp();
  OperatorArguments arguments(op);
  std::optional<int64_t> size;
  Value computed;
  if (auto n = op->getAttrOfType<IntegerAttr>("n")) {
    size = n.getInt();
    computed = arguments.getDynamic("n");
  } else if (auto s = op->getAttrOfType<DenseI64ArrayAttr>("s");
             s && !dims.empty() &&
             static_cast<int64_t>(dims.size()) <= s.size()) {
    size = s[dims.size() - 1];
    computed = arguments.getDynamic("s", dims.size() - 1);
  }
  if (size == ShapedType::kDynamic)
    size = computed ? evaluate(rule, computed) : std::nullopt;
  else if (!size || *size == -1)
    size = before[dims.back()];
  if (!size || *size / 2 + 1 != half)
    return std::nullopt;
  return size;
}

/// The sizes to which the dims are cut or filled up: one or the other, where
/// one is computed.
static SmallVector<SmallVector<int64_t>, 2>
getSizes(const WorkspaceRule &rule, Fourier kind, ArrayRef<int64_t> dims,
         ArrayRef<int64_t> before, ArrayRef<int64_t> after) {
  SmallVector<int64_t> sizes;
  for (int64_t dim : dims)
    sizes.push_back(after[dim]);
  if (dims.empty() || kind == Fourier::Complex)
    return {sizes};
  if (kind == Fourier::HalfToReal) {
    sizes.back() = sizes.back() / 2 + 1;
    return {sizes};
  }
  if (auto size = spectral::getLastSize(rule, dims, before, sizes.back())) {
    sizes.back() = *size;
    return {sizes};
  }
  // Half a spectrum does not tell an even size from an odd one.
  sizes.back() = 2 * sizes.back() - 1;
  SmallVector<int64_t> other(sizes);
  --other.back();
  if (other.back() < 1)
    return {sizes};
  return {sizes, other};
}

//===----------------------------------------------------------------------===//
// Transforms
//===----------------------------------------------------------------------===//

/// hfft: the conjugate is a tensor of its own.
static void transformConjugate(WorkspaceRule &rule, AllocationTrace &trace,
                               const Signal &signal, ArrayRef<int64_t> dims,
                               int64_t extent) {
  Transformed between{signal, {}};
  if (dims.size() > 1)
    between = transformComplex(trace, signal, dims.drop_back());
  auto conjugate = spectral::clone(between);
  if (!conjugate)
    return rule.setInexact("the conjugate of a signal that overlaps");
  AllocationTrace::Block block = trace.allocate(conjugate->numBytes());
  transformToReal(trace, *conjugate, dims.take_back(), extent);
  trace.free(block);
  trace.free(between.block);
}

/// ihfft of several dims: the last one, whose conjugate is transformed.
static void transformInverseHalf(AllocationTrace &trace, const Signal &signal,
                                 ArrayRef<int64_t> dims) {
  Transformed half = transformReal(trace, signal, dims.take_back(),
                                   /*onesided=*/true);
  trace.lump(half.numBytes());
  transformComplex(trace, half, dims.drop_back());
  trace.free(half.block);
}

static void transform(WorkspaceRule &rule, AllocationTrace &trace,
                      const Signal &signal, ArrayRef<int64_t> dims,
                      ArrayRef<int64_t> after) {
  Operation *op = rule.getOp();
  bool isReal = !isa<ComplexType>(signal.elementType);
  switch (getKind(op)) {
  case Fourier::Complex:
    if (dims.empty())
      trace.allocate(signal.numBytes());
    else if (isReal)
      transformReal(trace, signal, dims, /*onesided=*/false);
    else
      transformComplex(trace, signal, dims);
    return;
  case Fourier::RealToHalf:
    transformReal(trace, signal, dims, /*onesided=*/true);
    return;
  case Fourier::RealToHalfLastFirst:
    return transformInverseHalf(trace, signal, dims);
  case Fourier::HalfToReal:
    int64_t extent = after[dims.back()];
    if (isa<FftHfftOp, FftHfft2Op, FftHfftnOp>(op))
      return transformConjugate(rule, trace, signal, dims, extent);
    transformToReal(trace, signal, dims, extent);
    return;
  }
}

/// Whether the result is a view that is conjugated by who reads it.
static bool leavesConjugate(Operation *op, bool isReal, size_t dims) {
  return isa<FftIhfftOp>(op) || (isa<FftIfftOp>(op) && isReal) ||
         (isa<FftIhfft2Op, FftIhfftnOp>(op) && dims == 1);
}

namespace {
/// What a transform holds beside its result, and of this the signal that was
/// filled up.
struct Held {
  int64_t transient = 0, filled = 0;
  AllocationTrace trace;
  /// Whether it may be the signal itself that is transformed.
  bool isSignal = false;
};
} // namespace

static Held holdTransform(WorkspaceRule &rule, Signal signal, Type type,
                          ArrayRef<int64_t> dims, ArrayRef<int64_t> sizes,
                          ArrayRef<int64_t> after) {
  bool isOne = rule.getOp()->hasAttrOfType<IntegerAttr>("dim");
  Held held;
  AllocationTrace &trace = held.trace;
  AllocationTrace::Block converted, filled;
  if (int64_t bytes = getCastBytes(signal, type)) {
    signal = spectral::convert(signal, type);
    converted = trace.allocate(bytes);
  }
  if (spectral::resize(signal, dims, sizes)) {
    held.filled = signal.numBytes();
    filled = trace.allocate(held.filled);
    // In one dim what was converted goes then.
    if (isOne)
      trace.free(std::exchange(converted, {}));
  }
  for (auto [extent, stride] : llvm::zip_equal(signal.dims, *signal.strides))
    if (extent > 1 && stride == 0) {
      rule.setInexact("a transform of repeated elements");
      return held;
    }
  transform(rule, trace, signal, dims, after);
  trace.free(filled);
  trace.free(converted);
  held.isSignal = held.filled == 0;
  held.transient = trace.getTransient();
  return held;
}

/// None where that is not known, and then the rule says so.
static std::optional<Held> holdTransform(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto signal = spectral::getSignal(rule, op->getOperand(0));
  auto result = rule.tensor(op->getResult(0));
  auto dims =
      signal ? rules::getFourierDims(op, signal->dims.size()) : std::nullopt;
  auto fail = [&](StringRef why) -> std::optional<Held> {
    rule.setInexact(why);
    return std::nullopt;
  };
  if (!signal || !result || !dims)
    return fail("the strides of a signal are unknown");
  if (result->numElements() == 0 || signal->numElements() == 0)
    return fail("a transform of nothing");
  Fourier kind = getKind(op);
  bool isOne = op->hasAttrOfType<IntegerAttr>("dim");
  bool isReal = !isa_and_present<ComplexType>(signal->elementType);
  if (leavesConjugate(op, isReal, dims->size()))
    return fail("the next operator resolves the conjugate");
  // Real numbers stay so in one dim, and where half a spectrum is wanted.
  Type type = spectral::getRealType(signal->elementType);
  if (kind == Fourier::HalfToReal ||
      (kind == Fourier::Complex && !(isOne && isReal)))
    type = ComplexType::get(type);
  std::optional<Held> most;
  for (ArrayRef<int64_t> sizes :
       getSizes(rule, kind, *dims, signal->dims, result->dims)) {
    Held held = holdTransform(rule, *signal, type, *dims, sizes, result->dims);
    if (most &&
        (most->transient != held.transient || most->filled != held.filled))
      rule.setBound("whether the computed size of a spectrum is even, nobody "
                    "knows; the larger one counts");
    if (most) {
      held.trace = AllocationTrace();
      held.transient = std::max(held.transient, most->transient);
      held.filled = std::max(held.filled, most->filled);
      held.isSignal |= most->isSignal;
    }
    most = held;
  }
  return most;
}

void rules::describeSpectralWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  if (!isa<FftFftfreqOp, FftRfftfreqOp>(op)) {
    auto held = holdTransform(rule);
    auto result = rule.tensor(op->getResult(0));
    if (!held)
      return;
    // Where the size of the result is not known the steps are the larger of two
    // guesses, of which the order does not hold.
    if (held->trace.getLeft() == result->numBytes())
      rule.setTrace(std::move(held->trace), result->numBytes());
    else
      rule.setTransient(held->transient);
    return;
  }
  // Whole numbers times a step.
  auto result = rule.tensor(op->getResult(0));
  if (!result || !(result->elementType.isF32() || result->elementType.isF64()))
    return rule.setInexact("frequencies of another type than float32 or "
                           "float64");
  rule.setTransient(getFloatBytes(result->elementType));
}

/// Of real numbers the first step, from these to complex ones, reads how many
/// there were: of what was filled up. Of several dims they are made complex
/// before. Source: _fft_r2c in derivatives.yaml.
void rules::describeSpectralSaved(SavedRule &rule) {
  Operation *op = rule.getOp();
  auto signal = rule.tensor(op->getOperand(0));
  if (!signal)
    return rule.setInexact("the shape of a signal is unknown");
  bool isOne = op->hasAttrOfType<IntegerAttr>("dim");
  Fourier kind = getKind(op);
  if (isa<ComplexType>(signal->elementType) || kind == Fourier::HalfToReal ||
      (kind == Fourier::Complex && !isOne))
    return;
  auto held = holdTransform(rule);
  if (held && held->filled > 0)
    rule.keep(held->filled);
  if (!held || held->isSignal)
    rule.save(op->getOperand(0));
}
