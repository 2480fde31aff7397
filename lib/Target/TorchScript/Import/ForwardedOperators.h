//===- ForwardedOperators.h - Operators that call another -------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORT_FORWARDEDOPERATORS_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORT_FORWARDEDOPERATORS_H

#include <torch/csrc/jit/ir/ir.h>

namespace koila::torchscript {

/// Puts operators in the place of those that do nothing but call them with
/// these arguments.
void forwardOperators(torch::jit::Graph &graph);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORT_FORWARDEDOPERATORS_H
