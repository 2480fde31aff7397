//===- GraphLists.cpp - Lists that are filled step by step ----------------===//
//
// `features.append(x)` followed by `torch.cat(features)`: a list that only
// grows, in the block that made it, and is only read in between. Each reader
// gets a list of what is in it by then, so that nothing is written any more,
// and shapes follow. (LibTorch's RemoveListMutation stops at the first reader.)
//
//===----------------------------------------------------------------------===//

#include "Graph.h"
#include "llvm/ADT/STLExtras.h"

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;

namespace {
class ListUnfolder {
public:
  ListUnfolder(tj::Node *construct)
      : construct(construct), block(construct->owningBlock()) {}

  bool run() {
    if (!collect(construct->output()) || appends.empty() || !mayEscape())
      return false;
    rewrite();
    return true;
  }

private:
  /// The node of `block` that is `node` or has it inside.
  tj::Node *getAncestor(tj::Node *node) const {
    while (node->owningBlock() != block)
      node = node->owningBlock()->owningNode();
    return node;
  }

  /// Sorts the uses of the list; false if one does something else.
  bool collect(tj::Value *list) {
    for (const tj::Use &use : list->uses()) {
      if (use.user->kind() == aten::append && use.offset == 0 &&
          use.user->owningBlock() == block) {
        appends.push_back(use.user);
        // An append returns the list.
        if (!collect(use.user->output()))
          return false;
        continue;
      }
      const c10::FunctionSchema *schema = use.user->maybeSchema();
      bool known = schema && !schema->is_vararg() &&
                   use.offset < schema->arguments().size();
      const c10::AliasInfo *alias =
          known ? schema->arguments()[use.offset].alias_info() : nullptr;
      if (alias && alias->isWrite())
        return false;
      // Elements may be handed on, the list itself may not.
      bool reads = known && llvm::none_of(
                                use.user->outputs(), [&](const auto *output) {
                                  return *output->type() == *list->type() ||
                                         output->type()->kind() ==
                                             c10::TypeKind::AnyType;
                                });
      (reads ? readers : escapes).push_back(use);
    }
    return true;
  }

  /// A list that somebody keeps must not grow afterwards.
  bool mayEscape() const {
    return llvm::all_of(escapes, [&](const tj::Use &use) {
      tj::Node *user = use.user;
      bool inside = user->owningBlock() == block;
      return inside && llvm::all_of(appends, [&](tj::Node *append) {
               return user->kind() == prim::Return || user->isAfter(append);
             });
    });
  }

  void rewrite() {
    llvm::sort(appends, [](tj::Node *lhs, tj::Node *rhs) {
      return lhs->isBefore(rhs);
    });
    readers.insert(readers.end(), escapes.begin(), escapes.end());
    // Uses of what an append returned are uses of the list.
    std::vector<std::vector<tj::Value *>> contents;
    contents.emplace_back(construct->inputs().begin(),
                          construct->inputs().end());
    for (tj::Node *append : appends) {
      contents.push_back(contents.back());
      contents.back().push_back(append->input(1));
    }
    for (const tj::Use &use : readers) {
      bool returned = use.user->kind() == prim::Return;
      tj::Node *ancestor = returned ? nullptr : getAncestor(use.user);
      size_t count = returned ? appends.size()
                              : llvm::count_if(appends, [&](tj::Node *append) {
                                  return append->isBefore(ancestor);
                                });
      // In the block of the list: an escaping list is made once.
      tj::WithInsertPoint guard(returned ? block->return_node() : ancestor);
      tj::Graph *graph = construct->owningGraph();
      auto elementType =
          construct->output()->type()->expect<c10::ListType>()->getElementType();
      tj::Node *list = graph->insertNode(
          graph->createList(elementType, contents[count]));
      list->setSourceRange(construct->sourceRange());
      use.user->replaceInput(use.offset, list->output());
    }
    for (tj::Node *append : llvm::reverse(appends))
      append->destroy();
    construct->destroy();
  }

  tj::Node *construct;
  tj::Block *block;
  std::vector<tj::Node *> appends;
  std::vector<tj::Use> readers, escapes;
};
} // namespace

static void collectConstructs(tj::Block *block, std::vector<tj::Node *> &nodes) {
  for (tj::Node *node : block->nodes()) {
    if (node->kind() == prim::ListConstruct)
      nodes.push_back(node);
    for (tj::Block *inner : node->blocks())
      collectConstructs(inner, nodes);
  }
}

void koila::torchscript::unfoldLists(tj::Graph &graph) {
  std::vector<tj::Node *> constructs;
  collectConstructs(graph.block(), constructs);
  for (tj::Node *construct : constructs)
    ListUnfolder(construct).run();
}
