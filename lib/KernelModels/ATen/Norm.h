//===- Norm.h - What kernels of normalisations see --------------*- C++ -*-===//
//
// Private to lib/KernelModels: sizes that normalisations have in common, and
// their backward passes.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_KERNELMODELS_ATEN_NORM_H
#define KOILA_LIB_KERNELMODELS_ATEN_NORM_H

#include "koila/Interfaces/Rules.h"

namespace koila::kernels {

/// Bytes of an element of `type` in a sum, which half types do in float32.
int64_t getSumBytes(mlir::Type type);
/// Of a statistic: as the parameters are, which may be float32 for half types.
int64_t getStatisticBytes(const WorkspaceRule &rule,
                          const ConcreteTensor &input,
                          mlir::ValueRange parameters);
/// Mean and reciprocal deviation of `count` rows or groups.
void keepStatistics(SavedRule &rule, const ConcreteTensor &input, int64_t count,
                    mlir::ValueRange parameters);
/// The first operand; none, and the rule says so, if it is unknown or a number.
std::optional<ConcreteTensor> getNormInput(WorkspaceRule &rule);

/// Whether the kernels of batch_norm see a dense `input` as rows of channels.
bool normalisesRows(const ConcreteTensor &input);
/// What a gradient of such rows adds up, for a moment: ones where there is no
/// weight, deviations that are not there from training, and two sums of each
/// thread. Half types have three vectors of float32, whatever is there
/// (measured on 1 to 3 threads). Source:
/// batch_norm_cpu_backward_channels_last_impl in
/// native/cpu/batch_norm_kernel.cpp.
void allocateRowSums(AllocationTrace &trace, const ConcreteTensor &input,
                     int64_t threads, bool hasWeight, bool isTraining);

} // namespace koila::kernels

#endif // KOILA_LIB_KERNELMODELS_ATEN_NORM_H
