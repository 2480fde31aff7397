//===- ImportNodes.cpp - One TorchScript node -----------------------------===//
//
// There is no list of operators here: an operator whose schema is recorded in
// the dialect becomes that operation, argument by argument; every other one
// becomes the opaque operator.
//
// In-place operators become functional ones whose result all later uses of
// the written tensor read. That is the same program only if nothing else sees
// the storage afterwards, which is checked here; where something does, the
// storage stays a reference, and marks keep what touches it in order.
//
//===----------------------------------------------------------------------===//

#include "../Boundary/DiagnosticJSON.h"
#include "../Boundary/Locations.h"
#include "../Boundary/SchemaComparison.h"
#include "Import.h"
#include "Lifetimes.h"
#include "ListViews.h"
#include "ProgramDevice.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Analysis/Storage.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/CustomOperators.h"
#include "koila/Target/TorchScript/Types.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringSet.h"
#include <ATen/core/dispatch/Dispatcher.h>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
using llvm::Twine;

//===----------------------------------------------------------------------===//
// What cannot be imported
//===----------------------------------------------------------------------===//

void FunctionImporter::checkSupported(Node *node) {
  std::string kind = node->kind().toQualString();
  if (!node->blocks().empty())
    refuse(location, Twine("'") + kind + "' is not supported");
  if (node->kind() == prim::PythonOp ||
      node->kind().toUnqualString() == std::string("IgnoredPythonOp"))
    refuse(location, Twine("'") + kind +
                         "' runs Python, which no TorchScript file can carry");
  if (node->maybeSchema())
    return;
  // Nodes that the interpreter knows without a schema.
  static const llvm::StringSet<> known = {
      "prim::TupleConstruct", "prim::TupleUnpack",   "prim::TupleIndex",
      "prim::TupleSlice",     "prim::ListUnpack",    "prim::DictConstruct",
      "prim::unchecked_cast", "prim::Uninitialized", "prim::CreateObject",
      "prim::isinstance",     "prim::Enter",         "prim::Exit",
      "prim::tolist",         "prim::SetAttr",       "prim::CallMethod"};
  if (!known.contains(kind))
    refuse(location, Twine("'") + kind + "' is not supported yet");
}

//===----------------------------------------------------------------------===//
// Writes
//===----------------------------------------------------------------------===//

/// Whether `inner` is `outer` or inside of it.
static bool isInside(const tj::Block *inner, const tj::Block *outer) {
  for (; inner; inner = inner->owningNode() ? inner->owningNode()->owningBlock()
                                            : nullptr)
    if (inner == outer)
      return true;
  return false;
}

/// Whether the operator changes what dims a tensor has, in place.
static bool changesDims(const c10::FunctionSchema &schema) {
  auto handle = c10::Dispatcher::singleton().findSchema(
      {schema.name(), schema.overload_name()});
  if (!handle || !schema.is_mutable())
    return false;
  return handle->hasTag(at::Tag::inplace_view) ||
         schema.name() == "aten::set_" || schema.name() == "aten::set_data" ||
         llvm::StringRef(schema.name()).starts_with("aten::resize_");
}

bool FunctionImporter::isSeenElsewhere(const TorchValue *written, Node *node) {
  if (!aliases.getOwner(written).empty())
    return true;
  // Inside of a block that runs several times, or not at all, what comes from
  // outside may be read again, before or after.
  for (const TorchValue *member : aliases.getMembers(written)) {
    bool carried = member->node()->kind() == prim::Param &&
                   member->node()->owningBlock() == node->owningBlock();
    if (carried ||
        !isInside(member->node()->owningBlock(), node->owningBlock()))
      return true;
  }
  return aliases.findLaterUse(written, node) != nullptr;
}

