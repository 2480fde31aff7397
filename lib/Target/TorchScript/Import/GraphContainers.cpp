//===- GraphContainers.cpp - Containers that are filled step by step ------===//
//
// `features.append(x)` followed by `torch.cat(features)`, or `out["aux"] = x`
// before `return out`: a list or dict that is changed only in the block that
// made it, in ways that say what is in it. Each reader gets a container of what
// is in it by then, so that nothing is written any more, and shapes follow.
// (LibTorch's RemoveListMutation stops at the first reader.)
//
//===----------------------------------------------------------------------===//

#include "Graph.h"
#include "Lifetimes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <torch/csrc/jit/ir/constants.h>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;

static bool isDict(const tj::Value *value) {
  return value->type()->kind() == c10::TypeKind::DictType;
}

/// Whether the use takes elements or numbers, so that a container with the
/// same in it would do.
static bool isRead(const tj::Use &use) {
  const tj::Node *user = use.user;
  const c10::FunctionSchema *schema = user->maybeSchema();
  if (!schema || schema->is_vararg() ||
      use.offset >= schema->arguments().size() ||
      user->kind() == aten::__is__ || user->kind() == aten::__isnot__)
    return false;
  // It becomes an element of another one.
  const c10::AliasInfo *alias = schema->arguments()[use.offset].alias_info();
  if (alias && alias->isWildcardAfter())
    return false;
  const tj::Value *container = user->input(use.offset);
  return llvm::none_of(user->outputs(), [&](const tj::Value *output) {
    return *output->type() == *container->type() ||
           output->type()->kind() == c10::TypeKind::AnyType;
  });
}

namespace {
/// What is in a list, or in a dict, at one place of the program.
class Contents {
public:
  /// What the node that makes the container puts there.
  bool start(tj::Node *construct) {
    bool paired = isDict(construct->output());
    for (size_t i = 0; i < construct->inputs().size(); i += paired ? 2 : 1)
      if (paired)
        set(construct->input(i), construct->input(i + 1));
      else
        values.push_back(construct->input(i));
    return known;
  }

  /// What a write makes of it; false if nobody knows.
  bool apply(tj::Node *write) {
    replaced = nullptr;
    if (write->kind() == aten::append)
      values.push_back(write->input(1));
    else if (write->kind() == aten::pop)
      take(write);
    else
      set(write->input(1), write->input(2), isDict(write->input(0)));
    return known;
  }

  /// The element that the last write took out, if it took one.
  tj::Value *getTaken() const { return taken; }
  /// The element in whose place the last write put another; null if none.
  tj::Value *getReplaced() const { return replaced; }
  llvm::ArrayRef<tj::Value *> getElements() const { return values; }

  /// The value that a reader gets; null if it is none of these.
  tj::Value *read(tj::Node *reader) const {
    tj::Graph &graph = *reader->owningGraph();
    if (reader->kind() == aten::len)
      return graph.insertConstant(static_cast<int64_t>(values.size()));
    // Lists say what they hold themselves.
    if (!isDict(reader->input(0)) || reader->inputs().size() != 2)
      return nullptr;
    std::optional<c10::IValue> key = tj::toIValue(reader->input(1));
    if (!key)
      return nullptr;
    auto place = find(*key);
    if (reader->kind() == aten::__contains__)
      return graph.insertConstant(place.has_value());
    if (reader->kind() != aten::__getitem__ || !place ||
        *values[*place]->type() != *reader->output()->type())
      return nullptr;
    return values[*place];
  }

  /// A new container of it, at the graph's insertion point.
  tj::Value *build(tj::Node *construct) const {
    tj::Graph *graph = construct->owningGraph();
    c10::TypePtr type = construct->output()->type();
    tj::Node *made =
        isDict(construct->output())
            ? graph->createDict(type->containedType(0), type->containedType(1),
                                keys, values)
            : graph->createList(type->containedType(0), values);
    made->output()->setType(type);
    made->setSourceRange(construct->sourceRange());
    return graph->insertNode(made)->output();
  }

private:
  std::optional<size_t> find(const c10::IValue &key) const {
    for (auto [index, candidate] : llvm::enumerate(keys))
      if (*tj::toIValue(candidate) == key)
        return index;
    return std::nullopt;
  }

