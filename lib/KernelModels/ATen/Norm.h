//===- Norm.h - What kernels of normalisations see --------------*- C++ -*-===//

#ifndef KOILA_LIB_KERNELMODELS_ATEN_NORM_H
#define KOILA_LIB_KERNELMODELS_ATEN_NORM_H

#include "koila/Interfaces/Rules.h"

namespace koila::kernels {

/// Whether the kernels of batch_norm see a dense `input` as rows of channels.
bool normalisesRows(const ConcreteTensor &input);
/// Bytes of what a gradient of such rows adds up: two sums of each thread, ones
/// where there is no weight, and deviations that are not there from training.
/// Half types have three vectors of float32, whatever is there (measured on 1
/// to 3 threads). Source: batch_norm_cpu_backward_channels_last_impl in
/// native/cpu/batch_norm_kernel.cpp.
int64_t getRowSumBytes(const ConcreteTensor &input, int64_t threads,
                       bool hasWeight, bool isTraining);

} // namespace koila::kernels

#endif // KOILA_LIB_KERNELMODELS_ATEN_NORM_H
