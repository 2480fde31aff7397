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
/// The arguments are `n` and `dim`, or the lists `s` and `dim`.
llvm::LogicalResult inferFourier(ShapeRule &rule, mlir::Value self,
                                 Fourier kind);
/// The dims of a call, counted from the start, in its order; none if one is out
/// of range or given twice.
std::optional<llvm::SmallVector<int64_t>> getFourierDims(mlir::Operation *op,
                                                         int64_t rank);
/// Operators along `dim`, of which samples along those dims meet.
void inferFourierBatch(BatchRule &rule, mlir::Value self);
llvm::LogicalResult inferShift(ShapeRule &rule, mlir::Value self);
/// `halved`: only the frequencies that are not negative.
llvm::LogicalResult inferFrequencies(ShapeRule &rule, bool halved,
                                     std::optional<int64_t> dtype);

/// A short-time transform; `center` pads half a window on both sides.
llvm::LogicalResult inferStft(ShapeRule &rule, mlir::Value self,
                              mlir::Value window, bool center);
llvm::LogicalResult inferIstft(ShapeRule &rule, mlir::Value self,
                               mlir::Value window, bool center);
/// The batch stays in dim 0 of tensors with more than `rank` dims.
void inferStftBatch(BatchRule &rule, mlir::Value self, mlir::Value window,
                    int64_t rank);

} // namespace koila::rules

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/SpectralOps.h.inc"

#endif // KOILA_DIALECT_KOILA_IR_SPECTRALOPS_H
