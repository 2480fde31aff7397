//===- Lifetimes.h - What folding takes from lifetimes ----------*- C++ -*-===//
//
// The interpreter keeps a tensor until the statement that uses it last is over,
// and a branch is one statement. Where import decides a branch, takes a tuple
// apart or drops an operation that changes nothing, the program itself holds
// tensors for longer, or makes more of them, than the graph says.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORT_LIFETIMES_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORT_LIFETIMES_H

#include <string>
#include <torch/csrc/jit/ir/ir.h>

namespace koila::torchscript {

/// Whether LibTorch drops the operation where it can: it adds zero or
/// multiplies by one.
bool changesNothing(torch::jit::Node *node);

class Lifetimes {
public:
  /// Looks at the graph before it is cleaned up, with all calls inlined.
  explicit Lifetimes(torch::jit::Graph &graph);
  /// A sentence about what is gone since then; empty if nothing that matters.
  std::string compare(torch::jit::Graph &graph);

private:
  size_t branches = 0;
  std::string dropped;
};

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORT_LIFETIMES_H