  /// Where an index of a list is; none if it is not known or out of range, and
  /// the program raises.
  std::optional<size_t> findPlace(const c10::IValue &index) const {
    int64_t size = values.size(), at = index.toInt();
    if (at < -size || at >= size)
      return std::nullopt;
    return at < 0 ? at + size : at;
  }

  void take(tj::Node *pop) {
    std::optional<c10::IValue> index = tj::toIValue(pop->input(1));
    auto place = index ? findPlace(*index) : std::nullopt;
    known &= place && *values[*place]->type() == *pop->output()->type();
    if (!known)
      return;
    taken = values[*place];
    values.erase(values.begin() + *place);
  }

  void set(tj::Value *at, tj::Value *value, bool paired = true) {
    std::optional<c10::IValue> key = tj::toIValue(at);
    // Tensors are keys by what they are, not by what is in them.
    known &= key && !key->isTensor();
    if (!known)
      return;
    if (!paired) {
      auto place = findPlace(*key);
      known &= place.has_value();
      if (known)
        replaced = std::exchange(values[*place], value);
      return;
    }
    if (auto place = find(*key)) {
      replaced = std::exchange(values[*place], value);
      return;
    }
    keys.push_back(at);
    values.push_back(value);
  }

  /// Constants; empty for a list.
  std::vector<tj::Value *> keys;
  std::vector<tj::Value *> values;
  tj::Value *taken = nullptr, *replaced = nullptr;
  bool known = true;
};

class ContainerUnfolder {
public:
  ContainerUnfolder(tj::Node *construct)
      : construct(construct), block(construct->owningBlock()) {}

  /// Whether it changed the graph.
  bool run() {
    if (!collect(construct->output()) || !mayEscape() || !isKnown() ||
        (writes.empty() && !isTakenApart()))
      return false;
    rewrite();
    return true;
  }

private:
  /// The node of `block` that the use is in; null for its end.
  tj::Node *getPlace(const tj::Use &use) const {
    tj::Node *node = use.user;
    while (node->owningBlock() != block)
      node = node->owningBlock()->owningNode();
    return node->kind() == prim::Return ? nullptr : node;
  }

  bool isWrite(const tj::Use &use) const {
    return use.offset == 0 && use.user->owningBlock() == block &&
           (use.user->kind() == aten::append ||
            use.user->kind() == aten::_set_item ||
            (use.user->kind() == aten::pop && !isDict(use.user->input(0))));
  }

  /// Whether a container is changed by what the schema says of the argument.
  static bool isChangedBy(const tj::Use &use) {
    const c10::FunctionSchema *schema = use.user->maybeSchema();
    if (!schema || use.offset >= schema->arguments().size())
      return false;
    const c10::AliasInfo *alias = schema->arguments()[use.offset].alias_info();
    return alias && alias->isWrite();
  }

  /// Sorts the uses of the container; false if one changes it otherwise.
  bool collect(tj::Value *container) {
    containers.insert(container);
    for (const tj::Use &use : container->uses()) {
      if (isLifetimeMark(use.user)) {
        marks.push_back(use);
        continue;
      }
      if (isWrite(use)) {
        writes.push_back(use.user);
        if (use.user->kind() == aten::pop)
          continue;
        // A write to a list returns it.
        for (tj::Value *output : use.user->outputs())
          if (!collect(output))
            return false;
        continue;
      }
      if (isChangedBy(use))
        return false;
      (isRead(use) ? readers : escapes).push_back(use);
    }
    return true;
  }

  /// A container that somebody keeps must not change afterwards.
  bool mayEscape() const {
    return llvm::all_of(escapes, [&](const tj::Use &use) {
      tj::Node *user = use.user;
      bool inside = user->owningBlock() == block;
      return inside && llvm::all_of(writes, [&](tj::Node *write) {
               return user->kind() == prim::Return || user->isAfter(write);
             });
    });
  }

  bool isKnown() {
    llvm::sort(writes,
               [](tj::Node *lhs, tj::Node *rhs) { return lhs->isBefore(rhs); });
    Contents contents;
    return contents.start(construct) &&
           llvm::all_of(writes,
                        [&](tj::Node *write) { return contents.apply(write); });
  }

