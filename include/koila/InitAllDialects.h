//===- InitAllDialects.h - Everything a koila tool registers ----*- C++ -*-===//

#ifndef KOILA_INITALLDIALECTS_H
#define KOILA_INITALLDIALECTS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace koila {
/// The koila dialect and the dialects its programs use.
inline void registerAllDialects(mlir::DialectRegistry &registry) {
  registry
      .insert<KoilaDialect, mlir::arith::ArithDialect, mlir::func::FuncDialect,
              mlir::scf::SCFDialect, mlir::tensor::TensorDialect>();
}
} // namespace koila

#endif // KOILA_INITALLDIALECTS_H