FunctionImporter::Write FunctionImporter::getWrite(Node *node) {
  const c10::FunctionSchema *schema = node->maybeSchema();
  Write write;
  if (!schema)
    return write;
  bool statistics = writesStatistics(node);
  if (!schema->is_mutable() && !statistics)
    return write;
  llvm::SmallVector<const TorchValue *> written;
  for (size_t i = 0; i < schema->arguments().size(); ++i) {
    const c10::Argument &argument = schema->arguments()[i];
    const c10::AliasInfo *alias = argument.alias_info();
    bool isStatistic =
        statistics && llvm::StringRef(argument.name()).starts_with("running_");
    std::optional<c10::IValue> literal = getLiteral(node->inputs()[i]);
    if (literal && literal->isNone())
      continue;
    if ((alias && alias->isWrite()) || isStatistic)
      written.push_back(node->inputs()[i]);
  }
  write.any = !written.empty();
  // A result takes the place of one tensor; other writes keep their order.
  bool tied = written.size() == 1 && !statistics &&
              written[0]->type()->kind() == c10::TypeKind::TensorType &&
              node->outputs().size() == 1 &&
              node->output()->type()->kind() == c10::TypeKind::TensorType &&
              !isOrdered(written[0]) && !isSeenElsewhere(written[0], node);
  if (tied) {
    write.tied = written[0];
    return write;
  }
  if (changesDims(*schema))
    refuse(location,
           Twine("'") + getQualifiedName(*schema) +
               "' changes the dims of a tensor in place that is used "
               "elsewhere, too, which is not supported; use the operator that "
               "returns a new tensor");
  llvm::append_range(seenWrites, written);
  // An `out=` tensor takes the dims of the result: from here on it is that.
  if (written.size() == 1 && node->outputs().size() == 1 &&
      schema->arguments().back().is_out() &&
      written[0]->type()->kind() == c10::TypeKind::TensorType) {
    aliases.identify(node->output(), written[0]);
    for (const TorchValue *same : aliases.getIdentical(written[0]))
      if (same != node->output() && aliases.getOwner(same).empty() &&
          same->node()->owningBlock() != node->owningBlock())
        refuse(location, Twine("'") + getQualifiedName(*schema) +
                             "' gives a tensor from outside of this branch or "
                             "loop new dims, which is not supported");
    write.out = written[0];
  }
  return write;
}

bool FunctionImporter::isOrdered(const TorchValue *value) const {
  return ordered.values.contains(value);
}

bool FunctionImporter::isChanging(const TorchValue *value) const {
  return ordered.changing.contains(value);
}

