//===- ExecutionTrace.cpp - What one call runs, in order ------------------===//

#include "ExecutionTrace.h"
#include "Tracer.h"
#include "koila/Analysis/ControlFlow.h"
#include "koila/Analysis/MetaKernelShapes.h"
#include "koila/Analysis/RequiresGradAnalysis.h"
#include "koila/Analysis/SameTensor.h"
#include "koila/Analysis/Storage.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;
using namespace koila;

bool koila::takesNumber(TorchOpaqueOp op) {
  return llvm::any_of(op.getOperandTypes(),
                      [](Type type) { return type.isIntOrIndexOrFloat(); });
}

bool koila::givesTensors(TorchOpaqueOp op) {
  auto list = op->getNumResults() == 1
                  ? dyn_cast<koila::ListType>(op->getResult(0).getType())
                  : koila::ListType();
  return list && isa<TensorType>(list.getElementType());
}

/// Whether a trace may have an operation for `op`: by a number that it knows,
/// one with a result for each tensor of a list, or one that says nothing of the
/// effects.
static bool mayBeDescribed(TorchOpaqueOp op,
                           std::optional<KnownOperators> &operators) {
  if (op.getEffects() == Effects::Unknown)
    return false;
  if (op.getEffects() == Effects::None && takesNumber(op))
    return true;
  if (op.getEffects() == Effects::None && !givesTensors(op))
    return false;
  if (KnownOperators::takesOut(op.getCallee()))
    return true;
  if (!operators)
    operators.emplace(op.getContext());
  return operators->contains(op.getCallee());
}

bool koila::isWorthTracing(Operation *function) {
  if (!isa<FunctionOpInterface>(function) ||
      !function->getParentOfType<ModuleOp>() || findSeveralBlocks(function))
    return false;
  // Loops over tiles turn as often as the tile says, which may change while the
  // analysis is in use. TorchScript counts in 64 bits.
  WalkResult tiles = function->walk([](scf::ForOp loop) {
    return loop.getInductionVar().getType().isIndex() ? WalkResult::interrupt()
                                                      : WalkResult::advance();
  });
  if (tiles.wasInterrupted())
    return false;
  std::optional<KnownOperators> operators;
  WalkResult result = function->walk([&](Operation *op) {
    bool branches = isa<scf::IfOp, scf::ForOp, scf::WhileOp>(op);
    // What is taken out of a list is what was put there.
    auto element = dyn_cast<ElementOp>(op);
    bool takesOwn =
        element && element.getContainer().getDefiningOp<ConstructOp>();
    // A trace knows what is in a container that the caller gives.
    bool takes = isa<TorchOpaqueOp>(op) &&
                 llvm::any_of(op->getOperands(), [](Value operand) {
                   bool isGiven =
                       isa<BlockArgument>(operand) ||
                       isa_and_nonnull<ElementOp>(operand.getDefiningOp());
                   return isGiven && !isa<TensorType>(operand.getType()) &&
                          mayHoldTensors(operand.getType());
                 });
    bool changes =
        isa<AttrSetOp>(op) || (isOrderedWrite(op) && op->getNumOperands() > 0 &&
                               isMutable(op->getOperand(0).getType()));
    auto opaque = dyn_cast<TorchOpaqueOp>(op);
    bool mayBeKnown = opaque && mayBeDescribed(opaque, operators);
    return branches || takesOwn || takes || changes || mayBeKnown
               ? WalkResult::interrupt()
               : WalkResult::advance();
  });
  return result.wasInterrupted();
}

//===----------------------------------------------------------------------===//
// Lifetimes of variables
//===----------------------------------------------------------------------===//

void Tracer::findEnds() {
  auto add = [&](Value value) {
    Block *block = value.getParentBlock();
    Operation *last = value.getDefiningOp();
    bool isRead = false, isInside = false;
    for (Operation *user : value.getUsers()) {
      Operation *ancestor = block->findAncestorOpInBlock(*user);
      isRead = true;
      if (!last || last->isBeforeInBlock(ancestor)) {
        last = ancestor;
        isInside = ancestor != user;
      } else if (last == ancestor) {
        isInside |= ancestor != user;
      }
    }
    if (last)
      ends[last].emplace_back(value, isInside);
    else if (!isRead)
      unread[block].push_back(value);
  };
  program->walk<WalkOrder::PreOrder>([&](Operation *op) {
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArguments(), add);
    if (op != program)
      llvm::for_each(op->getResults(), add);
  });
}

