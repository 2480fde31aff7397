//===- ReplaceMethod.cpp - A method gets another program ------------------===//
//
// A method that facts are assumed for becomes several: the guard, the original,
// and what runs if the facts hold, of each plan.
//
//===----------------------------------------------------------------------===//

#include "ReplaceMethod.h"
#include "../Boundary/DiagnosticJSON.h"
#include "../Boundary/Locations.h"
#include "../Import/Graph.h"
#include "ExecutorBarriers.h"
#include "StepGradients.h"
#include "koila/Dialect/Koila/Transforms/FilePlans.h"
#include "koila/Target/TorchScript/TrainStep.h"

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
using llvm::Twine;

llvm::SmallVector<std::string> GuardedMethods::listGuarded() const {
  llvm::SmallVector<std::string> names;
  for (int64_t plan = 0; plan < kMostPlans; ++plan)
    names.push_back(getGuarded(plan));
  return names;
}

bool koila::torchscript::isGuarded(func::FuncOp function) {
  return function->hasAttr(KoilaDialect::kTiledAttr) ||
         function->hasAttr(KoilaDialect::kSpecializedAttr);
}

/// A copy of `schema` for a method of `module` under another name.
static c10::FunctionSchema adaptSchema(const c10::FunctionSchema &schema,
                                       const tj::Module &module,
                                       const std::string &name) {
  std::vector<c10::Argument> arguments = schema.arguments();
  arguments[0] = c10::Argument(arguments[0].name(), module.type());
  return c10::FunctionSchema(name, schema.overload_name(), std::move(arguments),
                             schema.returns());
}

static void addMethod(tj::Module &module, const std::string &name,
                      std::shared_ptr<tj::Graph> graph,
                      const c10::FunctionSchema &schema) {
  tj::Function *function =
      module._ivalue()->compilation_unit()->create_function(
          c10::QualifiedName(*module.type()->name(), name), std::move(graph),
          /*shouldMangle=*/true);
  // The schema has what the graph has not: defaults of arguments.
  function->setSchema(adaptSchema(schema, module, name));
  module.type()->addMethod(function);
}

/// The graph of a method with the schema of `like`; a method that is there
/// already is made anew.
static std::shared_ptr<tj::Graph> makeMethod(tj::Module &module,
                                             const std::string &name,
                                             const tj::Method &like) {
  auto method = module.find_method(name);
  if (!method) {
    addMethod(module, name,
              tj::toGraphFunction(like.function()).graph()->copy(),
              like.function().getSchema());
    method = module.find_method(name);
  }
  auto graph = tj::toGraphFunction(method->function()).graph();
  clearGraph(*graph);
  return graph;
}

static void finishGraph(std::shared_ptr<tj::Graph> &graph, tj::Value *result,
                        const GraphEmitter &emitter, MLIRContext *context) {
  graph->registerOutput(result);
  if (tj::Node *lost = findLostUpdate(*graph, emitter.getUpdates()))
    refuseLostUpdate(lost, context);
  if (tj::Node *lost = findLostWrite(*graph))
    refuse(getLocation(lost, context),
           Twine("PyTorch would lose the write of '") +
               lost->kind().toQualString() + "' when it reads the program: '" +
               lost->input(0)->node()->kind().toQualString() +
               "' does not declare that it may give its operand; write to that "
               "operand itself, or leave the program as it is");
  cleanUpGraph(graph);
#ifndef NDEBUG
  graph->lint();
#endif
}

/// Values that branches and loops read which run where their result is read, by
/// a branch or loop that reads them.
using InnerReads = llvm::DenseMap<tj::Value *, tj::Node *>;

static void collectReads(tj::Block *block, tj::Node *flow, InnerReads &reads) {
  auto collect = [&](tj::Node *node) {
    for (tj::Value *input : node->inputs())
      reads.try_emplace(input, flow);
    for (tj::Block *inner : node->blocks())
      collectReads(inner, flow, reads);
  };
  llvm::for_each(block->nodes(), collect);
  collect(block->return_node());
}

/// LibTorch's interpreter runs a branch or loop with one result only where that
/// is read, after it has moved the operands before it out of their registers
/// for good if nobody reads them later; the branch or loop then finds None.
/// Such an operand gets a name of its own. Outside of branches a value that is
/// dropped behind the loop most often prevents that, so that programs which run
/// by themselves may fail in the branch of a guard. Source: CanEmitInline and
/// insertLastUses in jit/runtime/interpreter.
static void separateLastUses(tj::Block *block) {
  // Of a node with one result: its branches and loops, and those of operands
  // that nobody else reads, which belong to its expression.
  llvm::DenseMap<tj::Node *, InnerReads> readsOf;
  auto separate = [&](tj::Node *node) {
    InnerReads reads;
    for (tj::Block *inner : node->blocks()) {
      separateLastUses(inner);
      collectReads(inner, node, reads);
    }
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      auto found = readsOf.find(node->input(i)->node());
      if (found == readsOf.end())
        continue;
      InnerReads own = std::move(found->second);
      readsOf.erase(found);
      for (size_t before = 0; before < i; ++before) {
        tj::Value *operand = node->input(before);
        auto read = own.find(operand);
        if (read == own.end() ||
            !operand->type()->isSubtypeOf(*c10::TensorType::get()))
          continue;
        tj::WithInsertPoint guard(read->second);
        node->replaceInput(
            before, block->owningGraph()->insert(c10::aten::alias, {operand}));
      }
      if (own.size() > reads.size())
        std::swap(own, reads);
      reads.insert(own.begin(), own.end());
    }
    if (!reads.empty() && node->outputs().size() == 1 &&
        node->output()->uses().size() == 1)
      readsOf[node] = std::move(reads);
  };
  llvm::for_each(block->nodes(), separate);
  separate(block->return_node());
}

