//===- Loss.cpp - What losses hold inside on a GPU ------------------------===//
//
// Losses that are expressions are those of every device; what their kernels
// allocate differs. Sources: native/Loss.cpp, native/cuda/NLLLoss2d.cu,
// native/cuda/Loss.cu.
//
//===----------------------------------------------------------------------===//

#include "CUDAModels.h"

using namespace koila;

void cuda::addLossModels(KernelLibrary &library) {
  kernels::addComposedLossModels(library);
  kernels::addCrossEntropyModels(library);
  kernels::addLossModels(library);
}
