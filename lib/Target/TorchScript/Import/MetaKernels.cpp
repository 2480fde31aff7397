//===- MetaKernels.cpp - Operators run on shapes --------------------------===//
//
// Tensors of the Meta device have sizes, strides and a type, and no memory, so
// that an operator on them costs microseconds. Not every operator has such a
// kernel in C++.
//
//===----------------------------------------------------------------------===//

#include "MetaKernels.h"
#include "../Boundary/Operators.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <ATen/ATen.h>
#include <cmath>
#include <torch/csrc/jit/runtime/operator.h>

using namespace koila::torchscript;
namespace json = llvm::json;
namespace tj = torch::jit;

/// The value of an argument of that type; none if it cannot be one.
static std::optional<c10::IValue> decode(const json::Object &argument,
                                         c10::TypePtr type) {
  if (auto optional = type->cast<c10::OptionalType>())
    type = optional->getElementType();
  if (const json::Object *tensor = argument.getObject("tensor")) {
    std::vector<int64_t> dims;
    const json::Array *given = tensor->getArray("dims");
    auto dtype = tensor->getInteger("dtype");
    constexpr auto kEnd = static_cast<int64_t>(at::ScalarType::NumOptions);
    if (!given || !dtype || *dtype < 0 || *dtype >= kEnd)
      return std::nullopt;
    for (const json::Value &dim : *given)
      dims.push_back(dim.getAsInteger().value_or(0));
    if (const json::Array *steps = tensor->getArray("strides")) {
      std::vector<int64_t> strides;
      for (const json::Value &step : *steps)
        strides.push_back(step.getAsInteger().value_or(0));
      return at::empty_strided(
          dims, strides,
          at::device(at::kMeta).dtype(static_cast<at::ScalarType>(*dtype)));
    }
    return at::empty(
        dims, at::device(at::kMeta).dtype(static_cast<at::ScalarType>(*dtype)));
  }
  if (argument.getString("device"))
    return c10::Device(at::kMeta);
  if (auto text = argument.getString("float"))
    return c10::IValue(std::strtod(text->str().c_str(), nullptr));
  if (auto number = argument.getNumber("float"))
    return c10::IValue(*number);
  if (const json::Array *list = argument.getArray("list")) {
    auto listType = type->cast<c10::ListType>();
    c10::TypePtr element =
        listType ? listType->getElementType() : c10::AnyType::get();
    if (element->kind() == c10::TypeKind::SymIntType)
      element = c10::IntType::get();
    c10::impl::GenericList values(element);
    for (const json::Value &entry : *list) {
      const json::Object *object = entry.getAsObject();
      std::optional<c10::IValue> value =
          object ? decode(*object, element) : std::nullopt;
      if (!value)
        return std::nullopt;
      values.push_back(*value);
    }
    return c10::IValue(values);
  }
  if (const json::Array *dict = argument.getArray("dict")) {
    auto dictType = type->cast<c10::DictType>();
    if (!dictType)
      return std::nullopt;
    c10::impl::GenericDict values(dictType->getKeyType(), c10::AnyType::get());
    for (const json::Value &entry : *dict) {
      const json::Array *pair = entry.getAsArray();
      if (!pair || pair->size() != 2 || !(*pair)[0].getAsObject() ||
          !(*pair)[1].getAsObject())
        return std::nullopt;
      auto key = decode(*(*pair)[0].getAsObject(), dictType->getKeyType());
      auto value = decode(*(*pair)[1].getAsObject(), c10::AnyType::get());
      if (!key || !value)
        return std::nullopt;
      values.insert(std::move(*key), std::move(*value));
    }
    return c10::IValue(values);
  }
  const json::Value *literal = argument.get("value");
  if (!literal)
    return std::nullopt;
  if (literal->getAsNull())
    return c10::IValue();
  if (auto flag = literal->getAsBoolean())
    return c10::IValue(*flag);
  if (auto text = literal->getAsString())
    return c10::IValue(text->str());
  if (auto integer = literal->getAsInteger())
    return type->kind() == c10::TypeKind::FloatType
               ? c10::IValue(static_cast<double>(*integer))
               : c10::IValue(*integer);
  return std::nullopt;
}

