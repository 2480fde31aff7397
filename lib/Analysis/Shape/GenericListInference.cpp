//===- GenericListInference.cpp - Operators on lists of anything ----------===//
//
// `sizes[-2:]` or `parts + [x]`: an operator that is declared for lists of any
// type cannot look at an element, only move it. So it is run on numbers that
// stand for the elements, and their facts, whatever they are, go where the
// numbers go.
//
//===----------------------------------------------------------------------===//

#include "GenericListInference.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace koila;
namespace json = llvm::json;
using Role = ElementFlow::Role;

static Role parseRole(const json::Value &role) {
  return llvm::StringSwitch<Role>(role.getAsString().value_or(""))
      .Case("none", Role::None)
      .Case("element", Role::Element)
      .Case("list", Role::List)
      .Case("dict", Role::Dict)
      .Default(Role::Other);
}

static std::optional<ElementFlow>
getElementFlow(TorchOpaqueOp op, const MetaKernelShapeSource &source) {
  auto answer = source.ask(json::Object{{"callee", op.getCallee()}});
  const json::Object *object = answer ? answer->getAsObject() : nullptr;
  const json::Array *arguments =
      object ? object->getArray("arguments") : nullptr;
  const json::Array *results = object ? object->getArray("results") : nullptr;
  if (!arguments || !results || arguments->size() != op.getArguments().size() ||
      results->size() != op->getNumResults())
    return std::nullopt;
  ElementFlow flow;
  llvm::append_range(flow.arguments, llvm::map_range(*arguments, parseRole));
  llvm::append_range(flow.results, llvm::map_range(*results, parseRole));
  flow.writes = object->getBoolean("writes").value_or(true);
  flow.grows = object->getBoolean("grows").value_or(false);
  return flow;
}

std::optional<ElementFlow> koila::getElementFlow(TorchOpaqueOp op) {
  const auto *source =
      op->getDialect()->getRegisteredInterface<MetaKernelShapeSource>();
  auto module = op->getParentOfType<ModuleOp>();
  if (!source || !module || !module->hasAttr(KoilaDialect::kArchiveAttr))
    return std::nullopt;
  return ::getElementFlow(op, *source);
}

namespace {
/// Elements by the numbers that stand for them.
class Elements {
public:
  json::Value add(ValueInfo info) {
    infos.push_back(std::move(info));
    return json::Object{{"value", static_cast<int64_t>(infos.size() - 1)}};
  }

  /// None if nobody knows what is in the list.
  std::optional<json::Value> addList(const ValueInfo &list) {
    json::Array numbers;
    for (const ValueInfo &element : list.elements)
      numbers.push_back(add(element));
    if (list.elements.empty() && list.list)
      for (DimExpr integer : *list.list) {
        ValueInfo element;
        element.integer = integer;
        numbers.push_back(add(element));
      }
    if (numbers.empty())
      return std::nullopt;
    return json::Object{{"list", std::move(numbers)}};
  }

  const ValueInfo *lookup(const json::Value &answer) const {
    const json::Object *object = answer.getAsObject();
    auto number = object ? object->getInteger("value") : std::nullopt;
    return number && *number >= 0 &&
                   *number < static_cast<int64_t>(infos.size())
               ? &infos[*number]
               : nullptr;
  }

  std::optional<ValueInfo> lookupList(const json::Value &answer) const {
    const json::Object *object = answer.getAsObject();
    const json::Array *numbers = object ? object->getArray("list") : nullptr;
    if (!numbers)
      return std::nullopt;
    ValueInfo list;
    list.list.emplace();
    for (const json::Value &number : *numbers) {
      const ValueInfo *element = lookup(number);
      if (!element)
        return std::nullopt;
      list.elements.push_back(*element);
      list.list->push_back(element->integer);
    }
    return list;
  }

private:
  std::vector<ValueInfo> infos;
};
} // namespace

static ValueInfo getLiteralInfo(Attribute literal) {
  ValueInfo info;
  if (auto integer = dyn_cast<IntegerAttr>(literal);
      integer && integer.getType().isInteger(64))
    info.integer = DimExpr::constant(literal.getContext(), integer.getInt());
  else if (auto list = dyn_cast<ArrayAttr>(literal))
    for (Attribute element : list)
      info.elements.push_back(getLiteralInfo(element));
  else
    info.literal = literal;
  return info;
}

/// The argument as a number or literal; none if it is not known.
static std::optional<json::Value> encode(Role role, Attribute argument,
                                         TorchOpaqueOp op, ShapeRule &rule,
                                         Elements &elements) {
  auto operand = dyn_cast<OperandAttr>(argument);
  if (operand &&
      (operand.getIndex() < 0 ||
       operand.getIndex() >= static_cast<int64_t>(op.getOperands().size())))
    return std::nullopt;
  ValueInfo info = operand ? rule.info(op.getOperands()[operand.getIndex()])
                           : getLiteralInfo(argument);
  if (role == Role::Element)
    return elements.add(std::move(info));
  if (role == Role::List)
    return elements.addList(info);
  if (role != Role::None)
    return std::nullopt;
  if (!operand)
    return encodeLiteral(argument);
  if (auto number = info.integer ? info.integer.getConstant() : std::nullopt)
    return json::Object{{"value", *number}};
  return std::nullopt;
}

bool koila::detail::inferGenericListElements(
    TorchOpaqueOp op, ShapeRule &rule, const MetaKernelShapeSource &source) {
  std::optional<ElementFlow> flow = ::getElementFlow(op, source);
  if (!flow || flow->writes)
    return false;
  Elements elements;
  json::Array arguments;
  for (auto [role, argument] :
       llvm::zip_equal(flow->arguments, op.getArguments())) {
    auto encoded = encode(role, argument, op, rule, elements);
    if (!encoded)
      return false;
    arguments.push_back(std::move(*encoded));
  }
  auto answer = source.ask(json::Object{{"callee", op.getCallee()},
                                        {"arguments", std::move(arguments)}});
  const json::Array *results = answer ? answer->getAsArray() : nullptr;
  if (!results || results->size() != flow->results.size())
    return false;
  // Whether two elements are the same object, the numbers do not say.
  bool onlyLists = !llvm::is_contained(flow->arguments, Role::Element);
  for (auto [index, role] : llvm::enumerate(flow->results)) {
    const json::Value &result = (*results)[index];
    if (role == Role::Element) {
      if (const ValueInfo *element = elements.lookup(result))
        rule.setInfo(index, *element);
    } else if (role == Role::List) {
      auto type = dyn_cast<koila::ListType>(op->getResult(index).getType());
      auto list = elements.lookupList(result);
      if (!type || !list)
        continue;
      if (!type.getElementType().isInteger(64))
        list->list.reset();
      rule.setInfo(index, std::move(*list));
    } else if (role == Role::None && onlyLists) {
      const json::Object *object = result.getAsObject();
      if (auto length = object ? object->getInteger("value") : std::nullopt)
        rule.setInteger(index, rule.constant(*length));
    }
  }
  return true;
}

std::optional<json::Object> koila::detail::moveElements(TorchOpaqueOp op,
                                                        json::Array arguments) {
  const auto *source =
      op->getDialect()->getRegisteredInterface<MetaKernelShapeSource>();
  if (!source)
    return std::nullopt;
  auto answer = source->ask(json::Object{{"callee", op.getCallee()},
                                         {"moves", true},
                                         {"arguments", std::move(arguments)}});
  json::Object *object = answer ? answer->getAsObject() : nullptr;
  return object ? std::optional(std::move(*object)) : std::nullopt;
}
