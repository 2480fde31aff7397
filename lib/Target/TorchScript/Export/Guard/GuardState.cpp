//===- GuardState.cpp - What a guard knows beside its facts ---------------===//
//
// Settings of PyTorch, which weights and arguments require gradients, and on
// which devices they are.
//
//===----------------------------------------------------------------------===//

#include "DeviceFact.h"
#include "GuardEmitter.h"
#include "koila/Analysis/RequiresGradAnalysis.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;
using llvm::Twine;

/// Whether the result of `op` has PyTorch's default element type: it computes a
/// tensor of floats of none. Tensors of a list may be some; a number that a
/// trace holds as a tensor is none.
static bool usesDefaultType(Operation *op) {
  auto isFloat = [](Value value) {
    auto tensor = dyn_cast<TensorType>(value.getType());
    auto get = value.getDefiningOp<ParamGetOp>();
    return tensor && isa<FloatType, ComplexType>(tensor.getElementType()) &&
           !(get && get->hasAttr("wrapped"));
  };
  auto hasTensors = [](Type type) {
    auto list = dyn_cast<ListType>(type);
    return list && isa<TensorType>(list.getElementType());
  };
  return (isa_and_present<KoilaDialect>(op->getDialect()) ||
          isa<TorchOperatorInterface>(op)) &&
         !isa<ParamGetOp>(op) && !op->hasAttr("dtype") &&
         llvm::any_of(op->getResults(), isFloat) &&
         llvm::none_of(op->getOperands(), isFloat) &&
         llvm::none_of(op->getOperandTypes(), hasTensors);
}

tj::Value *GuardEmitter::isOfType(TorchValue *tensor, Type type) {
  return emitter.call(
      "aten::eq",
      {emitter.call("prim::dtype", tensor),
       emitter.integer(*getScalarTypeCode(koila::getDTypeName(type)))});
}

tj::Value *GuardEmitter::readWeight(ParamGetOp get) {
  TorchValue *value = emitter.readAttribute(get.getParam());
  // Without a name it is written where it is read, and is no variable, of which
  // a branch may have hundreds.
  value->setDebugName("");
  if (value->type()->kind() == c10::TypeKind::OptionalType)
    return graph.insertUncheckedCast(value, c10::TensorType::get());
  return value;
}

void GuardEmitter::requireSettings(
    llvm::function_ref<void(TorchValue *, const Twine &)> require) {
  auto getSize = [&](TorchValue *tensor) {
    return emitter.call("aten::element_size", tensor);
  };
  // A product tells, on the device of the program: autocast is of one device.
  // LibTorch crashes where a program asks for autocast itself while it is on.
  const ProgramDevice *mover = getMover();
  TorchValue *place =
      mover ? nullptr : findPlace(/*knowsArguments=*/false).first;
  std::vector<tj::NamedValue> options;
  if (mover)
    options.emplace_back("device", emitter.constant(mover->device));
  else if (place)
    options.emplace_back("device", emitter.call("prim::device", place));
  TorchValue *none =
      graph.insert(aten::zeros, {emitter.integerList({0, 0})}, options);
  TorchValue *product = emitter.call("aten::mm", {none, none});
  require(emitter.call("aten::eq", {getSize(product), getSize(none)}),
          "koila: autocast is on, which changes the types of results");
  WalkResult found = function.walk([&](Operation *op) {
    return usesDefaultType(op) ? WalkResult::interrupt()
                               : WalkResult::advance();
  });
  if (found.wasInterrupted())
    require(emitter.call("aten::eq",
                         {getSize(none), emitter.integer(sizeof(float))}),
            "koila: the default dtype is not float32");
  // Which of them the backward pass of a tile reaches decided what it repeats.
  llvm::StringSet<> weightsSeen;
  SymbolTable weights(function->getParentOfType<ModuleOp>());
  function.walk([&](ParamGetOp get) {
    auto param = weights.lookup<ParamOp>(get.getParam());
    Type type = cast<TensorType>(get.getType()).getElementType();
    if (!trains || !param || param.getConstant() ||
        !isa<FloatType, ComplexType>(type) ||
        !weightsSeen.insert(get.getParam()).second)
      return;
    TorchValue *flag = emitter.call("prim::requires_grad", readWeight(get));
    bool isTrained = param.getRequiresGrad();
    require(isTrained ? flag : emitter.call("aten::__not__", flag),
            "koila: weight '" + get.getParam() + "' " +
                (isTrained ? "requires no gradient" : "requires a gradient") +
                " now");
  });
  // half(), double() and to() convert all weights: one of each type tells.
  llvm::SmallPtrSet<Type, 4> seen;
  function.walk([&](ParamGetOp get) {
    auto param = weights.lookup<ParamOp>(get.getParam());
    Type type = cast<TensorType>(get.getType()).getElementType();
    if (param && !param.getConstant() && isa<FloatType, ComplexType>(type) &&
        seen.insert(type).second)
      require(isOfType(readWeight(get), type),
              "koila: weight '" + get.getParam() + "': dtype is not " +
                  koila::getDTypeName(type));
  });
}

