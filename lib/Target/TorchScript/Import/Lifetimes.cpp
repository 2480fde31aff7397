//===- Lifetimes.cpp - What folding takes from the lives of tensors -------===//

#include "Lifetimes.h"
#include "Graph.h"
#include "koila/Target/TorchScript/Types.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include <set>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir_views.h>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;

/// Numbers branches and tuples that keep tensors, and says on what marks the
/// end of those lives which of them it is of.
static const c10::Symbol kKeeps = c10::Symbol::attr("koila_keeps");

bool koila::torchscript::isLifetimeMark(const tj::Node *node) {
  return node->kind() == prim::Print && node->hasAttribute(kKeeps);
}

static tj::Node *mark(tj::Node *after, llvm::ArrayRef<tj::Value *> values,
                      int64_t keeper) {
  // Nothing that prints is dead.
  tj::Node *made = after->owningGraph()->create(prim::Print, values,
                                                /*num_outputs=*/0);
  made->i_(kKeeps, keeper);
  return made->insertAfter(after);
}

/// The caller keeps arguments, and the module its attributes.
static bool mayEnd(const tj::Value *value) {
  const tj::Node *node = value->node();
  return mayHoldTensor(value->type()) && node->kind() != prim::Param &&
         node->kind() != prim::Constant && node->kind() != prim::GetAttr;
}

tj::Node *
koila::torchscript::markLifetimes(tj::Node *after,
                                  llvm::ArrayRef<tj::Value *> values) {
  std::vector<tj::Value *> ending;
  llvm::copy_if(values, std::back_inserter(ending), mayEnd);
  return mark(after, ending, /*keeper=*/0);
}

/// Whether `value` comes from outside of `block` and would end without it.
static bool isKeptFrom(const tj::Value *value, const tj::Block *block) {
  if (!mayEnd(value))
    return false;
  for (const tj::Block *around = value->node()->owningBlock(); around;
       around = around->owningNode() ? around->owningNode()->owningBlock()
                                     : nullptr)
    if (around == block)
      return false;
  return true;
}

/// Tensors from outside of the branch that it reads, whichever way it goes.
static llvm::SetVector<tj::Value *> getRead(tj::Node *branch) {
  llvm::SetVector<tj::Value *> read;
  for (tj::Block *block : branch->blocks()) {
    std::vector<tj::Node *> nodes;
    collectNodes(block, nodes);
    auto add = [&](tj::Value *value) {
      if (isKeptFrom(value, block))
        read.insert(value);
    };
    for (tj::Node *node : nodes)
      if (node->kind() != prim::Constant && node->kind() != prim::GetAttr)
        llvm::for_each(node->inputs(), add);
    llvm::for_each(block->outputs(), add);
  }
  return read;
}

/// The node of `block` that `node` is, or is in.
static tj::Node *getPlace(tj::Node *node, const tj::Block *block) {
  while (node->owningBlock() != block)
    node = node->owningBlock()->owningNode();
  return node;
}
static bool isEnd(const tj::Node *node) { return node->kind() == prim::Return; }
static bool isBefore(tj::Node *lhs, tj::Node *rhs) {
  return lhs != rhs && !isEnd(lhs) && (isEnd(rhs) || lhs->isBefore(rhs));
}

/// Whether nothing behind `place`, in the block that made `value`, reads it.
static bool endsAt(const tj::Value *value, tj::Node *place) {
  return llvm::none_of(value->uses(), [&](const tj::Use &use) {
    return isBefore(place, getPlace(use.user, place->owningBlock()));
  });
}

/// Elements of a tuple that is made and at once taken apart which nothing uses:
/// they live until it is.
static std::vector<tj::Value *> getUnused(tj::Node *node) {
  std::vector<tj::Value *> unused;
  if (node->kind() != prim::TupleUnpack && node->kind() != prim::TupleIndex)
    return unused;
  tj::Node *made = node->input(0)->node();
  if (made->kind() != prim::TupleConstruct ||
      made->owningBlock() != node->owningBlock())
    return unused;
  for (size_t index = 0; index < made->inputs().size(); ++index) {
    tj::Value *element = made->input(index);
    bool used =
        node->kind() == prim::TupleUnpack
            ? node->output(index)->hasUses()
            : tj::toIValue(node->input(1)) == c10::IValue(int64_t(index));
    if (!used && mayEnd(element))
      unused.push_back(element);
  }
  return unused;
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

namespace {
class Marker {
public:
  void markBranch(tj::Node *branch) {
    // By where their lives end: the branch, or one around it.
    llvm::MapVector<tj::Node *, llvm::SetVector<tj::Value *>> ending;
    for (tj::Value *value : getRead(branch)) {
      tj::Node *place = getPlace(branch, value->node()->owningBlock());
      // What a loop reads lives until its end here as well.
      if (place->kind() == prim::If && endsAt(value, place))
        ending[place].insert(value);
    }
    for (const auto &[place, values] : ending)
      add(place, values.getArrayRef());
  }

  /// Values that live until `keeper` has run, because of it.
  void add(tj::Node *keeper, llvm::ArrayRef<tj::Value *> values) {
    if (!keeper->hasAttribute(kKeeps))
      keeper->i_(kKeeps, ++keepers);
    mark(keeper, values, keeper->i(kKeeps));
  }

private:
  int64_t keepers = 0;
};
} // namespace

void koila::torchscript::markLifetimes(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  Marker marker;
  for (tj::Node *node : nodes) {
    if (std::vector<tj::Value *> unused = getUnused(node); !unused.empty())
      marker.add(node, unused);
    if (node->kind() == prim::If)
      marker.markBranch(node);
  }
}

bool koila::torchscript::dropsOperations(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  return llvm::any_of(nodes, changesNothing);
}

std::unordered_map<tj::Node *, std::vector<tj::Value *>>
koila::torchscript::takeKeptAlive(tj::Graph &graph) {
  std::vector<tj::Node *> nodes, marks;
  collectNodes(graph.block(), nodes);
  std::set<int64_t> left;
  for (tj::Node *node : nodes) {
    if (!node->hasAttribute(kKeeps))
      continue;
    if (isLifetimeMark(node)) {
      marks.push_back(node);
      continue;
    }
    left.insert(node->i(kKeeps));
    node->removeAttribute(kKeeps);
  }
  std::unordered_map<tj::Node *, std::vector<tj::Value *>> kept;
  for (tj::Node *mark : marks) {
    if (!left.count(mark->i(kKeeps))) {
      std::vector<tj::Value *> &values = kept[mark->prev()];
      values.insert(values.end(), mark->inputs().begin(), mark->inputs().end());
    }
    mark->destroy();
  }
  return kept;
}
