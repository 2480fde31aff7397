//===- TraceOperations.cpp - Operations of a traced call ------------------===//

#include "../Shape/GenericListInference.h"
#include "Tracer.h"
#include "koila/Analysis/MetaKernelShapes.h"
#include "koila/Analysis/SameTensor.h"
#include "koila/Analysis/Storage.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"

using namespace mlir;
using namespace koila;
namespace json = llvm::json;
using Role = ElementFlow::Role;

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// Runs `block` and returns, held, what its terminator hands on.
std::optional<Tracer::Cells> Tracer::execute(Block &block) {
  // A loop may have nothing in it, and no end.
  if (++operations > kMostOperations)
    return std::nullopt;
  // What nobody reads lives until it is handed over.
  for (Value value : unread.lookup(&block))
    drop(lookup(value));
  flush(block.getParentOp()->getLoc());
  for (Operation &op : block.without_terminator()) {
    if (++operations > kMostOperations || !execute(&op))
      return std::nullopt;
    end(&op);
    flush(op.getLoc());
  }
  Operation *terminator = block.getTerminator();
  Cells cells;
  for (Value operand : terminator->getOperands()) {
    cells.push_back(lookup(operand));
    hold(cells.back());
  }
  end(terminator);
  return cells;
}

bool Tracer::execute(Operation *op) {
  if (choices && choices->areTooMany())
    return false;
  if (auto construct = dyn_cast<ConstructOp>(op)) {
    Object *object =
        makeObject(construct.getResult().getType(), construct.getContainer());
    for (Value element : construct.getElements()) {
      object->elements.push_back(lookup(element));
      hold(object->elements.back());
    }
    bind(construct.getResult(), {Value(), object});
    return true;
  }
  if (isa<UpcastOp, UncheckedCastOp>(op) && lookup(op->getOperand(0)).object) {
    bind(op->getResult(0), lookup(op->getOperand(0)));
    return true;
  }
  if (auto element = dyn_cast<ElementOp>(op))
    return executeElement(element);
  if (auto unpack = dyn_cast<UnpackOp>(op))
    return executeUnpack(unpack);
  if (auto read = dyn_cast<AttrGetOp>(op))
    return executeRead(read);
  if (auto assignment = dyn_cast<AttrSetOp>(op))
    return executeAssignment(assignment);
  if (auto opaque = dyn_cast<TorchOpaqueOp>(op))
    return executeOpaque(opaque);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return executeIf(branch);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return executeFor(loop);
  if (auto loop = dyn_cast<scf::WhileOp>(op))
    return executeWhile(loop);
  // It may change whatever it gets, and the module.
  if (isa<CallMethodOp>(op)) {
    bool reaches = llvm::any_of(op->getOperands(), [&](Value operand) {
      return lookup(operand).object != nullptr;
    });
    if (reaches || !assigned.empty())
      return false;
    attributes.clear();
    runsUnknownCode = true;
  }
  return op->getNumRegions() == 0 && copy(op);
}

/// `op` reads a container that is none of this trace. As long as nothing may
/// have changed one, the read needs no place among writes.
bool Tracer::copyRead(Operation *op) {
  Operation *made = copy(op);
  if (!made)
    return false;
  if (!runsUnknownCode && !changesForeign) {
    made->removeAttr(KoilaDialect::kReadsAttr);
    infer(made);
  }
  return true;
}

bool Tracer::executeElement(ElementOp op) {
  Object *object = lookup(op.getContainer()).object;
  if (!object)
    return copyRead(op);
  auto &elements = object->elements;
  auto at = dyn_cast<IntegerAttr>(op.getAt());
  if (object->kind == Container::Dict) {
    for (size_t i = 0; i + 1 < elements.size(); i += 2)
      if (elements[i].value && getLiteral(elements[i].value) == op.getAt()) {
        bind(op.getResult(), elements[i + 1]);
        return true;
      }
    return false;
  }
  int64_t size = elements.size(), index = at ? at.getInt() : size;
  index += index < 0 ? size : 0;
  if (index < 0 || index >= size)
    return false;
  bind(op.getResult(), elements[index]);
  return true;
}

