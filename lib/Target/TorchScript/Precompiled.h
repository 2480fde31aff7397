//===- Precompiled.h - Headers that change never ----------------*- C++ -*-===//

#ifndef KOILA_LIB_TARGET_TORCHSCRIPT_PRECOMPILED_H
#define KOILA_LIB_TARGET_TORCHSCRIPT_PRECOMPILED_H

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/OpImplementation.h"

#endif // KOILA_LIB_TARGET_TORCHSCRIPT_PRECOMPILED_H
