//===- Graph.h - TorchScript graphs ready to be read ------------*- C++ -*-===//

#ifndef KOILA_LIB_TARGET_TORCHSCRIPT_GRAPH_H
#define KOILA_LIB_TARGET_TORCHSCRIPT_GRAPH_H

#include <string>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <vector>

namespace koila::torchscript {

/// A method with every call inlined.
struct PreparedGraph {
  std::shared_ptr<torch::jit::Graph> graph;
  /// In program order, those of nested blocks after their owner. The index is
  /// what `koila.node` holds.
  std::vector<torch::jit::Node *> nodes;
};

/// Copies and inlines the method's graph, then runs what LibTorch runs on
/// every function it loads. A file written from the result loads as the same
/// graph, and branches on literal conditions are gone.
PreparedGraph prepareGraph(const torch::jit::Method &method);

/// The clean-up that LibTorch runs at load.
void cleanUpGraph(std::shared_ptr<torch::jit::Graph> &graph);

/// A text that is equal for graphs which do the same in the same order. Names,
/// ranges, and the places of constants and attribute reads do not count: the
/// printer of archives moves those.
std::string getNormalForm(const torch::jit::Graph &graph);

} // namespace koila::torchscript

#endif // KOILA_LIB_TARGET_TORCHSCRIPT_GRAPH_H
