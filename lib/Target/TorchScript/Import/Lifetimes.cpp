//===- Lifetimes.cpp - What folding takes from the lives of tensors -------===//

#include "Lifetimes.h"
#include "Graph.h"
#include "koila/Target/TorchScript/Types.h"
#include "llvm/ADT/STLExtras.h"
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

namespace {
/// A list or dict that is filled step by step in the block that made it. Each
/// reader gets what is in it by then (GraphContainers.cpp); in PyTorch all of
/// it lives as long as the container is used, be it only to ask for its length
/// or to put something else into it.
class FilledContainer {
public:
  /// `foldsLists`: what is read of a list may be folded, too.
  FilledContainer(tj::Node *construct, bool foldsLists)
      : construct(construct), block(construct->owningBlock()),
        readsSingly(foldsLists || construct->kind() != prim::ListConstruct) {
    bool paired = construct->kind() == prim::DictConstruct;
    for (size_t i = paired; i < construct->inputs().size(); i += paired ? 2 : 1)
      puts.push_back({construct, construct->input(i),
                      paired ? tj::toIValue(construct->input(i - 1))
                             : std::optional<c10::IValue>(int64_t(i))});
    collect(construct->output());
  }

  /// Whether it keeps an element for longer than it is read there.
  bool keepsForLonger() const {
    return changes && llvm::any_of(puts, [&](const Put &put) {
             return mayHoldTensor(put.element->type()) &&
                    put.element->node()->kind() != prim::Param &&
                    put.element->node()->kind() != prim::Constant &&
                    put.element->node()->kind() != prim::GetAttr &&
                    isBefore(getLastRead(put), getEnd(put));
           });
  }

private:
  struct Put {
    tj::Node *place;
    const tj::Value *element;
    /// Where; none if that is not known.
    std::optional<c10::IValue> at;
  };
  struct Read {
    tj::Node *place;
    /// None: all that is in it.
    std::optional<c10::IValue> at;
    const tj::Value *element;
  };

  /// The node of the block that `node` is in.
  tj::Node *getPlace(tj::Node *node) const {
    while (node->owningBlock() != block)
      node = node->owningBlock()->owningNode();
    return node;
  }
  static bool isEnd(const tj::Node *node) {
    return node->kind() == prim::Return;
  }
  static bool isBefore(tj::Node *lhs, tj::Node *rhs) {
    return lhs != rhs && !isEnd(lhs) && (isEnd(rhs) || lhs->isBefore(rhs));
  }
  static void makeLater(tj::Node *&last, tj::Node *other) {
    if (isBefore(last, other))
      last = other;
  }

  void collect(const tj::Value *container) {
    for (const tj::Use &use : container->uses()) {
      tj::Node *user = use.user, *place = getPlace(user);
      makeLater(last, place);
      bool puts = use.offset == 0 && (user->kind() == aten::append ||
                                      user->kind() == aten::_set_item);
      if (puts) {
        changes = true;
        bool grows = user->kind() == aten::append;
        this->puts.push_back(
            {place, user->input(grows ? 1 : 2),
             grows ? std::nullopt : tj::toIValue(user->input(1))});
        for (const tj::Value *output : user->outputs())
          collect(output);
        continue;
      }
      if (user->kind() == aten::len || user->kind() == aten::__contains__)
        continue;
      bool takes = user->kind() == aten::__getitem__ && use.offset == 0;
      auto at = takes ? tj::toIValue(user->input(1)) : std::nullopt;
      reads.push_back({place, at, at ? user->output() : nullptr});
    }
  }

  /// Where something else takes its place, or the container is used last.
  tj::Node *getEnd(const Put &put) const {
    tj::Node *end = last;
    for (const Put &other : puts)
      if (put.at && other.at && isBefore(put.place, other.place) &&
          isBefore(other.place, end) && *put.at == *other.at)
        end = other.place;
    return end;
  }

  tj::Node *getLastRead(const Put &put) const {
    tj::Node *found = put.place, *end = getEnd(put);
    auto addUses = [&](const tj::Value *value) {
      for (const tj::Use &use : value->uses())
        makeLater(found, getPlace(use.user));
    };
    addUses(put.element);
    for (const Read &read : reads) {
      if (!isBefore(put.place, read.place) || isBefore(end, read.place))
        continue;
      // Places of lists that are counted from the end are taken for others.
      if (read.at && readsSingly && !(put.at && *read.at == *put.at))
        continue;
      makeLater(found, read.place);
      if (read.at)
        addUses(read.element);
    }
    return found;
  }

  tj::Node *construct;
  tj::Block *block;
  /// Who takes one element out keeps the others no longer.
  bool readsSingly;
  tj::Node *last = construct;
  bool changes = false;
  std::vector<Put> puts;
  std::vector<Read> reads;
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

Lifetimes::Lifetimes(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  // Where attributes decide branches, LibTorch cleans up after them.
  bool foldsLists = llvm::any_of(nodes, [](tj::Node *node) {
    return node->kind() == prim::GetAttr &&
           !mayHoldTensor(node->output()->type());
  });
  for (tj::Node *node : nodes) {
    bool makesContainer =
        node->kind() == prim::ListConstruct ||
        node->kind() == prim::DictConstruct ||
        (node->kind() == aten::dict && node->inputs().empty());
    if (makesContainer && FilledContainer(node, foldsLists).keepsForLonger())
      dropped = "a list or dict that is filled step by step keeps tensors for "
                "longer than they are read";
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
