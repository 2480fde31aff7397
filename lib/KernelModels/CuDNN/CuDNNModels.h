//===- CuDNNModels.h - The rows of cuDNN ------------------------*- C++ -*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_CUDNN_CUDNNMODELS_H
#define KOILA_LIB_KERNELMODELS_CUDNN_CUDNNMODELS_H

#include "../Models.h"

namespace koila::cudnn {

void addConvolutionModels(KernelLibrary &library);
void addRecurrentModels(KernelLibrary &library);

} // namespace koila::cudnn

#endif // KOILA_LIB_KERNELMODELS_CUDNN_CUDNNMODELS_H