/// Weights and what the caller has outlive the call.
static bool isExternal(Value value) {
  if (Operation *op = value.getDefiningOp())
    return isa<ParamGetOp>(op) || op->hasTrait<OpTrait::ConstantLike>();
  return isa<FunctionOpInterface>(value.getParentBlock()->getParentOp());
}

void Tracer::keep(Value value) {
  if (mayHoldTensors(value.getType()) && !isExternal(value))
    ending.insert(value);
}

/// Keeps whatever `cell` holds, until here.
void Tracer::keepAll(const Cell &cell) {
  SmallVector<Cell> left{cell};
  llvm::SmallPtrSet<Object *, 4> seen;
  while (!left.empty()) {
    Cell next = left.pop_back_val();
    if (!next.object) {
      if (next.value)
        keep(next.value);
    } else if (seen.insert(next.object).second) {
      llvm::append_range(left, next.object->elements);
      llvm::append_range(left, llvm::make_second_range(next.object->fields));
    }
  }
}

void Tracer::release(const Cell &cell) {
  SmallVector<Object *> released{cell.object};
  while (!released.empty()) {
    Object *object = released.pop_back_val();
    if (!object || --object->holders > 0)
      continue;
    auto add = [&](const Cell &inner) {
      if (inner.object)
        released.push_back(inner.object);
      else if (inner.value)
        keep(inner.value);
    };
    llvm::for_each(object->elements, add);
    for (const auto &field : object->fields)
      add(field.second);
  }
}

void Tracer::drop(const Cell &cell) {
  if (cell.object)
    release(cell);
  else if (cell.value)
    keep(cell.value);
}

bool Tracer::startsWith(Operation *loop, Value value, bool isInside) {
  return isa<LoopLikeOpInterface>(loop) && !isInside &&
         value.getDefiningOp() != loop;
}

void Tracer::endInits(Operation *loop) {
  for (auto [old, isInside] : ends.lookup(loop))
    if (startsWith(loop, old, isInside))
      release(lookup(old));
  flush(loop->getLoc());
}

void Tracer::end(Operation *op) {
  for (auto [old, isInside] : ends.lookup(op)) {
    if (startsWith(op, old, isInside))
      continue;
    // A branch or loop hands over what nobody reads, too.
    bool isHanded = op->getNumRegions() > 0 && old.getDefiningOp() == op;
    Cell cell = lookup(old);
    if (cell.object || isInside || isHanded)
      drop(cell);
  }
}

void Tracer::flush(Location loc) {
  if (!ending.empty())
    KeepAliveOp::create(builder, loc, ending.takeVector());
  ending.clear();
}

//===----------------------------------------------------------------------===//
// Facts
//===----------------------------------------------------------------------===//

ValueInfo Tracer::getInfo(Value value) { return facts.lookup(value); }

/// Keeps `info`, with symbols where nothing is known.
void Tracer::name(Value value, ValueInfo info) {
  MLIRContext *context = builder.getContext();
  auto makeSymbol = [&](SymbolKind kind) {
    return DimExpr::symbol(
        DimSymbol::get(context, "_t" + std::to_string(symbols++), kind));
  };
  if (isa<TensorType>(value.getType()) &&
      !isa_and_nonnull<UnitAttr>(info.literal)) {
    if (!info.tensor)
      info.tensor = getTensorInfoFromType(value.getType(),
                                          [](unsigned) { return DimExpr(); });
    if (info.tensor->dims)
      for (DimExpr &dim : *info.tensor->dims)
        if (!dim)
          dim = makeSymbol(SymbolKind::Extent);
  }
  if (!info.integer && value.getType().isInteger(64))
    info.integer = makeSymbol(SymbolKind::Integer);
  facts[value] = std::move(info);
}