bool Tracer::executeUnpack(UnpackOp op) {
  Object *object = lookup(op.getContainer()).object;
  if (!object)
    return copyRead(op);
  if (object->kind == Container::Dict ||
      object->elements.size() != op->getNumResults())
    return false;
  for (auto [result, cell] : llvm::zip_equal(op.getResults(), object->elements))
    bind(result, cell);
  return true;
}

//===----------------------------------------------------------------------===//
// Lists and dicts that change
//===----------------------------------------------------------------------===//

std::optional<Tracer::Cell> Tracer::decode(const json::Value &value, Type type,
                                           ArrayRef<Cell> elements,
                                           Location loc) {
  const json::Object *object = value.getAsObject();
  if (!object)
    return std::nullopt;
  if (auto element = object->getInteger("element")) {
    if (*element < 0 || *element >= static_cast<int64_t>(elements.size()))
      return std::nullopt;
    return elements[*element];
  }
  auto makeContainer = [&](Container kind,
                           const json::Array &given) -> std::optional<Cell> {
    Object *made = makeObject(type, kind);
    for (auto [index, inner] : llvm::enumerate(given)) {
      Type innerType;
      if (auto list = dyn_cast<koila::ListType>(type))
        innerType = list.getElementType();
      else if (auto tuple = dyn_cast<TupleType>(type);
               tuple && index < tuple.size())
        innerType = tuple.getType(index);
      else if (auto dict = dyn_cast<DictType>(type))
        innerType = index % 2 ? dict.getValueType() : dict.getKeyType();
      auto cell =
          innerType ? decode(inner, innerType, elements, loc) : std::nullopt;
      if (!cell)
        return std::nullopt;
      hold(*cell);
      made->elements.push_back(*cell);
    }
    return Cell{Value(), made};
  };
  if (const json::Array *list = object->getArray("list"))
    return makeContainer(Container::List, *list);
  if (const json::Array *tuple = object->getArray("tuple"))
    return makeContainer(Container::Tuple, *tuple);
  if (const json::Array *dict = object->getArray("dict"))
    return makeContainer(Container::Dict, *dict);
  Attribute literal;
  if (const json::Value *given = object->get("value")) {
    if (given->getAsNull())
      literal = builder.getUnitAttr();
    else if (auto flag = given->getAsBoolean())
      literal = builder.getBoolAttr(*flag);
    else if (auto number = given->getAsInteger())
      literal = builder.getI64IntegerAttr(*number);
    else if (auto text = given->getAsString())
      literal = builder.getStringAttr(*text);
  } else if (auto number = object->getNumber("float")) {
    literal = builder.getF64FloatAttr(*number);
  }
  if (!literal)
    return std::nullopt;
  return Cell{makeConstant(literal, type, loc)};
}

/// What an undecided branch or loop changes, nobody knows afterwards.
bool Tracer::mayChange(const Object *object) const {
  return object->depth == depth;
}

/// Changes a list or dict of the caller or the module, of which nobody knows
/// what is in it: what comes stays there, what goes was there before the call.
/// None if it may be another one.
std::optional<bool> Tracer::changeForeign(TorchOpaqueOp op,
                                          const ElementFlow &flow) {
  auto first = dyn_cast<OperandAttr>(op.getArguments()[0]);
  Cell container = first ? lookup(op.getOperands()[first.getIndex()]) : Cell();
  if (!container.value || (!isa<BlockArgument>(container.value) &&
                           !container.value.getDefiningOp<AttrGetOp>()))
    return std::nullopt;
  auto takes = [&](Value result) {
    return !result.use_empty() && result.getType() != container.value.getType();
  };
  if (llvm::any_of(op->getResults(), takes))
    return std::nullopt;
  Cells coming;
  for (auto [role, argument] :
       llvm::drop_begin(llvm::zip_equal(flow.arguments, op.getArguments()))) {
    auto operand = dyn_cast<OperandAttr>(argument);
    if (role == Role::None)
      continue;
    if (role == Role::Other)
      return std::nullopt;
    if (operand &&
        mayHoldTensors(op.getOperands()[operand.getIndex()].getType()))
      coming.push_back(lookup(op.getOperands()[operand.getIndex()]));
  }
  if (depth > 0 && !coming.empty())
    return std::nullopt;
  llvm::for_each(coming, [&](const Cell &cell) { hold(cell); });
  kept.append(coming);
  changesForeign = true;
  bool isCallers = isa<BlockArgument>(container.value);
  if ((!flow.grows || isCallers) && !replaced &&
      mayHoldTensors(container.value.getType()))
    replaced = op;
  for (Value result : op->getResults())
    bind(result, result.use_empty() ? Cell() : container);
  return true;
}

