//===- ExecutorBarriers.cpp - Steps that run as they are written ----------===//

#include "ExecutorBarriers.h"
#include "../Import/Graph.h"
#include "llvm/ADT/STLExtras.h"

using namespace koila::torchscript;
namespace tj = torch::jit;

static const c10::Symbol kFence =
    c10::Symbol::fromQualString("aten::is_grad_enabled");

static bool isFence(const tj::Node *node) {
  return node->kind() == kFence && node->output()->uses().empty();
}

static bool makesTensor(const tj::Node *node) {
  return node->kind().is_aten() &&
         llvm::any_of(node->outputs(), [](const tj::Value *value) {
           auto list = value->type()->cast<c10::ListType>();
           const c10::TypePtr &type =
               list ? list->getElementType() : value->type();
           return type->kind() == c10::TypeKind::TensorType;
         });
}

void koila::torchscript::addExecutorBarriers(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  for (tj::Node *node : nodes) {
    if (!makesTensor(node) || isFence(node->next()))
      continue;
    tj::Node *fence = graph.create(kFence);
    fence->output()->setType(c10::BoolType::get());
    fence->setSourceRange(node->sourceRange());
    fence->insertAfter(node);
  }
}

void koila::torchscript::removeFences(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  for (tj::Node *node : nodes)
    if (isFence(node))
      node->destroy();
}
