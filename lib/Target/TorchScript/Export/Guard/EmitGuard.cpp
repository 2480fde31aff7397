//===- EmitGuard.cpp - A program behind its guard -------------------------===//
//
// The facts one after the other, and what runs where all hold: tiles, in the
// plan that is chosen; else the program as it was.
//
//===----------------------------------------------------------------------===//

#include "../../Boundary/DiagnosticJSON.h"
#include "GuardEmitter.h"
#include <torch/csrc/jit/passes/inliner.h>
#include <utility>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;
using llvm::Twine;

tj::Value *GuardEmitter::emitAllFacts() {
  if (attributeFacts.empty() && !tiled)
    return emitFacts(0);
  // One after the other, not nested: there may be hundreds.
  TorchValue *failed = text("");
  auto require = [&](TorchValue *condition, const Twine &message) {
    TorchValue *before = failed;
    std::string words = message.str();
    failed = emitIf(
        condition, c10::StringType::get(), [&] { return before; },
        [&] { return text(words); });
  };
  for (AssumeOp fact : attributeFacts)
    require(emitCondition(fact), getMessage(fact));
  if (tiled)
    requireSettings([&](TorchValue *condition, const Twine &message) {
      require(condition, message + suffix);
    });
  if (facts.empty())
    return failed;
  return emitIf(
      emitter.call("aten::eq", {failed, text("")}), c10::StringType::get(),
      [&] { return emitFacts(0); }, [&] { return failed; });
}

tj::Value *GuardEmitter::emitFacts(size_t index) {
  // What may be None is compared with it once, before it is read.
  if (index < facts.size() && isOptional(facts[index])) {
    BlockArgument argument = getArgument(facts[index]);
    TorchValue *value = emitter.lookup(argument, facts[index]);
    auto type = value->type()->expect<c10::OptionalType>();
    return emitIf(
        emitter.call("aten::__isnot__",
                     {value, emitter.constant(c10::IValue())}),
        c10::StringType::get(),
        [&] {
          present[argument] =
              graph.insertUncheckedCast(value, type->getElementType());
          return emitFacts(index);
        },
        [&] { return text(getArgumentName(argument) + ": is None" + suffix); });
  }
  TorchValue *condition = nullptr;
  std::string message;
  // Definitions have no condition.
  for (; index < facts.size() && !condition && !isOptional(facts[index]);
       ++index) {
    condition = emitCondition(facts[index]);
    message = getMessage(facts[index]);
  }
  if (condition)
    return emitIf(
        condition, c10::StringType::get(), [&] { return emitFacts(index); },
        [&] { return text(message); });
  if (index < facts.size())
    return emitFacts(index);
  if (TorchValue *isEnough =
          std::exchange(hasLeast, true) ? nullptr : emitLeastCondition())
    return emitIf(
        isEnough, c10::StringType::get(), [&] { return emitFacts(index); },
        [&] {
          return text((trains ? Twine("koila: no tile of this step has fewer "
                                      "samples than ")
                              : Twine("koila: the program means something else "
                                      "for a batch below ")) +
                      Twine(getLeastBatch()) + suffix);
        });
  if (TorchValue *isSame = trains ? emitArgumentsCondition() : nullptr)
    return emitIf(
        isSame, c10::StringType::get(), [&] { return text(""); },
        [&] {
          return text("koila: other arguments require a gradient than when "
                      "the step was tiled" +
                      suffix);
        });
  return text("");
}

void GuardEmitter::castPresent() {
  for (auto &[argument, tensor] : present) {
    TorchValue *value = emitter.lookup(argument, function);
    tensor = graph.insertUncheckedCast(
        value, value->type()->expect<c10::OptionalType>()->getElementType());
  }
}

int64_t GuardEmitter::getLeastBatch() const {
  auto least = tiled ? tiled.getAs<IntegerAttr>("least_batch") : IntegerAttr();
  return least ? least.getInt() : 0;
}

tj::Value *GuardEmitter::emitLeastCondition() {
  auto batch = tiled ? tiled.getAs<StringAttr>("batch_symbol") : StringAttr();
  if (getLeastBatch() == 0 || !batch)
    return nullptr;
  return emitter.call("aten::ge", {symbols.lookup(batch.getValue()),
                                   emitter.integer(getLeastBatch())});
}

void GuardEmitter::warn(TorchValue *text) {
  graph.insertNode(graph.create(aten::warn, {text, emitter.integer(2)}, 0));
}

/// Whether `graph` has branches or loops before it is inlined, in what it calls
/// as well.
static bool mayHaveFlow(const tj::Graph &graph,
                        llvm::DenseSet<const tj::Graph *> &seen) {
  if (!seen.insert(&graph).second)
    return false;
  return llvm::any_of(graph.nodes(), [&](const tj::Node *node) {
    if (!node->blocks().empty())
      return true;
    tj::Function *callee = nullptr;
    if (node->kind() == prim::CallMethod) {
      auto object = node->input(0)->type()->cast<c10::ClassType>();
      callee = object ? object->findMethod(node->s(c10::attr::name)) : nullptr;
      // Of an interface nobody knows what it calls.
      if (!callee)
        return true;
    } else if (node->kind() == prim::CallFunction) {
      auto type = node->input(0)->type()->cast<c10::FunctionType>();
      callee = type ? type->function() : nullptr;
    }
    auto *function = callee ? tj::tryToGraphFunction(*callee) : nullptr;
    return function && mayHaveFlow(*function->graph(), seen);
  });
}

