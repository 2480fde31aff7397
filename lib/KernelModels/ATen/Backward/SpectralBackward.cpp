//===- SpectralBackward.cpp - Gradients of Fourier transforms -------------===//
//
// Sources: fft_r2c_backward and fft_c2r_backward in FunctionsManual.cpp,
// native/SpectralOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "../StftOperands.h"
#include "BackwardModels.h"
#include "koila/Dialect/Koila/IR/SpectralOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using namespace koila::spectral;
using rules::Fourier;

namespace {
class SpectralBackward {
public:
  SpectralBackward(BackwardRule &rule, Signal gradient, Signal self,
                   SmallVector<int64_t> dims)
      : rule(rule), steps(rule), gradient(std::move(gradient)),
        self(std::move(self)), dims(std::move(dims)) {}

  void run();

private:
  /// Of what was transformed, the size in each dim; none if it is not known.
  std::optional<SmallVector<int64_t>> getExtents(Fourier kind) const;
  Transformed runFull(const SmallVector<int64_t> &extents, bool isHalf);
  Transformed runHalf();
  void giveResized(const Transformed &made, int64_t saved);
  void giveUncut(const Transformed &made, Type type);

  BackwardRule &rule;
  BackwardReplay steps;
  Signal gradient, self;
  SmallVector<int64_t> dims;
  int64_t releasable = 0;
};
} // namespace

std::optional<SmallVector<int64_t>>
SpectralBackward::getExtents(Fourier kind) const {
  SmallVector<int64_t> extents(gradient.dims);
  int64_t last = dims.back();
  if (kind == Fourier::HalfToReal)
    extents[last] = extents[last] / 2 + 1;
  if (kind == Fourier::RealToHalf) {
    auto size = getLastSize(rule, dims, self.dims, extents[last]);
    if (!size)
      return std::nullopt;
    extents[last] = *size;
  }
  return extents;
}

/// All frequencies, the other half of which are zeros, transformed back.
Transformed SpectralBackward::runFull(const SmallVector<int64_t> &extents,
                                      bool isHalf) {
  Signal full = gradient;
  bool isFilled = isHalf && extents[dims.back()] > gradient.dims[dims.back()];
  if (isFilled)
    full = makeContiguous(extents, gradient.elementType);
  AllocationTrace::Block block;
  if (isFilled)
    block = steps.AllocationTrace::allocate(full.numBytes());
  Transformed made = transformComplex(steps, full, dims);
  steps.AllocationTrace::free(block);
  return made;
}

/// Half a spectrum, of which all but the first, and the last of an even size,
/// are doubled.
Transformed SpectralBackward::runHalf() {
  Transformed made = transformReal(steps, gradient, dims, /*onesided=*/true);
  if (gradient.dims[dims.back()] > made.dims[dims.back()])
    allocateInteger(steps, made.elementType);
  return made;
}

/// What is left of it: a part, where it had been filled up, and zeros around it
/// where it had been cut. By then the first node has given up what arrived and
/// `saved` bytes.
void SpectralBackward::giveResized(const Transformed &made, int64_t saved) {
  Signal whole = made;
  bool isReal = !isa<ComplexType>(self.elementType);
  auto strides = made.getStrides();
  if (isReal && isa<ComplexType>(made.elementType)) {
    whole.elementType = self.elementType;
    for (int64_t &stride : *strides)
      stride *= 2;
    whole = withStrides(whole, strides);
  }
  if (whole.dims == self.dims)
    return rule.setNew(0, whole, /*isViewed=*/isReal, made.numBytes(),
                       made.block);
  steps.freeOutside(releasable);
  steps.freeOutside(saved);
  bool isFilled = false, isCut = false;
  for (auto [own, other] : llvm::zip(self.dims, whole.dims)) {
    isFilled |= own < other;
    isCut |= own > other;
  }
  if (isFilled && isCut)
    return koila::detail::describeUnknownBackward(rule);
  if (isCut)
    return giveUncut(made, whole.elementType);
  ConcreteTensor part = self;
  part.elementType = whole.elementType;
  steps.give(0, steps.makeLike(withStrides(part, whole.getStrides())));
  steps.AllocationTrace::free(made.block);
}