  /// Whether what is read of the container is known although nothing fills it
  /// later: it may have come out of a tuple. Who keeps it, keeps it further.
  bool isTakenApart() const {
    Contents contents;
    contents.start(construct);
    return llvm::any_of(readers,
                        [&](const tj::Use &use) {
                          return use.user->kind() == aten::__getitem__ &&
                                 contents.read(use.user);
                        }) &&
           llvm::all_of(escapes, [](const tj::Use &use) {
             return use.user->kind() == prim::Return;
           });
  }

  /// Gives the use what it reads. Who keeps the container keeps the same one
  /// as all others, and may change it: so do those that read it later.
  void replace(const tj::Use &use, tj::Node *place, const Contents &contents,
               bool escapes) {
    tj::WithInsertPoint guard(place ? place : block->return_node());
    if (!kept && !escapes) {
      if (tj::Value *value = contents.read(use.user)) {
        use.user->output()->replaceAllUsesWith(value);
        use.user->destroy();
        return;
      }
    }
    tj::Value *made = kept ? kept : contents.build(construct);
    if (escapes)
      kept = made;
    use.user->replaceInput(use.offset, made);
  }

  /// The node with whose end the container goes; null if it is the block's.
  tj::Node *getLast() const {
    tj::Node *last = construct;
    auto add = [&](tj::Node *place) {
      if (last && (!place || last->isBefore(place)))
        last = place;
    };
    llvm::for_each(writes, add);
    for (const auto *uses : {&readers, &escapes, &marks})
      for (const tj::Use &use : *uses)
        add(getPlace(use));
    return last;
  }

  /// Those of the container; its elements have their own.
  void dropMarks() {
    for (const tj::Use &use : marks) {
      tj::Node *mark = use.user;
      std::vector<tj::Value *> others;
      for (tj::Value *value : mark->inputs())
        if (!containers.contains(value))
          others.push_back(value);
      mark->removeAllInputs();
      for (tj::Value *value : others)
        mark->addInput(value);
    }
  }

  void rewrite() {
    struct Event {
      tj::Node *place;
      const tj::Use *use;
      bool escapes;
    };
    std::vector<Event> events;
    for (const tj::Use &use : readers)
      events.push_back({getPlace(use), &use, false});
    for (const tj::Use &use : escapes)
      events.push_back({getPlace(use), &use, true});
    llvm::stable_sort(events, [](const Event &lhs, const Event &rhs) {
      if (lhs.place == rhs.place || !lhs.place)
        return false;
      return !rhs.place || lhs.place->isBefore(rhs.place);
    });
    // Readers may go, the place stays.
    tj::Node *last = getLast();
    tj::Node *end = last ? markLifetimes(last, {}) : nullptr;
    Contents contents;
    contents.start(construct);
    auto write = writes.begin();
    auto apply = [&] {
      contents.apply(*write);
      if ((*write)->kind() == aten::pop)
        (*write)->output()->replaceAllUsesWith(contents.getTaken());
      if (contents.getReplaced())
        markLifetimes(*write, {contents.getReplaced()});
      ++write;
    };
    for (const Event &event : events) {
      while (write != writes.end() &&
             (!event.place || (*write)->isBefore(event.place)))
        apply();
      replace(*event.use, event.place, contents, event.escapes);
    }
    while (write != writes.end())
      apply();
    if (end && kept)
      end->destroy();
    else if (end)
      addToMark(end, contents.getElements());
    dropMarks();
    // What a write returned are uses of the container, which have another now.
    for (tj::Node *node : llvm::reverse(writes))
      node->destroy();
    construct->destroy();
  }

  tj::Node *construct;
  tj::Block *block;
  std::vector<tj::Node *> writes;
  std::vector<tj::Use> readers, escapes, marks;
  /// The container, as what makes it and what writes it give it.
  llvm::SmallPtrSet<tj::Value *, 4> containers;
  /// The container, once somebody keeps it.
  tj::Value *kept = nullptr;
};
} // namespace

//===----------------------------------------------------------------------===//
// `[factor for _ in range(x.dim() - 2)]`
//===----------------------------------------------------------------------===//

namespace {
/// Gives the readers of a list that a loop fills with one value lists of their
/// own, where a branch on the rank of a tensor says how often it turns.
class RepeatUnfolder {
public:
  RepeatUnfolder(tj::Node *construct) : construct(construct) {}

