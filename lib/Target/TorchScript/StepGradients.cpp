//===- StepGradients.cpp - A training step that returns gradients ---------===//
//
// `.grad` cannot be assigned in TorchScript, so gradients are returned by a
// copy of the step in which each backward pass is a call of autograd.grad, and
// what it gives is added to sums that the method begins with.
//
//===----------------------------------------------------------------------===//

#include "StepGradients.h"
#include "Emit.h"
#include "Graph.h"
#include "Messages.h"
#include "koila/Target/TorchScript/TrainStep.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringRef.h"
#include <torch/csrc/jit/ir/ir.h>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace aten = c10::aten;
namespace prim = c10::prim;
using llvm::Twine;

static constexpr const char *kAddGradients = "grads_add";
static constexpr const char *kAddSource = R"(
def grads_add(self, sums: List[Tensor], grads: List[Optional[Tensor]]) -> None:
    for i in range(len(sums)):
        grad = grads[i]
        if grad is not None:
            sums[i].add_(grad)
)";

std::vector<std::string> koila::torchscript::getGradientMethods() {
  GuardedMethods methods(kGrads);
  return {kGrads, methods.guarded, methods.untiled};
}

void koila::torchscript::checkGradientNames(const tj::Module &module) {
  std::vector<std::string> names = getGradientMethods();
  names.emplace_back(kAddGradients);
  for (const std::string &name : names)
    if (module.find_method(name) || module.hasattr(name))
      refuse(Twine("the module has ") +
             (module.hasattr(name) ? "an attribute '" : "a method '") + name +
             "', a name that koila needs for the step that it writes; rename "
             "it");
}

namespace {
/// Rewrites the graph of one method.
class Rewriter {
public:
  Rewriter(const tj::Module &module, tj::Graph &graph)
      : module(module), graph(graph), self(graph.inputs()[0]) {}

  void run();

private:
  /// The weights that require a gradient, in the order of parameters().
  void readWeights(const tj::Module &owner, tj::Value *value);
  void rewrite(tj::Block *block);
  void replaceBackward(tj::Node *backward);

  const tj::Module &module;
  tj::Graph &graph;
  tj::Value *self;
  tj::Value *weightList = nullptr, *sums = nullptr;
  std::vector<tj::Value *> weights;
  llvm::SmallPtrSet<const void *, 32> seen;
};
} // namespace

void Rewriter::readWeights(const tj::Module &owner, tj::Value *value) {
  // A scripted class may declare a weight as optional.
  auto read = [&](const std::string &name) {
    tj::Value *found = graph.insertGetAttr(value, name);
    if (found->type()->kind() == c10::TypeKind::OptionalType)
      return graph.insertUncheckedCast(found, c10::TensorType::get());
    return found;
  };
  const c10::ClassTypePtr type = owner.type();
  for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
    const std::string &name = type->getAttributeName(slot);
    if (!type->is_parameter(slot) || !owner.attr(name).isTensor())
      continue;
    at::Tensor tensor = owner.attr(name).toTensor();
    if (tensor.defined() && tensor.requires_grad() &&
        seen.insert(tensor.unsafeGetTensorImpl()).second)
      weights.push_back(read(name));
  }
  for (const auto &child : owner.named_children()) {
    // Those without weights need not be read.
    bool isTrained = false;
    for (const at::Tensor &tensor : child.value.parameters())
      isTrained |= tensor.requires_grad() &&
                   !seen.contains(tensor.unsafeGetTensorImpl());
    if (isTrained)
      readWeights(child.value, read(child.name));
  }
}

void Rewriter::replaceBackward(tj::Node *backward) {
  tj::WithInsertPoint guard(backward);
  auto list = [&](at::ArrayRef<tj::Value *> values, c10::TypePtr type) {
    return graph.insertNode(graph.createList(std::move(type), values))
        ->output();
  };
  tj::Value *loss = backward->input(0), *gradient = backward->input(1);
  if (!loss->type()->isSubtypeOf(*c10::TensorType::get()))
    refuse("a backward pass of a list of tensors cannot return gradients");
  tj::Value *given = gradient;
  if (!gradient->mustBeNone())
    given = list({gradient}, c10::OptionalType::ofTensor());
  tj::Node *call = graph.create(
      aten::grad,
      {list({loss}, c10::TensorType::get()), weightList, given,
       backward->input(2), backward->input(3), graph.insertConstant(true)});
  graph.insertNode(call);
  call->output()->setType(c10::ListType::create(c10::OptionalType::ofTensor()));
  tj::Node *add = graph.insertNode(
      graph.create(prim::CallMethod, {self, sums, call->output()}));
  add->s_(c10::attr::name, kAddGradients);
  add->output()->setType(c10::NoneType::get());
  backward->destroy();
}

void Rewriter::rewrite(tj::Block *block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    tj::Node *node = *it++;
    for (tj::Block *inner : node->blocks())
      rewrite(inner);
    if (node->kind() == aten::backward)
      replaceBackward(node);
  }
}

void Rewriter::run() {
  tj::Value *loss = graph.outputs()[0];
  {
    tj::WithInsertPoint guard(*graph.nodes().begin());
    readWeights(module, self);
    auto list = [&](at::ArrayRef<tj::Value *> values) {
      return graph.insertNode(graph.createList(c10::TensorType::get(), values))
          ->output();
    };
    weightList = list(weights);
    std::vector<tj::Value *> zeros;
    for (tj::Value *weight : weights)
      zeros.push_back(graph.insert(aten::zeros_like, {weight}));
    sums = list(zeros);
  }
  rewrite(graph.block());
  tj::Value *pair = graph.insertNode(graph.createTuple({loss, sums}))->output();
  graph.eraseOutput(0);
  graph.registerOutput(pair);
  graph.lint();
}

void koila::torchscript::addGradients(tj::Module &module,
                                      const std::string &step,
                                      const std::string &name) {
  if (!module.find_method(kAddGradients))
    module.define(kAddSource);
  tj::Method method = module.get_method(step);
  auto graph = tj::toGraphFunction(method.function()).graph()->copy();
  Rewriter(module, *graph).run();
  // Of a file that is written again.
  if (auto known = module.find_method(name)) {
    tj::Graph &old = *tj::toGraphFunction(known->function()).graph();
    clearGraph(old);
    for (tj::Value *result : tj::insertGraph(old, *graph, old.inputs()))
      old.registerOutput(result);
    return;
  }
  tj::Function *function =
      module._ivalue()->compilation_unit()->create_function(
          c10::QualifiedName(*module.type()->name(), name), graph,
          /*shouldMangle=*/true);
  const c10::FunctionSchema &schema = method.function().getSchema();
  function->setSchema(c10::FunctionSchema(
      name, "", schema.arguments(),
      {c10::Argument("",
                     c10::TupleType::create({c10::TensorType::get(),
                                             c10::ListType::ofTensors()}))}));
  module.type()->addMethod(function);
}