static json::Value encode(const c10::IValue &value, bool structural) {
  auto literal = [&](json::Value given) {
    return json::Object{{"value", std::move(given)},
                        {"structural", structural}};
  };
  if (value.isBool())
    return literal(value.toBool());
  if (value.isInt())
    return literal(value.toInt());
  if (value.isString())
    return literal(value.toStringRef());
  if (value.isNone())
    return literal(nullptr);
  // JSON has no infinity.
  if (value.isDouble() && std::isfinite(value.toDouble()))
    return json::Object{{"float", value.toDouble()},
                        {"structural", structural}};
  if (value.isList()) {
    json::Array elements;
    for (const c10::IValue &element : value.toListRef())
      elements.push_back(encode(element, structural));
    return json::Object{{"list", std::move(elements)}};
  }
  if (!value.isTensor() || !value.toTensor().defined())
    return nullptr;
  const at::Tensor &tensor = value.toTensor();
  // A result in real memory does not follow from shapes.
  if (!tensor.is_meta())
    return nullptr;
  json::Array dims, strides;
  for (int64_t extent : tensor.sizes())
    dims.push_back(extent);
  for (int64_t stride : tensor.strides())
    strides.push_back(stride);
  return json::Object{{"dims", std::move(dims)},
                      {"strides", std::move(strides)},
                      {"dtype", static_cast<int64_t>(tensor.scalar_type())},
                      {"contiguous", tensor.is_contiguous()}};
}

/// The value with elements told from other numbers: where the operator declares
/// that it takes anything, there are elements.
static json::Value encodeMoved(const c10::IValue &value,
                               const c10::TypePtr &type) {
  if (type->kind() == c10::TypeKind::VarType)
    return json::Object{{"element", value.isInt() ? value.toInt() : -1}};
  if (auto optional = type->cast<c10::OptionalType>();
      optional && !value.isNone())
    return encodeMoved(value, optional->getElementType());
  auto encodeAll = [](const auto &values, auto getType) {
    json::Array encoded;
    for (size_t index = 0; index < values.size(); ++index)
      encoded.push_back(encodeMoved(values[index], getType(index)));
    return encoded;
  };
  if (auto list = type->cast<c10::ListType>(); list && value.isList())
    return json::Object{{"list", encodeAll(value.toListRef(), [&](size_t) {
                           return list->getElementType();
                         })}};
  if (auto tuple = type->cast<c10::TupleType>(); tuple && value.isTuple())
    return json::Object{
        {"tuple", encodeAll(value.toTupleRef().elements(),
                            [&](size_t at) { return tuple->elements()[at]; })}};
  if (auto dict = type->cast<c10::DictType>(); dict && value.isGenericDict()) {
    json::Array entries;
    for (const auto &entry : value.toGenericDict()) {
      entries.push_back(encodeMoved(entry.key(), dict->getKeyType()));
      entries.push_back(encodeMoved(entry.value(), dict->getValueType()));
    }
    return json::Object{{"dict", std::move(entries)}};
  }
  return encode(value, /*structural=*/true);
}

/// Whether what comes out does not depend on extents and numbers: what of a
/// tensor Meta ones share with those of a call (not the device, for one), how
/// long a list is, and whether something is None.
static bool isStructural(const c10::FunctionSchema &schema,
                         const json::Array &arguments) {
  static const llvm::StringSet<> kStructural = {
      "prim::dtype", "aten::dim", "aten::is_floating_point", "aten::is_complex",
      "aten::len"};
  auto takes = [&](llvm::StringRef kind) {
    return llvm::any_of(arguments, [&](const json::Value &argument) {
      const json::Object *object = argument.getAsObject();
      return object && object->get(kind);
    });
  };
  // Which of two values is the same object nobody sees here; None is.
  if (schema.name() == "aten::__is__" || schema.name() == "aten::__isnot__")
    return llvm::any_of(arguments, [](const json::Value &argument) {
      const json::Object *object = argument.getAsObject();
      const json::Value *value = object ? object->get("value") : nullptr;
      return value && value->getAsNull();
    });
  // The length of a tensor is an extent.
  return kStructural.contains(schema.name()) &&
         !(schema.name() == "aten::len" && takes("tensor"));
}

