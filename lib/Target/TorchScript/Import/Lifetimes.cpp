//===- Lifetimes.cpp - What folding takes from the lives of tensors -------===//

#include "Lifetimes.h"
#include "Graph.h"
#include "koila/Target/TorchScript/Types.h"
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir_views.h>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;

/// Marks a branch that keeps what it reads for longer than it needs it.
static const c10::Symbol kKeeps = c10::Symbol::attr("koila_keeps");

/// Whether `value` comes from outside of `block`, from something that would end
/// without it: the caller keeps arguments, and the module its attributes.
static bool isKeptFrom(const tj::Value *value, const tj::Block *block) {
  const tj::Node *node = value->node();
  if (!mayHoldTensor(value->type()) || node->kind() == prim::Param ||
      node->kind() == prim::Constant || node->kind() == prim::GetAttr)
    return false;
  for (const tj::Block *around = node->owningBlock(); around;
       around = around->owningNode() ? around->owningNode()->owningBlock()
                                     : nullptr)
    if (around == block)
      return false;
  return true;
}

/// Whether something is computed in `block` after the last use of a tensor from
/// outside.
static bool keepsForLonger(tj::Block *block) {
  bool works = false;
  std::unordered_set<const tj::Value *> later;
  for (tj::Node *node : block->nodes().reverse()) {
    if (node->kind() == prim::Constant || node->kind() == prim::GetAttr)
      continue;
    std::vector<const tj::Value *> inputs(node->inputs().begin(),
                                          node->inputs().end());
    std::vector<tj::Node *> nested;
    for (tj::Block *inner : node->blocks())
      collectNodes(inner, nested);
    for (const tj::Node *user : nested)
      inputs.insert(inputs.end(), user->inputs().begin(), user->inputs().end());
    for (const tj::Value *input : inputs)
      if (isKeptFrom(input, block) && later.insert(input).second && works)
        return true;
    works = true;
  }
  return false;
}

/// Whether an element of a tuple that is made at once taken apart is not used:
/// it lives until the tuple is made.
static bool dropsAnElement(tj::Node *node) {
  if (node->kind() != prim::TupleUnpack && node->kind() != prim::TupleIndex)
    return false;
  tj::Node *made = node->input(0)->node();
  if (made->kind() != prim::TupleConstruct)
    return false;
  for (size_t index = 0; index < made->inputs().size(); ++index) {
    const tj::Value *element = made->input(index);
    bool used =
        node->kind() == prim::TupleUnpack
            ? node->output(index)->hasUses()
            : tj::toIValue(node->input(1)) == c10::IValue(int64_t(index));
    if (!used && mayHoldTensor(element->type()) &&
        element->node()->kind() != prim::Param &&
        element->node()->kind() != prim::Constant)
      return true;
  }
  return false;
}

// Here or where it runs. Source: PeepholeOptimize.
bool koila::torchscript::changesNothing(tj::Node *node) {
  bool isSum = node->kind() == aten::add || node->kind() == aten::sub;
  bool isProduct = node->kind() == aten::mul || node->kind() == aten::div;
  if (!(isSum || isProduct) || node->inputs().size() < 2 ||
      node->input(0)->type()->kind() != c10::TypeKind::TensorType)
    return false;
  auto number = tj::toIValue(node->input(1));
  if (!number || !number->isScalar())
    return false;
  return number->toScalar().equal(isSum ? 0 : 1);
}

Lifetimes::Lifetimes(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  for (tj::Node *node : nodes) {
    if (dropsAnElement(node))
      dropped = "a call gives several results of which not all are used; "
                "PyTorch keeps the others until it returns";
    if (node->kind() != prim::If)
      continue;
    for (tj::Block *block : node->blocks())
      if (keepsForLonger(block) && !node->hasAttribute(kKeeps)) {
        node->i_(kKeeps, 1);
        ++branches;
      }
  }
}

std::string Lifetimes::compare(tj::Graph &graph) {
  size_t left = 0;
  bool idle = false;
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  for (tj::Node *node : nodes) {
    idle |= changesNothing(node);
    if (node->kind() != prim::If || !node->hasAttribute(kKeeps))
      continue;
    ++left;
    node->removeAttribute(kKeeps);
  }
  if (left < branches)
    return "a branch that an attribute decides is gone; PyTorch keeps what it "
           "reads until its end";
  if (idle)
    return "LibTorch drops an operation that adds zero or multiplies by one "
           "where it can";
  return dropped;
}
