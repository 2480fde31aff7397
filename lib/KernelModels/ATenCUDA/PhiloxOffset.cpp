//===- PhiloxOffset.cpp - How far a draw moves a GPU's generator ----------===//

#include "koila/KernelModels/PhiloxOffset.h"
#include "koila/Dialect/Koila/IR/Dropout.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

/// Blocks of all the kernels here but that of samples with replacement.
static constexpr int64_t kBlock = 256;

std::optional<PhiloxDevice>
PhiloxDevice::get(const DeviceProperties &properties) {
  if (!properties.multiprocessors || !properties.threadsPerMultiprocessor)
    return std::nullopt;
  return PhiloxDevice{*properties.multiprocessors,
                      *properties.threadsPerMultiprocessor};
}

// CUDAGeneratorState::increase in aten/src/ATen/cuda/CUDAGeneratorImpl.cpp.
static int64_t roundOffset(int64_t offset) {
  return llvm::divideCeil(offset, 4) * 4;
}

// calc_execution_policy in aten/src/ATen/native/cuda/DistributionTemplates.h:
// of blocks no more than run at a time, and four numbers for each round of a
// thread.
int64_t koila::getDistributionOffset(int64_t elements, int64_t perCall,
                                     const PhiloxDevice &device) {
  if (elements <= 0)
    return 0;
  int64_t most =
      device.multiprocessors * (device.threadsPerMultiprocessor / kBlock);
  int64_t blocks = std::min<int64_t>(most, llvm::divideCeil(elements, kBlock));
  return llvm::divideCeil(elements, kBlock * blocks * perCall) * 4;
}

// dropout_cuda in aten/src/ATen/native/cuda/Dropout.cu; by four, whatever the
// type is, and however wide the reads are.
int64_t koila::getFusedDropoutOffset(int64_t elements,
                                     const PhiloxDevice &device) {
  return getDistributionOffset(elements, 4, device);
}

// randperm_out_cuda in aten/src/ATen/native/cuda/Randperm.cu: keys from the
// whole range of int or int64, two at a time; randperm_handle_duplicate_keys in
// Randperm.cuh, in any case.
int64_t koila::getPermutationOffset(int64_t elements,
                                    const PhiloxDevice &device) {
  return getDistributionOffset(elements, 2, device) + roundOffset(elements);
}

// multinomial_with_replacement_kernel_impl in
// aten/src/ATen/native/cuda/MultinomialKernel.cu: a row of blocks for each row,
// as far as a grid goes.
int64_t koila::getReplacementOffset(int64_t rows) {
  constexpr int64_t kMostRows = 65535;
  return llvm::divideCeil(rows, std::min(rows, kMostRows)) * 4;
}

namespace {
class OffsetOf {
public:
  OffsetOf(WorkspaceRule::Lookup lookup, const PhiloxDevice &device)
      : lookup(lookup), device(device) {}

  using Offset = std::optional<int64_t>;

  /// Draws of floating-point numbers: four floats at a time, or two doubles.
  Offset ofFloats(const std::optional<ConcreteTensor> &drawn) const {
    return drawn ? of(*drawn, drawn->elementType.isF64() ? 2 : 4)
                 : std::nullopt;
  }
  Offset of(const ConcreteTensor &drawn, int64_t perCall) const {
    // A kernel with longer indices is launched in parts, each of which moves
    // the offset again.
    if (isa<ComplexType>(drawn.elementType) ||
        drawn.numBytes() > std::numeric_limits<int32_t>::max())
      return std::nullopt;
    return getDistributionOffset(drawn.numElements(), perCall, device);
  }
  /// random_from_to_kernel in DistributionTemplates.h: of wide ranges two
  /// numbers of 64 bits at a time.
  Offset ofRange(Operation *op, StringRef low, StringRef high) const {
    auto drawn = lookup(op->getResult(0));
    auto from =
        low.empty() ? IntegerAttr() : op->getAttrOfType<IntegerAttr>(low);
    auto to = op->getAttrOfType<IntegerAttr>(high);
    if (!drawn || !to || (!low.empty() && !from))
      return std::nullopt;
    int64_t first = from ? from.getInt() : 0;
    // Computed arguments are marked by the least number.
    int64_t range;
    if (llvm::is_contained({first, to.getInt()},
                           std::numeric_limits<int64_t>::min()) ||
        llvm::SubOverflow(to.getInt(), first, range))
      return std::nullopt;
    return of(*drawn, range >= int64_t(1) << 28 ? 2 : 4);
  }
  Offset ofDropout(Operation *op, const rules::Dropout &dropout) const {
    auto input = lookup(op->getOperand(0));
    if (!input)
      return std::nullopt;
    if (input->numElements() == 0)
      return 0;
    return isa<DropoutOp>(op) && !cast<TorchOperatorInterface>(op).isTied()
               ? getFusedDropoutOffset(input->numElements(), device)
               : ofFloats(dropout.getNoise(*input));
  }
  Offset ofMultinomial(MultinomialOp op) const {
    auto weights = lookup(op.getSelf());
    if (!weights || !op.getDynamic().empty())
      return std::nullopt;
    // multinomial_out in aten/src/ATen/native/Distributions.cpp: exponential
    // numbers in place of the weights.
    if (!op.getReplacement() || op.getNumSamples() == 1)
      return ofFloats(weights);
    return getReplacementOffset(weights->dims.size() < 2 ? 1
                                                         : weights->dims[0]);
  }

