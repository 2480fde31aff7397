//===- StepResults.cpp - What a step returns beside the loss --------------===//
//
// A node of which the loss is made, also by what it writes, is differentiated
// and stays as it is. All others read detached values. What is not clear is
// taken for a node of the loss, as it was in the program.
//
//===----------------------------------------------------------------------===//

#include "StepResults.h"
#include "../Boundary/DiagnosticJSON.h"
#include "../Import/Graph.h"
#include "koila/Target/TorchScript/Types.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace aten = c10::aten;
namespace prim = c10::prim;

namespace {
class Separator {
public:
  Separator(const std::shared_ptr<tj::Graph> &graph, const tj::Module &module)
      : graph(*graph), module(module), aliases(graph) {
    tj::Block *block = graph->block();
    collectNodes(block, nodes);
    for (tj::Node *node : getHiddenWrites(*graph))
      hidden.insert(node);
  }

  /// Detaches what does not lead to the loss.
  void run();
  tj::Value *addLeaf(tj::Value *argument);

private:
  /// The node of the outermost block that `node` is in.
  tj::Node *getOuter(tj::Node *node) const;
  bool isOfLoss(tj::Node *node) const {
    return ofLoss.contains(getOuter(node));
  }
  void add(tj::Node *node);
  /// Whether `node`, which does not lead to the loss by its results, has to
  /// stay as it is.
  bool isBound(tj::Node *node);
  /// Whether a tensor that requires a gradient may be `value`, for all that is
  /// known of the module.
  bool mayBeWeight(tj::Value *value) const;
  /// Whether `value`, which a node reads that is not of the loss, may come with
  /// a gradient.
  bool mayHaveGradient(tj::Value *value) const;
  /// `value` without its gradient, for `reader`.
  tj::Value *detach(tj::Value *value, tj::Node *reader);
  void detachInputs(tj::Node *node);

  tj::Graph &graph;
  const tj::Module &module;
  tj::AliasDb aliases;
  /// In order, those of nested blocks after their owner.
  std::vector<tj::Node *> nodes;
  llvm::SmallPtrSet<tj::Node *, 4> hidden;
  /// Of the outermost block.
  llvm::SmallPtrSet<tj::Node *, 32> ofLoss;
  /// What they read and make.
  tj::ValueSet valuesOfLoss;
  llvm::DenseMap<tj::Value *, tj::Value *> detached;
};
} // namespace

static bool isTensor(const c10::TypePtr &type) {
  return type->kind() == c10::TypeKind::TensorType;
}

/// Whether `node` hands on what is in the module, or a part of it.
static bool readsModule(const tj::Node *node) {
  switch (node->kind()) {
  case prim::GetAttr:
    return true;
  case prim::unchecked_cast:
  case aten::_unwrap_optional:
  case aten::__getitem__:
  case prim::ListUnpack:
  case prim::TupleUnpack:
    return readsModule(node->input(0)->node());
  default:
    return false;
  }
}

tj::Node *Separator::getOuter(tj::Node *node) const {
  while (node->owningBlock() != graph.block())
    node = node->owningBlock()->owningNode();
  return node;
}

void Separator::add(tj::Node *outer) {
  std::vector<tj::Node *> work{outer};
  while (!work.empty()) {
    tj::Node *node = work.back();
    work.pop_back();
    if (node->kind() == prim::Param || !ofLoss.insert(node).second)
      continue;
    std::vector<tj::Node *> inner{node};
    for (tj::Block *block : node->blocks()) {
      collectNodes(block, inner);
      inner.push_back(block->return_node());
    }
    for (tj::Node *part : inner) {
      valuesOfLoss.insert(part->outputs().begin(), part->outputs().end());
      for (tj::Value *input : part->inputs()) {
        valuesOfLoss.insert(input);
        work.push_back(getOuter(input->node()));
      }
    }
  }
}

bool Separator::isBound(tj::Node *node) {
  // It may keep what it gets, or show it.
  bool keeps = node->hasSideEffects() && node->kind() != prim::RaiseException &&
               node->kind() != aten::warn;
  if (keeps || hidden.contains(node))
    return true;
  const c10::FunctionSchema *schema = node->maybeSchema();
  if ((!schema || schema->is_mutable()) &&
      aliases.writesToAlias(node, valuesOfLoss))
    return true;
  // Of a list or a tuple there is no detached one. LibTorch gives the list of
  // aten::chunk the type of a tensor.
  return llvm::any_of(node->inputs(), [&](tj::Value *input) {
    bool isContainer =
        node->kind() == prim::ListUnpack ||
        (!isTensor(input->type()) && mayHoldTensor(input->type()));
    return isContainer && input->node()->kind() != prim::Param &&
           !readsModule(input->node()) && isOfLoss(input->node());
  });
}