tj::Value *GuardEmitter::emitArgumentsCondition() {
  TorchValue *all = nullptr;
  for (BlockArgument argument : function.getArguments()) {
    auto type = dyn_cast<TensorType>(argument.getType());
    if (!type || !isa<FloatType, ComplexType>(type.getElementType()))
      continue;
    bool requiresGrad(function.getArgAttr(argument.getArgNumber(),
                                          KoilaDialect::kRequiresGradAttr));
    // Each tile has a leaf of its own.
    if (requiresGrad && isOnlyDetached(argument))
      continue;
    TorchValue *tensor = present.lookup(argument);
    TorchValue *flag =
        emitter.call("prim::requires_grad",
                     tensor ? tensor : emitter.lookup(argument, function));
    if (!requiresGrad)
      flag = emitter.call("aten::__not__", flag);
    all = all ? emitter.call("aten::__and__", {all, flag}) : flag;
  }
  return all;
}

tj::Value *GuardEmitter::makeList(const std::vector<TorchValue *> &tensors) {
  return graph.insertNode(graph.createList(c10::TensorType::get(), tensors))
      ->output();
}

tj::Value *GuardEmitter::emitAnyRequiresGrad(TorchValue *list) {
  tj::Node *loop = graph.insertNode(graph.create(
      prim::Loop, {emitter.call("aten::len", list), emitter.constant(true),
                   emitter.constant(false)}));
  loop->output()->setType(c10::BoolType::get());
  tj::Block *body = loop->addBlock();
  TorchValue *index = body->addInput()->setType(c10::IntType::get());
  TorchValue *before = body->addInput()->setType(c10::BoolType::get());
  tj::WithInsertPoint guard(body);
  TorchValue *flag = emitter.call(
      "prim::requires_grad", emitter.call("aten::__getitem__", {list, index}));
  TorchValue *after = emitter.call("aten::__or__", {before, flag});
  body->registerOutput(emitter.constant(true));
  body->registerOutput(after);
  return loop->output();
}

/// Whether it is more than a number, which goes with tensors of any device.
static bool hasDims(Type type) {
  auto ranked = dyn_cast<RankedTensorType>(type);
  return ranked && ranked.getRank() > 0;
}

tj::Value *GuardEmitter::listWeights() {
  if (weightList)
    return weightList;
  std::vector<TorchValue *> tensors;
  llvm::StringSet<> seen;
  SymbolTable weights(function->getParentOfType<ModuleOp>());
  function.walk([&](ParamGetOp get) {
    auto param = weights.lookup<ParamOp>(get.getParam());
    if (!param || param.getConstant() || !seen.insert(get.getParam()).second ||
        (param.getBuffer() && !hasDims(get.getType())))
      return;
    tensors.push_back(readWeight(get));
    weightNames.push_back(get.getParam().str());
  });
  if (!tensors.empty())
    weightList = makeList(tensors);
  return weightList;
}

const ProgramDevice *GuardEmitter::getMover() {
  const auto *own = function.getContext()
                        ->getLoadedDialect<KoilaDialect>()
                        ->getRegisteredInterface<ProgramDevice>();
  return own && own->fromHost ? own : nullptr;
}