bool Tracer::append(Object *list, const Cell &element) {
  if (!mayChange(list))
    return false;
  hold(element);
  list->elements.push_back(element);
  list->shown = {};
  return true;
}

bool Tracer::replaceContents(Object *object, const json::Value &contents,
                             ArrayRef<Cell> elements, TorchOpaqueOp op) {
  auto made = decode(contents, object->type, elements, op.getLoc());
  if (!made || !made->object || !mayChange(object))
    return false;
  object->shown = {};
  std::swap(object->elements, made->object->elements);
  // What is still in it does not end.
  llvm::SmallDenseSet<Value> left;
  for (const Cell &cell : object->elements)
    left.insert(cell.value);
  llvm::erase_if(made->object->elements, [&](const Cell &cell) {
    return cell.value && left.contains(cell.value);
  });
  if (!replaced && llvm::is_contained(given, object))
    replaced = op;
  hold(*made);
  release(*made);
  return true;
}

/// What an operator on containers of anything gets as an element.
std::optional<Tracer::Cell> Tracer::getElement(TorchOpaqueOp op,
                                               Attribute argument) {
  if (auto operand = dyn_cast<OperandAttr>(argument))
    return lookup(op.getOperands()[operand.getIndex()]);
  Type type = op.getOperands()[0].getType();
  if (auto list = dyn_cast<koila::ListType>(type))
    return Cell{makeConstant(argument, list.getElementType(), op.getLoc())};
  if (auto dict = dyn_cast<DictType>(type))
    return Cell{makeConstant(argument, dict.getValueType(), op.getLoc())};
  return std::nullopt;
}

/// The list that a literal is; null if it holds more than numbers and texts.
Tracer::Object *Tracer::makeList(Attribute literal, Location loc) {
  auto list = dyn_cast<ArrayAttr>(literal);
  if (!list || list.empty() ||
      !llvm::all_of(list, llvm::IsaPred<IntegerAttr, FloatAttr, StringAttr>))
    return nullptr;
  Type type = isa<StringAttr>(list[0])
                  ? TorchType::get(list.getContext(), "str")
                  : cast<TypedAttr>(list[0]).getType();
  Object *object = makeObject(koila::ListType::get(list.getContext(), type),
                              Container::List);
  for (Attribute element : list)
    object->elements.push_back({makeConstant(element, type, loc)});
  return object;
}

