//===- Pad.h - What both passes of paddings ask -----------------*- C++ -*-===//

#ifndef KOILA_KERNELMODELS_ATEN_PAD_H
#define KOILA_KERNELMODELS_ATEN_PAD_H

#include "koila/Interfaces/Rules.h"

namespace koila::kernels {

/// Whether `op` pads a volume without a batch, which has the four dims of
/// images, but not their layout.
bool padsUnbatchedVolume(mlir::Operation *op, const ConcreteTensor &input);

} // namespace koila::kernels

#endif // KOILA_KERNELMODELS_ATEN_PAD_H
