//===- SpectralOps.h - Fourier transforms -----------------------*- C++ -*-===//
//
// The classes of one family. Only its rules need them: passes ask interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_SPECTRALOPS_H
#define KOILA_DIALECT_KOILA_IR_SPECTRALOPS_H

#include "koila/Dialect/Koila/IR/Koila.h"

namespace koila::rules {

/// What a Fourier transform takes and gives.
enum class Fourier {
  /// Anything; complex numbers.
  Complex,
  /// Real numbers; the half of the spectrum that is no mirror image.
  RealToHalf,
  /// As RealToHalf, with the last dim first.
  RealToHalfLastFirst,
  /// Half a spectrum; real numbers.
  HalfToReal
};

/// The dims of a call, counted from the start, in its order; none if one is out
/// of range or given twice.
std::optional<llvm::SmallVector<int64_t>> getFourierDims(mlir::Operation *op,
                                                         int64_t rank);

} // namespace koila::rules

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/SpectralOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_SPECTRALOPS_H
