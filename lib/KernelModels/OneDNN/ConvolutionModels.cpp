//===- ConvolutionModels.cpp - Kernel models of convolutions --------------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/ConvolutionOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

template <int64_t Dims, bool IsTransposed>
static void convolve(WorkspaceRule &rule) {
  rules::describeConvolutionWorkspace(rule, {Dims, IsTransposed});
}

template <int64_t Dims, bool IsTransposed>
static void convolveBackward(BackwardRule &rule) {
  rules::describeConvolutionBackward(rule, {Dims, IsTransposed});
}

void kernels::addConvolutionModels(KernelLibrary &library) {
  library.add<Conv1dOp, Conv1dPaddingOp>({convolve<1, false>,
                                          rules::describeConvolutionSaved,
                                          convolveBackward<1, false>});
  library.add<Conv2dOp, Conv2dPaddingOp>({convolve<2, false>,
                                          rules::describeConvolutionSaved,
                                          convolveBackward<2, false>});
  library.add<Conv3dOp, Conv3dPaddingOp>({convolve<3, false>,
                                          rules::describeConvolutionSaved,
                                          convolveBackward<3, false>});
  library.add<ConvTranspose1dOp>({convolve<1, true>,
                                  rules::describeConvolutionSaved,
                                  convolveBackward<1, true>});
  library.add<ConvTranspose2dOp>({convolve<2, true>,
                                  rules::describeConvolutionSaved,
                                  convolveBackward<2, true>});
  library.add<ConvTranspose3dOp>({convolve<3, true>,
                                  rules::describeConvolutionSaved,
                                  convolveBackward<3, true>});
  library.add<ConvolutionBackwardOp>(
      {rules::describeConvolutionBackwardWorkspace, nullptr, nullptr});
  library.add<ConvolutionDeprecatedOp, ConvolutionModeOp, ConvolutionOp,
              PlainConvolutionOp>({convolve<0, false>,
                                   rules::describeConvolutionSaved,
                                   convolveBackward<0, false>});
}
