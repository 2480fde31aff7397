//===- Lifetimes.cpp - What folding takes from the lives of tensors -------===//

#include "Lifetimes.h"
#include "Graph.h"
#include "koila/Target/TorchScript/Types.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include <set>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir_views.h>
#include <utility>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;

/// Numbers branches and readers that keep tensors, and says on what marks the
/// end of those lives which of them it is of; 0: of none of them.
static const c10::Symbol kKeeps = c10::Symbol::attr("koila_keeps");

bool koila::torchscript::isLifetimeMark(const tj::Node *node) {
  return node->kind() == prim::Print && node->hasAttribute(kKeeps);
}

static tj::Node *mark(tj::Node *after, int64_t keeper,
                      llvm::ArrayRef<tj::Value *> values) {
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

void koila::torchscript::addToMark(tj::Node *mark,
                                   llvm::ArrayRef<tj::Value *> values) {
  for (tj::Value *value : values)
    if (mayEnd(value))
      mark->addInput(value);
}

tj::Node *
koila::torchscript::markLifetimes(tj::Node *after,
                                  llvm::ArrayRef<tj::Value *> values) {
  tj::Node *made = mark(after, /*keeper=*/0, {});
  addToMark(made, values);
  return made;
}

/// Tensors from around the branch that it reads, whichever way it goes.
static llvm::SetVector<tj::Value *> getRead(tj::Node *branch) {
  std::vector<tj::Node *> nodes;
  for (tj::Block *block : branch->blocks()) {
    collectNodes(block, nodes);
    nodes.push_back(block->return_node());
  }
  // What nested branches and loops give is read of their blocks.
  for (size_t index = 0, count = nodes.size(); index < count; ++index)
    for (tj::Block *inner : nodes[index]->blocks())
      nodes.push_back(inner->return_node());
  llvm::SetVector<tj::Value *> read;
  for (tj::Node *node : nodes)
    if (node->kind() != prim::Constant && node->kind() != prim::GetAttr)
      for (tj::Value *value : node->inputs())
        if (value->node()->owningBlock() == branch->owningBlock() &&
            mayEnd(value))
          read.insert(value);
  return read;
}

/// Whether nothing behind `place`, in the block that made `value`, reads it.
static bool endsAt(const tj::Value *value, const tj::Node *place) {
  return llvm::none_of(value->uses(), [&](const tj::Use &use) {
    return place->isBefore(use.user);
  });
}

/// What `value` is, seen through tuples that are made and taken apart.
static tj::Value *getElement(tj::Value *value) {
  tj::Node *node = value->node();
  if (node->kind() != prim::TupleUnpack && node->kind() != prim::TupleIndex)
    return value;
  tj::Node *made = getElement(node->input(0))->node();
  if (made->kind() != prim::TupleConstruct)
    return value;
  if (node->kind() == prim::TupleUnpack)
    return getElement(made->input(value->offset()));
  auto constant = tj::toIValue(node->input(1));
  auto count = static_cast<int64_t>(made->inputs().size());
  int64_t index = constant && constant->isInt() ? constant->toInt() : count;
  index += index < 0 ? count : 0;
  return index < 0 || index >= count ? value : getElement(made->input(index));
}

namespace {
/// Where tuples end in the block that made them, and tensors that end with
/// them: nothing behind it reads those.
class TupleEnds {
public:
  explicit TupleEnds(llvm::ArrayRef<tj::Node *> nodes) {
    for (tj::Node *node : nodes)
      if (node->kind() == prim::TupleUnpack || node->kind() == prim::TupleIndex)
        for (tj::Value *output : node->outputs())
          if (tj::Value *element = getElement(output); element != output)
            taken[element].push_back(output);
  }

  /// The last node that reads `tuple`, in the block that made it; null if there
  /// is none or if what is around has it further.
  tj::Node *getEnd(tj::Value *tuple) const {
    tj::Node *last = nullptr;
    forEachUse(tuple, [&](tj::Node *user) {
      while (user->owningBlock() != tuple->node()->owningBlock())
        user = user->owningBlock()->owningNode();
      if (!last || last->isBefore(user))
        last = user;
    });
    return last && last->kind() != prim::Return ? last : nullptr;
  }

  /// Whether anything but tuples reads `value`, also out of them.
  bool isTaken(tj::Value *value) const {
    bool isTaken = false;
    forEachUse(value, [&](const tj::Node *user) {
      isTaken |= user->kind() != prim::TupleConstruct;
    });
    return isTaken;
  }

  void collect(tj::Value *tuple, const tj::Node *end,
               std::vector<tj::Value *> &ending) const {
    for (tj::Value *input : tuple->node()->inputs()) {
      tj::Value *element = getElement(input);
      if (element->node()->kind() == prim::TupleConstruct)
        collect(element, end, ending);
      else if (mayEnd(element) && isLast(element, end))
        ending.push_back(element);
    }
  }

private:
  template <typename Function>
  void forEachUse(tj::Value *value, Function function) const {
    for (const tj::Use &use : value->uses())
      function(use.user);
    if (auto it = taken.find(value); it != taken.end())
      for (tj::Value *other : it->second)
        for (const tj::Use &use : other->uses())
          function(use.user);
  }

  bool isLast(tj::Value *value, const tj::Node *end) const {
    bool last = true;
    forEachUse(value, [&](tj::Node *user) { last &= !end->isBefore(user); });
    return last;
  }

  /// What unpacking gives that is made before.
  llvm::DenseMap<tj::Value *, std::vector<tj::Value *>> taken;
};
} // namespace

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

/// Whether `node` makes numbers of what tensors it reads. Once attributes are
/// known nobody may ask for those, as in `y.any() or self.flag`; PyTorch does.
static bool readsNumbers(const tj::Node *node) {
  auto holds = [](const tj::Value *value) {
    return mayHoldTensor(value->type());
  };
  return node->blocks().empty() && !node->outputs().empty() &&
         node->kind() != prim::Constant && node->kind() != prim::GetAttr &&
         llvm::any_of(node->inputs(), holds) &&
         llvm::none_of(node->outputs(), holds);
}

void koila::torchscript::markLifetimes(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  TupleEnds tuples(nodes);
  int64_t keepers = 0;
  for (tj::Node *node : nodes) {
    std::vector<tj::Value *> ending;
    auto keep = [&](auto &&values) {
      llvm::copy_if(values, std::back_inserter(ending), [&](tj::Value *value) {
        return mayEnd(value) && endsAt(value, node);
      });
      if (ending.empty())
        return;
      node->i_(kKeeps, ++keepers);
      mark(node, keepers, ending);
    };
    if (readsNumbers(node))
      keep(node->inputs());
    // What a loop reads lives until its end where it is imported as well.
    if (node->kind() == prim::If) {
      keep(getRead(node));
      // Once it is decided, what is in the tuple is known.
      for (tj::Value *output : node->outputs())
        if (output->type()->kind() == c10::TypeKind::TupleType)
          if (tj::Node *end = tuples.getEnd(output); end && mayEnd(output))
            mark(end, /*keeper=*/0, {output});
    } else if (node->kind() == prim::TupleConstruct) {
      tj::Node *end = tuples.getEnd(node->output());
      if (!end)
        continue;
      tuples.collect(node->output(), end, ending);
      if (!ending.empty())
        mark(end, /*keeper=*/0, ending);
    }
  }
}

/// Whether something is computed between the last use of `value`, but in tuples
/// and marks, and `end`.
static bool endsLater(const tj::Value *value, const tj::Node *end) {
  const tj::Node *last = value->node();
  for (const tj::Use &use : value->uses())
    if (!use.user->kind().is_prim() && last->isBefore(use.user))
      last = use.user;
  if (!last->isBefore(end) || last->owningBlock() != end->owningBlock())
    return last->isBefore(end);
  for (last = last->next(); last != end; last = last->next())
    if (!last->kind().is_prim())
      return true;
  return false;
}

/// Whether clean-up drops the node that makes `value`.
static bool isDropped(tj::Value *value, const TupleEnds &tuples) {
  tj::Node *node = value->node();
  const c10::FunctionSchema *schema = node->maybeSchema();
  if (node->hasSideEffects() || (schema && schema->is_mutable()))
    return false;
  return llvm::none_of(node->outputs(), [&](tj::Value *output) {
    return tuples.isTaken(output);
  });
}

std::optional<std::string>
koila::torchscript::findShortenedLife(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  TupleEnds tuples(nodes);
  for (tj::Node *node : nodes) {
    if (node->kind() != prim::TupleConstruct)
      continue;
    tj::Node *end = tuples.getEnd(node->output());
    if (!end)
      continue;
    std::vector<tj::Value *> ending;
    tuples.collect(node->output(), end, ending);
    for (tj::Value *value : ending)
      if (isDropped(value, tuples) || endsLater(value, end))
        return value->node()->kind().toQualString();
  }
  return std::nullopt;
}

std::string koila::torchscript::describeShortenedLives(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  std::string text;
  for (tj::Node *node : nodes)
    if (node->hasAttribute(kShortens)) {
      text = "the program computes or holds a result of " + node->s(kShortens) +
             " that the training step has no use for and leaves out";
      node->removeAttribute(kShortens);
    }
  if (text.empty() && llvm::any_of(nodes, changesNothing))
    text = "LibTorch drops an operation that adds zero or multiplies by one "
           "where it can";
  return text;
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
  std::set<tj::Node *> tuples;
  // What is in a tuple stands for it.
  auto add = [&](auto &add, tj::Value *value,
                 std::vector<tj::Value *> &values) -> void {
    tj::Node *node = value->node();
    if (node->kind() != prim::TupleConstruct) {
      if (mayEnd(value))
        values.push_back(value);
      return;
    }
    tuples.insert(node);
    for (tj::Value *element : node->inputs())
      add(add, element, values);
  };
  std::vector<std::vector<tj::Value *>> ending(marks.size());
  for (auto [mark, values] : llvm::zip_equal(marks, ending)) {
    for (tj::Value *value : mark->inputs())
      add(add, value, values);
    mark->removeAllInputs();
  }
  // Outer ones first.
  for (bool changed = true; std::exchange(changed, false);)
    for (auto it = tuples.begin(); it != tuples.end();)
      if ((*it)->output()->hasUses()) {
        ++it;
      } else {
        (*it)->destroy();
        it = tuples.erase(it);
        changed = true;
      }
  for (auto [mark, values] : llvm::zip_equal(marks, ending)) {
    if (!left.count(mark->i(kKeeps)) && !values.empty()) {
      std::vector<tj::Value *> &all = kept[mark->prev()];
      all.insert(all.end(), values.begin(), values.end());
    }
    mark->destroy();
  }
  return kept;
}
