//===- TrainStep.cpp - A method that trains -------------------------------===//

#include "koila/Target/TorchScript/TrainStep.h"
#include "../Boundary/Archive.h"
#include "../Boundary/DiagnosticJSON.h"
#include "../Import/Graph.h"
#include "../Import/HostArguments.h"
#include "../Import/Lifetimes.h"
#include "ExecutorBarriers.h"
#include "StepGradients.h"
#include "StepResults.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <torch/csrc/jit/runtime/operator.h>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
using llvm::Twine;

namespace {
/// A loss by its name in torch.nn.functional.
struct Loss {
  llvm::StringLiteral name, callee;
};
} // namespace

static constexpr Loss kLosses[] = {
    {"binary_cross_entropy", "aten::binary_cross_entropy"},
    {"binary_cross_entropy_with_logits",
     "aten::binary_cross_entropy_with_logits"},
    {"cross_entropy", "aten::cross_entropy_loss"},
    {"hinge_embedding_loss", "aten::hinge_embedding_loss"},
    {"huber_loss", "aten::huber_loss"},
    {"kl_div", "aten::kl_div"},
    {"l1_loss", "aten::l1_loss"},
    {"mse_loss", "aten::mse_loss"},
    {"multi_margin_loss", "aten::multi_margin_loss"},
    {"multilabel_margin_loss", "aten::multilabel_margin_loss"},
    {"nll_loss", "aten::nll_loss_nd"},
    {"smooth_l1_loss", "aten::smooth_l1_loss"},
    {"soft_margin_loss", "aten::soft_margin_loss"}};

[[noreturn]] static void refuseLoss(llvm::StringRef loss, const Twine &why) {
  refuse("loss=" + loss + ": " + why);
}

/// `0.1`, `-100`, `true` or a reduction.
static c10::IValue parseArgument(llvm::StringRef loss, llvm::StringRef name,
                                 llvm::StringRef text) {
  if (name == "reduction") {
    if (text == "mean" || text == "sum")
      return static_cast<int64_t>(text == "mean" ? 1 : 2);
    refuseLoss(loss, "reduction=" + text +
                         " is not supported; a loss of the whole batch has "
                         "reduction=mean or reduction=sum");
  }
  int64_t integer;
  if (!text.getAsInteger(10, integer))
    return integer;
  double number;
  if (!text.getAsDouble(number))
    return number;
  if (text.equals_insensitive("true") || text.equals_insensitive("false"))
    return text.equals_insensitive("true");
  refuseLoss(loss, "'" + text + "' is no number, true or false");
}

