//===- StepGradients.cpp - A training step that returns gradients ---------===//
//
// `.grad` cannot be assigned in TorchScript, so gradients are returned by a
// copy of the step in which each backward pass is a call of autograd.grad, and
// what it gives is added to sums that the method begins with. A leaf whose
// gradient a step reads is one of the tensors that autograd.grad is asked for.
//
//===----------------------------------------------------------------------===//

#include "StepGradients.h"
#include "../Boundary/DiagnosticJSON.h"
#include "../Import/Graph.h"
#include "Emit.h"
#include "koila/Target/TorchScript/TrainStep.h"
#include "llvm/ADT/STLExtras.h"
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
  std::vector<std::string> names{kGrads, methods.untiled};
  llvm::append_range(names, methods.listGuarded());
  return names;
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
  void replaceBackward(tj::Node *backward);
  void shareLeaf(tj::Node *reader);
  /// Those of `block` itself.
  static size_t countBackward(tj::Block *block);
  /// The leaves of `block` whose gradients are read, with the readers.
  static std::vector<tj::Node *> findReaders(tj::Block *block);
  tj::Value *list(at::ArrayRef<tj::Value *> values, c10::TypePtr type) {
    return graph.insertNode(graph.createList(std::move(type), values))
        ->output();
  }

  const tj::Module &module;
  tj::Graph &graph;
  tj::Value *self;
  /// Of the weights, and of the leaves of arguments in the outermost block, to
  /// which all backward passes add.
  std::vector<tj::Value *> zeros;
  std::vector<tj::Value *> weights;
  /// Another leaf, to which several backward passes may add: those between it
  /// and what reads its gradient.
  struct SharedLeaf {
    tj::Value *leaf, *sum;
    tj::Node *reader;
  };
  std::vector<SharedLeaf> sharedLeaves;
  /// Blocks with several backward passes.
  llvm::SmallPtrSet<tj::Block *, 8> sharing;
  llvm::SmallPtrSet<const void *, 32> seen;
};
} // namespace

/// Whether `node` is in `block` or a block within it.
static bool isInside(const tj::Block *block, const tj::Node *node) {
  for (const tj::Block *outer = node->owningBlock(); outer;
       outer = outer->owningNode() ? outer->owningNode()->owningBlock()
                                   : nullptr)
    if (outer == block)
      return true;
  return false;
}

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

std::vector<tj::Node *> Rewriter::findReaders(tj::Block *block) {
  std::vector<tj::Node *> readers;
  for (tj::Node *node : block->nodes())
    if (node->kind() == kReadGradient &&
        node->input()->node()->kind() == kRequireGradient &&
        node->input()->node()->owningBlock() == block)
      readers.push_back(node);
  return readers;
}

size_t Rewriter::countBackward(tj::Block *block) {
  return llvm::count_if(block->nodes(), [](const tj::Node *node) {
    return node->kind() == aten::backward;
  });
}

void Rewriter::shareLeaf(tj::Node *reader) {
  tj::Value *leaf = reader->input();
  tj::WithInsertPoint behind(leaf->node()->next());
  sharedLeaves.push_back(
      {leaf, graph.insert(aten::zeros_like, {leaf}), reader});
}

void Rewriter::replaceBackward(tj::Node *backward) {
  tj::WithInsertPoint guard(backward);
  tj::Value *loss = backward->input(0), *gradient = backward->input(1);
  if (!loss->type()->isSubtypeOf(*c10::TensorType::get()))
    refuse("a backward pass of a list of tensors cannot return gradients");
  tj::Value *given = gradient;
  if (!gradient->mustBeNone())
    given = list({gradient}, c10::OptionalType::ofTensor());
  // Behind those that are added up, those of leaves of this block alone.
  std::vector<tj::Value *> inputs = weights, sums = zeros;
  for (const SharedLeaf &shared : sharedLeaves)
    if (isInside(shared.leaf->node()->owningBlock(), backward) &&
        shared.leaf->node()->isBefore(backward) &&
        backward->isBefore(shared.reader)) {
      inputs.push_back(shared.leaf);
      sums.push_back(shared.sum);
    }
  size_t added = inputs.size();
  std::vector<tj::Node *> readers;
  if (backward->owningBlock() != graph.block() &&
      !sharing.contains(backward->owningBlock()))
    readers = findReaders(backward->owningBlock());
  for (tj::Node *reader : readers)
    inputs.push_back(reader->input());
  tj::Node *call =
      graph.create(aten::grad, {list({loss}, c10::TensorType::get()),
                                list(inputs, c10::TensorType::get()), given,
                                backward->input(2), backward->input(3),
                                graph.insertConstant(true)});
  graph.insertNode(call);
  call->output()->setType(c10::ListType::create(c10::OptionalType::ofTensor()));
  tj::Node *add = graph.insertNode(
      graph.create(prim::CallMethod,
                   {self, list(sums, c10::TensorType::get()), call->output()}));
  add->s_(c10::attr::name, kAddGradients);
  add->output()->setType(c10::NoneType::get());
  for (auto [index, reader] : llvm::enumerate(readers)) {
    tj::Value *found =
        graph.insert(aten::__getitem__,
                     {call->output(), static_cast<int64_t>(added + index)});
    reader->output()->replaceAllUsesWith(
        graph.insert(aten::_unwrap_optional, {found}));
    reader->destroy();
  }
  backward->destroy();
}

void Rewriter::run() {
  tj::Value *results = graph.outputs()[0], *ofWeights = nullptr;
  {
    // Leaves are made of arguments, and can be made first.
    tj::WithInsertPoint guard(*graph.nodes().begin());
    readWeights(module, self);
    auto addZeros = [&](tj::Value *value) {
      zeros.push_back(graph.insert(aten::zeros_like, {value}));
    };
    llvm::for_each(weights, addZeros);
    ofWeights = list(zeros, c10::TensorType::get());
    for (tj::Node *reader : findReaders(graph.block())) {
      tj::Value *leaf = reader->input();
      tj::Node *detach = leaf->node()->input(0)->node();
      if (detach->kind() != aten::detach ||
          detach->input()->node()->kind() != prim::Param) {
        shareLeaf(reader);
        continue;
      }
      leaf->node()->replaceInput(1, graph.insertConstant(true));
      for (tj::Node *node : {detach, leaf->node()})
        node->moveBefore(graph.insertPoint());
      weights.push_back(leaf);
      addZeros(leaf);
      reader->output()->replaceAllUsesWith(zeros.back());
      reader->destroy();
    }
  }
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  // A call of gradients takes the place of what reads them, too.
  llvm::erase_if(nodes, [](const tj::Node *node) {
    return node->kind() != aten::backward;
  });
  for (tj::Node *node : nodes)
    if (tj::Block *block = node->owningBlock(); block != graph.block() &&
                                                countBackward(block) > 1 &&
                                                sharing.insert(block).second)
      for (tj::Node *reader : findReaders(block))
        shareLeaf(reader);
  llvm::for_each(nodes, [&](tj::Node *node) { replaceBackward(node); });
  for (const SharedLeaf &shared : sharedLeaves) {
    shared.reader->output()->replaceAllUsesWith(shared.sum);
    shared.reader->destroy();
  }
  tj::Value *pair =
      graph.insertNode(graph.createTuple({results, ofWeights}))->output();
  graph.eraseOutput(0);
  graph.registerOutput(pair);
#ifndef NDEBUG
  graph.lint();
#endif
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
                     c10::TupleType::create({schema.returns()[0].type(),
                                             c10::ListType::ofTensors()}))}));
  module.type()->addMethod(function);
}