  /// Whether it changed the graph.
  bool run() {
    tj::Value *list = construct->output();
    if (isDict(list) || !construct->inputs().empty())
      return false;
    const std::vector<tj::Use> &uses = list->uses();
    auto fill =
        llvm::find_if(uses, [&](const tj::Use &use) { return isFill(use); });
    if (fill == uses.end())
      return false;
    std::vector<std::pair<tj::Use, int64_t>> readers;
    for (const tj::Use &use : uses) {
      if (use.user == fill->user)
        continue;
      if (!isRead(use) || !use.user->isAfter(loop))
        return false;
      auto count = findCount(use.user);
      if (!count)
        return false;
      readers.emplace_back(use, *count);
    }
    if (readers.empty())
      return false;
    for (auto &[use, count] : readers) {
      tj::WithInsertPoint guard(use.user);
      tj::Graph *graph = construct->owningGraph();
      std::vector<tj::Value *> values(std::max<int64_t>(count, 0), element);
      tj::Node *made =
          graph->createList(list->type()->containedType(0), values);
      made->setSourceRange(construct->sourceRange());
      use.user->replaceInput(use.offset, graph->insertNode(made)->output());
    }
    loop->destroy();
    construct->destroy();
    return true;
  }

private:
  static bool isTrue(const tj::Value *value) {
    auto constant = tj::toIValue(value);
    return constant && constant->isBool() && constant->toBool();
  }

  /// Whether it is an append of one value, all that a loop behind the list
  /// does.
  bool isFill(const tj::Use &use) {
    tj::Node *append = use.user;
    tj::Block *body = append->owningBlock();
    tj::Node *owner = body->owningNode();
    if (append->kind() != aten::append || use.offset != 0 || !owner ||
        owner->kind() != prim::Loop || owner->inputs().size() != 2 ||
        owner->owningBlock() != construct->owningBlock() ||
        append->output()->hasUses() || !isTrue(owner->input(1)) ||
        !isTrue(body->outputs()[0]))
      return false;
    tj::Value *value = append->input(1);
    // All else would be lost.
    bool isAlone = llvm::all_of(body->nodes(), [&](tj::Node *node) {
      return node == append || node->kind() == prim::Constant;
    });
    if (!isAlone || value == append->input(0) ||
        value->node() == body->param_node() ||
        value->node()->owningBlock() == body)
      return false;
    loop = owner;
    element = value;
    return true;
  }

  /// How often the loop has turned where `reader` runs.
  std::optional<int64_t> findCount(tj::Node *reader) const {
    std::vector<std::pair<tj::Value *, int64_t>> ranks;
    tj::Block *block = reader->owningBlock();
    while (tj::Node *owner = block->owningNode()) {
      if (owner->kind() == prim::If && owner->blocks()[0] == block)
        addRank(owner->input()->node(), ranks);
      block = owner->owningBlock();
    }
    constexpr int64_t kMost = 8;
    auto count = evaluate(loop->input(0), ranks);
    return count && *count <= kMost ? count : std::nullopt;
  }

  /// What holds where `condition` does, as `x.dim() == 4`.
  static void addRank(tj::Node *condition,
                      std::vector<std::pair<tj::Value *, int64_t>> &ranks) {
    // `a and b`
    if (condition->kind() == prim::If && condition->outputs().size() == 1) {
      tj::Value *otherwise = condition->blocks()[1]->outputs()[0];
      auto constant = tj::toIValue(otherwise);
      if (!constant || !constant->isBool() || constant->toBool())
        return;
      addRank(condition->input()->node(), ranks);
      return addRank(condition->blocks()[0]->outputs()[0]->node(), ranks);
    }
    if (condition->kind() != aten::eq || condition->inputs().size() != 2)
      return;
    for (int side : {0, 1}) {
      tj::Node *read = condition->input(side)->node();
      auto rank = tj::toIValue(condition->input(1 - side));
      if (read->kind() == aten::dim && rank && rank->isInt())
        ranks.emplace_back(read->input(0), rank->toInt());
    }
  }

