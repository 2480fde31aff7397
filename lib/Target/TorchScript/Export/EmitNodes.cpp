//===- EmitNodes.cpp - One operation as TorchScript nodes -----------------===//
//
// The emission table: operations with a schema, the opaque operator, weights,
// attributes and methods (EmitObjects.cpp), control flow (EmitRegions.cpp), and
// the few of arith and tensor that tiling makes (EmitBuiltin.cpp).
// Anything else is an error at the operation.
//
//===----------------------------------------------------------------------===//

#include "../Boundary/DiagnosticJSON.h"
#include "Emit.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/MutableStorage.h"
#include "koila/Target/TorchScript/Types.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
using llvm::Twine;

GraphEmitter::GraphEmitter(tj::Graph &graph, const ImportedFunction &original,
                           const OperatorTable &operators, TorchValue *self,
                           SymbolTable &symbols,
                           const llvm::SmallPtrSetImpl<Operation *> &copied)
    : graph(graph), original(original), operators(operators), self(self),
      symbols(symbols), copied(copied) {}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

tj::Value *GraphEmitter::lookup(Value value, Operation *user) {
  TorchValue *emitted = values.lookup(value);
  if (!emitted)
    refuse(user->getLoc(), Twine("an operand of '") +
                               user->getName().getStringRef() +
                               "' cannot be written as TorchScript");
  return emitted;
}

tj::Value *GraphEmitter::constant(const c10::IValue &value) {
  return graph.insertConstant(value);
}

tj::Value *GraphEmitter::integerList(llvm::ArrayRef<int64_t> values) {
  llvm::SmallVector<TorchValue *> elements;
  for (int64_t value : values)
    elements.push_back(integer(value));
  return list(elements, c10::IntType::get());
}

tj::Value *GraphEmitter::call(const char *name,
                              llvm::ArrayRef<TorchValue *> arguments) {
  std::vector<tj::NamedValue> named(arguments.begin(), arguments.end());
  return graph.insert(c10::Symbol::fromQualString(name), named);
}

tj::Value *GraphEmitter::branch(TorchValue *condition, const c10::TypePtr &type,
                                llvm::function_ref<TorchValue *()> thenBody,
                                llvm::function_ref<TorchValue *()> elseBody) {
  tj::Node *node =
      graph.insertNode(graph.create(prim::If, {condition}, type ? 1 : 0));
  for (auto body : {thenBody, elseBody}) {
    tj::Block *block = node->addBlock();
    tj::WithInsertPoint guard(block);
    TorchValue *value = body();
    if (type)
      block->registerOutput(value);
  }
  if (!type)
    return nullptr;
  node->output()->setType(type);
  return node->output();
}

/// Whether `value` is there where the next node will be.
static bool isAvailable(const tj::Value *value, tj::Graph &graph) {
  const tj::Node *next = graph.insertPoint();
  for (const tj::Block *block = next->owningBlock(); block;) {
    if (block == value->node()->owningBlock())
      return value->node()->isBefore(next);
    const tj::Node *owner = block->owningNode();
    block = owner ? owner->owningBlock() : nullptr;
  }
  return false;
}

tj::Value *GraphEmitter::readAttribute(llvm::StringRef path) {
  auto [ownerPath, name] = path.rsplit('.');
  if (name.empty())
    return graph.insertGetAttr(self, path.str());
  TorchValue *owner = owners.lookup(ownerPath);
  if (!owner || !isAvailable(owner, graph)) {
    owner = readAttribute(ownerPath);
    // Without a name it is no variable where it is read once.
    owners[ownerPath] = owner->setDebugName("");
  }
  return graph.insertGetAttr(owner, name.str());
}