namespace {
/// Builds the graphs of a function and of its other plans.
class MethodBuilder {
public:
  MethodBuilder(tj::Module &module, const std::string &name,
                const ImportedFunction &original,
                const OperatorTable &operators,
                const llvm::SmallPtrSetImpl<Operation *> &copied)
      : module(module), name(name), methods(name), original(original),
        operators(operators), copied(copied) {}

  void replace(llvm::ArrayRef<func::FuncOp> plans, bool isStep,
               const TileAttributes &attributes);

private:
  GraphEmitter makeEmitter(tj::Graph &graph, func::FuncOp function,
                           SymbolTable &symbols);
  /// The graph of `function` as `target`, a method with the schema of `like`.
  std::shared_ptr<tj::Graph> build(func::FuncOp function,
                                   const std::string &target,
                                   const tj::Method &like,
                                   const TileAttributes &attributes);

  tj::Module &module;
  const std::string &name;
  GuardedMethods methods;
  const ImportedFunction &original;
  const OperatorTable &operators;
  const llvm::SmallPtrSetImpl<Operation *> &copied;
};
} // namespace

GraphEmitter MethodBuilder::makeEmitter(tj::Graph &graph, func::FuncOp function,
                                        SymbolTable &symbols) {
  GraphEmitter emitter(graph, original, operators, graph.inputs()[0], symbols,
                       copied);
  for (BlockArgument argument : function.getArguments())
    emitter.map(argument, graph.inputs()[argument.getArgNumber() + 1]);
  return emitter;
}

std::shared_ptr<tj::Graph>
MethodBuilder::build(func::FuncOp function, const std::string &target,
                     const tj::Method &like, const TileAttributes &attributes) {
  SymbolTable symbols(function->getParentOfType<ModuleOp>());
  auto graph = makeMethod(module, target, like);
  GraphEmitter emitter = makeEmitter(*graph, function, symbols);
  // What the guard of a tiled program has seen not to be None.
  if (function->hasAttr(KoilaDialect::kTiledAttr))
    for (BlockArgument argument : function.getArguments()) {
      tj::Value *value = emitter.lookup(argument, function);
      auto type = value->type()->cast<c10::OptionalType>();
      if (type && isa<TensorType>(argument.getType()))
        emitter.map(argument,
                    graph->insertUncheckedCast(value, type->getElementType()));
    }
  // Buffers are made like the first tensor argument that is no number: numbers
  // may be on the CPU beside another device.
  auto isTensor = [](BlockArgument argument) {
    auto type = dyn_cast<TensorType>(argument.getType());
    return type && !(type.hasRank() && type.getRank() == 0);
  };
  auto *first = llvm::find_if(function.getArguments(), isTensor);
  if (first != function.getArguments().end())
    emitter.setDeviceOf(emitter.lookup(*first, function));
  if (!attributes.tile.empty())
    emitter.readTile(attributes.tile);
  tj::Value *result = emitter.emitBody(function);
  finishGraph(graph, result, emitter, function.getContext());
  return graph;
}

void MethodBuilder::replace(llvm::ArrayRef<func::FuncOp> plans, bool isStep,
                            const TileAttributes &attributes) {
  func::FuncOp function = plans.front();
  bool guarded = isGuarded(function);
  bool hasUntiled = static_cast<bool>(module.find_method(methods.untiled));
  tj::Method method =
      module.get_method(guarded && hasUntiled ? methods.untiled : name);
  c10::FunctionSchema schema = method.function().getSchema();
  if (schema.arguments().size() != function.getNumArguments() + 1)
    refuse(function.getLoc(), Twine("method '") + name + "' takes " +
                                  Twine(schema.arguments().size() - 1) +
                                  " arguments, not " +
                                  Twine(function.getNumArguments()));
  if (guarded && !hasUntiled)
    addMethod(module, methods.untiled,
              tj::toGraphFunction(method.function()).graph()->copy(), schema);

  for (auto [place, plan] : llvm::enumerate(plans)) {
    auto graph = build(plan, guarded ? methods.getGuarded(place) : name, method,
                       attributes);
    if (isStep)
      addExecutorBarriers(*graph);
    if (guarded)
      separateLastUses(graph->block());
  }
  if (!guarded)
    return;
  SymbolTable symbols(function->getParentOfType<ModuleOp>());
  auto guard = makeMethod(module, name, method);
  GraphEmitter guardEmitter = makeEmitter(*guard, function, symbols);
  tj::Value *result =
      emitGuard(guardEmitter, function, module, methods, attributes);
  finishGraph(guard, result, guardEmitter, function.getContext());
  if (!isStep)
    return;
  // The same guard before the same step, which returns its gradients.
  GuardedMethods grads(kGrads);
  for (size_t place = 0; place < plans.size(); ++place)
    addGradients(module, methods.getGuarded(place), grads.getGuarded(place));
  addGradients(module, methods.untiled, grads.untiled);
  auto gradsGuard =
      makeMethod(module, kGrads, module.get_method(grads.untiled));
  GraphEmitter gradsEmitter = makeEmitter(*gradsGuard, function, symbols);
  result = emitGuard(gradsEmitter, function, module, grads, attributes);
  finishGraph(gradsGuard, result, gradsEmitter, function.getContext());
}

void koila::torchscript::replaceMethod(
    tj::Module &module, llvm::ArrayRef<func::FuncOp> plans,
    const std::string &name, const ImportedFunction &original,
    const OperatorTable &operators,
    const llvm::SmallPtrSetImpl<Operation *> &copied, bool isStep,
    const TileAttributes &attributes) {
  MethodBuilder(module, name, original, operators, copied)
      .replace(plans, isStep, attributes);
}