bool Separator::mayBeWeight(tj::Value *value) const {
  std::vector<std::string> path;
  tj::Node *node = value->node();
  for (; node->kind() == prim::GetAttr; node = node->input(0)->node())
    path.push_back(node->s(c10::attr::name));
  if (node->kind() != prim::Param || path.empty())
    return true;
  c10::IValue found = module._ivalue();
  for (const std::string &name : llvm::reverse(path)) {
    if (!found.isObject() || !found.toObjectRef().type()->hasAttribute(name))
      return true;
    found = found.toObject()->getAttr(name);
  }
  return !found.isTensor() || !found.toTensor().defined() ||
         found.toTensor().requires_grad();
}

bool Separator::mayHaveGradient(tj::Value *value) const {
  tj::Node *node = value->node();
  // A constant may be a number, which a detached tensor is not: it would have
  // its say in types.
  if (!isTensor(value->type()) || node->kind() == prim::Param ||
      node->kind() == prim::Constant || node->kind() == aten::detach)
    return false;
  if (readsModule(node))
    return mayBeWeight(value);
  return isOfLoss(node);
}

tj::Value *Separator::detach(tj::Value *value, tj::Node *reader) {
  // What is written is read anew each time. In a branch nobody else sees it.
  bool isShared = !aliases.hasWriters(value) &&
                  value->node()->owningBlock() == graph.block();
  tj::Value *known = isShared ? detached.lookup(value) : nullptr;
  if (known)
    return known;
  tj::WithInsertPoint guard(isShared ? getOuter(reader) : reader);
  known = graph.insert(aten::detach, {value});
  known->node()->setSourceRange(value->node()->sourceRange());
  if (isShared)
    detached[value] = known;
  return known;
}

/// Whether `node` computes with the tensors that it reads: of sizes and types
/// there is no gradient.
static bool readsElements(const tj::Node *node) {
  bool readsTensors =
      node->outputs().empty() ||
      llvm::any_of(node->outputs(), [](const tj::Value *output) {
        return mayHoldTensor(output->type());
      });
  return readsTensors && !readsModule(node) && node->kind() != aten::detach;
}

void Separator::detachInputs(tj::Node *node) {
  if (!readsElements(node))
    return;
  for (size_t index = 0; index < node->inputs().size(); ++index)
    if (mayHaveGradient(node->input(index)))
      node->replaceInput(index, detach(node->input(index), node));
}

void Separator::run() {
  add(getOuter(graph.outputs()[0]->node()));
  valuesOfLoss.insert(graph.outputs()[0]);
  bool changed = true;
  while (changed) {
    changed = false;
    for (tj::Node *node : nodes)
      if (!isOfLoss(node) && isBound(node)) {
        add(getOuter(node));
        changed = true;
      }
  }
  for (tj::Node *node : nodes) {
    if (isOfLoss(node))
      continue;
    for (tj::Block *block : node->blocks())
      detachInputs(block->return_node());
    detachInputs(node);
  }
  // Also what has none now: arguments may bring one.
  tj::Node *end = graph.return_node();
  for (size_t index = 1; index < end->inputs().size(); ++index)
    if (end->input(index)->node()->kind() != aten::detach)
      end->replaceInput(index, detach(end->input(index), end));
}

tj::Value *Separator::addLeaf(tj::Value *argument) {
  std::vector<tj::Use> uses = argument->uses();
  auto first = llvm::find_if(uses, [&](const tj::Use &use) {
    return isOfLoss(use.user) && readsElements(use.user);
  });
  if (first == uses.end())
    refuse("mode=train: argument '" + llvm::StringRef(argument->debugName()) +
           "' requires a gradient (@grad), and the loss does not depend on it");
  tj::WithInsertPoint guard(*graph.nodes().begin());
  auto detach = [&] {
    tj::Value *value = graph.insert(aten::detach, {argument});
    value->node()->setSourceRange(first->user->sourceRange());
    return value;
  };
  tj::Value *leaf = graph.insert(kRequireGradient, {detach(), true});
  leaf->node()->setSourceRange(first->user->sourceRange());
  // The caller's may require one, too.
  tj::Value *plain = nullptr;
  for (const tj::Use &use : uses) {
    if (!readsElements(use.user))
      continue;
    if (!isOfLoss(use.user) && !plain)
      plain = detach();
    use.user->replaceInput(use.offset, isOfLoss(use.user) ? leaf : plain);
  }
  return leaf;
}

std::vector<tj::Value *>
koila::torchscript::separateResults(const std::shared_ptr<tj::Graph> &graph,
                                    const tj::Module &module,
                                    at::ArrayRef<tj::Value *> arguments) {
  Separator separator(graph, module);
  separator.run();
  std::vector<tj::Value *> leaves;
  for (tj::Value *argument : arguments)
    leaves.push_back(separator.addLeaf(argument));
  return leaves;
}