/// The index that import left in a location; none if there is none.
static std::optional<int64_t> getNodeIndex(Location location) {
  if (auto fused = dyn_cast<FusedLoc>(location)) {
    if (auto metadata = dyn_cast_or_null<DictionaryAttr>(fused.getMetadata()))
      if (auto index = metadata.getAs<IntegerAttr>(kNodeAttr))
        return index.getInt();
    for (Location part : fused.getLocations())
      if (std::optional<int64_t> index = getNodeIndex(part))
        return index;
  }
  if (auto name = dyn_cast<NameLoc>(location))
    return getNodeIndex(name.getChildLoc());
  if (auto call = dyn_cast<CallSiteLoc>(location))
    return getNodeIndex(call.getCallee());
  return std::nullopt;
}

tj::Node *GraphEmitter::getOriginal(Operation *op) const {
  std::optional<int64_t> index = getNodeIndex(op->getLoc());
  if (!index || *index < 0 ||
      *index >= static_cast<int64_t>(original.graph.nodes.size()))
    return nullptr;
  return original.graph.nodes[*index];
}

c10::TypePtr GraphEmitter::getType(Type type) const {
  if (c10::TypePtr converted = convertType(type))
    return converted;
  // A class, such as a named tuple: the archive's program has it.
  for (Node *node : original.graph.nodes)
    for (TorchValue *output : node->outputs())
      if (convertType(output->type(), type.getContext()) == type)
        return output->type();
  return nullptr;
}

tj::Node *GraphEmitter::insert(Operation *op, c10::Symbol kind,
                               llvm::ArrayRef<TorchValue *> inputs,
                               size_t outputs) {
  Node *node = graph.insertNode(graph.create(
      kind, at::ArrayRef<TorchValue *>(inputs.data(), inputs.size()), outputs));
  if (Node *from = getOriginal(op))
    node->setSourceRange(from->sourceRange());
  return node;
}

tj::Value *GraphEmitter::list(llvm::ArrayRef<TorchValue *> elements,
                              const c10::TypePtr &elementType) {
  return graph
      .insertNode(graph.createList(
          elementType,
          at::ArrayRef<TorchValue *>(elements.data(), elements.size())))
      ->output();
}

/// The element type of a list argument; null if `type` is no list.
static c10::TypePtr getElementType(c10::TypePtr type) {
  if (!type)
    return nullptr;
  if (auto optional = type->cast<c10::OptionalType>())
    type = optional->getElementType();
  auto listType = type->cast<c10::ListType>();
  if (!listType)
    return nullptr;
  c10::TypePtr element = listType->getElementType();
  if (element->kind() == c10::TypeKind::VarType)
    return nullptr;
  return element->kind() == c10::TypeKind::SymIntType ? c10::IntType::get()
                                                      : element;
}

