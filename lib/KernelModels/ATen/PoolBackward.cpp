//===- PoolBackward.cpp - Gradients of pools and resizings ----------------===//
//
// Sources: native/DilatedMaxPool2d.cpp, native/AveragePool2d.cpp,
// native/AdaptiveAveragePooling.cpp, native/UpSample*.cpp and their kernels.
//
//===----------------------------------------------------------------------===//

#include "../BackwardRules.h"
#include "BackwardReplay.h"
#include "koila/Dialect/Koila/IR/PoolOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// A new tensor in the format of the operand, which a kernel fills in that of
/// the gradient: copies of both where these are not it, and of the places of
/// maxima.
static void readCopied(BackwardRule &rule, BackwardReplay &steps,
                       bool hasPlaces = false) {
  ConcreteTensor self = steps.read(0), gradient = steps.getGradient();
  auto isImage = [](const ConcreteTensor &tensor) {
    return !tensor.contiguous && suggestsChannelsLast(tensor);
  };
  bool isOwn = isImage(self), isRead = isImage(gradient);
  if ((isOwn || isRead) && self.dims.size() != 4)
    return koila::detail::describeUnknownBackward(rule);
  int64_t copies = isRead ? getChannelsLastCopyBytes(gradient)
                          : getCopyBytes(gradient) + getBlockBytes(gradient);
  if (isOwn != isRead) {
    copies += self.numBytes();
    if (hasPlaces)
      copies += countBytes(gradient,
                           IntegerType::get(self.elementType.getContext(), 64));
  }
  ConcreteTensor made = steps.allocate(self);
  steps.allocateTemporary(copies);
  steps.give(0, isOwn ? toChannelsLast(made) : made);
}

/// Of contiguous tensors alone.
static void readContiguous(BackwardRule &rule, BackwardReplay &steps,
                           bool isViewed = false) {
  if (!steps.read(0).contiguous || !steps.getGradient().contiguous)
    return koila::detail::describeUnknownBackward(rule);
  steps.give(0, steps.allocate(steps.read(0)), isViewed);
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
          [&](auto) { readCopied(rule, steps, /*hasPlaces=*/true); })
      .Case<AvgPool2dOp>([&](auto) { readCopied(rule, steps); })
      .Case<MaxPool3dOp, MaxPool3dWithIndicesOp, AvgPool3dOp,
            AdaptiveMaxPool2dOp, AdaptiveMaxPool3dOp>(
          [&](auto) { readContiguous(rule, steps); })
      .Case<AdaptiveMaxPool1dOp>(
          [&](auto) { readContiguous(rule, steps, /*isViewed=*/true); })
      .Case<AdaptiveAvgPool2dOp>([&](auto) {
        isMean(2) ? divide(rule, steps, /*isViewed=*/false)
                  : readCopied(rule, steps);
      })
      // Of contiguous tensors; the others go by way of images.
      .Case<AdaptiveAvgPool1dOp>([&](auto) {
        isMean(1) ? divide(rule, steps, /*isViewed=*/true)
                  : readContiguous(rule, steps, /*isViewed=*/true);
      })
      .Case<AdaptiveAvgPool3dOp>([&](auto) {
        isMean(3) ? divide(rule, steps, /*isViewed=*/false)
                  : readContiguous(rule, steps);
      })
      .Case<MaxPool1dOp, AvgPool1dOp, MaxPool1dWithIndicesOp>(
          [&](auto) { readContiguous(rule, steps, /*isViewed=*/true); })
      .Default(
          [&](Operation *) { koila::detail::describeUnknownBackward(rule); });
  steps.finish();
}

/// Resizings go by the format of the gradient.
void rules::describeResampleBackward(BackwardRule &rule) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  const ConcreteTensor &gradient = steps.getGradient();
  ConcreteTensor made = steps.allocate(steps.read(0));
  if (!gradient.contiguous && isChannelsLast(gradient)) {
    steps.give(0, toChannelsLast(made));
  } else if (gradient.contiguous || gradient.dims.size() == 4) {
    steps.allocateTemporary(getCopyBytes(gradient) + getBlockBytes(gradient));
    steps.give(0, made);
  } else {
    koila::detail::describeUnknownBackward(rule);
  }
  steps.finish();
}
