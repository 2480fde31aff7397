//===- Norm.h - What kernels of normalisations see --------------*- C++ -*-===//

#ifndef KOILA_LIB_KERNELMODELS_ATEN_NORM_H
#define KOILA_LIB_KERNELMODELS_ATEN_NORM_H

#include "koila/Interfaces/Rules.h"

namespace koila::kernels {

/// Whether the kernels of batch_norm see a dense `input` as rows of channels.
bool normalisesRows(const ConcreteTensor &input);

} // namespace koila::kernels

#endif // KOILA_LIB_KERNELMODELS_ATEN_NORM_H
