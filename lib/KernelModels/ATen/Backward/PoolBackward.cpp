//===- PoolBackward.cpp - Gradients of pools and resizings ----------------===//
//
// Sources: native/DilatedMaxPool2d.cpp, native/AveragePool2d.cpp,
// native/AdaptiveAveragePooling.cpp, native/UpSample*.cpp and their kernels.
//
//===----------------------------------------------------------------------===//

#include "PoolBackward.h"
#include "../../BackwardRules.h"
#include "BackwardReplay.h"
#include "koila/Dialect/Koila/IR/ResampleOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"

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
  // The gradient, the places, then the result, which of images comes first.
  int64_t places = 0, result = isOwn != isRead ? self.numBytes() : 0;
  if (isOwn != isRead && reads == Reads::Places)
    places = countBytes(gradient,
                        IntegerType::get(self.elementType.getContext(), 64));
  SmallVector<int64_t, 3> sizes{isRead ? getChannelsLastCopyBytes(gradient)
                                       : getCopyBytes(gradient),
                                places};
  sizes.insert(isRead ? sizes.begin() : sizes.end(), result);
  MadeTensor made = steps.allocate(self);
  SmallVector<AllocationTrace::Block, 3> copies;
  for (int64_t bytes : sizes)
    copies.push_back(steps.AllocationTrace::allocate(bytes));
  for (AllocationTrace::Block copy : llvm::reverse(copies))
    steps.AllocationTrace::free(copy);
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

/// A function that fills the gradient of the input as the model `backward`.
template <typename Function>
static void replay(BackwardRule &rule, Function describe) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  describe(rule, steps);
  steps.finish();
}

/// Whether one element of each of the last `rank` dims is left.
static bool isMean(BackwardReplay &steps, size_t rank) {
  return llvm::all_of(ArrayRef(steps.getGradient().dims).take_back(rank),
                      [](int64_t extent) { return extent == 1; });
}

void rules::describeLineMaximaBackward(BackwardRule &rule) {
  replay(rule, [](BackwardRule &rule, BackwardReplay &steps) {
    readRow(rule, steps, Reads::Places);
  });
}

void rules::describeLineAveragesBackward(BackwardRule &rule) {
  replay(rule, [](BackwardRule &rule, BackwardReplay &steps) {
    readRow(rule, steps);
  });
}

void rules::describeLineAdaptiveMaximaBackward(BackwardRule &rule) {
  replay(rule, [](BackwardRule &rule, BackwardReplay &steps) {
    readRow(rule, steps, Reads::Operand);
  });
}

void rules::describeLineAdaptiveAveragesBackward(BackwardRule &rule) {
  replay(rule, [](BackwardRule &rule, BackwardReplay &steps) {
    isMean(steps, 1) ? divide(rule, steps, /*isViewed=*/true)
                     : readRow(rule, steps);
  });
}

void rules::describeImageMaximaBackward(BackwardRule &rule) {
  replay(rule, [](BackwardRule &rule, BackwardReplay &steps) {
    readCopied(rule, steps, Reads::Places);
  });
}

void rules::describeImageAveragesBackward(BackwardRule &rule) {
  replay(rule, [](BackwardRule &rule, BackwardReplay &steps) {
    readCopied(rule, steps);
  });
}

void rules::describeImageAdaptiveMaximaBackward(BackwardRule &rule) {
  replay(rule, [](BackwardRule &rule, BackwardReplay &steps) {
    readCopied(rule, steps, Reads::Operand);
  });
}

void rules::describeImageAdaptiveAveragesBackward(BackwardRule &rule) {
  replay(rule, [](BackwardRule &rule, BackwardReplay &steps) {
    isMean(steps, 2) ? divide(rule, steps, /*isViewed=*/false)
                     : readCopied(rule, steps);
  });
}

void rules::describeVolumePoolBackward(BackwardRule &rule) {
  replay(rule, readContiguous);
}

void rules::describeVolumeAdaptiveAveragesBackward(BackwardRule &rule) {
  replay(rule, [](BackwardRule &rule, BackwardReplay &steps) {
    isMean(steps, 3) ? divide(rule, steps, /*isViewed=*/false)
                     : readContiguous(rule, steps);
  });
}

/// Resizings go by the format of the gradient; of volumes by the nearest
/// element only inside, and cubic ones not at all (measured).
void rules::describeResampleBackward(BackwardRule &rule) {
  if (!rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  const ConcreteTensor &gradient = steps.getGradient();
  MadeTensor made = steps.allocate(steps.read(0));
  bool isInRows =
      isa<UpsampleBicubic2dOp, UpsampleBicubic2dVecOp, UpsampleBicubic2dAaOp,
          UpsampleBicubic2dAaVecOp>(rule.getOp());
  // Of dims of one both layouts may hold: strides decide.
  bool isOfChannels =
      !isInRows && isChannelsLast(gradient) && suggestsChannelsLast(gradient);
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
    steps.free(steps.contiguous(gradient));
    // Of single pixels the gradient is both, and the kernel for channels that
    // lie innermost copies what it writes. Source:
    // upsample_bilinear2d_backward_kernel_impl in
    // native/cpu/UpSampleMoreKernel.cpp.
    bool isOfPixels = gradient.contiguous && isChannelsLast(gradient);
    if (isOfPixels && !isInRows && gradient.dims.size() == 4)
      steps.allocateTemporary(getChannelsLastCopyBytes(made));
    steps.give(0, made);
  } else {
    koila::detail::describeUnknownBackward(rule);
  }
  steps.finish();
}
