//===- InitAllDialects.h - Everything a koila tool registers ----*- C++ -*-===//

#ifndef KOILA_INITALLDIALECTS_H
#define KOILA_INITALLDIALECTS_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Extension/Loading.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace koila {
/// The koila dialect, the dialects its programs use, and those of the
/// extensions that have been loaded.
inline void registerAllDialects(mlir::DialectRegistry &registry) {
  registry.insert<KoilaDialect, mlir::arith::ArithDialect,
                  mlir::func::FuncDialect, mlir::scf::SCFDialect,
                  mlir::tensor::TensorDialect, mlir::DLTIDialect>();
  registerExtensions(registry);
}
} // namespace koila

#endif // KOILA_INITALLDIALECTS_H
