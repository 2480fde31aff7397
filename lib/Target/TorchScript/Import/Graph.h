//===- Graph.h - TorchScript graphs ready to be read ------------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORT_GRAPH_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORT_GRAPH_H

#include <string>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <unordered_map>
#include <vector>

namespace mlir {
class MLIRContext;
} // namespace mlir

namespace koila::torchscript {

/// An attribute of the module and what it is taken to be.
struct AssumedAttribute {
  std::string path;
  c10::IValue value;
};

/// A method with every call inlined.
struct PreparedGraph {
  std::shared_ptr<torch::jit::Graph> graph;
  /// What the graph holds for only.
  std::vector<AssumedAttribute> assumed;
  /// In program order, those of nested blocks after their owner. The index is
  /// what `koila.node` holds.
  std::vector<torch::jit::Node *> nodes;
  /// Values that live until a node has run, though nothing reads them by then.
  std::unordered_map<torch::jit::Node *, std::vector<torch::jit::Value *>>
      keptAlive;
  /// Why tensors may live longer in the program itself than here, where calls
  /// and branches are gone; empty if they do not.
  std::string lifetimes;
  /// Whether what is said of it holds for the profiling executor, too.
  bool profiles = false;
};

/// `requires_grad_` and `grad` of a tensor.
inline const c10::Symbol kRequireGradient =
    c10::Symbol::fromQualString("aten::requires_grad_");
inline const c10::Symbol kReadGradient =
    c10::Symbol::fromQualString("prim::grad");

/// Copies and inlines the method's graph, then runs what LibTorch runs on
/// every function it loads. A file written from the result loads as the same
/// graph, and branches on literal conditions are gone.
///
/// Attributes that are numbers, bools, texts or None and that the method does
/// not write become literals, so that branches on `training` and its like cost
/// nothing; they are recorded as assumptions. `given` says what some are taken
/// to be; by default they are what the module has. Throws Refusal, in
/// `context`, where LibTorch would lose an update of running statistics.
PreparedGraph prepareGraph(const torch::jit::Module &module,
                           const torch::jit::Method &method,
                           const std::vector<AssumedAttribute> &given,
                           mlir::MLIRContext *context);

/// Puts what methods do in the place of their calls, as far as LibTorch can.
void inlineCalls(torch::jit::Graph &graph);

/// Leaves a graph its inputs only. A method is replaced by filling its own
/// graph anew: a new function would get another qualified name, and no other
/// method could call it.
void clearGraph(torch::jit::Graph &graph);

/// The clean-up that LibTorch runs at load, but for the writes that it would
/// lose.
void cleanUpGraph(std::shared_ptr<torch::jit::Graph> &graph);

/// Adds the nodes of `block`, those of nested blocks after their owner.
void collectNodes(torch::jit::Block *block,
                  std::vector<torch::jit::Node *> &nodes);

/// Writes through an operator whose schema does not say that it may hand on its
/// operand: what they write, nobody can tell by schemas.
std::vector<torch::jit::Node *> getHiddenWrites(torch::jit::Graph &graph);

/// A write that LibTorch takes for dead when it reads the graph from a file,
/// since it goes through an operator whose schema does not say that it may hand
/// on its operand. Null if there is none.
torch::jit::Node *findLostWrite(torch::jit::Graph &graph);

/// One of `updates`, whose schemas do not say that they write an operand, that
/// LibTorch takes for dead before it runs a loop of the graph. Null if there is
/// none.
torch::jit::Node *
findLostUpdate(torch::jit::Graph &graph,
               const std::vector<torch::jit::Node *> &updates);

/// Whether a normalisation writes its running statistics, as in training mode,
/// which its schema does not say. Their gradients read them.
bool writesStatistics(const torch::jit::Node *node);

/// Throws Refusal: LibTorch would lose the update that `node` makes.
[[noreturn]] void refuseLostUpdate(torch::jit::Node *node,
                                   mlir::MLIRContext *context);

/// Gives each reader of a list or dict that is filled step by step one of its
/// own. Whether there was any.
bool unfoldContainers(torch::jit::Graph &graph);

/// Makes literals of what is asked of `dict`, which holds numbers and texts and
/// which nobody changes: what is at a key, and whether there is one. Whether
/// there was any.
bool foldReaders(torch::jit::Value *dict, const c10::IValue &value);

/// A text that is equal for graphs which do the same in the same order. Names,
/// ranges, and the places of constants and attribute reads do not count: the
/// printer of archives moves those.
std::string getNormalForm(const torch::jit::Graph &graph);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORT_GRAPH_H
