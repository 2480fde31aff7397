//===- Graph.cpp - TorchScript graphs ready to be read --------------------===//

#include "Graph.h"
#include <sstream>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <unordered_map>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;

static size_t countCalls(tj::Block *block) {
  size_t count = 0;
  for (tj::Node *node : block->nodes()) {
    count +=
        node->kind() == prim::CallMethod || node->kind() == prim::CallFunction;
    for (tj::Block *inner : node->blocks())
      count += countCalls(inner);
  }
  return count;
}

static void collectNodes(tj::Block *block, std::vector<tj::Node *> &nodes) {
  for (tj::Node *node : block->nodes()) {
    nodes.push_back(node);
    for (tj::Block *inner : node->blocks())
      collectNodes(inner, nodes);
  }
}

void koila::torchscript::cleanUpGraph(std::shared_ptr<tj::Graph> &graph) {
  tj::LowerSimpleTuples(graph);
  tj::ConstantPropagationImmutableTypes(graph);
  tj::ConstantPooling(graph);
  tj::EliminateDeadCode(graph);
}

PreparedGraph koila::torchscript::prepareGraph(const tj::Method &method) {
  PreparedGraph prepared;
  prepared.graph = tj::toGraphFunction(method.function()).graph()->copy();
  // Shapes of recorded examples hold for the examples only.
  for (tj::Value *input : prepared.graph->inputs())
    if (input->type()->kind() == c10::TypeKind::TensorType)
      input->setType(c10::TensorType::get());
  // One round inlines one level only while LibTorch's optimiser is off, which
  // is the caller's setting.
  size_t calls = countCalls(prepared.graph->block());
  do {
    tj::Inline(*prepared.graph);
    size_t left = countCalls(prepared.graph->block());
    if (left == 0 || left == calls)
      break;
    calls = left;
  } while (true);
  cleanUpGraph(prepared.graph);
  collectNodes(prepared.graph->block(), prepared.nodes);
  return prepared;
}

namespace {
/// Spells a graph with values numbered in order of definition.
class NormalForm {
public:
  std::string run(const tj::Graph &graph) {
    for (const tj::Value *input : graph.inputs())
      define(input);
    print(graph.block(), 0);
    return os.str();
  }

private:
  void define(const tj::Value *value) {
    names.emplace(value, "%" + std::to_string(names.size()));
  }

  std::string getName(const tj::Value *value) {
    if (auto it = names.find(value); it != names.end())
      return it->second;
    const tj::Node *node = value->node();
    std::ostringstream text;
    if (node->kind() == prim::GetAttr) {
      text << getName(node->input()) << "." << node->s(c10::attr::name);
    } else if (auto constant = tj::toIValue(value)) {
      if (constant->isTensor()) {
        const at::Tensor &tensor = constant->toTensor();
        text << "tensor<" << tensor.toString() << tensor.sizes() << ">";
      } else {
        text << constant->tagKind() << " " << *constant;
      }
    } else {
      text << "?";
    }
    return text.str();
  }

  void print(const tj::Block *block, int depth) {
    for (const tj::Node *node : block->nodes()) {
      if (node->kind() == prim::Constant || node->kind() == prim::GetAttr)
        continue;
      os << std::string(depth, ' ') << node->kind().toQualString();
      for (tj::Symbol name : node->attributeNames()) {
        // A serial number that the parser gives.
        if (name == c10::attr::warn_id)
          continue;
        os << " " << name.toUnqualString();
        if (node->kindOf(name) == tj::AttributeKind::s)
          os << "=" << node->s(name);
      }
      os << "(";
      for (const tj::Value *input : node->inputs())
        os << getName(input) << ", ";
      os << ")";
      for (const tj::Value *output : node->outputs()) {
        define(output);
        os << " " << getName(output);
      }
      os << "\n";
      for (const tj::Block *inner : node->blocks()) {
        os << std::string(depth, ' ') << "{";
        for (const tj::Value *input : inner->inputs()) {
          define(input);
          os << " " << getName(input);
        }
        os << "\n";
        print(inner, depth + 1);
        os << std::string(depth, ' ') << "}\n";
      }
    }
    os << std::string(depth, ' ') << "->";
    for (const tj::Value *output : block->outputs())
      os << " " << getName(output);
    os << "\n";
  }

  std::unordered_map<const tj::Value *, std::string> names;
  std::ostringstream os;
};
} // namespace

std::string koila::torchscript::getNormalForm(const tj::Graph &graph) {
  return NormalForm().run(graph);
}
