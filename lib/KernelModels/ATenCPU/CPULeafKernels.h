//===- CPULeafKernels.h - Kernels of the CPU without an operation -*- C++
//-*-===//
//
// Private to lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATENCPU_CPULEAFKERNELS_H
#define KOILA_KERNELMODELS_ATENCPU_CPULEAFKERNELS_H

#include <memory>

namespace koila {
class LeafKernels;
namespace kernels {
std::unique_ptr<LeafKernels> makeCPULeafKernels();
} // namespace kernels
} // namespace koila

#endif // KOILA_KERNELMODELS_ATENCPU_CPULEAFKERNELS_H
