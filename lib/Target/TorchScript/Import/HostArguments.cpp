//===- HostArguments.cpp - Arguments that are moved to a device -----------===//

#include "HostArguments.h"
#include "../Boundary/DiagnosticJSON.h"

using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace aten = c10::aten;
using llvm::Twine;

static const c10::Symbol &getCopySymbol() {
  static const auto symbol = c10::Symbol::fromQualString("aten::_to_copy");
  return symbol;
}

tj::Value *torchscript::moveToDevice(tj::Graph &graph, tj::Value *tensor,
                                     c10::Device device) {
  return graph.insert(getCopySymbol(), {tensor},
                      {tj::NamedValue("device", device)});
}

void torchscript::moveArguments(const tj::Method &method,
                                llvm::ArrayRef<size_t> positions,
                                c10::Device device) {
  tj::Graph &graph = *tj::toGraphFunction(method.function()).graph();
  const auto &arguments = method.function().getSchema().arguments();
  tj::WithInsertPoint guard(*graph.nodes().begin());
  for (size_t position : positions) {
    tj::Value *input = graph.inputs().at(position + 1);
    if (input->type()->kind() != c10::TypeKind::TensorType)
      refuse(Twine("argument '") + arguments.at(position + 1).name() +
             "' is on the CPU and is declared as " +
             input->type()->annotation_str() +
             "; only a Tensor is moved to the device of the module");
    tj::Value *moved = moveToDevice(graph, input, device);
    moved->setType(input->type());
    input->replaceAllUsesAfterNodeWith(moved->node(), moved);
  }
}

/// Whether `tensor` is an argument, or rows of one.
static bool isOfArgument(const tj::Value *tensor) {
  while (tensor->node()->kind() == aten::slice ||
         tensor->node()->kind() == aten::detach ||
         tensor->node()->kind() == aten::requires_grad_)
    tensor = tensor->node()->input(0);
  return tensor->node()->kind() == c10::prim::Param &&
         !tensor->node()->owningBlock()->owningNode();
}

static void pinRows(tj::Block *block, c10::Device device) {
  for (tj::Node *node : block->nodes()) {
    for (tj::Block *inner : node->blocks())
      pinRows(inner, device);
    // What is moved as a whole is in no loop.
    if (node->kind() != getCopySymbol() || !block->owningNode() ||
        !isOfArgument(node->input(0)))
      continue;
    std::optional<c10::IValue> to = tj::toIValue(node->namedInput("device"));
    if (!to || !to->isDevice() || to->toDevice() != device)
      continue;
    tj::WithInsertPoint guard(node);
    tj::Graph &graph = *node->owningGraph();
    // The host does not wait for a copy of koila's own memory. What the caller
    // has pinned pin_memory gives back as it is: it may be written to next.
    tj::Value *rows = node->input(0);
    tj::Value *isCallers = graph.insert(aten::is_pinned, {rows});
    tj::Value *pinned =
        graph.insert(c10::Symbol::fromQualString("aten::pin_memory"), {rows});
    auto place = node->schema().argumentIndexWithName("non_blocking");
    node->replaceInput(*place, graph.insert(aten::__not__, {isCallers}));
    node->replaceInput(0, pinned);
  }
}

void torchscript::pinRows(tj::Graph &graph, c10::Device device) {
  ::pinRows(graph.block(), device);
}