/// Operators that give tensors or lists, and those on numbers and texts.
static bool mayRun(const c10::FunctionSchema &schema,
                   const json::Array &arguments) {
  if (schema.is_mutable() || schema.returns().empty())
    return false;
  if (llvm::any_of(schema.returns(), [](const c10::Argument &result) {
        return result.type()->kind() == c10::TypeKind::TensorType ||
               result.type()->kind() == c10::TypeKind::ListType;
      }))
    return true;
  return schema.name() != "aten::__is__" &&
         schema.name() != "aten::__isnot__" && !arguments.empty() &&
         llvm::none_of(arguments, [](const json::Value &argument) {
           const json::Object *object = argument.getAsObject();
           return object && object->get("tensor");
         });
}

/// Operators on numbers and texts are TorchScript's own.
static std::shared_ptr<tj::Operator> findOperator(llvm::StringRef callee) {
  for (const auto &candidate : tj::getAllOperatorsFor(
           c10::Symbol::fromQualString(callee.split('.').first.str())))
    if (getQualifiedName(candidate->schema()) == callee)
      return candidate;
  return nullptr;
}

/// What a value of that type is to an operator that is declared for any type.
static llvm::StringRef getRole(const c10::TypePtr &type) {
  auto isVariable = [](const c10::TypePtr &type) {
    return type->kind() == c10::TypeKind::VarType;
  };
  if (!type->hasFreeVariables())
    return "none";
  if (isVariable(type))
    return "element";
  if (type->kind() == c10::TypeKind::ListType &&
      isVariable(type->containedType(0)))
    return "list";
  if (type->kind() == c10::TypeKind::DictType &&
      !type->containedType(0)->hasFreeVariables() &&
      isVariable(type->containedType(1)))
    return "dict";
  return "other";
}

/// Answers a request for what an operator does with elements.
static std::optional<json::Object> describe(const c10::FunctionSchema &schema) {
  auto getRoles = [](const std::vector<c10::Argument> &declared) {
    json::Array roles;
    for (const c10::Argument &argument : declared)
      roles.push_back(getRole(argument.type()));
    return roles;
  };
  bool generic =
      llvm::any_of(schema.arguments(), [](const c10::Argument &argument) {
        return argument.type()->hasFreeVariables();
      });
  if (!generic || schema.is_vararg() || schema.is_varret())
    return std::nullopt;
  return json::Object{{"arguments", getRoles(schema.arguments())},
                      {"results", getRoles(schema.returns())},
                      {"writes", schema.is_mutable()},
                      {"grows", schema.name() == "aten::append"}};
}

static std::string print(json::Value value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

std::optional<std::string>
koila::torchscript::runMeta(llvm::StringRef request) {
  auto parsed = json::parse(request);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return std::nullopt;
  }
  const json::Object *object = parsed->getAsObject();
  auto callee = object ? object->getString("callee") : std::nullopt;
  std::shared_ptr<tj::Operator> found =
      callee ? findOperator(*callee) : nullptr;
  if (!found)
    return std::nullopt;
  const json::Array *arguments = object->getArray("arguments");
  if (!arguments) {
    auto answer = describe(found->schema());
    return answer ? std::optional(print(std::move(*answer))) : std::nullopt;
  }
  const c10::FunctionSchema &schema = found->schema();
  bool moves = object->getBoolean("moves").value_or(false);
  bool structural = moves || isStructural(schema, *arguments);
  if (schema.is_vararg() || schema.arguments().size() != arguments->size() ||
      !(structural || mayRun(schema, *arguments)))
    return std::nullopt;
  tj::Stack stack;
  for (auto [argument, declared] : llvm::zip(*arguments, schema.arguments())) {
    const json::Object *given = argument.getAsObject();
    auto value = given ? decode(*given, declared.type()) : std::nullopt;
    if (!value)
      return std::nullopt;
    stack.push_back(std::move(*value));
  }
  at::NoGradGuard noGrad;
  // Containers are shared with the operator.
  tj::Stack given = stack;
  try {
    found->getOperation()(stack);
  } catch (const std::exception &) {
    return std::nullopt;
  }
  json::Array results;
  if (moves) {
    if (stack.size() != schema.returns().size())
      return std::nullopt;
    for (auto [value, declared] : llvm::zip(stack, schema.returns()))
      results.push_back(encodeMoved(value, declared.type()));
    json::Array after;
    for (auto [value, declared] : llvm::zip(given, schema.arguments()))
      after.push_back(encodeMoved(value, declared.type()));
    return print(json::Object{{"results", std::move(results)},
                              {"arguments", std::move(after)}});
  }
  for (const c10::IValue &value : stack)
    results.push_back(encode(value, structural));
  return print(std::move(results));
}