/// Elements are only moved, so numbers that stand for them show where they go:
/// TorchScript's own operator runs on the numbers.
std::optional<bool> Tracer::moveElements(TorchOpaqueOp op) {
  std::optional<ElementFlow> flow = getElementFlow(op);
  // Whether two elements are the same object, the numbers do not say.
  if (!flow || (llvm::is_contained(flow->arguments, Role::Element) &&
                llvm::is_contained(flow->results, Role::None)))
    return std::nullopt;
  Location loc = op.getLoc();
  if (flow->writes && !op.getOperands().empty() &&
      !lookup(op.getOperands()[0]).object)
    if (auto changed = changeForeign(op, *flow))
      return *changed;
  // Of a long list, to ask anew for each element would take long.
  if (flow->grows) {
    Cell list = lookup(op.getOperands()[0]);
    auto element = getElement(op, op.getArguments()[1]);
    if (!list.object || !element || !append(list.object, *element))
      return false;
    if (!replaced && llvm::is_contained(given, list.object))
      replaced = op;
    for (Value result : op->getResults())
      bind(result, list);
    return true;
  }
  Cells elements;
  SmallVector<Object *> containers;
  auto addElement = [&](const Cell &cell) {
    elements.push_back(cell);
    return json::Object{{"value", static_cast<int64_t>(elements.size() - 1)}};
  };
  json::Array arguments;
  for (auto [role, argument] :
       llvm::zip_equal(flow->arguments, op.getArguments())) {
    auto operand = dyn_cast<OperandAttr>(argument);
    Cell cell = operand ? lookup(op.getOperands()[operand.getIndex()]) : Cell();
    Object *&container = containers.emplace_back(nullptr);
    if (role == Role::None) {
      Attribute literal = operand ? getLiteral(cell.value) : argument;
      auto encoded = literal ? encodeLiteral(literal) : std::nullopt;
      if (!encoded)
        return std::nullopt;
      arguments.push_back(std::move(*encoded));
      continue;
    }
    if (role == Role::Element) {
      auto element = getElement(op, argument);
      if (!element)
        return std::nullopt;
      arguments.push_back(addElement(*element));
      continue;
    }
    container = operand ? getObject(cell, loc) : makeList(argument, loc);
    bool isDict = role == Role::Dict;
    if ((!isDict && role != Role::List) || !container ||
        (container->kind == Container::Dict) != isDict ||
        (flow->writes && !cell.object) ||
        container->elements.size() > kMostElements)
      return std::nullopt;
    json::Array encoded;
    for (size_t i = 0; i < container->elements.size(); i += isDict ? 2 : 1) {
      if (!isDict) {
        encoded.push_back(addElement(container->elements[i]));
        continue;
      }
      Attribute key = getLiteral(container->elements[i].value);
      auto name = key ? encodeLiteral(key) : std::nullopt;
      if (!name)
        return std::nullopt;
      encoded.push_back(json::Array{std::move(*name),
                                    addElement(container->elements[i + 1])});
    }
    arguments.push_back(
        json::Object{{isDict ? "dict" : "list", std::move(encoded)}});
  }
  auto answer = koila::detail::moveElements(op, std::move(arguments));
  const json::Array *results = answer ? answer->getArray("results") : nullptr;
  const json::Array *after = answer ? answer->getArray("arguments") : nullptr;
  if (!results || !after || results->size() != op->getNumResults() ||
      after->size() != containers.size())
    return std::nullopt;
  // Results first: what is taken out lives on.
  Cells made;
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    bool isFirst = flow->writes && containers.front() &&
                   result.getType() == op.getOperands()[0].getType();
    auto cell =
        isFirst ? std::optional(Cell{Value(), containers.front()})
                : decode((*results)[index], result.getType(), elements, loc);
    if (!cell)
      return false;
    made.push_back(*cell);
    hold(made.back());
  }
  if (flow->writes)
    for (auto [container, contents] : llvm::zip_equal(containers, *after))
      if (container && !replaceContents(container, contents, elements, op))
        return false;
  hand(op->getResults(), made);
  return true;
}

/// An element of a tuple by a number that the trace knows, such as that of a
/// turn.
std::optional<Tracer::Cell> Tracer::indexTuple(TorchOpaqueOp op) {
  if (op.getCallee() != "prim::TupleIndex" || op.getArguments().size() != 2)
    return std::nullopt;
  Object *tuple = lookup(op.getOperands()[0]).object;
  auto literal = dyn_cast<IntegerAttr>(op.getArguments()[1]);
  std::optional<int64_t> index =
      literal ? literal.getInt() : getNumber(op.getOperands()[1]);
  int64_t size = tuple ? tuple->elements.size() : 0;
  if (!index || *index < -size || *index >= size)
    return std::nullopt;
  return tuple->elements[*index < 0 ? *index + size : *index];
}