std::pair<tj::Value *, std::string>
GuardEmitter::findPlace(bool knowsArguments) {
  for (BlockArgument argument : function.getArguments()) {
    if (!hasDims(argument.getType()) || getMover())
      continue;
    TorchValue *tensor = knowsArguments ? present.lookup(argument) : nullptr;
    if (!tensor)
      tensor = emitter.lookup(argument, function);
    if (tensor->type()->kind() == c10::TypeKind::TensorType)
      return {tensor, getArgumentName(argument)};
  }
  std::pair<TorchValue *, std::string> found;
  SymbolTable weights(function->getParentOfType<ModuleOp>());
  function.walk([&](ParamGetOp get) {
    auto param = weights.lookup<ParamOp>(get.getParam());
    if (!param || param.getConstant() || !hasDims(get.getType()))
      return WalkResult::advance();
    found = {readWeight(get), "koila: weight '" + get.getParam().str() + "'"};
    return WalkResult::interrupt();
  });
  return found;
}

tj::Value *GuardEmitter::emitDeviceFact(TorchValue *failed) {
  // Outside of all branches, as in emitGradFact().
  DeviceFact fact;
  fact.weights = listWeights();
  fact.weightNames = weightNames;
  fact.suffix = suffix;
  auto compare = [&] {
    castPresent();
    std::tie(fact.place, fact.placeName) = findPlace(/*knowsArguments=*/true);
    for (BlockArgument argument : function.getArguments()) {
      TorchValue *tensor = present.lookup(argument);
      if (!tensor)
        tensor = emitter.lookup(argument, function);
      // What is moved is on the CPU.
      if (hasDims(argument.getType()) && !getMover() && tensor != fact.place &&
          tensor->type()->kind() == c10::TypeKind::TensorType)
        fact.arguments.emplace_back(tensor, getArgumentName(argument));
    }
    return fact.emit(emitter);
  };
  return emitIf(emitter.call("aten::eq", {failed, text("")}),
                c10::StringType::get(), compare, [&] { return failed; });
}

tj::Value *GuardEmitter::emitDrawsFact(TorchValue *failed) {
  auto drawsOn = function->getAttrOfType<StringAttr>(kDrawsOnAttr);
  if (!drawsOn)
    return failed;
  auto compare = [&]() -> TorchValue * {
    castPresent();
    const ProgramDevice *mover = getMover();
    TorchValue *place = findPlace(/*knowsArguments=*/true).first;
    if (!mover && !place)
      return text("");
    return emitDrawsOn(emitter, drawsOn.getValue(),
                       mover ? emitter.constant(mover->device)
                             : emitter.call("prim::device", place),
                       suffix);
  };
  return emitIf(emitter.call("aten::eq", {failed, text("")}),
                c10::StringType::get(), compare, [&] { return failed; });
}

/// True where a gradient would be recorded: a tiled forward would keep every
/// tile's saved tensors, and save nothing. `weights`: a list, or null.
tj::Value *GuardEmitter::emitGradCondition(TorchValue *weights) {
  TorchValue *enabled = emitter.call("aten::is_grad_enabled", {});
  auto disabled = [&] { return emitter.constant(false); };
  auto anyRequires = [&] {
    std::vector<TorchValue *> tensors;
    for (BlockArgument argument : function.getArguments())
      if (TorchValue *tensor = present.lookup(argument);
          tensor && tensor->type()->kind() == c10::TypeKind::TensorType)
        tensors.push_back(tensor);
      else if (isa<TensorType>(argument.getType()))
        tensors.push_back(emitter.lookup(argument, function));
    TorchValue *any =
        tensors.empty() ? nullptr : emitAnyRequiresGrad(makeList(tensors));
    if (TorchValue *ofWeights =
            weights ? emitAnyRequiresGrad(weights) : nullptr)
      any = any ? emitter.call("aten::__or__", {any, ofWeights}) : ofWeights;
    return any ? any : emitter.constant(false);
  };
  return emitIf(enabled, c10::BoolType::get(), anyRequires, disabled);
}

tj::Value *GuardEmitter::emitGradFact(TorchValue *failed) {
  // Outside of all branches: when LibTorch reads a program, it makes a text of
  // the whole file for each variable of a branch.
  TorchValue *weights = listWeights();
  auto recorded = [&] {
    castPresent();
    return emitIf(
        emitGradCondition(weights), c10::StringType::get(),
        [&] {
          return text("koila: grad mode is on and something requires a "
                      "gradient: the tiled forward would not reduce memory; "
                      "call it under torch.no_grad(); running the untiled "
                      "program");
        },
        [&] { return text(""); });
  };
  if (!failed)
    return recorded();
  return emitIf(emitter.call("aten::eq", {failed, text("")}),
                c10::StringType::get(), recorded, [&] { return failed; });
}
