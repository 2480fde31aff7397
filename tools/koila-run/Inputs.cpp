//===- Inputs.cpp - Real tensors for a call -------------------------------===//

#include "Inputs.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <limits>

using namespace mlir;
using namespace koila;
using namespace koila::run;

namespace {
class InputMaker {
public:
  InputMaker(Signature &signature, uint64_t seed)
      : signature(signature), seed(seed) {}

  at::Tensor makeTensor(RankedTensorType type, DimsAttr dims, RangeAttr range);
  c10::IValue convert(Attribute value, const c10::TypePtr &type);

private:
  at::ScalarType getScalarType(Type elementType);

  Signature &signature;
  uint64_t seed;
  /// Tensors made so far: each gets its own stream.
  uint64_t count = 0;
};
} // namespace

at::ScalarType InputMaker::getScalarType(Type elementType) {
  for (int8_t code = 0; code < static_cast<int8_t>(at::ScalarType::NumOptions);
       ++code)
    if (rules::getTypeForScalarTypeCode(elementType.getContext(), code) ==
        elementType)
      return static_cast<at::ScalarType>(code);
  throw UserError("an input has a dtype that koila-run cannot make");
}

at::Tensor InputMaker::makeTensor(RankedTensorType type, DimsAttr dims,
                                  RangeAttr range) {
  std::vector<int64_t> sizes;
  for (DimExprAttr dim : dims.getExprs())
    sizes.push_back(signature.evaluate(dim));
  at::ScalarType dtype = getScalarType(type.getElementType());
  auto options = at::TensorOptions().dtype(dtype);
  // Streams that start at neighbouring seeds are independent in mt19937.
  auto generator =
      at::make_generator<at::CPUGeneratorImpl>(seed * 1000003 + 17 * ++count);
  bool integral = at::isIntegralType(dtype, /*includeBool=*/true);
  if (!range && !integral)
    return at::randn(sizes, generator, options);
  int64_t from = range ? signature.evaluate(range.getFrom()) : 0;
  int64_t to = range ? signature.evaluate(range.getTo()) : 2;
  if (from >= to)
    throw UserError("the range {" + std::to_string(from) + ":" +
                    std::to_string(to) + "} of an input is empty");
  if (!integral)
    return at::rand(sizes, generator, options)
        .mul_(static_cast<double>(to) - static_cast<double>(from))
        .add_(from);
  return at::randint(from, to, sizes, generator,
                     at::TensorOptions().dtype(at::kLong))
      .to(dtype);
}

c10::IValue InputMaker::convert(Attribute value, const c10::TypePtr &type) {
  if (isa<UnitAttr>(value))
    return c10::IValue();
  if (auto optional = type->cast<c10::OptionalType>())
    return convert(value, optional->getElementType());
  if (auto dictionary = dyn_cast<DictionaryAttr>(value)) {
    if (auto tensor = dictionary.getAs<TypeAttr>("type"))
      return makeTensor(cast<RankedTensorType>(tensor.getValue()),
                        dictionary.getAs<DimsAttr>("dims"), {});
    auto dict = type->expect<c10::DictType>();
    c10::impl::GenericDict result(dict->getKeyType(), dict->getValueType());
    for (auto [key, element] :
         llvm::zip_equal(dictionary.getAs<ArrayAttr>("keys"),
                         dictionary.getAs<ArrayAttr>("values")))
      result.insert(convert(key, dict->getKeyType()),
                    convert(element, dict->getValueType()));
    return result;
  }
  if (auto array = dyn_cast<ArrayAttr>(value)) {
    if (auto tuple = type->cast<c10::TupleType>()) {
      std::vector<c10::IValue> elements;
      for (auto [element, elementType] :
           llvm::zip_equal(array, tuple->elements()))
        elements.push_back(convert(element, elementType));
      return tuple->name()
                 ? c10::ivalue::Tuple::createNamed(std::move(elements), tuple)
                 : c10::ivalue::Tuple::create(std::move(elements));
    }
    c10::TypePtr elementType = type->expect<c10::ListType>()->getElementType();
    c10::impl::GenericList list(elementType);
    for (Attribute element : array)
      list.push_back(convert(element, elementType));
    return list;
  }
  if (auto flag = dyn_cast<BoolAttr>(value))
    return flag.getValue();
  if (auto integer = dyn_cast<IntegerAttr>(value))
    return integer.getInt();
  if (auto number = dyn_cast<FloatAttr>(value))
    return number.getValueAsDouble();
  std::string text = cast<StringAttr>(value).str();
  if (type->kind() == c10::TypeKind::DeviceObjType)
    return c10::Device(text);
  return text;
}