  static std::optional<int64_t>
  evaluate(tj::Value *value,
           const std::vector<std::pair<tj::Value *, int64_t>> &ranks) {
    if (auto constant = tj::toIValue(value))
      return constant->isInt() ? std::optional(constant->toInt())
                               : std::nullopt;
    tj::Node *node = value->node();
    if (node->kind() == aten::dim) {
      for (auto [tensor, rank] : ranks)
        if (tensor == node->input(0))
          return rank;
      return std::nullopt;
    }
    bool subtracts = node->kind() == aten::sub;
    if ((!subtracts && node->kind() != aten::add) || node->inputs().size() != 2)
      return std::nullopt;
    auto lhs = evaluate(node->input(0), ranks);
    auto rhs = evaluate(node->input(1), ranks);
    if (!lhs || !rhs)
      return std::nullopt;
    return subtracts ? *lhs - *rhs : *lhs + *rhs;
  }

  tj::Node *construct, *loop = nullptr;
  tj::Value *element = nullptr;
};
} // namespace

static void collectConstructs(tj::Block *block,
                              std::vector<tj::Node *> &nodes) {
  for (tj::Node *node : block->nodes()) {
    bool makesDict = node->kind() == prim::DictConstruct ||
                     (node->kind() == aten::dict && node->inputs().empty());
    if (node->kind() == prim::ListConstruct || makesDict)
      nodes.push_back(node);
    for (tj::Block *inner : node->blocks())
      collectConstructs(inner, nodes);
  }
}

/// Whether the node gives one number or text, and may be run for it.
static bool givesLiteral(const tj::Node *node) {
  if (node->outputs().size() != 1 || node->hasSideEffects())
    return false;
  c10::TypePtr type = node->output()->type();
  if (auto optional = type->cast<c10::OptionalType>())
    type = optional->getElementType();
  switch (type->kind()) {
  case c10::TypeKind::BoolType:
  case c10::TypeKind::IntType:
  case c10::TypeKind::FloatType:
  case c10::TypeKind::StringType:
    return true;
  default:
    return false;
  }
}

bool koila::torchscript::foldReaders(tj::Value *dict,
                                     const c10::IValue &value) {
  bool folded = false;
  // Each reader takes itself out of the list of uses.
  for (const tj::Use &use : std::vector<tj::Use>(dict->uses())) {
    tj::Node *reader = use.user;
    if (!givesLiteral(reader))
      continue;
    tj::Stack stack;
    for (const tj::Value *input : reader->inputs()) {
      std::optional<c10::IValue> known =
          input == dict ? std::optional(value) : tj::toIValue(input);
      if (!known)
        break;
      stack.push_back(*known);
    }
    if (stack.size() != reader->inputs().size())
      continue;
    try {
      reader->getOperation()(stack);
    } catch (const std::exception &) {
      // The program raises, too, if it gets there.
      continue;
    }
    const c10::IValue &result = stack.back();
    if (result.isNone())
      continue;
    tj::WithInsertPoint guard(reader);
    reader->output()->replaceAllUsesWith(
        dict->owningGraph()->insertConstant(result));
    reader->destroy();
    folded = true;
  }
  return folded;
}

/// Makes literals of what is asked of a list of literals that nobody changes,
/// as `mode in ("linear", "bilinear")`.
static bool foldLiteralList(tj::Node *construct) {
  tj::Value *list = construct->output();
  if (construct->kind() != prim::ListConstruct || construct->inputs().empty() ||
      !llvm::all_of(list->uses(), isRead))
    return false;
  c10::impl::GenericList values(list->type()->containedType(0));
  for (tj::Value *input : construct->inputs()) {
    std::optional<c10::IValue> value = tj::toIValue(input);
    if (!value || *input->type() != *values.elementType() ||
        !(value->isString() || value->isInt() || value->isBool() ||
          value->isDouble()))
      return false;
    values.push_back(*value);
  }
  return foldReaders(list, values);
}

bool koila::torchscript::unfoldContainers(tj::Graph &graph) {
  std::vector<tj::Node *> constructs;
  collectConstructs(graph.block(), constructs);
  bool changed = false;
  for (tj::Node *construct : constructs) {
    if (foldLiteralList(construct)) {
      changed = true;
      continue;
    }
    if (RepeatUnfolder(construct).run()) {
      changed = true;
      continue;
    }
    changed |= ContainerUnfolder(construct).run();
  }
  return changed;
}