tj::Value *GraphEmitter::fromAttr(Attribute attr, c10::TypePtr type,
                                  Operation *op, ValueRange operands) {
  if (auto operand = dyn_cast<OperandAttr>(attr)) {
    if (operand.getIndex() < 0 ||
        operand.getIndex() >= static_cast<int64_t>(operands.size()))
      refuse(op->getLoc(), "an argument names an operand that is not there");
    return lookup(operands[operand.getIndex()], op);
  }
  if (isa<UnitAttr>(attr))
    return constant(c10::IValue());
  if (auto flag = dyn_cast<BoolAttr>(attr))
    return constant(flag.getValue());
  if (auto integerAttr = dyn_cast<IntegerAttr>(attr))
    return integer(integerAttr.getInt());
  if (auto number = dyn_cast<FloatAttr>(attr))
    return constant(number.getValueAsDouble());
  if (auto text = dyn_cast<StringAttr>(attr))
    return constant(text.str());
  if (auto dictionary = dyn_cast<DictionaryAttr>(attr))
    if (auto device = dictionary.getAs<StringAttr>("device"))
      return constant(c10::Device(device.str()));

  llvm::SmallVector<TorchValue *> elements;
  c10::TypePtr elementType = getElementType(type);
  auto fill = [&](auto array, const c10::TypePtr &deduced) {
    for (auto element : array)
      elements.push_back(constant(c10::IValue(element)));
    if (!elementType)
      elementType = deduced;
  };
  if (auto integers = dyn_cast<DenseI64ArrayAttr>(attr)) {
    fill(integers.asArrayRef(), c10::IntType::get());
  } else if (auto numbers = dyn_cast<DenseF64ArrayAttr>(attr)) {
    fill(numbers.asArrayRef(), c10::FloatType::get());
  } else if (auto flags = dyn_cast<DenseBoolArrayAttr>(attr)) {
    fill(flags.asArrayRef(), c10::BoolType::get());
  } else if (auto array = dyn_cast<ArrayAttr>(attr)) {
    for (Attribute element : array)
      elements.push_back(fromAttr(element, elementType, op, operands));
    if (!elementType && !elements.empty())
      elementType = elements.front()->type();
  } else {
    refuse(op->getLoc(), "an argument cannot be written as TorchScript");
  }
  if (!elementType)
    refuse(op->getLoc(), "an empty list has no element type");
  return list(elements, elementType);
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

void GraphEmitter::checkOverload(Node *node, Operation *op,
                                 llvm::StringRef name) {
  const c10::FunctionSchema *schema = node->maybeSchema();
  if (!schema || getQualifiedName(*schema) != name)
    refuse(op->getLoc(), Twine("'") + name +
                             "' does not accept the arguments it would be "
                             "written with");
}

/// Whether a list that is given for the argument `index` of `schema`, which may
/// be None, would rather be that of another overload when the program is read.
static bool isListOfOther(const c10::FunctionSchema &schema, size_t index) {
  c10::Symbol name = c10::Symbol::fromQualString(schema.name());
  return llvm::any_of(tj::getAllOperatorsFor(name), [&](const auto &other) {
    const std::vector<c10::Argument> &arguments = other->schema().arguments();
    return other->schema().overload_name() != schema.overload_name() &&
           index < arguments.size() &&
           arguments[index].type()->kind() == c10::TypeKind::ListType;
  });
}

void GraphEmitter::emitOperator(Operation *op, const OperatorInfo &info) {
  bool inPlace =
      info.inPlaceSchema &&
      (cast<TorchOperatorInterface>(op).isTied() || isOrderedWrite(op));
  const c10::FunctionSchema &schema =
      inPlace ? *info.inPlaceSchema : *info.schema;
  const std::vector<c10::Argument> &arguments = info.schema->arguments();

  // How many operands each tensor argument has; computed arguments come last.
  OperatorArguments computed(op);
  int64_t numTensors = op->getNumOperands() - computed.getDynamic().size();
  llvm::SmallVector<int64_t> segments;
  if (info.hasSegments) {
    llvm::append_range(
        segments, op->getAttrOfType<DenseI32ArrayAttr>("operandSegmentSizes")
                      .asArrayRef());
  } else {
    auto isRequired = [](const c10::Argument &argument) {
      return argument.type()->kind() == c10::TypeKind::TensorType;
    };
    int64_t left = numTensors;
    for (const c10::Argument &argument : arguments)
      left -= !info.isAttribute(argument.name()) && isRequired(argument);
    // At most one argument is optional or a list; it takes what is left.
    for (const c10::Argument &argument : arguments)
      if (!info.isAttribute(argument.name()))
        segments.push_back(isRequired(argument) ? 1 : left);
  }

  llvm::SmallVector<TorchValue *> inputs;
  size_t next = 0, segment = 0;
  auto emitDynamic = [&](const c10::Argument &argument, unsigned index) {
    Value value = computed.getDynamic(argument.name(), index);
    if (!value)
      refuse(op->getLoc(), Twine("'") + op->getName().getStringRef() +
                               "' lacks an operand for argument '" +
                               argument.name() + "'");
    return lookup(value, op);
  };
  for (const c10::Argument &argument : arguments) {
    if (!info.isAttribute(argument.name())) {
      c10::TypePtr element = getElementType(argument.type());
      auto mask =
          op->getAttrOfType<DenseBoolArrayAttr>(argument.name() + "_mask");
      llvm::SmallVector<TorchValue *> tensors;
      int64_t count = segments[segment++];
      if (mask) {
        for (bool given : mask.asArrayRef())
          tensors.push_back(given && next < op->getNumOperands()
                                ? lookup(op->getOperand(next++), op)
                                : constant(c10::IValue()));
      } else {
        for (int64_t i = 0; i < count; ++i)
          tensors.push_back(lookup(op->getOperand(next++), op));
      }
      if (element)
        inputs.push_back(list(tensors, element));
      else
        inputs.push_back(tensors.empty() ? constant(c10::IValue())
                                         : tensors.front());
      continue;
    }
    Attribute attr = op->getAttr(argument.name());
    if (auto sizes = dyn_cast_or_null<DenseI64ArrayAttr>(attr)) {
      llvm::SmallVector<TorchValue *> elements;
      unsigned marked = 0;
      for (int64_t size : sizes.asArrayRef())
        elements.push_back(ShapedType::isDynamic(size)
                               ? emitDynamic(argument, marked++)
                               : integer(size));
      // A computed list, or one of literals and computed elements.
      bool isOptional = argument.type()->kind() == c10::TypeKind::OptionalType;
      bool whole = elements.size() == 1 &&
                   (elements[0]->type()->kind() == c10::TypeKind::ListType ||
                    elements[0]->type()->kind() == c10::TypeKind::OptionalType);
      TorchValue *given =
          whole ? elements[0] : list(elements, c10::IntType::get());
      if (isOptional && given->type()->kind() == c10::TypeKind::ListType &&
          isListOfOther(*info.schema, inputs.size()))
        given = graph.insertUncheckedCast(given, argument.type());
      inputs.push_back(given);
    } else if (computed.getDynamic(argument.name())) {
      inputs.push_back(emitDynamic(argument, 0));
    } else if (attr) {
      inputs.push_back(fromAttr(attr, argument.type(), op, {}));
    } else if (!argument.default_value() ||
               argument.type()->kind() == c10::TypeKind::OptionalType) {
      // An attribute that is left out is None.
      inputs.push_back(constant(c10::IValue()));
    } else if (argument.default_value()->isIntList()) {
      llvm::SmallVector<TorchValue *> elements;
      for (int64_t element : argument.default_value()->toIntVector())
        elements.push_back(integer(element));
      inputs.push_back(list(elements, c10::IntType::get()));
    } else {
      inputs.push_back(constant(*argument.default_value()));
    }
  }

  const c10::TypePtr &returned = schema.returns().empty()
                                     ? c10::NoneType::get()
                                     : schema.returns()[0].type();
  if (op->getNumResults() > 0 && isa<TensorType>(op->getResultTypes()[0]) &&
      returned->kind() == c10::TypeKind::ListType) {
    Node *node =
        insert(op, c10::Symbol::fromQualString(schema.name()), inputs, 1);
    node->output()->setType(returned);
    checkOverload(node, op, getQualifiedName(schema));
    Node *unpack = graph.insertNode(
        graph.createListUnpack(node->output(), op->getNumResults()));
    for (auto [result, output] :
         llvm::zip(op->getResults(), unpack->outputs())) {
      output->setType(c10::TensorType::get());
      values[result] = output;
    }
    keepInPlace(unpack);
    return;
  }

  Node *node = insert(op, c10::Symbol::fromQualString(schema.name()), inputs,
                      op->getNumResults());
  for (auto [result, output] : llvm::zip(op->getResults(), node->outputs())) {
    output->setType(convertType(result.getType()));
    values[result] = output;
  }
  checkOverload(node, op, getQualifiedName(schema));
  if (!schema.is_mutable() && !koila::getUpdates(op).empty())
    updates.push_back(node);
}

void GraphEmitter::emitCarried(CarriedOperatorInterface op) {
  llvm::StringRef callee = op.getCallee();
  llvm::ArrayRef<Attribute> arguments = op.getArguments().getValue();
  ValueRange operands = op->getOperands();

  std::string name = callee.split('.').first.str();
  c10::Symbol kind = c10::Symbol::fromQualString(name);
  Node *from = getOriginal(op);
  if (from &&
      (from->kind() != kind || from->outputs().size() != op->getNumResults()))
    from = nullptr;
  // The argument types say what empty lists hold.
  std::vector<c10::Argument> none;
  const c10::FunctionSchema *schema = nullptr;
  for (const auto &candidate : tj::getAllOperatorsFor(kind))
    if (getQualifiedName(candidate->schema()) == callee)
      schema = &candidate->schema();
  llvm::SmallVector<TorchValue *> inputs;
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    c10::TypePtr type;
    if (schema && i < schema->arguments().size())
      type = schema->arguments()[i].type();
    inputs.push_back(fromAttr(argument, type, op, operands));
  }
  // A pass may have given the written operand another reader.
  if (copied.contains(op)) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const c10::AliasInfo *alias = schema->arguments()[i].alias_info();
      if (alias && alias->isWrite())
        inputs[i] = call("aten::clone", inputs[i]);
    }
  }
  Node *node = insert(op, kind, inputs, op->getNumResults());
  if (op->hasAttr(kNodeAttributesAttr)) {
    if (!from)
      refuse(op.getLoc(), Twine("what '") + callee +
                              "' says besides its operands is known in its "
                              "own archive only");
    node->copyAttributes(*from);
  }
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    c10::TypePtr type =
        from ? from->outputs()[i]->type() : getType(result.getType());
    if (!type)
      refuse(op.getLoc(), Twine("the type of a result of '") + callee +
                              "' is known in its own archive only");
    node->outputs()[i]->setType(type);
    values[result] = node->outputs()[i];
  }
  if (schema)
    checkOverload(node, op, callee);
  else if (!kind.is_prim() || node->maybeOperator())
    refuse(op.getLoc(), Twine("LibTorch has no operator '") + callee + "'");
}