void Tracer::setRecording(TorchOpaqueOp op) {
  Attribute literal = op.getArguments()[0];
  if (isa<OperandAttr>(literal))
    literal = getLiteral(lookup(op.getOperands()[0]).value);
  auto isOn = dyn_cast_or_null<BoolAttr>(literal);
  setting.recordsGradients =
      isOn && depth == 0 ? std::optional(isOn.getValue()) : std::nullopt;
  turnsRecordingOn |= !isOn || isOn.getValue();
  unknownRecording |= !setting.recordsGradients;
}

/// Nothing is recorded within `with torch.no_grad()`.
bool Tracer::delimitNoGrad(TorchOpaqueOp op) {
  if (op.getCallee() == "prim::Enter") {
    outer.push_back(std::exchange(setting.recordsGradients, false));
  } else {
    if (outer.empty())
      return false;
    setting.recordsGradients = outer.pop_back_val();
  }
  Type none = TorchType::get(op->getContext(), "NoneType");
  for (Value result : op->getResults())
    bind(result, {makeConstant(builder.getUnitAttr(), none, op.getLoc())});
  return true;
}

static Value stripUpcast(Value value) {
  auto upcast = value ? value.getDefiningOp<UpcastOp>() : UpcastOp();
  return upcast ? upcast.getSource() : value;
}

/// The literal that a list of numbers is; null if some are not known, or if it
/// is a list of something else.
Attribute Tracer::getListLiteral(const Object &list) {
  SmallVector<Attribute> numbers;
  for (const Cell &element : list.elements) {
    auto number = dyn_cast_or_null<IntegerAttr>(getLiteral(element.value));
    if (!number || !number.getType().isInteger(64))
      return {};
    numbers.push_back(number);
  }
  return numbers.empty() ? Attribute() : builder.getArrayAttr(numbers);
}

/// What `op` gets; none if a list cannot be shown.
std::optional<SmallVector<OperatorArgument>>
Tracer::getArguments(TorchOpaqueOp op) {
  SmallVector<OperatorArgument> arguments;
  for (Attribute argument : op.getArguments()) {
    OperatorArgument &made = arguments.emplace_back();
    auto operand = dyn_cast<OperandAttr>(argument);
    made.literal = operand ? Attribute() : argument;
    if (!operand)
      continue;
    Cell cell = lookup(op.getOperands()[operand.getIndex()]);
    if (cell.object) {
      made.literal = getListLiteral(*cell.object);
      if (made.literal)
        continue;
      for (const Cell &element : cell.object->elements) {
        Value value = stripUpcast(getValue(element, Type(), op.getLoc()));
        if (!value)
          return std::nullopt;
        bool isNone = isa_and_nonnull<UnitAttr>(getLiteral(value));
        made.values.push_back(isNone ? Value() : value);
      }
      continue;
    }
    if (!cell.value)
      return std::nullopt;
    cell.value = stripUpcast(cell.value);
    if (!isa<TensorType>(cell.value.getType()))
      made.literal = getLiteral(cell.value);
    if (!made.literal)
      made.values.push_back(cell.value);
  }
  return arguments;
}

/// How many tensors are in the list that `op` gives; 0 if nobody knows.
size_t Tracer::countElements(TorchOpaqueOp op) {
  Operation *made = copy(op);
  if (!made)
    return 0;
  Value list = made->getResult(0);
  size_t count = getInfo(list).elements.size();
  facts.erase(list);
  wanting.erase(list);
  variables.erase(op->getResult(0));
  made->erase();
  return count;
}

/// With `count` tensors in its list; null if the shapes say that there are
/// others.
Operation *Tracer::createWith(TorchOpaqueOp op,
                              ArrayRef<OperatorArgument> arguments,
                              size_t count) {
  auto list = cast<koila::ListType>(op->getResult(0).getType());
  SmallVector<Type> types(count, list.getElementType());
  Operation *made =
      operators.create(builder, op.getLoc(), op.getCallee(), arguments, types);
  auto shapes = dyn_cast_if_present<ShapeRuleInterface>(made);
  if (!shapes)
    return made;
  ScopedDiagnosticHandler quiet(op->getContext(),
                                [](Diagnostic &) { return success(); });
  ShapeRule rule(made, [&](Value value) { return getInfo(value); }, &params);
  if (succeeded(shapes.inferShapes(rule)))
    return made;
  made->erase();
  return nullptr;
}

