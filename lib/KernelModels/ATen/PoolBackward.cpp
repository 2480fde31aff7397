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

/// A new tensor, with a contiguous copy of the gradient beside it.
static void readCopied(BackwardRule &rule, BackwardReplay &steps) {
  ConcreteTensor self = steps.read(0);
  if (!self.contiguous)
    return rule.setInexact("the gradient of a pool or a resizing of a tensor "
                           "that is not contiguous");
  steps.allocateTemporary(self.numBytes() + getCopyBytes(steps.getGradient()) +
                          getBlockBytes(steps.getGradient()));
  steps.giveContiguous(0);
}

/// The gradient of a mean over the trailing dims: expanded and divided.
static void divide(BackwardRule &rule, BackwardReplay &steps, bool isViewed) {
  ConcreteTensor self = steps.read(0);
  steps.give(0,
             steps.compute(expandTo(steps.getGradient(), self.dims),
                           OpReplay::Number::Integer),
             isViewed);
}

/// Of contiguous tensors; `isViewed` if the operator goes by way of images.
static void readRows(BackwardRule &rule, BackwardReplay &steps, bool isViewed) {
  if (!steps.read(0).contiguous || !steps.getGradient().contiguous)
    return koila::detail::describeUnknownBackward(rule);
  steps.give(0, steps.allocate(steps.read(0)), isViewed);
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
      .Case<MaxPool2dOp, MaxPool2dWithIndicesOp, AvgPool2dOp>(
          [&](auto) { readCopied(rule, steps); })
      .Case<AdaptiveAvgPool2dOp>([&](auto) {
        isMean(2) ? divide(rule, steps, /*isViewed=*/false)
                  : readCopied(rule, steps);
      })
      // Of contiguous tensors; the others go by way of images.
      .Case<AdaptiveAvgPool1dOp>([&](auto) {
        isMean(1) ? divide(rule, steps, /*isViewed=*/true)
                  : readRows(rule, steps, /*isViewed=*/true);
      })
      .Case<AdaptiveAvgPool3dOp>([&](auto) {
        isMean(3) ? divide(rule, steps, /*isViewed=*/false)
                  : readRows(rule, steps, /*isViewed=*/false);
      })
      .Case<MaxPool1dOp, AvgPool1dOp, MaxPool1dWithIndicesOp>(
          [&](auto) { readRows(rule, steps, /*isViewed=*/true); })
      .Default(
          [&](Operation *) { koila::detail::describeUnknownBackward(rule); });
  steps.finish();
}

/// Resizings read the gradient in the format of what they resized.
void rules::describeResampleBackward(BackwardRule &rule) {
  if (!rule.getGradient() || rule.getGradient()->dims.size() != 4)
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  readCopied(rule, steps);
  steps.finish();
}
