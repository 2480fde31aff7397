//===- Types.cpp - TorchScript types as MLIR types ------------------------===//

#include "koila/Target/TorchScript/Types.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"
#include <ATen/core/Tensor.h>
#include <regex>
#include <torch/csrc/jit/mobile/type_parser.h>

using namespace mlir;
using namespace koila;
namespace ts = koila::torchscript;

Type ts::getUnknownTensorType(MLIRContext *context) {
  return UnrankedTensorType::get(AnyType::get(context));
}

Type ts::convertType(const c10::TypePtr &type, MLIRContext *context,
                     NamedTuples named) {
  auto convert = [&](const c10::TypePtr &part) {
    return convertType(part, context, named);
  };
  switch (type->kind()) {
  case c10::TypeKind::TensorType:
    return getUnknownTensorType(context);
  case c10::TypeKind::IntType:
  case c10::TypeKind::SymIntType:
    return IntegerType::get(context, 64);
  case c10::TypeKind::FloatType:
    return Float64Type::get(context);
  case c10::TypeKind::BoolType:
    return IntegerType::get(context, 1);
  case c10::TypeKind::ListType:
    return ListType::get(context, convert(type->containedType(0)));
  case c10::TypeKind::OptionalType:
    return OptionalType::get(
        context,
        convert(type->expectRef<c10::OptionalType>().getElementType()));
  case c10::TypeKind::DictType:
    return DictType::get(context, convert(type->containedType(0)),
                         convert(type->containedType(1)));
  case c10::TypeKind::TupleType: {
    if (named == NamedTuples::Opaque &&
        type->expectRef<c10::TupleType>().name())
      break;
    llvm::SmallVector<Type> fields;
    for (const c10::TypePtr &field : type->containedTypes())
      fields.push_back(convert(field));
    return TupleType::get(context, fields);
  }
  default:
    break;
  }
  return TorchType::get(context, getTypeName(type));
}

std::string ts::getTypeName(const c10::TypePtr &type) {
  static const std::regex mangled("___torch_mangle_[0-9]+\\.");
  return std::regex_replace(type->annotation_str(), mangled, "");
}

c10::TypePtr ts::convertType(Type type) {
  if (isa<TensorType>(type))
    return c10::TensorType::get();
  if (type.isInteger(1))
    return c10::BoolType::get();
  if (type.isInteger(64) || type.isIndex())
    return c10::IntType::get();
  if (type.isF64())
    return c10::FloatType::get();
  auto wrap = [](Type inner, auto make) -> c10::TypePtr {
    c10::TypePtr converted = convertType(inner);
    return converted ? make(converted) : nullptr;
  };
  if (auto list = dyn_cast<koila::ListType>(type))
    return wrap(list.getElementType(), [](const c10::TypePtr &element) {
      return c10::ListType::create(element);
    });
  if (auto optional = dyn_cast<koila::OptionalType>(type))
    return wrap(optional.getValueType(), [](const c10::TypePtr &value) {
      return c10::OptionalType::create(value);
    });
  if (auto dict = dyn_cast<koila::DictType>(type)) {
    c10::TypePtr key = convertType(dict.getKeyType());
    c10::TypePtr value = convertType(dict.getValueType());
    return key && value ? c10::DictType::create(key, value) : nullptr;
  }
  if (auto tuple = dyn_cast<TupleType>(type)) {
    std::vector<c10::TypePtr> fields;
    for (Type field : tuple.getTypes()) {
      fields.push_back(convertType(field));
      if (!fields.back())
        return nullptr;
    }
    return c10::TupleType::create(std::move(fields));
  }
  if (auto other = dyn_cast<TorchType>(type)) {
    if (other.getSpelling() == "number" || other.getSpelling() == "Scalar")
      return c10::NumberType::get();
    try {
      return c10::parseType(other.getSpelling().str());
    } catch (const std::exception &) {
      return nullptr;
    }
  }
  return nullptr;
}

RankedTensorType ts::getTensorType(llvm::ArrayRef<int64_t> sizes,
                                   at::ScalarType scalarType,
                                   MLIRContext *context) {
  Type element = rules::getTypeForScalarTypeCode(
      context, static_cast<int64_t>(scalarType));
  if (!element)
    element = AnyType::get(context);
  return RankedTensorType::get(sizes, element);
}

RankedTensorType ts::getTensorType(const at::Tensor &tensor,
                                   MLIRContext *context) {
  return getTensorType(
      llvm::ArrayRef<int64_t>(tensor.sizes().data(), tensor.sizes().size()),
      tensor.scalar_type(), context);
}

std::optional<int64_t> ts::getScalarTypeCode(Type elementType) {
  for (int64_t code = 0, e = static_cast<int64_t>(at::ScalarType::NumOptions);
       code < e; ++code)
    if (rules::getTypeForScalarTypeCode(elementType.getContext(), code) ==
        elementType)
      return code;
  return std::nullopt;
}

bool ts::mayHoldTensor(const c10::TypePtr &type) {
  switch (type->kind()) {
  case c10::TypeKind::TensorType:
  case c10::TypeKind::AnyType:
  case c10::TypeKind::ClassType:
  case c10::TypeKind::InterfaceType:
  case c10::TypeKind::VarType:
  case c10::TypeKind::FutureType:
    return true;
  default:
    break;
  }
  for (const c10::TypePtr &inner : type->containedTypes())
    if (mayHoldTensor(inner))
      return true;
  return false;
}

bool ts::isShared(const c10::TypePtr &type) {
  if (mayHoldTensor(type) || type->kind() == c10::TypeKind::ListType ||
      type->kind() == c10::TypeKind::DictType)
    return true;
  for (const c10::TypePtr &inner : type->containedTypes())
    if (isShared(inner))
      return true;
  return false;
}
