//===- SpectralRules.h - Rules of Fourier transforms ------------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_SPECTRALRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_SPECTRALRULES_H

#include "OperatorRules.h"
#include "koila/Dialect/Koila/IR/SpectralOps.h"

namespace koila::rules {

/// The arguments are `n` and `dim`, or the lists `s` and `dim`.
llvm::LogicalResult inferFourier(ShapeRule &rule, mlir::Value self,
                                 Fourier kind);
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

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_SPECTRALRULES_H
