//===- PoolBackward.cpp - Gradients of pools and resizings ----------------===//
//
// Sources: native/DilatedMaxPool2d.cpp, native/AveragePool2d.cpp,
// native/AdaptiveAveragePooling.cpp, native/UpSample*.cpp and their kernels.
//
//===----------------------------------------------------------------------===//

#include "../../BackwardRules.h"
#include "BackwardReplay.h"
#include "koila/Dialect/Koila/IR/PoolOps.h"
#include "koila/Dialect/Koila/IR/ResampleOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

namespace {
/// In which format a kernel reads.
enum class Reads {
  /// In that of the gradient.
  Gradient,
  /// The same, and the places of maxima.
  Places,
  /// In that of the operand, as the places are.
  Operand
};
} // namespace

/// A new tensor in the format of the operand, which a kernel fills: copies of
/// what is not in the format that it reads. None where the strides say nothing.
static std::optional<ConcreteTensor> fillCopied(BackwardReplay &steps,
                                                const ConcreteTensor &self,
                                                const ConcreteTensor &gradient,
                                                Reads reads) {
  auto isImage = [](const ConcreteTensor &tensor) {
    return !tensor.contiguous && suggestsChannelsLast(tensor);
  };
  bool isOwn = isImage(self), isRead = isImage(gradient);
  if ((isOwn || isRead) && self.dims.size() != 4)
    return std::nullopt;
  if (reads == Reads::Operand)
    isRead = isOwn;
  int64_t copies = isRead ? getChannelsLastCopyBytes(gradient)
                          : getCopyBytes(gradient) + getBlockBytes(gradient);
  if (isOwn != isRead) {
    copies += self.numBytes();
    if (reads == Reads::Places)
      copies += countBytes(gradient,
                           IntegerType::get(self.elementType.getContext(), 64));
  }
  ConcreteTensor made = steps.allocate(self);
  steps.allocateTemporary(copies);
  return isOwn ? toChannelsLast(made) : made;
}

static void readCopied(BackwardRule &rule, BackwardReplay &steps,
                       Reads reads = Reads::Gradient) {
  auto made = fillCopied(steps, steps.read(0), steps.getGradient(), reads);
  if (!made)
    return koila::detail::describeUnknownBackward(rule);
  steps.give(0, *made);
}

/// Of rows as images of one row.
static void readRow(BackwardRule &rule, BackwardReplay &steps,
                    Reads reads = Reads::Gradient) {
  ConcreteTensor self = steps.read(0), gradient = steps.getGradient();
  int64_t row = static_cast<int64_t>(self.dims.size()) - 1;
  if (row < 1 || !self.getStrides() || !gradient.getStrides())
    return koila::detail::describeUnknownBackward(rule);
  auto toImage = [&](const ConcreteTensor &tensor) {
    ConcreteTensor image = unsqueeze(tensor, row);
    return withStrides(image, image.getStrides());
  };
  auto made = fillCopied(steps, toImage(self), toImage(gradient), reads);
  if (!made)
    return koila::detail::describeUnknownBackward(rule);
  SmallVector<int64_t> strides = *made->getStrides();
  strides.erase(strides.begin() + row);
  steps.give(0, withStrides(self, strides), /*isViewed=*/true);
}

/// Of contiguous tensors alone.
static void readContiguous(BackwardRule &rule, BackwardReplay &steps) {
  if (!steps.read(0).contiguous || !steps.getGradient().contiguous)
    return koila::detail::describeUnknownBackward(rule);
  steps.give(0, steps.allocate(steps.read(0)));
}

/// The gradient of a mean over the trailing dims: expanded and divided.
static void divide(BackwardRule &rule, BackwardReplay &steps, bool isViewed) {
  ConcreteTensor self = steps.read(0);
  steps.give(0,
             steps.compute(expandTo(steps.getGradient(), self.dims),
                           OpReplay::Number::Integer),
             isViewed);
}

void rules::describePoolBackward(BackwardRule &rule) {
  Operation *op = rule.getOp();
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  auto isMean = [&](size_t rank) {
    return llvm::all_of(ArrayRef(steps.getGradient().dims).take_back(rank),
                        [](int64_t extent) { return extent == 1; });
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case<MaxPool2dOp, MaxPool2dWithIndicesOp>(
          [&](auto) { readCopied(rule, steps, Reads::Places); })
      .Case<AdaptiveMaxPool2dOp>(
          [&](auto) { readCopied(rule, steps, Reads::Operand); })
      .Case<AvgPool2dOp>([&](auto) { readCopied(rule, steps); })
      .Case<MaxPool3dOp, MaxPool3dWithIndicesOp, AvgPool3dOp,
            AdaptiveMaxPool3dOp>([&](auto) { readContiguous(rule, steps); })
      .Case<AdaptiveAvgPool2dOp>([&](auto) {
        isMean(2) ? divide(rule, steps, /*isViewed=*/false)
                  : readCopied(rule, steps);
      })
      .Case<AdaptiveAvgPool1dOp>([&](auto) {
        isMean(1) ? divide(rule, steps, /*isViewed=*/true)
                  : readRow(rule, steps);
      })
      .Case<AdaptiveAvgPool3dOp>([&](auto) {
        isMean(3) ? divide(rule, steps, /*isViewed=*/false)
                  : readContiguous(rule, steps);
      })
      .Case<AvgPool1dOp>([&](auto) { readRow(rule, steps); })
      .Case<MaxPool1dOp, MaxPool1dWithIndicesOp>(
          [&](auto) { readRow(rule, steps, Reads::Places); })
      .Case<AdaptiveMaxPool1dOp>(
          [&](auto) { readRow(rule, steps, Reads::Operand); })
      .Default(
          [&](Operation *) { koila::detail::describeUnknownBackward(rule); });
  steps.finish();
}

/// Resizings go by the format of the gradient; of volumes by the nearest
/// element only inside, and cubic ones not at all (measured).
void rules::describeResampleBackward(BackwardRule &rule) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  const ConcreteTensor &gradient = steps.getGradient();
  ConcreteTensor made = steps.allocate(steps.read(0));
  bool isInRows =
      isa<UpsampleBicubic2dOp, UpsampleBicubic2dVecOp, UpsampleBicubic2dAaOp,
          UpsampleBicubic2dAaVecOp>(rule.getOp());
  bool isOfChannels =
      !isInRows && !gradient.contiguous && isChannelsLast(gradient);
  if (isOfChannels &&
      isa<UpsampleNearest3dOp, UpsampleNearest3dVecOp, UpsampleNearestExact3dOp,
          UpsampleNearestExact3dVecOp>(rule.getOp())) {
    steps.allocateTemporary(made.numBytes());
    steps.give(0, made);
  } else if (isOfChannels &&
             isa<UpsampleBilinear2dAaOp, UpsampleBilinear2dAaVecOp>(
                 rule.getOp())) {
    steps.allocateTemporary(gradient.numBytes() + made.numBytes());
    steps.give(0, toChannelsLast(made));
  } else if (isOfChannels) {
    steps.give(0, toChannelsLast(made));
  } else if (gradient.contiguous || gradient.dims.size() == 4) {
    steps.allocateTemporary(getCopyBytes(gradient) + getBlockBytes(gradient));
    steps.give(0, made);
  } else {
    koila::detail::describeUnknownBackward(rule);
  }
  steps.finish();
}
