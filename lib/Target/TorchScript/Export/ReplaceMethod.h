//===- ReplaceMethod.h - A method gets another program ----------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_REPLACEMETHOD_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_REPLACEMETHOD_H

#include "Emit.h"

namespace koila::torchscript {

/// Whether the function does what it does only while facts hold.
bool isGuarded(mlir::func::FuncOp function);

/// Builds the graphs of `plans` as method `name`: the functions of all plans by
/// their places, or the one that there is. The original method is kept under
/// another name if they are guarded. A training step (`isStep`) also gets a
/// method that returns gradients.
void replaceMethod(torch::jit::Module &module,
                   llvm::ArrayRef<mlir::func::FuncOp> plans,
                   const std::string &name, const ImportedFunction &original,
                   const OperatorTable &operators,
                   const llvm::SmallPtrSetImpl<mlir::Operation *> &copied,
                   bool isStep, const TileAttributes &attributes);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_REPLACEMETHOD_H