/// Whether `method` has branches or loops, in what it calls as well.
static bool hasFlow(const tj::Method &method) {
  std::shared_ptr<tj::Graph> original =
      tj::toGraphFunction(method.function()).graph();
  // LibTorch optimises each function that it inlines.
  llvm::DenseSet<const tj::Graph *> seen;
  if (!mayHaveFlow(*original, seen))
    return false;
  auto graph = original->copy();
  tj::Inline(*graph);
  return llvm::any_of(graph->nodes(),
                      [](tj::Node *node) { return !node->blocks().empty(); });
}

tj::Value *GuardEmitter::callUntiled(const GuardedMethods &methods) {
  if (!untiledHasFlow)
    untiledHasFlow = hasFlow(module.get_method(methods.untiled));
  llvm::SmallVector<TorchValue *> inputs(graph.inputs().begin(),
                                         graph.inputs().end());
  // In the branch of a guard arguments live longer than by themselves, and
  // LibTorch then may move others too early; see separateLastUses().
  if (*untiledHasFlow)
    for (TorchValue *&input : inputs)
      if (input->type()->isSubtypeOf(*c10::TensorType::get()))
        input = emitter.call("aten::alias", input);
  return callMethod(methods.untiled, inputs);
}

tj::Value *GuardEmitter::callMethod(const std::string &name,
                                    llvm::ArrayRef<TorchValue *> inputs) {
  tj::Node *call = graph.insertNode(
      graph.create(prim::CallMethod,
                   at::ArrayRef<TorchValue *>(inputs.data(), inputs.size())));
  call->s_(c10::attr::name, name);
  call->output()->setType(
      module.get_method(name).function().getSchema().returns()[0].type());
  return call->output();
}

tj::Value *GuardEmitter::isBatchAbove(int64_t samples) {
  auto batch = tiled ? tiled.getAs<StringAttr>("batch_symbol") : StringAttr();
  for (AssumeOp fact : facts) {
    auto [name, multiple] = getOnlySymbol(fact.getExpected());
    if (batch && fact.getFact() == Fact::Extent && name == batch.getValue())
      return emitter.call("aten::gt",
                          {getSize(fact), emitter.integer(samples * multiple)});
  }
  return nullptr;
}

void GuardEmitter::warnOfLargeBatch() {
  auto limit = tiled.getAs<IntegerAttr>("holds_to");
  if (!limit || limit.getInt() < 0)
    return;
  if (TorchValue *above = isBatchAbove(limit.getInt()))
    emitIf(
        above, nullptr,
        [&]() -> TorchValue * {
          warn(text(Twine("koila: the batch is above ") +
                    Twine(limit.getInt()) +
                    ", up to which the memory budget holds; the result is "
                    "right, but needs more memory"));
          return nullptr;
        },
        []() -> TorchValue * { return nullptr; });
}

tj::Value *GuardEmitter::callPlan(const GuardedMethods &methods,
                                  const c10::TypePtr &type,
                                  llvm::ArrayRef<TorchValue *> arguments,
                                  int64_t plan) {
  auto call = [&] { return callMethod(methods.getGuarded(plan), arguments); };
  if (plan + 1 == attributes.plans)
    return call();
  TorchValue *isThis =
      emitter.call("aten::eq", {emitter.readAttribute(attributes.plan),
                                emitter.integer(plan)});
  return emitIf(isThis, type, call,
                [&] { return callPlan(methods, type, arguments, plan + 1); });
}

tj::Value *GuardEmitter::callGuarded(const GuardedMethods &methods,
                                     const c10::TypePtr &type) {
  castPresent();
  llvm::SmallVector<TorchValue *> arguments(graph.inputs().begin(),
                                            graph.inputs().end());
  if (!tiled)
    return callMethod(methods.guarded, arguments);
  warnOfLargeBatch();
  // Of no samples no tile runs, whose kernels might raise.
  TorchValue *hasSamples = isBatchAbove(0);
  auto call = [&] { return callPlan(methods, type, arguments, /*plan=*/0); };
  if (!hasSamples)
    return call();
  return emitIf(hasSamples, type, call, [&] { return callUntiled(methods); });
}

tj::Value *GuardEmitter::emit(const GuardedMethods &methods) {
  auto mode = tiled ? tiled.getAs<StringAttr>("guard") : StringAttr();
  bool raises = mode && mode.getValue() == "raise";
  suffix = raises  ? ""
           : tiled ? "; running the untiled program"
                   : "; running the original program";
  collectFacts();
  // Without tiles grad mode changes nothing.
  // A training step needs it on, tiled or not.
  TorchValue *failed = emitAllFacts();
  if (tiled)
    failed = emitDrawsFact(emitDeviceFact(failed));
  if (tiled && !raises && !trains)
    failed = emitGradFact(failed);
  if (raises) {
    emitIf(
        emitter.call("aten::ne", {failed, text("")}), nullptr,
        [&]() -> TorchValue * {
          graph.insertNode(
              graph.create(prim::RaiseException,
                           {failed, emitter.constant(c10::IValue())}, 0));
          return nullptr;
        },
        []() -> TorchValue * { return nullptr; });
    // Only grad mode is left.
    failed = trains ? text("") : emitGradFact(nullptr);
  }
  c10::TypePtr type = module.get_method(methods.untiled)
                          .function()
                          .getSchema()
                          .returns()[0]
                          .type();
  return emitIf(
      emitter.call("aten::eq", {failed, text("")}), type,
      [&] { return callGuarded(methods, type); },
      [&] {
        warn(failed);
        return callUntiled(methods);
      });
}

tj::Value *koila::torchscript::emitGuard(GraphEmitter &emitter,
                                         func::FuncOp function,
                                         const tj::Module &module,
                                         const GuardedMethods &methods,
                                         const TileAttributes &attributes) {
  if (!attributes.tile.empty())
    requireTile(emitter, attributes, function);
  return GuardEmitter(emitter, function, module, attributes).emit(methods);
}