/// An operator that gives a list of tensors has an operation with a result for
/// each. Where it does not say how many there are, there may be as many as its
/// tensor has dims, if the shapes allow no other number.
Operation *Tracer::create(TorchOpaqueOp op,
                          ArrayRef<OperatorArgument> arguments) {
  if (!givesTensors(op))
    return operators.create(builder, op.getLoc(), op.getCallee(), arguments,
                            op->getResultTypes());
  if (!operators.contains(op.getCallee()))
    return nullptr;
  if (size_t count = countElements(op))
    return createWith(op, arguments, count);
  if (arguments.empty() || arguments[0].values.size() != 1)
    return nullptr;
  const std::optional<TensorInfo> &tensor =
      getInfo(arguments[0].values[0]).tensor;
  if (!tensor || !tensor->hasRank())
    return nullptr;
  size_t rank = std::max<size_t>(tensor->getRank(), 1);
  if (Operation *other = createWith(op, arguments, rank + 1)) {
    other->erase();
    return nullptr;
  }
  return createWith(op, arguments, rank);
}

/// Whether `op` gets a list without tensors, where PyTorch wants some.
bool Tracer::lacksTensors(TorchOpaqueOp op,
                          ArrayRef<OperatorArgument> arguments) {
  auto isTensor = [](Value value) { return isa<TensorType>(value.getType()); };
  auto found = llvm::find_if(function.getArguments(), isTensor);
  if (found == function.getArguments().end())
    return false;
  SmallVector<OperatorArgument> filled(arguments);
  bool isEmpty = false;
  for (OperatorArgument &argument : filled)
    if (!argument.literal && argument.values.empty()) {
      argument.values.push_back(*found);
      isEmpty = true;
    }
  if (!isEmpty || op->getNumResults() != 1)
    return false;
  Type any = UnrankedTensorType::get(AnyType::get(op->getContext()));
  Operation *made =
      operators.create(builder, op.getLoc(), op.getCallee(), filled, any);
  if (made)
    made->erase();
  return made != nullptr;
}

/// The operation for an operator of which the trace knows more than import did:
/// what is in a list, or that an optional tensor is there. Null if there is
/// none.
Operation *Tracer::describe(TorchOpaqueOp op) {
  if (op.getEffects() == Effects::Unknown)
    return nullptr;
  auto arguments = getArguments(op);
  if (!arguments)
    return nullptr;
  Operation *known = create(op, *arguments);
  if (!known && choices && depth == 0 && lacksTensors(op, *arguments)) {
    isRaised = true;
    return nullptr;
  }
  if (!known) {
    bool takesNumbers = llvm::any_of(op.getOperandTypes(), [](Type type) {
      auto list = dyn_cast<koila::ListType>(type);
      return list && list.getElementType().isIntOrFloat();
    });
    undecided +=
        takesNumber(op) || (takesNumbers && operators.contains(op.getCallee()));
    return nullptr;
  }
  // It writes what the module has, statistics for example, and no result of it
  // is an operand that was written.
  for (NamedAttribute mark : op->getDiscardableAttrs())
    if (mark.getName() != KoilaDialect::kWritesAttr &&
        mark.getName() != kViewsAttr)
      known->setDiscardableAttr(mark.getName(), mark.getValue());
  dropReads(op, known);
  return known;
}