  Offset operator()(Operation *op) const {
    auto all = [&](Operation *each) {
      return ofFloats(lookup(each->getResult(0)));
    };
    return llvm::TypeSwitch<Operation *, Offset>(op)
        .Case<BernoulliPOp, CauchyOp, ExponentialOp, GeometricOp, LogNormalOp,
              NormalFloatFloatOp, NormalFloatTensorOp, NormalOp,
              NormalTensorFloatOp, NormalTensorTensorOp, RandLikeOp, RandOp,
              RandnLikeOp, RandnOp, UniformOp>(all)
        .Case<DropoutOp, AlphaDropoutOp, FeatureDropoutOp,
              FeatureAlphaDropoutOp>([&](auto dropout) -> Offset {
          return dropout.draws() ? ofDropout(op, dropout.getDropout()) : 0;
        })
        .Case([&](NativeDropoutOp dropout) -> Offset {
          auto input = lookup(dropout.getInput());
          if (!dropout.getTrain().value_or(true) ||
              dropout.getP().isExactlyValue(1.0))
            return 0;
          return input ? Offset(getFusedDropoutOffset(input->numElements(),
                                                      device))
                       : std::nullopt;
        })
        // random_kernel in DistributionTemplates.h.
        .Case([&](RandomOp) -> Offset {
          auto drawn = lookup(op->getResult(0));
          if (!drawn)
            return std::nullopt;
          bool isWide =
              drawn->elementType.isF64() || drawn->elementType.isInteger(64);
          return of(*drawn, isWide ? 2 : 4);
        })
        .Case<RandintOp, RandintLikeOp>(
            [&](auto) { return ofRange(op, "", "high"); })
        .Case<RandintLowOp, RandintLikeLowOp>(
            [&](auto) { return ofRange(op, "low", "high"); })
        .Case([&](RandomToOp) { return ofRange(op, "", "to"); })
        .Case([&](RandomFromOp) { return ofRange(op, "from", "to"); })
        // bernoulli_kernel of probabilities in DistributionTemplates.h: ten.
        .Case<BernoulliOp, BernoulliTensorOp>([&](auto) -> Offset {
          auto drawn = lookup(op->getResult(0));
          if (!drawn)
            return std::nullopt;
          return drawn->numElements() == 0 ? 0 : roundOffset(10);
        })
        // launch_poisson_cuda_kernel in aten/src/ATen/native/cuda/
        // Distributions.cu: twenty.
        .Case([&](PoissonOp) -> Offset { return roundOffset(20); })
        .Case([&](RandpermOp) -> Offset {
          auto drawn = lookup(op->getResult(0));
          if (!drawn)
            return std::nullopt;
          return getPermutationOffset(drawn->numElements(), device);
        })
        .Case([&](MultinomialOp draw) { return ofMultinomial(draw); })
        .Default([](Operation *other) -> Offset {
          return mayDraw(other) ? std::nullopt : Offset(0);
        });
  }

private:
  WorkspaceRule::Lookup lookup;
  const PhiloxDevice &device;
};
} // namespace

std::optional<int64_t> koila::getPhiloxOffset(Operation *op,
                                              WorkspaceRule::Lookup lookup,
                                              const PhiloxDevice &device) {
  return OffsetOf(lookup, device)(op);
}
