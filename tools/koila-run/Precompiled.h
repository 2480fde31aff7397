//===- Precompiled.h - Headers that take seconds each -----------*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_PRECOMPILED_H
#define KOILA_TOOLS_KOILARUN_PRECOMPILED_H

#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <torch/script.h>

#endif // KOILA_TOOLS_KOILARUN_PRECOMPILED_H