/// Each dim was cut by a slice of its own, whose gradient has zeros around it;
/// transforms of several dims cast real numbers before. Sources:
/// resize_fft_input, promote_tensor_fft.
void SpectralBackward::giveUncut(const Transformed &made, Type type) {
  if (isa<ComplexType>(made.elementType) && type != made.elementType &&
      getKind(rule.getOp()) != Fourier::RealToHalf && dims.size() > 1)
    return rule.setInexact("the gradient of real numbers that were cut after "
                           "they were cast");
  ConcreteTensor part{made.dims, type};
  MadeTensor last(made, made.block);
  for (int64_t dim : llvm::reverse(dims)) {
    if (part.dims[dim] == self.dims[dim])
      continue;
    part.dims[dim] = self.dims[dim];
    MadeTensor zeros = steps.allocate(part);
    steps.free(std::exchange(last, zeros));
  }
  steps.give(0, last);
}

void SpectralBackward::run() {
  Operation *op = rule.getOp();
  Fourier kind = getKind(op);
  auto extents = getExtents(kind);
  bool isReal = !isa<ComplexType>(self.elementType);
  bool isComplex = isa<ComplexType>(gradient.elementType);
  if (!extents || isComplex != (kind != Fourier::HalfToReal) ||
      (isReal && kind == Fourier::HalfToReal))
    return koila::detail::describeUnknownBackward(rule);
  releasable = rule.getReleasableBytes();
  Transformed made = kind == Fourier::HalfToReal
                         ? runHalf()
                         : runFull(*extents, kind == Fourier::RealToHalf);
  // Of real numbers what was filled up is kept, which says how many there were.
  bool isOne = op->hasAttrOfType<IntegerAttr>("dim");
  bool isKept = isReal && (kind == Fourier::RealToHalf || isOne);
  Signal filled{made.dims, self.elementType};
  bool isFilled = filled.numElements() > self.numElements();
  giveResized(made, !isKept    ? 0
                    : isFilled ? filled.numBytes()
                               : rule.getSavedBytes(0));
  steps.finish();
}

static void describeTransform(BackwardRule &rule) {
  Operation *op = rule.getOp();
  auto self = getSignal(rule, op->getOperand(0));
  const ConcreteTensor &gradient = *rule.getGradient();
  auto fourier =
      self ? rules::getFourierDims(op, self->dims.size()) : std::nullopt;
  auto strides = gradient.getStrides();
  if (!fourier || fourier->empty() || !strides || gradient.numElements() == 0 ||
      self->elementType.isInteger())
    return koila::detail::describeUnknownBackward(rule);
  for (auto [extent, stride] : llvm::zip_equal(gradient.dims, *strides))
    if (extent > 1 && stride == 0)
      return rule.setInexact("a transform of repeated elements");
  Signal arrived = withStrides(gradient, strides);
  arrived.strides = strides;
  SpectralBackward(rule, arrived, *self, llvm::to_vector(*fourier)).run();
}

/// Of real numbers the result is a conjugate, and the transform no plain one.
static void describeInverse(BackwardRule &rule) {
  auto self = rule.tensor(rule.getOp()->getOperand(0));
  if (!self || !isa<ComplexType>(self->elementType))
    return koila::detail::describeUnknownBackward(rule);
  describeTransform(rule);
}

void kernels::addSpectralGradients(KernelLibrary &library) {
  library
      .add<FftFft2Op, FftFftOp, FftFftnOp, FftIfft2Op, FftIfftnOp, FftIrfft2Op,
           FftIrfftOp, FftIrfftnOp, FftRfft2Op, FftRfftOp, FftRfftnOp>(
          {.backward = ofGradient<describeTransform>});
  library.add<FftIfftOp>({.backward = ofGradient<describeInverse>});
}