void FunctionImporter::markOrdered(Node *node, Operation *op, bool writes) {
  if (isa<UninitializedOp>(op))
    return;
  bool touches = orderAll;
  // A container of tensors that are written is itself no more than a value.
  if (isa<ConstructOp, ElementOp, UnpackOp, UncheckedCastOp>(op)) {
    for (const TorchValue *value : node->inputs())
      touches |= isChanging(value);
    for (const TorchValue *value : node->outputs())
      touches |= isChanging(value);
    if (touches)
      op->setAttr(KoilaDialect::kReadsAttr, builder.getUnitAttr());
    return;
  }
  for (const TorchValue *input : node->inputs()) {
    touches |= isOrdered(input);
    // A list that only this operation sees has no operation of its own.
    if (input->node()->kind() == prim::ListConstruct)
      for (const TorchValue *element : input->node()->inputs())
        touches |= isOrdered(element);
  }
  for (const TorchValue *output : node->outputs())
    touches |= isOrdered(output);
  // What an operation updates beside its results it says itself.
  if (writes && getUpdates(op).empty())
    op->setAttr(KoilaDialect::kWritesAttr, builder.getUnitAttr());
  else if (touches && isa<MemoryEffectOpInterface>(op))
    op->setAttr(KoilaDialect::kReadsAttr, builder.getUnitAttr());
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

/// The form of a literal that attributes of operations have; null if there is
/// none.
static Attribute getArgumentAttr(c10::TypePtr type, Attribute literal,
                                 MLIRContext *context) {
  if (auto optional = type->cast<c10::OptionalType>())
    type = optional->getElementType();
  Builder builder(context);
  auto list = dyn_cast<ArrayAttr>(literal);
  if (type->kind() != c10::TypeKind::ListType)
    return list ? Attribute() : literal;
  if (!list)
    return {};
  c10::TypeKind kind = type->containedType(0)->kind();
  // A list of any one kind of number, as torch.tensor takes it.
  if (kind == c10::TypeKind::VarType && !list.empty())
    kind = isa<BoolAttr>(list[0])      ? c10::TypeKind::BoolType
           : isa<IntegerAttr>(list[0]) ? c10::TypeKind::IntType
                                       : c10::TypeKind::FloatType;
  switch (kind) {
  case c10::TypeKind::IntType:
  case c10::TypeKind::SymIntType: {
    llvm::SmallVector<int64_t> elements;
    for (Attribute element : list) {
      auto integer = dyn_cast<IntegerAttr>(element);
      if (!integer)
        return {};
      elements.push_back(integer.getInt());
    }
    return builder.getDenseI64ArrayAttr(elements);
  }
  case c10::TypeKind::FloatType: {
    llvm::SmallVector<double> elements;
    for (Attribute element : list) {
      auto number = dyn_cast<FloatAttr>(element);
      if (!number)
        return {};
      elements.push_back(number.getValueAsDouble());
    }
    return builder.getDenseF64ArrayAttr(elements);
  }
  case c10::TypeKind::BoolType: {
    llvm::SmallVector<bool> elements;
    for (Attribute element : list) {
      auto flag = dyn_cast<BoolAttr>(element);
      if (!flag)
        return {};
      elements.push_back(flag.getValue());
    }
    return builder.getDenseBoolArrayAttr(elements);
  }
  default:
    return {};
  }
}

/// Whether `device` is that of a tensor, or an argument, which the guard
/// compares with the call that was described. What a program computes may be
/// any device.
static bool hasKnownDevice(Value device) {
  while (auto cast = device.getDefiningOp<UncheckedCastOp>())
    device = cast->getOperand(0);
  if (auto argument = dyn_cast<BlockArgument>(device))
    return isa<FunctionOpInterface>(argument.getOwner()->getParentOp());
  return isa_and_nonnull<DeviceOp>(device.getDefiningOp());
}

/// What stands in an attribute for a computed argument as a whole; null if no
/// attribute of that type can.
Attribute FunctionImporter::getMarker(c10::TypePtr type,
                                      const TorchValue *value) {
  auto it = values.find(value);
  if (it == values.end())
    return {};
  if (auto optional = type->cast<c10::OptionalType>())
    type = optional->getElementType();
  Type found = it->second.getType();
  switch (type->kind()) {
  case c10::TypeKind::IntType:
  case c10::TypeKind::SymIntType:
    return found.isInteger(64)
               ? Attribute(builder.getI64IntegerAttr(ShapedType::kDynamic))
               : Attribute();
  case c10::TypeKind::NumberType:
    return found.isInteger(64) || found.isF64() || found.isInteger(1) ||
                   found == convertType(c10::NumberType::get(), context)
               ? Attribute(DynamicAttr::get(context))
               : Attribute();
  case c10::TypeKind::ListType: {
    auto list = dyn_cast<koila::ListType>(found);
    return list && list.getElementType().isInteger(64)
               ? Attribute(builder.getDenseI64ArrayAttr(ShapedType::kDynamic))
               : Attribute();
  }
  case c10::TypeKind::DeviceObjType:
    return hasKnownDevice(it->second) ? Attribute(DynamicAttr::get(context))
                                      : Attribute();
  default:
    return {};
  }
}

/// Per element of the list of tensors that `node` returns, the value that is
/// it, or null. Empty if the node returns no such list; none if the list is
/// used otherwise than by taking its elements.
std::optional<llvm::SmallVector<const torch::jit::Value *>>
FunctionImporter::getListElements(Node *node) {
  llvm::SmallVector<const TorchValue *> elements;
  if (node->outputs().size() != 1)
    return elements;
  const TorchValue *output = node->output();
  // LibTorch gives the list of aten::chunk the type of a tensor.
  bool unpacked = output->uses().size() == 1 &&
                  output->uses()[0].user->kind() == prim::ListUnpack;
  if (!unpacked) {
    bool isList =
        output->type()->kind() == c10::TypeKind::ListType &&
        output->type()->containedType(0)->kind() == c10::TypeKind::TensorType;
    return isList ? std::nullopt : std::optional(elements);
  }
  // Integers, the sizes of a tensor for one, are a list of their own.
  if (output->type()->kind() == c10::TypeKind::ListType &&
      output->type()->containedType(0)->kind() != c10::TypeKind::TensorType)
    return elements;
  const Node *unpack = output->uses()[0].user;
  elements.append(unpack->outputs().begin(), unpack->outputs().end());
  if (elements.empty())
    return std::nullopt;
  return elements;
}

Operation *FunctionImporter::importOperator(Node *node,
                                            const OperatorInfo &info,
                                            bool inPlace) {
  const std::vector<c10::Argument> &arguments = info.schema->arguments();
  if (arguments.size() != node->inputs().size())
    return nullptr;
  // Decide first, build afterwards: what is built for an operation that does
  // not come about would stay in the program.
  llvm::SmallVector<NamedAttribute> attrs;
  llvm::SmallVector<std::pair<unsigned, const TorchValue *>> tensors;
  llvm::SmallVector<const TorchValue *> dynamic;
  llvm::SmallVector<int32_t> segments;
  for (auto [argument, input] : llvm::zip(arguments, node->inputs())) {
    if (info.isAttribute(argument.name())) {
      if (Attribute literal = getLiteralAttr(input)) {
        if (isa<UnitAttr>(literal))
          continue;
        Attribute attr = getArgumentAttr(argument.type(), literal, context);
        if (!attr)
          return nullptr;
        attrs.emplace_back(builder.getStringAttr(argument.name()), attr);
        continue;
      }
      if (!info.takesDynamic)
        return nullptr;
      if (Attribute marker = getMarker(argument.type(), input)) {
        dynamic.push_back(input);
        attrs.emplace_back(builder.getStringAttr(argument.name()), marker);
        continue;
      }
      // The elements of a list of integers may be computed one by one.
      if (input->node()->kind() != prim::ListConstruct || isChanging(input))
        return nullptr;
      llvm::SmallVector<int64_t> elements;
      for (const TorchValue *element : input->node()->inputs()) {
        std::optional<c10::IValue> literal = getLiteral(element);
        elements.push_back(literal && literal->isInt() ? literal->toInt()
                                                       : ShapedType::kDynamic);
        if (elements.back() == ShapedType::kDynamic) {
          auto it = values.find(element);
          if (it == values.end() || !it->second.getType().isInteger(64))
            return nullptr;
          dynamic.push_back(element);
        }
      }
      attrs.emplace_back(builder.getStringAttr(argument.name()),
                         builder.getDenseI64ArrayAttr(elements));
      continue;
    }
    segments.push_back(0);
    llvm::SmallVector<bool> mask;
    bool masked = info.isAttribute(argument.name() + "_mask");
    auto addTensor = [&](const TorchValue *value) {
      if (value->type()->kind() != c10::TypeKind::TensorType) {
        const ModuleAttribute *attribute = getModuleAttribute(value);
        if (!attribute || !attribute->value.isTensor())
          return false;
      }
      tensors.emplace_back(segments.size() - 1, value);
      ++segments.back();
      return true;
    };
    if (input->type()->kind() == c10::TypeKind::ListType) {
      // The elements of a list that only this operator sees.
      if (input->node()->kind() != prim::ListConstruct || isChanging(input))
        return nullptr;
      for (const TorchValue *element : input->node()->inputs()) {
        std::optional<c10::IValue> literal = getLiteral(element);
        mask.push_back(!(literal && literal->isNone()));
        if ((mask.back() || !masked) && !addTensor(element))
          return nullptr;
      }
      if (masked)
        attrs.emplace_back(builder.getStringAttr(argument.name() + "_mask"),
                           builder.getDenseBoolArrayAttr(mask));
      continue;
    }
    std::optional<c10::IValue> literal = getLiteral(input);
    if (literal && literal->isNone())
      continue;
    if (!addTensor(input))
      return nullptr;
  }

  OperationState state(location, info.name);
  for (auto [segment, value] : tensors)
    state.operands.push_back(getTensor(value));
  for (const TorchValue *value : dynamic)
    state.operands.push_back(getValue(value));
  if (info.hasSegments) {
    if (info.takesDynamic)
      segments.push_back(dynamic.size());
    attrs.emplace_back(builder.getStringAttr("operandSegmentSizes"),
                       builder.getDenseI32ArrayAttr(segments));
  }
  state.addAttributes(attrs);
  auto elements = getListElements(node);
  if (!elements)
    return nullptr;
  if (elements->empty())
    for (const TorchValue *output : node->outputs())
      state.addTypes(convertType(output->type(), context));
  for (unsigned i = 0; i < elements->size(); ++i)
    state.addTypes(getUnknownTensorType(context));
  Operation *op = builder.create(state);

  // What the operation does not describe stays opaque; so does what its
  // verifier refuses, for example a computed element of a list that must be
  // literal.
  bool valid;
  {
    ScopedDiagnosticHandler quiet(context, [](Diagnostic &) {});
    valid = succeeded(verify(op, /*verifyRecursively=*/false));
  }
  auto interface = cast<TorchOperatorInterface>(op);
  if (!valid || !interface.isFaithful()) {
    op->erase();
    return nullptr;
  }
  interface.permitTie(inPlace);
  return op;
}

Operation *FunctionImporter::createOpaque(llvm::StringRef callee,
                                          llvm::ArrayRef<Attribute> arguments,
                                          ValueRange operands, Effects effects,
                                          TypeRange results) {
  return TorchOpaqueOp::create(builder, location, results,
                               builder.getStringAttr(callee), operands,
                               builder.getArrayAttr(arguments),
                               EffectsAttr::get(context, effects), ArrayAttr());
}

Attribute
FunctionImporter::encodeOperand(const TorchValue *value, bool literalLists,
                                llvm::SmallVectorImpl<Value> &operands) {
  Attribute literal = getLiteralAttr(value);
  if (literal && (literalLists || !isa<ArrayAttr>(literal)))
    return literal;
  operands.push_back(getTensor(value));
  return OperandAttr::get(context, operands.size() - 1);
}

static Effects getEffects(const tj::Node *node) {
  const c10::FunctionSchema *schema = node->maybeSchema();
  if (!schema)
    return Effects::None;
  if (node->hasSideEffects())
    return Effects::Unknown;
  if (schema->is_mutable() || writesStatistics(node))
    return Effects::Write;
  if (node->isNondeterministic())
    return Effects::Rng;
  return Effects::None;
}

/// Whether what the node gives are lists of parts of its operands. Of a single
/// tensor a schema does not say whether it is copied.
static bool makesViews(const tj::Node &node) {
  if (sharesSilently(node))
    return true;
  const c10::FunctionSchema *schema = node.maybeSchema();
  return schema && !schema->is_vararg() &&
         llvm::all_of(schema->returns(), [](const c10::Argument &result) {
           return result.type()->kind() == c10::TypeKind::ListType &&
                  result.alias_info();
         });
}

/// An operator whose rules were registered; null if none were.
Operation *FunctionImporter::importCustom(Node *node) {
  const c10::FunctionSchema *schema = node->maybeSchema();
  const auto *rules = context->getLoadedDialect<KoilaDialect>()
                          ->getRegisteredInterface<CustomOperatorSource>();
  if (!schema || !rules || !rules->lookup(getQualifiedName(*schema)))
    return nullptr;
  llvm::SmallVector<Value> operands;
  llvm::SmallVector<Attribute> arguments;
  for (const TorchValue *input : node->inputs())
    arguments.push_back(encodeOperand(input, /*literalLists=*/true, operands));
  llvm::SmallVector<Type> types;
  for (const TorchValue *output : node->outputs())
    types.push_back(convertType(output->type(), context));
  return CustomOp::create(builder, location, types,
                          builder.getStringAttr(getQualifiedName(*schema)),
                          operands, builder.getArrayAttr(arguments));
}

Operation *FunctionImporter::importOpaque(Node *node) {
  const c10::FunctionSchema *schema = node->maybeSchema();
  std::string callee =
      schema ? getQualifiedName(*schema) : node->kind().toQualString();
  llvm::SmallVector<Value> operands;
  llvm::SmallVector<Attribute> arguments;
  for (const TorchValue *input : node->inputs())
    arguments.push_back(encodeOperand(
        input, /*literalLists=*/schema && !schema->is_vararg(), operands));
  llvm::SmallVector<Type> types;
  for (const TorchValue *output : node->outputs())
    types.push_back(convertType(output->type(), context));
  Operation *op =
      createOpaque(callee, arguments, operands, getEffects(node), types);
  if (Attribute attributes = getNodeAttributes(node))
    op->setAttr(kNodeAttributesAttr, attributes);

  // Per result, the operands that it may share storage with.
  aliases.visit(node, /*trustSchema=*/false);
  bool any = false;
  llvm::SmallVector<Attribute> sets;
  for (const TorchValue *output : node->outputs()) {
    llvm::SmallVector<Attribute> set;
    for (auto [argument, input] : llvm::zip(arguments, node->inputs())) {
      auto operand = dyn_cast<OperandAttr>(argument);
      if (operand && mayHoldTensor(input->type()) &&
          mayHoldTensor(output->type()) && aliases.inSameClass(output, input))
        set.push_back(builder.getI64IntegerAttr(operand.getIndex()));
    }
    any |= !set.empty();
    sets.push_back(builder.getArrayAttr(set));
  }
  if (any)
    op->setAttr("aliases", builder.getArrayAttr(sets));
  if (any && makesViews(*node))
    op->setAttr(kViewsAttr, builder.getUnitAttr());
  return op;
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

/// Whether the results of `op` are the elements of the list `node` returns.
static bool unpacksList(const tj::Node *node, Operation *op) {
  return isa<TorchOperatorInterface>(op) && node->outputs().size() == 1 &&
         node->output()->uses().size() == 1 &&
         node->output()->uses()[0].user->kind() == prim::ListUnpack &&
         isa<TensorType>(op->getResult(0).getType());
}

void FunctionImporter::uniteByStorageRule(Node *node, Operation *op) {
  auto memory = dyn_cast<MemoryRuleInterface>(op);
  if (!memory)
    return;
  auto noFacts = [](Value) { return ValueInfo(); };
  StorageRule rule(op, noFacts);
  memory.describeStorage(rule);
  bool isList = unpacksList(node, op);
  for (auto [index, fact] : llvm::enumerate(rule.getResults())) {
    const TorchValue *output = node->outputs()[isList ? 0 : index];
    if (fact.kind == StorageFact::Kind::New) {
      // With strides of zero, elements share a place.
      if (!isa<EmptyStridedOp, NewEmptyStridedOp>(op))
        aliases.setNew(output);
      continue;
    }
    // Operands that are elements of a list have no value of the node to
    // themselves; the list shares storage with each.
    bool known = false;
    for (const TorchValue *input : node->inputs()) {
      if (!fact.operand || findValue(input) != fact.operand)
        continue;
      aliases.setView(output, input);
      known = true;
    }
    if (known)
      continue;
    for (const TorchValue *input : node->inputs())
      if (mayHoldTensor(input->type()))
        aliases.unite(output, input);
  }
}

void FunctionImporter::defineResults(Node *node, Operation *op,
                                     const TorchValue *written) {
  // In the location: it is no part of what the operation does, and survives
  // what passes do to operations.
  NamedAttribute index(kNodeAttr,
                       builder.getI64IntegerAttr(nodeIndices.at(node)));
  op->setLoc(
      FusedLoc::get(context, op->getLoc(), builder.getDictionaryAttr(index)));
  if (unpacksList(node, op)) {
    // The elements of a list; the node that unpacks it is done with.
    auto elements = getListElements(node);
    for (auto [element, value] : llvm::zip(*elements, op->getResults()))
      values[element] = value;
    return;
  }
  for (auto [output, value] : llvm::zip(node->outputs(), op->getResults()))
    values[output] = value;
  if (!written)
    return;
  // From here on the written tensor has the new value.
  aliases.identify(node->output(), written);
  for (const TorchValue *same : aliases.getIdentical(written))
    values[same] = op->getResult(0);
}

Operation *FunctionImporter::importContainer(Node *node) {
  c10::Symbol kind = node->kind();
  if (kind == prim::TupleConstruct)
    return construct(node, Container::Tuple).getDefiningOp();
  if (kind == prim::DictConstruct)
    return construct(node, Container::Dict).getDefiningOp();
  if (kind == prim::Uninitialized)
    return UninitializedOp::create(
        builder, location, convertType(node->output()->type(), context));
  if (kind == prim::unchecked_cast)
    return UncheckedCastOp::create(builder, location,
                                   convertType(node->output()->type(), context),
                                   getTensor(node->input()));
  llvm::SmallVector<Type> types;
  for (const TorchValue *output : node->outputs())
    types.push_back(convertType(output->type(), context));
  if (kind == prim::TupleUnpack || kind == prim::ListUnpack)
    return UnpackOp::create(builder, location, types, getValue(node->input()));
  if ((kind != prim::TupleIndex && kind != c10::aten::__getitem__) ||
      node->inputs().size() != 2)
    return nullptr;
  // Of a list of numbers, arithmetic on sizes takes care.
  if (!mayHoldTensor(node->output()->type()))
    return nullptr;
  auto at = getLiteralAttr(node->input(1));
  if (!isa_and_nonnull<IntegerAttr, StringAttr>(at))
    return nullptr;
  return ElementOp::create(builder, location, types.front(),
                           getValue(node->input(0)), at);
}

Operation *FunctionImporter::importLeaf(Node *node) {
  if (node->kind() == kReadGradient) {
    Value leaf = getTensor(node->input());
    return leaf.getDefiningOp<LeafOp>()
               ? LeafGradOp::create(builder, location,
                                    getUnknownTensorType(context), leaf)
                     .getOperation()
               : nullptr;
  }
  if (node->kind() != kRequireGradient)
    return nullptr;
  // Of a tensor that nobody else has.
  const TorchValue *detached = node->input(0);
  auto flag = getLiteral(node->input(1));
  if (detached->node()->kind() != c10::aten::detach ||
      detached->uses().size() != 1 || !flag || !flag->isBool() ||
      !flag->toBool())
    return nullptr;
  auto detach = getTensor(detached).getDefiningOp<DetachOp>();
  if (!detach || !detach->use_empty())
    return nullptr;
  auto leaf = LeafOp::create(builder, location, getUnknownTensorType(context),
                             detach.getSelf());
  values.erase(detached);
  detach.erase();
  return leaf;
}

/// One value is itself; of two values nobody knows.
bool FunctionImporter::importIdentity(Node *node) {
  bool is = node->kind() == c10::aten::__is__;
  if ((!is && node->kind() != c10::aten::__isnot__) ||
      node->input(0) != node->input(1))
    return false;
  values[node->output()] = getConstantNumber(builder.getBoolAttr(is));
  return true;
}

/// Whether a program may name the device: tensors are on the CPU in a file.
static bool mayName(c10::Device device, MLIRContext *context) {
  auto *dialect = context->getLoadedDialect<KoilaDialect>();
  const auto *own = dialect->getRegisteredInterface<ProgramDevice>();
  return device.is_cpu() || (own && device == own->device);
}

void FunctionImporter::importNode(Node *node) {
  if (node->kind() == prim::Constant) {
    std::optional<c10::IValue> literal = tj::toIValue(node->output());
    if (literal && literal->isDevice() &&
        !mayName(literal->toDevice(), context))
      refuse(location, Twine("the program itself names device '") +
                           literal->toDevice().str() +
                           "', and runs on the one of its weights and inputs; "
                           "use the device of an argument (x.device) in its "
                           "place, and save it again");
    if (literal && literal->isTensor())
      aliases.setKnown(node->output(), "a constant", literal->toTensor());
    else if (isShared(node->output()->type()))
      aliases.setForeign(node->output(), "a constant");
    return;
  }
  if (node->kind() == prim::GetAttr)
    return importGetAttr(node);
  if (node->kind() == prim::ListConstruct) {
    aliases.visit(node, /*trustSchema=*/true);
    // A list that changes is made once, where the program makes it.
    if (isChanging(node->output()))
      getValue(node->output());
    return;
  }
  // Nodes without results have no place of their own in an archive.
  for (size_t i = node->inputs().size(); i > 0 && isa<UnknownLoc>(location);
       --i)
    location = locations.read(node->inputs()[i - 1]->node());
  if (importRegion(node))
    return;
  checkSupported(node);
  if (node->kind() == prim::ListUnpack && !node->outputs().empty() &&
      values.count(node->outputs()[0])) {
    aliases.visit(node, /*trustSchema=*/true);
    return;
  }
  bool ordersResult =
      llvm::any_of(node->outputs(),
                   [&](const TorchValue *output) { return isOrdered(output); });
  if (!ordersResult &&
      (importInteger(node) || importSize(node) || importIdentity(node)))
    return;

  Operation *container = importContainer(node);
  if (!container)
    container = importSpecial(node);
  if (!container)
    container = importLeaf(node);
  if (container) {
    // Nobody takes apart, nor writes to, what is returned next.
    bool isResult = node->kind() == prim::TupleConstruct &&
                    node->next()->kind() == prim::Return &&
                    node->owningBlock() == result.graph.graph->block();
    if (!isResult)
      aliases.visit(node, /*trustSchema=*/true);
    markOrdered(node, container, /*writes=*/false);
    return defineResults(node, container, /*written=*/nullptr);
  }

  Write write = getWrite(node);
  const c10::FunctionSchema *schema = node->maybeSchema();
  Operation *op = importCustom(node);
  if (schema && !op) {
    if (auto match = operators.lookup(getQualifiedName(*schema))) {
      // koila's own are compared by its tests.
      if (isForeign(*match.info))
        for (const std::string &difference :
             compareSchema(*match.info, match.inPlace, *schema))
          refuse(location, difference + "; build the extension for the library "
                                        "of operators that is loaded");
      op = importOperator(node, *match.info, match.inPlace);
    }
  }
  if (op) {
    aliases.visit(node, /*trustSchema=*/true);
    uniteByStorageRule(node, op);
  } else {
    op = importOpaque(node);
  }
  if (changesNothing(node, result.graph.profiles))
    op->setAttr(kIdleAttr, builder.getUnitAttr());
  markOrdered(node, op, write.any && !write.tied);
  defineResults(node, op, write.tied);
  // Not from inside of a branch or loop: what comes after it is outside.
  if (write.out)
    for (const TorchValue *same : aliases.getIdentical(write.out))
      if (same->node()->owningBlock() == node->owningBlock())
        values[same] = op->getResult(0);
}
