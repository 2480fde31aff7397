//===- OldForms.h - What earlier versions wrote -----------------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_OLDFORMS_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_OLDFORMS_H

#include "mlir/IR/BuiltinOps.h"

namespace koila::torchscript {

/// Rewrites `koila.torch_op "prim::GetAttr"`, `"prim::SetAttr"` and
/// `"prim::CallMethod"`, as text and bytecode of earlier versions have them, to
/// the operations that take their place. Passes carry either form. Throws
/// Refusal where one has other arguments than those versions wrote.
void upgradeOldForms(mlir::ModuleOp module);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_OLDFORMS_H