bool GraphEmitter::emitContainer(Operation *op) {
  if (auto upcast = dyn_cast<UpcastOp>(op)) {
    TorchValue *value = lookup(upcast.getSource(), op);
    c10::TypePtr type = getType(upcast.getType());
    // None of an optional type keeps what type it stands for.
    if (value->type()->kind() == c10::TypeKind::NoneType && type) {
      value = constant(c10::IValue());
      value->setType(type);
    }
    values[upcast.getResult()] = value;
    return true;
  }
  if (auto literal = dyn_cast<ConstantOp>(op)) {
    values[literal.getResult()] = fromAttr(
        literal.getValue(), convertType(literal.getResult().getType()), op, {});
    return true;
  }
  llvm::SmallVector<TorchValue *> inputs;
  c10::Symbol kind;
  if (auto construct = dyn_cast<ConstructOp>(op)) {
    kind = construct.getContainer() == Container::List    ? prim::ListConstruct
           : construct.getContainer() == Container::Tuple ? prim::TupleConstruct
                                                          : prim::DictConstruct;
  } else if (auto unpack = dyn_cast<UnpackOp>(op)) {
    kind = isa<koila::ListType>(unpack.getContainer().getType())
               ? prim::ListUnpack
               : prim::TupleUnpack;
  } else if (isa<UncheckedCastOp>(op)) {
    kind = prim::unchecked_cast;
  } else if (isa<UninitializedOp>(op)) {
    kind = prim::Uninitialized;
  } else if (auto element = dyn_cast<ElementOp>(op)) {
    kind =
        isa<koila::ListType, koila::DictType>(element.getContainer().getType())
            ? c10::aten::__getitem__
            : prim::TupleIndex;
  } else {
    return false;
  }
  for (Value operand : op->getOperands())
    inputs.push_back(lookup(operand, op));
  if (auto element = dyn_cast<ElementOp>(op))
    inputs.push_back(fromAttr(element.getAt(), nullptr, op, {}));
  Node *from = getOriginal(op);
  if (from &&
      (from->kind() != kind || from->outputs().size() != op->getNumResults()))
    from = nullptr;
  Node *node = insert(op, kind, inputs, op->getNumResults());
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    c10::TypePtr type =
        from ? from->outputs()[i]->type() : getType(result.getType());
    if (!type)
      refuse(op->getLoc(), Twine("the type of a result of '") +
                               op->getName().getStringRef() +
                               "' is known in its own archive only");
    node->outputs()[i]->setType(type);
    values[result] = node->outputs()[i];
  }
  if (isa<UnpackOp>(op))
    keepInPlace(node);
  return true;
}

