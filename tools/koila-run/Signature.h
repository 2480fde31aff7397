//===- Signature.h - The arguments of a method as IR ------------*- C++ -*-===//
//
// Input specs are applied to IR. So that what koila-run accepts is what
// koila-opt accepts, a method's signature is written as a function without
// body, and the same code matches specs with it.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TOOLS_KOILARUN_SIGNATURE_H
#define KOILA_TOOLS_KOILARUN_SIGNATURE_H

#include "Options.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <torch/csrc/jit/api/module.h>

namespace koila::run {

/// The signature of a method after the specs were applied.
class Signature {
public:
  /// Throws DiagnosedError, or UserError for a symbol without value.
  Signature(const torch::jit::Method &method, const Options &options,
            mlir::MLIRContext *context);

  mlir::func::FuncOp getFunction() { return function; }
  /// The value of an expression over the symbols. Throws UserError.
  int64_t evaluate(DimExpr expr) const;
  /// Name and value of the batch symbol; an empty name if there is none.
  SymbolValue getBatch() const;
  /// Every symbol with its value.
  const std::vector<SymbolValue> &getSymbols() const { return symbols; }

private:
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp function;
  std::vector<SymbolValue> symbols;
  SymbolValue batch;
};

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_SIGNATURE_H
