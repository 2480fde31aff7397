//===- ListViews.h - Operators that give lists of views ---------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORT_LISTVIEWS_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORT_LISTVIEWS_H

#include <torch/csrc/jit/ir/ir.h>

namespace koila::torchscript {

/// Whether the operator gives a list of views, which its schema does not say.
bool sharesSilently(const torch::jit::Node &node);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORT_LISTVIEWS_H
