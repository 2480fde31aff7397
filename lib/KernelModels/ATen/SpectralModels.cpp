//===- SpectralModels.cpp - Kernel models of Fourier transforms -----------===//

#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/SpectralOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void kernels::addSpectralModels(KernelLibrary &library) {
  library.add<FftFft2Op, FftFftOp, FftFftnOp, FftHfft2Op, FftHfftOp, FftHfftnOp,
              FftIfft2Op, FftIfftOp, FftIfftnOp, FftIhfft2Op, FftIhfftOp,
              FftIhfftnOp, FftIrfft2Op, FftIrfftOp, FftIrfftnOp, FftRfft2Op,
              FftRfftOp, FftRfftnOp>({rules::describeSpectralWorkspace,
                                      rules::describeSpectralSaved, nullptr});
  library.add<FftFftfreqOp, FftRfftfreqOp>(
      {rules::describeSpectralWorkspace, nullptr, nullptr});
}