/// What shape rules do not say, a folder may: `arith.andi` of conditions.
void Tracer::foldLiteral(Operation *op) {
  if (op->getNumResults() != 1 || op->getNumRegions() > 0 ||
      !op->getResult(0).getType().isInteger() || !isMemoryEffectFree(op) ||
      getLiteral(op->getResult(0)))
    return;
  SmallVector<Attribute> operands = llvm::map_to_vector(
      op->getOperands(), [&](Value operand) { return getLiteral(operand); });
  SmallVector<OpFoldResult> folded;
  if (failed(op->fold(operands, folded)) || folded.size() != 1)
    return;
  if (auto value = dyn_cast<Value>(folded.front())) {
    facts[op->getResult(0)] = getInfo(value);
    return;
  }
  auto literal = dyn_cast<IntegerAttr>(cast<Attribute>(folded.front()));
  auto number = literal ? literal.getValue().trySExtValue() : std::nullopt;
  if (!number)
    return;
  ValueInfo &info = facts[op->getResult(0)];
  if (literal.getType().isInteger(1))
    info.literal = builder.getBoolAttr(*number != 0);
  else
    info.integer = DimExpr::constant(builder.getContext(), *number);
}

/// What `a is b` gives, if that is certain.
Attribute Tracer::compareTensors(Operation *op) {
  auto opaque = dyn_cast<TorchOpaqueOp>(op);
  auto compared = opaque ? getComparedTensors(opaque) : std::nullopt;
  if (!compared)
    return {};
  auto [lhs, rhs] = *compared;
  auto isNone = [&](Value value) {
    return isa_and_nonnull<UnitAttr>(getLiteral(value));
  };
  TriBool same;
  if (isNone(lhs) || isNone(rhs))
    same = isNone(lhs) && isNone(rhs)                ? TriBool::Yes
           : getInfo(isNone(lhs) ? rhs : lhs).tensor ? TriBool::No
                                                     : TriBool::Unknown;
  else
    same = proveIdentical(
        lhs, rhs, [](Block *) { return true; },
        [&](Value value) { return getInfo(value); });
  if (same == TriBool::Unknown)
    return {};
  return builder.getBoolAttr((same == TriBool::Yes) !=
                             *isNegatedIdentity(opaque));
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

void Tracer::markWanting(Value value) {
  const std::optional<TensorInfo> &tensor = getInfo(value).tensor;
  Type element = tensor ? tensor->elementType : Type();
  if (mayHoldTensors(value.getType()) &&
      (!element || isa<FloatType, ComplexType>(element)))
    wanting.insert(value);
}

bool Tracer::mayWant(const Cell &cell) const {
  SmallVector<Cell> left{cell};
  llvm::SmallPtrSet<Object *, 4> seen;
  while (!left.empty()) {
    Cell next = left.pop_back_val();
    if (next.value && (wantsAll || wanting.contains(next.value)))
      return true;
    if (next.object && seen.insert(next.object).second) {
      llvm::append_range(left, next.object->elements);
      llvm::append_range(left, llvm::make_second_range(next.object->fields));
    }
  }
  return false;
}

/// Says of an operation of the trace whether it is recorded, and where a
/// gradient may flow.
void Tracer::followGradient(Operation *op) {
  if (!records)
    return;
  auto isWanting = [&](Value value) { return mayWant({value}); };
  auto mark = [&](Value value) { markWanting(value); };
  auto markAll = [&] {
    for (Value result : op->getResults())
      mark(result);
  };
  if (auto read = dyn_cast<ParamGetOp>(op)) {
    auto param =
        params.lookupNearestSymbolFrom<ParamOp>(read, read.getParamAttr());
    if (!param || param.getRequiresGrad())
      mark(read.getResult());
    if (param && param.getRequiresGrad())
      surelyWanting.insert(read.getResult());
    return;
  }
  bool isUnrecorded = setting.recordsGradients == false &&
                      isa<TorchOperatorInterface, TorchOpaqueOp>(op);
  if (isUnrecorded)
    op->setAttr(kUnrecordedAttr, builder.getUnitAttr());
  // Of what the module has nobody knows what it is made of.
  if (isa<LeafOp, AttrGetOp, CallMethodOp>(op))
    return markAll();
  if (llvm::none_of(op->getOperands(), isWanting))
    return;
  auto types = [&](Value value) {
    const std::optional<TensorInfo> &tensor = getInfo(value).tensor;
    return tensor ? tensor->elementType : Type();
  };
  bool hasTensors =
      llvm::any_of(op->getResultTypes(), llvm::IsaPred<TensorType>);
  if (hasTensors && getDifferentiation(op, isWanting, types).isDetached)
    return;
  if (!isUnrecorded) {
    wantsAll |= isOrderedWrite(op);
    bool isSure = (isa<UpcastOp, UncheckedCastOp>(op) ||
                   (isa<TorchOperatorInterface>(op) &&
                    setting.recordsGradients == true)) &&
                  llvm::any_of(op->getOperands(), [&](Value value) {
                    return surelyWanting.contains(value);
                  });
    for (Value result : op->getResults()) {
      mark(result);
      Type element = types(result);
      if (isSure && element && wanting.contains(result))
        surelyWanting.insert(result);
    }
    return;
  }
  // It may hand on its operand.
  auto memory = dyn_cast<MemoryRuleInterface>(op);
  if (!memory)
    return markAll();
  StorageRule storage(op, [&](Value value) { return getInfo(value); });
  memory.describeStorage(storage);
  for (auto [result, fact] :
       llvm::zip_equal(op->getResults(), storage.getResults()))
    if (fact.operand && isWanting(fact.operand))
      mark(result);
}

/// What `requires_grad` of a tensor gives, if that is certain.
Attribute Tracer::getRequiresGrad(Operation *op) {
  auto opaque = dyn_cast<TorchOpaqueOp>(op);
  if (!opaque || opaque.getCallee() != "prim::requires_grad" ||
      op->getNumOperands() != 1 || op->getNumResults() != 1)
    return {};
  Value value = op->getOperand(0);
  while (auto upcast = value.getDefiningOp<UpcastOp>())
    value = upcast.getSource();
  if (auto read = value.getDefiningOp<ParamGetOp>()) {
    auto param =
        params.lookupNearestSymbolFrom<ParamOp>(read, read.getParamAttr());
    return param ? builder.getBoolAttr(param.getRequiresGrad()) : BoolAttr();
  }
  if (!isa<TensorType>(value.getType()))
    return {};
  if (auto argument = dyn_cast<BlockArgument>(value);
      argument && argument.getOwner() == &function.getFunctionBody().front())
    return builder.getBoolAttr(
        program.getArgAttr(argument.getArgNumber(),
                           KoilaDialect::kRequiresGradAttr) != nullptr);
  if (surelyWanting.contains(value))
    return builder.getBoolAttr(true);
  return records && !mayWant({value}) ? builder.getBoolAttr(false) : BoolAttr();
}

void Tracer::infer(Operation *op) {
  auto lookup = [&](Value value) { return getInfo(value); };
  ShapeRule rule(op, lookup, &params);
  auto noLists = [](Value) { return std::optional<ListFact>(); };
  if (auto opaque = dyn_cast<TorchOpaqueOp>(op))
    inferMetaKernelShapes(opaque, rule, noLists);
  else if (auto shapes = dyn_cast<ShapeRuleInterface>(op))
    (void)shapes.inferShapes(rule);
  for (auto [result, info] :
       llvm::zip_equal(op->getResults(), rule.getResults()))
    name(result, info);
  foldLiteral(op);
  Attribute answer = getSettingAnswer(op, setting, lookup);
  if (!answer)
    answer = compareTensors(op);
  if (!answer)
    answer = getRequiresGrad(op);
  if (answer)
    facts[op->getResult(0)].literal = answer;
  followGradient(op);
}

Attribute Tracer::getLiteral(Value value) {
  if (!value)
    return {};
  Attribute constant;
  if (matchPattern(value, m_Constant(&constant)))
    return constant;
  ValueInfo info = getInfo(value);
  if (info.integer && value.getType().isInteger(64))
    if (auto number = info.integer.getConstant())
      return builder.getI64IntegerAttr(*number);
  return isa_and_nonnull<DynamicAttr>(info.literal) ? Attribute()
                                                    : info.literal;
}

std::optional<bool> Tracer::decide(Value condition) {
  auto literal =
      dyn_cast_or_null<IntegerAttr>(getLiteral(lookup(condition).value));
  if (!literal || !literal.getType().isInteger(1))
    return std::nullopt;
  return !literal.getValue().isZero();
}

std::optional<bool> Choices::take() {
  if (next == kMost) {
    tooMany = true;
    return std::nullopt;
  }
  if (next == ways.size())
    ways.push_back(true);
  return ways[next++];
}

bool Choices::advance() {
  next = 0;
  while (!ways.empty() && !ways.back())
    ways.pop_back();
  if (!ways.empty())
    ways.back() = false;
  return !ways.empty();
}

std::optional<bool> Tracer::choose(Value condition, Operation *op) {
  if (!choices || depth > 0)
    return std::nullopt;
  std::optional<bool> holds = choices->take();
  Value value = lookup(condition).value;
  // Who asks again hears the same.
  if (holds && value)
    facts[value].literal = builder.getBoolAttr(*holds);
  if (!forked)
    forked = op;
  return holds;
}

std::optional<int64_t> Tracer::getNumber(Value old) {
  auto literal = dyn_cast_or_null<IntegerAttr>(getLiteral(lookup(old).value));
  return literal ? literal.getValue().trySExtValue() : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Values of the trace
//===----------------------------------------------------------------------===//

Value Tracer::makeConstant(Attribute literal, Type type, Location loc) {
  Operation *op;
  auto typed = dyn_cast<TypedAttr>(literal);
  if (typed && typed.getType().isIntOrIndexOrFloat())
    op = arith::ConstantOp::create(builder, loc, typed);
  else
    op = ConstantOp::create(builder, loc, type, literal);
  infer(op);
  return op->getResult(0);
}

/// The cell as an operand of that type.
Value Tracer::getValue(const Cell &cell, Type type, Location loc) {
  Value value = cell.value;
  if (Object *object = cell.object) {
    if (!object->kind)
      return {};
    if (object->shown &&
        object->shown.getParentBlock() == builder.getInsertionBlock())
      return object->shown;
    SmallVector<Value> elements;
    for (const Cell &element : object->elements) {
      elements.push_back(getValue(element, Type(), loc));
      if (!elements.back())
        return {};
    }
    auto made = ConstructOp::create(builder, loc, object->type, *object->kind,
                                    elements);
    infer(made);
    return object->shown = made.getResult();
  }
  if (!value || !type || value.getType() == type)
    return value;
  if (!isa<TensorType>(type) || !isa<TensorType>(value.getType()))
    return {};
  auto refined = RefineOp::create(builder, loc, type, value);
  facts[refined.getResult()] = getInfo(value);
  if (mayWant({value}))
    markWanting(refined.getResult());
  if (surelyWanting.contains(value))
    surelyWanting.insert(refined.getResult());
  return refined.getResult();
}

Tracer::Object *Tracer::makeObject(Type type, std::optional<Container> kind) {
  auto &object = objects.emplace_back(std::make_unique<Object>());
  object->type = type;
  object->kind = kind;
  object->depth = depth;
  return object.get();
}

/// The list that `cell` is; null if nobody knows what is in it. A list that an
/// operator made becomes one of this trace.
Tracer::Object *Tracer::getObject(Cell &cell, Location loc) {
  if (cell.object || !cell.value)
    return cell.object;
  auto type = dyn_cast<koila::ListType>(cell.value.getType());
  if (!type || isExternal(cell.value))
    return nullptr;
  ValueInfo info = getInfo(cell.value);
  size_t count = info.elements.size();
  if (count == 0 && info.list)
    count = info.list->size();
  if (count == 0)
    return nullptr;
  Object *object = makeObject(type, Container::List);
  for (size_t index = 0; index < count; ++index) {
    auto element =
        ElementOp::create(builder, loc, type.getElementType(), cell.value,
                          builder.getI64IntegerAttr(index));
    infer(element);
    object->elements.push_back({element.getResult()});
  }
  return object;
}

/// `made` stands for `op`. As a read of what is in lists and dicts of this
/// trace it needs no place among writes: it has them as they are by then.
void Tracer::dropReads(Operation *op, Operation *made) {
  if (isOrderedWrite(made))
    return;
  bool any = false;
  for (Value operand : op->getOperands()) {
    if (!isMutable(operand.getType()))
      continue;
    if (!lookup(operand).object)
      return;
    any = true;
  }
  if (any)
    made->removeAttr(KoilaDialect::kReadsAttr);
}

/// A copy of `op` on what its operands hold; null if one cannot be shown.
Operation *Tracer::copy(Operation *op) {
  IRMapping mapping;
  for (Value operand : op->getOperands()) {
    Value value = getValue(lookup(operand), Type(), op->getLoc());
    if (!value)
      return nullptr;
    mapping.map(operand, value);
  }
  Operation *made = builder.clone(*op, mapping);
  dropReads(op, made);
  infer(made);
  for (auto [old, result] :
       llvm::zip_equal(op->getResults(), made->getResults()))
    bind(old, {result});
  return made;
}

//===----------------------------------------------------------------------===//
// The whole
//===----------------------------------------------------------------------===//

/// The module without the function's body.
void Tracer::copyModule(ExecutionTrace &trace) {
  auto module = program->getParentOfType<ModuleOp>();
  auto copy = cast<ModuleOp>(module->cloneWithoutRegions());
  trace.module = copy;
  OpBuilder inside(copy.getContext());
  inside.createBlock(&copy.getBodyRegion());
  for (Operation &op : *module.getBody()) {
    if (&op != program.getOperation()) {
      inside.clone(op);
      continue;
    }
    function = cast<FunctionOpInterface>(
        inside.insert(program->cloneWithoutRegions()));
  }
  Block &entry = program.getFunctionBody().front();
  SmallVector<Location> locations;
  for (Value argument : entry.getArguments())
    locations.push_back(argument.getLoc());
  builder.createBlock(&function.getFunctionBody(), {}, entry.getArgumentTypes(),
                      locations);
}

/// What is in the list, tuple or dict that `value` is, which the caller gives.
Tracer::Cell Tracer::takeContainer(Value value, ArrayAttr keys) {
  Type type = value.getType();
  std::vector<ValueInfo> elements = getInfo(value).elements;
  auto dict = dyn_cast<DictType>(type);
  if (elements.empty() || !mayHoldTensors(type) ||
      !isa<koila::ListType, TupleType, DictType>(type) ||
      (dict && (!keys || keys.size() != elements.size())))
    return {value};
  Location loc = value.getLoc();
  Object *object = makeObject(type, dict                   ? Container::Dict
                                    : isa<TupleType>(type) ? Container::Tuple
                                                           : Container::List);
  for (size_t place = 0; place < elements.size(); ++place) {
    Attribute at = builder.getI64IntegerAttr(place);
    if (dict) {
      at = keys[place];
      object->elements.push_back({makeConstant(at, dict.getKeyType(), loc)});
    }
    Type inner = dict ? dict.getValueType() : Type();
    if (auto list = dyn_cast<koila::ListType>(type))
      inner = list.getElementType();
    else if (auto tuple = dyn_cast<TupleType>(type))
      inner = tuple.getType(place);
    auto element = ElementOp::create(builder, loc, inner, value, at);
    infer(element);
    object->elements.push_back(takeContainer(element.getResult(), {}));
  }
  // The caller has it, too.
  object->holders = 2;
  given.push_back(object);
  return {Value(), object};
}

/// The numbers in the list that `value` is, which the caller gives.
Tracer::Cell Tracer::takeNumbers(Value value, ArrayAttr numbers) {
  Type type = cast<koila::ListType>(value.getType()).getElementType();
  Object *object = makeObject(value.getType(), Container::List);
  for (Attribute number : numbers)
    object->elements.push_back({makeConstant(number, type, value.getLoc())});
  // The caller has it, too.
  object->holders = 2;
  return {Value(), object};
}

/// Whether `given` is a list of numbers, for an argument of that type.
static bool areNumbers(Attribute given, Type type) {
  auto list = dyn_cast<koila::ListType>(type);
  auto numbers = dyn_cast_if_present<ArrayAttr>(given);
  return list && numbers && llvm::all_of(numbers, [&](Attribute number) {
           auto typed = dyn_cast<TypedAttr>(number);
           return typed && typed.getType() == list.getElementType() &&
                  typed.getType().isIntOrFloat();
         });
}

/// What the caller gives, as far as it is known: numbers, and what is in lists,
/// tuples and dicts.
void Tracer::takeGiven(Block &entry) {
  for (auto [index, old] : llvm::enumerate(entry.getArguments())) {
    Attribute given = program.getArgAttr(index, KoilaDialect::kValueAttr);
    Value argument = lookup(old).value;
    if (auto number = dyn_cast_if_present<FloatAttr>(given);
        number && number.getType() == argument.getType())
      facts[argument].literal = number;
    if (auto number = dyn_cast_if_present<IntegerAttr>(given);
        number && number.getType() == argument.getType() &&
        argument.getType().isInteger(64))
      facts[argument].integer =
          DimExpr::constant(builder.getContext(), number.getInt());
    if (areNumbers(given, argument.getType())) {
      variables[old] = takeNumbers(argument, cast<ArrayAttr>(given));
      continue;
    }
    auto value = dyn_cast_or_null<DictionaryAttr>(given);
    variables[old] = takeContainer(
        argument, value ? value.getAs<ArrayAttr>("keys") : ArrayAttr());
  }
}

std::optional<ExecutionTrace> Tracer::run() {
  ExecutionTrace trace;
  copyModule(trace);
  indexWeights();
  findEnds();
  Block &entry = program.getFunctionBody().front();
  for (auto [old, argument] : llvm::zip_equal(
           entry.getArguments(), function.getFunctionBody().getArguments())) {
    facts[argument] = dims.lookup(old);
    variables[old] = {argument};
    if (program.getArgAttr(argument.getArgNumber(),
                           KoilaDialect::kRequiresGradAttr)) {
      markWanting(argument);
      surelyWanting.insert(argument);
    }
  }
  takeGiven(entry);
  ScopedDiagnosticHandler quiet(program->getContext(),
                                [](Diagnostic &) { return success(); });
  auto cells = execute(entry);
  if (!cells)
    return std::nullopt;
  Operation *terminator = entry.getTerminator();
  SmallVector<Value> results;
  for (auto [cell, old] : llvm::zip_equal(*cells, terminator->getOperands())) {
    results.push_back(getValue(cell, old.getType(), terminator->getLoc()));
    if (!results.back())
      return std::nullopt;
  }
  // What attributes hold by then stays, and what others have.
  for (const auto &[path, cell] : attributes)
    if (assigned.contains(path))
      keepAll(cell);
  for (Object *object : given)
    keepAll({Value(), object});
  for (const Cell &cell : kept)
    keepAll(cell);
  flush(terminator->getLoc());
  IRMapping mapping;
  for (auto [old, value] : llvm::zip_equal(terminator->getOperands(), results))
    mapping.map(old, value);
  builder.clone(*terminator, mapping);
  trace.function = function;
  trace.undecided = undecided;
  trace.forks = forks;
  trace.forked = forked;
  trace.operations = operations;
  trace.turnsRecordingOn = turnsRecordingOn;
  trace.unknownRecording = records && unknownRecording;
  trace.replaced = replaced;
  return trace;
}

std::optional<ExecutionTrace>
koila::traceExecution(FunctionOpInterface function, const DimAnalysis &dims,
                      CallSetting setting) {
  AttributeStates states;
  while (true) {
    Tracer tracer(function, dims, setting, states);
    auto trace = tracer.run();
    if (!trace)
      return std::nullopt;
    if (states.update(tracer.getLeft()))
      continue;
    trace->unsteady = states.getUnsteady();
    trace->late = states.getLate();
    return trace;
  }
}

std::vector<ExecutionTrace> koila::traceWays(FunctionOpInterface function,
                                             const DimAnalysis &dims,
                                             CallSetting setting) {
  // Each is analysed like any program; those that raise have no operations.
  constexpr unsigned kMostOperations = 1 << 15, kMostWays = 1 << 10;
  AttributeStates states;
  while (true) {
    std::vector<ExecutionTrace> ways;
    AttributeStates::LeftStates left;
    Choices choices;
    unsigned operations = 0, count = 0;
    do {
      if (++count > kMostWays)
        return {};
      Tracer tracer(function, dims, setting, states, &choices);
      auto trace = tracer.run();
      if (!trace && tracer.raises())
        continue;
      if (!trace || (operations += trace->operations) > kMostOperations)
        return {};
      if (ways.empty())
        left = tracer.getLeft();
      else
        AttributeStates::merge(left, tracer.getLeft());
      ways.push_back(std::move(*trace));
    } while (choices.advance());
    if (states.update(left))
      continue;
    for (ExecutionTrace &way : ways) {
      way.unsteady = states.getUnsteady();
      way.late = states.getLate();
    }
    return ways;
  }
}
