//===- Lifetimes.cpp - What folding takes from the lives of tensors -------===//

#include "Lifetimes.h"
#include "Graph.h"
#include "koila/Target/TorchScript/Types.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <set>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir_views.h>
#include <utility>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;

/// On marks.
static const c10::Symbol kKeeps = c10::Symbol::attr("koila_keeps");

bool koila::torchscript::isLifetimeMark(const tj::Node *node) {
  return node->kind() == prim::Print && node->hasAttribute(kKeeps);
}

/// The caller keeps arguments, and the module its attributes.
static bool mayEnd(const tj::Value *value) {
  const tj::Node *node = value->node();
  bool isArgument = node->kind() == prim::Param &&
                    node->owningBlock() == node->owningGraph()->block();
  return mayHoldTensor(value->type()) && !isArgument &&
         node->kind() != prim::Constant && node->kind() != prim::GetAttr &&
         node->kind() != prim::Uninitialized;
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
  // Nothing that prints is dead.
  tj::Node *made = after->owningGraph()->create(prim::Print,
                                                /*num_outputs=*/0);
  made->i_(kKeeps, 1);
  addToMark(made, values);
  return made->insertAfter(after);
}

/// The node of `block` that `node` is, or is in; null if it is in none.
static tj::Node *getPlaceIn(const tj::Block *block, tj::Node *node) {
  while (node && node->owningBlock() != block)
    node = node->owningBlock()->owningNode();
  return node;
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
bool koila::torchscript::changesNothing(tj::Node *node, bool profiles) {
  bool isSum = node->kind() == aten::add || node->kind() == aten::sub;
  bool isProduct = node->kind() == aten::mul || node->kind() == aten::div;
  if (!(isSum || isProduct) || node->inputs().size() < 2 ||
      (node->hasAttribute(kStays) && !profiles) ||
      node->input(0)->type()->kind() != c10::TypeKind::TensorType)
    return false;
  auto number = tj::toIValue(node->input(1));
  if (!number || !number->isScalar() ||
      !number->toScalar().equal(isSum ? 0 : 1))
    return false;
  auto factor = isSum && node->inputs().size() > 2
                    ? tj::toIValue(node->input(2))
                    : std::optional(c10::IValue(1));
  if (!factor || !factor->isScalar() || !factor->toScalar().equal(1))
    return false;
  // Of integers it might change the type. Without profiling, types are known of
  // constants alone.
  auto element =
      node->input(0)->type()->expectRef<c10::TensorType>().scalarType();
  bool mayBeFloat = element ? at::isFloatingType(*element) : profiles;
  return mayBeFloat ||
         (node->kind() != aten::div && number->isInt() && factor->isInt());
}

/// Whether a loop takes what it carries from there.
static bool startsLoop(const tj::Use &use) {
  return use.user->kind() == prim::Loop;
}

/// The last node that reads `value`, in the block that makes it; what makes it
/// if nothing does, and null if something has it further: what is around the
/// block, or a loop that starts with it.
static tj::Node *findEnd(tj::Value *value) {
  tj::Node *last = value->node();
  bool isHandedOn = false;
  for (const tj::Use &use : value->uses()) {
    tj::Node *user = getPlaceIn(value->node()->owningBlock(), use.user);
    if (user->kind() == prim::Return)
      return nullptr;
    bool starts = startsLoop(use);
    if (last->kind() == prim::Param || last->isBefore(user)) {
      last = user;
      isHandedOn = starts;
    } else if (last == user) {
      isHandedOn &= starts;
    }
  }
  return isHandedOn || last->kind() == prim::Param ? nullptr : last;
}

void koila::torchscript::markLifetimes(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  bool isFolded = llvm::any_of(nodes, [](const tj::Node *node) {
    return !node->blocks().empty() || node->kind() == prim::TupleConstruct;
  });
  if (!isFolded)
    return;
  llvm::MapVector<tj::Node *, llvm::SmallVector<tj::Value *>> ending;
  auto add = [&](tj::Value *value) {
    if (mayEnd(value))
      if (tj::Node *end = findEnd(value))
        ending[end].push_back(value);
  };
  for (tj::Node *node : nodes) {
    llvm::for_each(node->outputs(), add);
    if (node->kind() == prim::Loop)
      llvm::for_each(node->blocks()[0]->inputs(), add);
  }
  for (auto &[end, values] : ending)
    markLifetimes(end, values);
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

/// Whether `node` writes a part of a tensor, and nothing reads that part later.
/// LibTorch takes the parts of aten::chunk for tensors of their own before it
/// drops dead code. Source: CanonicalizeOps.
static bool writesDeadPart(tj::Node *node) {
  const c10::FunctionSchema *schema = node->maybeSchema();
  if (!schema || !schema->is_mutable() || node->inputs().empty())
    return false;
  tj::Value *part = node->input(0);
  tj::Node *unpack = part->node();
  if (unpack->kind() != prim::ListUnpack ||
      unpack->input()->node()->kind() != aten::chunk)
    return false;
  auto isRead = [&](const tj::Use &use) {
    return !isLifetimeMark(use.user) && use.user->isAfter(node);
  };
  return llvm::none_of(part->uses(), isRead) &&
         llvm::all_of(node->outputs(), [&](tj::Value *output) {
           return llvm::none_of(output->uses(), isRead);
         });
}

std::string koila::torchscript::describeShortenedLives(tj::Graph &graph,
                                                       bool profiles) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  std::string text;
  for (tj::Node *node : nodes)
    if (node->hasAttribute(kShortens)) {
      text = "the program computes or holds a result of " + node->s(kShortens) +
             " that the training step has no use for and leaves out";
      node->removeAttribute(kShortens);
    }
  if (text.empty() && llvm::any_of(nodes, [&](tj::Node *node) {
        return changesNothing(node, profiles);
      }))
    text = kDropsIdle;
  if (text.empty() && llvm::any_of(nodes, writesDeadPart))
    text = "LibTorch drops a write into a part of aten::chunk that nothing "
           "reads later";
  return text;
}

/// Whether a reader of `value` says as much as a mark behind `place` does.
static bool isReadAt(tj::Value *value, tj::Node *place) {
  return llvm::any_of(value->uses(), [&](const tj::Use &use) {
    tj::Node *user = getPlaceIn(place->owningBlock(), use.user);
    if (!user)
      return false;
    if (user == place)
      return !startsLoop(use);
    return user->kind() == prim::Return || place->kind() == prim::Return ||
           place->isBefore(user);
  });
}

void koila::torchscript::takeMarkedTuplesApart(tj::Graph &graph) {
  std::vector<tj::Node *> marks;
  collectNodes(graph.block(), marks);
  llvm::erase_if(marks,
                 [](const tj::Node *node) { return !isLifetimeMark(node); });
  std::set<tj::Node *> tuples;
  auto add = [&](auto &add, tj::Value *value,
                 std::vector<tj::Value *> &values) -> void {
    tj::Node *node = value->node();
    if (node->kind() != prim::TupleConstruct) {
      values.push_back(value);
      return;
    }
    tuples.insert(node);
    for (tj::Value *element : node->inputs())
      add(add, element, values);
  };
  for (tj::Node *mark : marks) {
    std::vector<tj::Value *> values;
    for (tj::Value *value : mark->inputs())
      add(add, value, values);
    mark->removeAllInputs();
    addToMark(mark, values);
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
}

std::unordered_map<tj::Node *, std::vector<tj::Value *>>
koila::torchscript::takeKeptAlive(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  llvm::erase_if(nodes,
                 [](const tj::Node *node) { return !isLifetimeMark(node); });
  std::vector<std::vector<tj::Value *>> ending;
  for (tj::Node *mark : nodes) {
    ending.push_back(mark->inputs().vec());
    mark->removeAllInputs();
  }
  std::unordered_map<tj::Node *, std::vector<tj::Value *>> kept;
  llvm::DenseSet<std::pair<tj::Node *, tj::Value *>> seen;
  for (auto [mark, values] : llvm::zip_equal(nodes, ending)) {
    // A block's end stands before its first node.
    tj::Node *place = mark->prev();
    mark->destroy();
    for (tj::Value *value : values)
      if (!isReadAt(value, place) && seen.insert({place, value}).second)
        kept[place].push_back(value);
  }
  return kept;
}