/// Calls the loss of `output` and a new argument of `graph`.
static tj::Value *callLoss(tj::Graph &graph, tj::Value *output,
                           tj::Value *target, llvm::StringRef loss) {
  auto [name, rest] = loss.split('(');
  name = name.trim();
  const auto *known = llvm::find_if(
      kLosses, [&](const Loss &candidate) { return candidate.name == name; });
  if (known == std::end(kLosses))
    refuseLoss(loss,
               "the losses are " +
                   llvm::join(llvm::map_range(kLosses,
                                              [](const Loss &candidate) {
                                                return candidate.name.str();
                                              }),
                              ", ") +
                   "; of any other the program itself can return the "
                   "value, and loss= is left out");
  std::vector<tj::NamedValue> named;
  rest = rest.trim();
  if (loss.contains('(') && !rest.consume_back(")"))
    refuseLoss(loss, "lacks a closing parenthesis");
  llvm::SmallVector<llvm::StringRef> parts;
  rest.split(parts, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (llvm::StringRef part : parts) {
    auto [key, value] = part.split('=');
    key = key.trim();
    if (value.trim().empty())
      refuseLoss(loss, "'" + part.trim() + "' is not NAME=VALUE");
    c10::IValue number = parseArgument(loss, key, value.trim());
    // As Python has it, 1 is a float, too.
    auto symbol = c10::Symbol::fromQualString(known->callee.str());
    for (const auto &candidate : tj::getAllOperatorsFor(symbol))
      for (const c10::Argument &argument : candidate->schema().arguments())
        if (argument.name() == key && number.isInt() &&
            argument.type()->kind() == c10::TypeKind::FloatType)
          number = static_cast<double>(number.toInt());
    named.emplace_back(key.str(), graph.insertConstant(number));
  }
  try {
    return graph.insert(c10::Symbol::fromQualString(known->callee.str()),
                        {output, target}, named);
  } catch (const std::exception &error) {
    refuseLoss(loss,
               "PyTorch does not take these arguments: " + getFirstLine(error));
  }
}

/// The loss first, and further results, of what a program returns.
static std::vector<tj::Value *> unpackResults(tj::Graph &graph,
                                              tj::Value *returned,
                                              const TrainStepSpec &spec) {
  auto isTensor = [](const c10::TypePtr &type) {
    return type->kind() == c10::TypeKind::TensorType;
  };
  if (isTensor(returned->type()))
    return {returned};
  auto tuple = returned->type()->cast<c10::TupleType>();
  bool isUsable = spec.loss.empty() && tuple && !tuple->elements().empty() &&
                  llvm::all_of(tuple->elements(), isTensor);
  if (!isUsable)
    refuse(Twine("mode=train: '") + spec.method + "' returns " +
           returned->type()->annotation_str() + ", not " +
           (spec.loss.empty() ? "a loss, or a tuple of a loss and further "
                                "tensors"
                              : "one tensor, of which loss= could be taken") +
           "; wrap the module in one whose forward returns " +
           (spec.loss.empty() ? "them" : "the loss"));
  auto values = graph.insertNode(graph.createTupleUnpack(returned))->outputs();
  return values.vec();
}

/// The inputs of `graph` whose gradients `spec` asks for, in their order.
static std::vector<tj::Value *>
findGradientInputs(tj::Graph &graph, const TrainStepSpec &spec,
                   const std::vector<c10::Argument> &arguments) {
  llvm::SmallVector<llvm::StringRef> asked;
  llvm::StringRef(spec.gradients)
      .split(asked, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  std::vector<tj::Value *> inputs;
  for (size_t index = 1; index < arguments.size(); ++index) {
    const c10::Argument &argument = arguments[index];
    if (!llvm::is_contained(asked, argument.name()) &&
        !llvm::is_contained(asked, std::to_string(index - 1)))
      continue;
    if (argument.type()->kind() != c10::TypeKind::TensorType)
      refuse("mode=train: argument '" + Twine(argument.name()) +
             "' requires a gradient (@grad) and is declared as " +
             argument.type()->annotation_str() +
             "; only of a Tensor it is returned");
    inputs.push_back(graph.inputs()[index]);
  }
  return inputs;
}

static void add(tj::Module &module, const TrainStepSpec &spec) {
  if (module.find_method(kTrainStep))
    refuse(Twine("the module has a method '") + kTrainStep +
           "', a name that koila needs for the step that it writes; rename "
           "that method");
  checkGradientNames(module);
  tj::Method program = module.get_method(spec.method);
  const c10::FunctionSchema &schema = program.function().getSchema();
  auto original = tj::toGraphFunction(program.function()).graph();
  auto graph = std::make_shared<tj::Graph>();
  tj::Value *self = graph->addInput("self");
  self->setType(module.type());
  std::vector<c10::Argument> arguments{c10::Argument("self", module.type())};
  std::vector<tj::Value *> inputs{self};
  for (size_t i = 1; i < schema.arguments().size(); ++i) {
    const c10::Argument &argument = schema.arguments()[i];
    // What was recorded at tracing stays.
    inputs.push_back(graph->addInput(argument.name()));
    inputs.back()->setType(original->inputs()[i]->type());
    arguments.push_back(argument);
  }
  tj::Node *call = graph->insertNode(graph->create(prim::CallMethod, inputs));
  call->s_(c10::attr::name, spec.method);
  call->output()->setType(schema.returns()[0].type());
  std::vector<tj::Value *> results =
      unpackResults(*graph, call->output(), spec);
  if (!spec.loss.empty()) {
    std::string name = "target";
    while (llvm::any_of(arguments, [&](const c10::Argument &argument) {
      return argument.name() == name;
    }))
      name += "_";
    // Behind defaults there can only be more of them.
    for (c10::Argument &argument : arguments)
      if (argument.default_value())
        argument = c10::Argument(argument.name(), argument.type());
    tj::Value *target = graph->addInput(name);
    arguments.emplace_back(name, target->type());
    if (!spec.targetDevice.empty())
      target = moveToDevice(*graph, target, c10::Device(spec.targetDevice));
    results = {callLoss(*graph, results[0], target, spec.loss)};
  }
  bool isTuple = call->output()->type()->kind() == c10::TypeKind::TupleType;
  for (tj::Value *result : results)
    graph->registerOutput(result);
  // As LibTorch has it when it reads the step from a file; until then the
  // results of calls are held longer.
  inlineCalls(*graph);
  std::vector<tj::Value *> leaves = findGradientInputs(*graph, spec, arguments);
  std::optional<std::string> shortened;
  if (isTuple || !leaves.empty()) {
    shortened = findShortenedLife(*graph);
    cleanUpGraph(graph);
    leaves = separateResults(graph, module, leaves);
  }
  tj::Value *loss = graph->outputs()[0];
  graph->insert(c10::aten::backward, {loss});
  results = graph->outputs().vec();
  results[0] = graph->insert(c10::aten::detach, {loss});
  if (shortened)
    results[0]->node()->s_(kShortens, *shortened);
  for (tj::Value *leaf : leaves) {
    results.push_back(graph->insert(kReadGradient, {leaf}));
    results.back()->node()->setSourceRange(leaf->node()->sourceRange());
  }
  while (!graph->outputs().empty())
    graph->eraseOutput(0);
  graph->registerOutput(
      isTuple || !leaves.empty()
          ? graph->insertNode(graph->createTuple(results))->output()
          : results[0]);
  // grads() moves leaves before the first node, which is a constant then.
  if (isTuple || !leaves.empty())
    cleanUpGraph(graph);
  addExecutorBarriers(*graph);
#ifndef NDEBUG
  graph->lint();
#endif
  tj::Function *function =
      module._ivalue()->compilation_unit()->create_function(
          c10::QualifiedName(*module.type()->name(), kTrainStep), graph,
          /*shouldMangle=*/true);
  function->setSchema(
      c10::FunctionSchema(kTrainStep, "", std::move(arguments),
                          {c10::Argument("", graph->outputs()[0]->type())}));
  module.type()->addMethod(function);
}

std::optional<std::string>
koila::torchscript::addTrainStep(tj::Module &module,
                                 const TrainStepSpec &spec) {
  try {
    add(module, spec);
    return std::nullopt;
  } catch (const Refusal &refusal) {
    return refusal.message;
  }
}