std::vector<c10::IValue>
koila::run::makeInputs(const torch::jit::Method &method, Signature &signature,
                       uint64_t seed) {
  const auto &arguments = method.function().getSchema().arguments();
  func::FuncOp function = signature.getFunction();
  InputMaker maker(signature, seed);
  std::vector<c10::IValue> inputs;
  for (unsigned index = 0; index < function.getNumArguments(); ++index) {
    const c10::Argument &argument = arguments[index + 1];
    auto dims =
        function.getArgAttrOfType<DimsAttr>(index, KoilaDialect::kDimsAttr);
    if (!dims) {
      Attribute value = function.getArgAttr(index, "koila.value");
      // A type stands for the schema's default, see Signature.
      inputs.push_back(isa<TypeAttr>(value)
                           ? *argument.default_value()
                           : maker.convert(value, argument.type()));
      continue;
    }
    at::Tensor tensor = maker.makeTensor(
        cast<RankedTensorType>(function.getArgumentTypes()[index]), dims,
        function.getArgAttrOfType<RangeAttr>(index, KoilaDialect::kRangeAttr));
    if (function.getArgAttr(index, KoilaDialect::kMemoryFormatAttr))
      // As `to(memory_format=...)`: `contiguous` leaves the strides of what is
      // already both, and operators go by the strides.
      tensor = at::empty(tensor.sizes(), tensor.options(),
                         at::MemoryFormat::ChannelsLast)
                   .copy_(tensor);
    if (function.getArgAttr(index, KoilaDialect::kRequiresGradAttr))
      tensor.requires_grad_();
    inputs.push_back(tensor);
  }
  return inputs;
}

c10::IValue koila::run::mapTensors(
    const c10::IValue &value,
    const std::function<at::Tensor(const at::Tensor &)> &change) {
  if (value.isTensor())
    return value.toTensor().defined() ? change(value.toTensor()) : value;
  if (value.isList()) {
    c10::List<c10::IValue> list = value.toList();
    c10::impl::GenericList result(list.elementType());
    for (const c10::IValue &element : list)
      result.push_back(mapTensors(element, change));
    return result;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue &element : value.toTupleRef().elements())
      elements.push_back(mapTensors(element, change));
    auto type = value.type()->expect<c10::TupleType>();
    return type->name()
               ? c10::ivalue::Tuple::createNamed(std::move(elements), type)
               : c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isGenericDict()) {
    auto dict = value.toGenericDict();
    c10::impl::GenericDict result(dict.keyType(), dict.valueType());
    for (const auto &entry : dict)
      result.insert(entry.key(), mapTensors(entry.value(), change));
    return result;
  }
  return value;
}

static std::vector<c10::IValue>
mapInputs(const std::vector<c10::IValue> &inputs,
          const std::function<at::Tensor(const at::Tensor &)> &change) {
  std::vector<c10::IValue> result;
  for (const c10::IValue &input : inputs)
    result.push_back(mapTensors(input, change));
  return result;
}

std::vector<c10::IValue>
koila::run::cloneInputs(const std::vector<c10::IValue> &inputs) {
  return mapInputs(inputs, [](const at::Tensor &tensor) {
    return tensor.detach().clone().requires_grad_(tensor.requires_grad());
  });
}

std::vector<c10::IValue>
koila::run::putOn(c10::Device device, const std::vector<c10::IValue> &inputs) {
  return mapInputs(inputs, [&](const at::Tensor &tensor) {
    return tensor.detach().to(device).requires_grad_(tensor.requires_grad());
  });
}

std::vector<c10::IValue>
koila::run::cloneToDouble(const std::vector<c10::IValue> &inputs) {
  return mapInputs(inputs, [](const at::Tensor &tensor) {
    at::Tensor copy = tensor.detach().clone();
    if (copy.is_floating_point())
      copy = copy.to(at::kDouble);
    else if (copy.is_complex())
      copy = copy.to(at::kComplexDouble);
    return copy.requires_grad_(tensor.requires_grad());
  });
}