/// An operator with `out=` computes what it does without, in the tensor that it
/// gets: in its storage if that is as large, else in a new one if it has none.
/// False if it is none, or does something else.
bool Tracer::executeOut(TorchOpaqueOp op) {
  if (!KnownOperators::takesOut(op.getCallee()) || op->getNumResults() != 1 ||
      op.getEffects() == Effects::Unknown)
    return false;
  auto arguments = getArguments(op);
  if (!arguments || arguments->empty() || arguments->back().values.size() != 1)
    return false;
  Value out = arguments->pop_back_val().values.front();
  Operation *made = operators.createWithoutOut(
      builder, op.getLoc(), op.getCallee(), *arguments, op->getResultTypes());
  if (!made)
    return false;
  infer(made);
  const std::optional<TensorInfo> &there = getInfo(out).tensor,
                                  &here = getInfo(made->getResult(0)).tensor;
  bool isKnown = there && here && there->hasRank() && here->hasRank() &&
                 rules::isTorchType(there->elementType) &&
                 there->elementType == here->elementType;
  bool isFull = isKnown && there->dims == here->dims;
  auto isZero = [](DimExpr dim) { return dim.isConstant(0); };
  bool isEmpty = isKnown && !isOrderedWrite(op) && !isa<BlockArgument>(out) &&
                 !out.getDefiningOp<ParamGetOp>() &&
                 llvm::any_of(*there->dims, isZero);
  auto memory = dyn_cast<MemoryRuleInterface>(made);
  bool isNew = false;
  if (memory) {
    StorageRule storage(made, [&](Value value) { return getInfo(value); });
    memory.describeStorage(storage);
    isNew = storage.getResults()[0].kind == StorageFact::Kind::New;
  }
  bool isRecorded =
      records && (mayWant({out}) || mayWant({made->getResult(0)}));
  if (!isNew || isRecorded || (!isFull && !isEmpty)) {
    facts.erase(made->getResult(0));
    wanting.erase(made->getResult(0));
    made->erase();
    return false;
  }
  if (isFull)
    made->setAttr(kIntoAttr,
                  builder.getBoolAttr(there->isContiguous() == TriBool::Yes));
  keep(out);
  bind(op->getResult(0), {isFull ? out : made->getResult(0)});
  return true;
}

/// Whether `op` only asks how the program is called.
bool Tracer::isAnswered(TorchOpaqueOp op) {
  return op->getNumOperands() == 0 &&
         getSettingAnswer(op, setting, [](Value) { return ValueInfo(); });
}

bool Tracer::executeOpaque(TorchOpaqueOp op) {
  Location loc = op.getLoc();
  if (choices && depth == 0 && op.getCallee() == "prim::RaiseException") {
    isRaised = true;
    return false;
  }
  if (op.getCallee() == "prim::CreateObject" && op->getNumResults() == 1) {
    bind(op->getResult(0),
         {Value(), makeObject(op->getResult(0).getType(), std::nullopt)});
    return true;
  }
  bool hasObjects = llvm::any_of(op.getOperands(), [&](Value operand) {
    return lookup(operand).object != nullptr;
  });
  if (delimitsNoGrad(op))
    return delimitNoGrad(op);
  // No container is None.
  if (auto negated = isNegatedIdentity(op);
      negated && hasObjects &&
      llvm::any_of(op.getArguments(), llvm::IsaPred<UnitAttr>)) {
    bind(op->getResult(0), {makeConstant(builder.getBoolAttr(*negated),
                                         builder.getI1Type(), loc)});
    return true;
  }
  if (auto moved = moveElements(op))
    return *moved;
  if (auto element = indexTuple(op)) {
    bind(op->getResult(0), *element);
    return true;
  }
  if (executeOut(op))
    return true;
  if (setsRecording(op))
    setRecording(op);
  else if (op.getEffects() == Effects::Unknown && !isAnswered(op))
    runsUnknownCode = true;
  // What it makes of a container, or keeps, nobody knows.
  bool writes = isOrderedWrite(op) && op->getNumOperands() > 0 &&
                isMutable(op->getOperand(0).getType());
  if (writes || (hasObjects && op.getEffects() == Effects::Unknown))
    return false;
  Operation *known = describe(op);
  if (!known)
    return !isRaised && copy(op);
  infer(known);
  if (givesTensors(op)) {
    Object *list = makeObject(op->getResult(0).getType(), Container::List);
    for (Value result : known->getResults())
      list->elements.push_back({result});
    bind(op->getResult(0), {Value(), list});
    return true;
  }
  for (auto [old, result] :
       llvm::zip_equal(op->getResults(), known->getResults()))
    bind(old, {result});
  return true;
}