void GraphEmitter::emitParam(ParamGetOp op) {
  auto param = symbols.lookup<ParamOp>(op.getParam());
  if (!param)
    refuse(op.getLoc(), Twine("there is no weight '") + op.getParam() + "'");
  if (std::optional<int64_t> index = param.getConstant()) {
    if (*index < 0 || *index >= static_cast<int64_t>(original.constants.size()))
      refuse(op.getLoc(),
             Twine("the archive has no tensor constant ") + Twine(*index));
    values[op.getResult()] = constant(original.constants[*index]);
    return;
  }
  TorchValue *value = readAttribute(param.getSymName());
  // A scripted class may declare a weight as optional.
  if (value->type()->kind() == c10::TypeKind::OptionalType &&
      llvm::any_of(op->getUsers(), llvm::IsaPred<DetachOp>)) {
    Node *cast = insert(op, prim::unchecked_cast, {value}, 1);
    cast->output()->setType(c10::TensorType::get());
    value = cast->output();
  }
  values[op.getResult()] = value;
}

void GraphEmitter::emitLeaf(Operation *op) {
  TorchValue *value = lookup(op->getOperand(0), op);
  if (isa<LeafOp>(op))
    value = insert(op, kRequireGradient,
                   {call("aten::detach", value), constant(true)}, 1)
                ->output();
  else
    value = insert(op, kReadGradient, {value}, 1)->output();
  values[op->getResult(0)] = value;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void GraphEmitter::emitOperation(Operation *op) {
  if (const OperatorInfo *info = operators.lookup(op->getName()))
    return emitOperator(op, *info);
  if (auto carried = dyn_cast<CarriedOperatorInterface>(op))
    return emitCarried(carried);
  if (auto param = dyn_cast<ParamGetOp>(op))
    return emitParam(param);
  if (auto refine = dyn_cast<RefineOp>(op)) {
    values[refine.getResult()] = lookup(refine.getSource(), op);
    return;
  }
  if (isa<LeafOp, LeafGradOp>(op))
    return emitLeaf(op);
  // Assumptions are in the guard, and lifetimes those of what is written.
  if (isa<AssumeOp, KeepAliveOp>(op) || emitContainer(op) || emitObject(op) ||
      emitArith(op) || emitTensor(op))
    return;
  if (isa<scf::ForOp>(op))
    return emitFor(op);
  if (isa<scf::IfOp>(op))
    return emitIf(op);
  if (isa<scf::WhileOp>(op))
    return emitWhile(op);
  refuse(op->getLoc(), Twine("'") + op->getName().getStringRef() +
                           "' cannot be written as TorchScript");
}

llvm::SmallVector<tj::Value *> GraphEmitter::emitBlock(Block &block) {
  for (Operation &op : block.without_terminator())
    emitOperation(&op);
  Operation *terminator = block.getTerminator();
  llvm::SmallVector<TorchValue *> results;
  for (Value operand : terminator->getOperands())
    results.push_back(lookup(operand, terminator));
  return results;
}

tj::Value *GraphEmitter::emitBody(func::FuncOp function) {
  llvm::SmallVector<TorchValue *> results =
      emitBlock(function.getBody().front());
  if (results.empty())
    return constant(c10::IValue());
  if (results.size() == 1)
    return results.front();
  return graph
      .insertNode(graph.createTuple(
          at::ArrayRef<TorchValue *>(results.data(), results.size())))
      ->output();
}
