//===- ImportValues.cpp - Literals, weights and lists ---------------------===//

#include "../Boundary/DiagnosticJSON.h"
#include "../Boundary/Locations.h"
#include "Import.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Target/TorchScript/Types.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/Sequence.h"
#include <torch/csrc/jit/ir/constants.h>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
using llvm::Twine;

const FunctionImporter::ModuleAttribute *
FunctionImporter::getModuleAttribute(const TorchValue *value) const {
  auto it = attributes.find(value);
  return it == attributes.end() ? nullptr : &it->second;
}

std::optional<c10::IValue>
FunctionImporter::getLiteral(const TorchValue *value) const {
  if (value->node()->kind() == prim::Constant)
    return tj::toIValue(value);
  // A module without bias has the attribute, and it is None.
  if (const ModuleAttribute *attribute = getModuleAttribute(value))
    if (attribute->value.isNone())
      return attribute->value;
  return std::nullopt;
}

Attribute FunctionImporter::getAttr(const c10::IValue &value) const {
  Builder attrs(context);
  if (value.isInt())
    return attrs.getI64IntegerAttr(value.toInt());
  if (value.isDouble())
    return attrs.getF64FloatAttr(value.toDouble());
  if (value.isBool())
    return attrs.getBoolAttr(value.toBool());
  if (value.isString())
    return attrs.getStringAttr(value.toStringRef());
  if (value.isNone())
    return attrs.getUnitAttr();
  if (value.isDevice())
    return attrs.getDictionaryAttr(attrs.getNamedAttr(
        "device", attrs.getStringAttr(value.toDevice().str())));
  if (value.isList()) {
    llvm::SmallVector<Attribute> elements;
    for (const c10::IValue &element : value.toListRef()) {
      elements.push_back(getAttr(element));
      if (!elements.back())
        return {};
    }
    return attrs.getArrayAttr(elements);
  }
  if (value.isGenericDict()) {
    llvm::SmallVector<Attribute> keys, values;
    for (const auto &entry : value.toGenericDict()) {
      keys.push_back(getAttr(entry.key()));
      values.push_back(getAttr(entry.value()));
      if (!keys.back() || !values.back())
        return {};
    }
    return attrs.getDictionaryAttr(
        {attrs.getNamedAttr("keys", attrs.getArrayAttr(keys)),
         attrs.getNamedAttr("values", attrs.getArrayAttr(values))});
  }
  return {};
}

Attribute FunctionImporter::getLiteralAttr(const TorchValue *value) const {
  if (std::optional<c10::IValue> literal = getLiteral(value))
    return getAttr(*literal);
  // A list that changes is no literal, also if it starts as one.
  if (value->node()->kind() != prim::ListConstruct || isChanging(value))
    return {};
  llvm::SmallVector<Attribute> elements;
  for (const TorchValue *element : value->node()->inputs()) {
    elements.push_back(getLiteralAttr(element));
    if (!elements.back())
      return {};
  }
  return ArrayAttr::get(context, elements);
}

Value FunctionImporter::getConstantNumber(TypedAttr number) {
  Value &value = numbers[number];
  if (!value) {
    value = arith::ConstantOp::create(builder, location, number);
    if (!scopes.empty())
      scopes.back().numbers.push_back(number);
  }
  return value;
}

Value FunctionImporter::getWeight(const at::Tensor &tensor,
                                  const std::string &path) {
  auto it = weights.find(tensor.unsafeGetTensorImpl());
  if (it == weights.end()) {
    // A tensor that is neither parameter nor buffer: in no state dict.
    declareWeight(path, tensor, /*buffer=*/true);
    it = weights.find(tensor.unsafeGetTensorImpl());
    if (it == weights.end())
      refuse(location, Twine("attribute '") + path +
                           "' is an undefined "
                           "tensor");
    it->second.setKeysAttr(builder.getArrayAttr({}));
  }
  ParamOp param = it->second;
  if (Value value = reads.lookup(param.getSymName()))
    return value;
  return rememberRead(
      param.getSymName(),
      ParamGetOp::create(builder, location, param.getType(),
                         FlatSymbolRefAttr::get(param.getSymNameAttr())));
}

Value FunctionImporter::rememberRead(llvm::StringRef name, Value value) {
  if (!scopes.empty())
    scopes.back().reads.push_back(name.str());
  return reads[name] = value;
}

Value FunctionImporter::getConstantTensor(const at::Tensor &tensor) {
  unsigned next = result.constants.size();
  auto [it, inserted] =
      constantIndices.try_emplace(tensor.unsafeGetTensorImpl(), next);
  std::string name = "constant." + std::to_string(it->second);
  if (inserted) {
    while (weightNames.contains(name))
      name += "_";
    result.constants.push_back(tensor);
    declareWeight(name, tensor, /*buffer=*/true);
    ParamOp param = weights[tensor.unsafeGetTensorImpl()];
    param.setKeysAttr(builder.getArrayAttr({}));
    param.setConstantAttr(builder.getI64IntegerAttr(next));
  }
  Value read = getWeight(tensor, name);
  // A number of the traced program, which counts less in promotions than other
  // 0-dim tensors. Archives lose the mark that says so, but LibTorch's executor
  // makes numbers of such constants again (measured: int32 * 2.5 is float32).
  if (tensor.dim() == 0)
    read.getDefiningOp()->setAttr("wrapped", builder.getUnitAttr());
  return read;
}

Value FunctionImporter::findValue(const TorchValue *value) {
  if (auto it = values.find(value); it != values.end())
    return it->second;
  std::optional<c10::IValue> known = getLiteral(value);
  if (const ModuleAttribute *attribute = getModuleAttribute(value))
    known = attribute->value;
  if (!known || !known->isTensor())
    return {};
  auto it = weights.find(known->toTensor().unsafeGetTensorImpl());
  return it == weights.end() ? Value() : reads.lookup(it->second.getSymName());
}

Value FunctionImporter::getValue(const TorchValue *value) {
  if (auto it = values.find(value); it != values.end())
    return it->second;

  if (const ModuleAttribute *attribute = getModuleAttribute(value)) {
    if (attribute->value.isTensor())
      return getWeight(attribute->value.toTensor(), attribute->path);
    if (!attribute->value.isNone()) {
      std::string name = "attribute " + attribute->path;
      if (Value read = reads.lookup(name))
        return read;
      return rememberRead(
          name, AttrGetOp::create(builder, location,
                                  convertType(value->type(), context),
                                  attribute->path, /*object=*/Value()));
    }
  }

  if (value->node()->kind() == prim::ListConstruct) {
    if (!scopes.empty())
      scopes.back().values.push_back(value);
    return values[value] = construct(value->node(), Container::List);
  }

  std::optional<c10::IValue> literal = getLiteral(value);
  if (!literal)
    refuse(location, Twine("the result of '") +
                         value->node()->kind().toQualString() +
                         "' is used before it is known");
  return getConstant(*literal, value->type());
}

Value FunctionImporter::getConstant(const c10::IValue &literal,
                                    const c10::TypePtr &type) {
  if (literal.isTensor())
    return getConstantTensor(literal.toTensor());
  auto tuple = type->cast<c10::TupleType>();
  if (literal.isTuple() && tuple) {
    llvm::SmallVector<Value> elements;
    for (const auto &[element, elementType] :
         llvm::zip_equal(literal.toTupleRef().elements(), tuple->elements()))
      elements.push_back(getConstant(element, elementType));
    return ConstructOp::create(builder, location, convertType(type, context),
                               Container::Tuple, elements);
  }
  Attribute attr = getAttr(literal);
  if (!attr)
    refuse(location, Twine("a constant of type ") + type->annotation_str() +
                         " is not supported yet");
  if (literal.isInt() || literal.isDouble() || literal.isBool())
    return getConstantNumber(cast<TypedAttr>(attr));
  return ConstantOp::create(builder, location, convertType(type, context),
                            attr);
}

Value FunctionImporter::construct(const Node *node, Container container) {
  llvm::SmallVector<Value> elements;
  for (const TorchValue *element : node->inputs())
    elements.push_back(getTensor(element));
  auto op = ConstructOp::create(builder, location,
                                convertType(node->output()->type(), context),
                                container, elements);
  if (isChanging(node->output()))
    op->setAttr(KoilaDialect::kReadsAttr, builder.getUnitAttr());
  return op;
}

Value FunctionImporter::getTensor(const TorchValue *value) {
  Value converted = getValue(value);
  if (value->type()->kind() != c10::TypeKind::TensorType ||
      isa<TensorType>(converted.getType()))
    return converted;
  return NumToTensorOp::create(builder, location, getUnknownTensorType(context),
                               DynamicAttr::get(context), /*wraps=*/UnitAttr(),
                               converted);
}

Value FunctionImporter::getArgument(const TorchValue *value) {
  if (std::optional<c10::IValue> literal = getLiteral(value);
      literal && literal->isNone())
    return getConstant(*literal, c10::NoneType::get());
  return getTensor(value);
}

Value FunctionImporter::getInteger(const TorchValue *value) {
  if (auto it = values.find(value); it != values.end()) {
    auto holder = it->second.getDefiningOp<NumToTensorOp>();
    if (!holder || !holder.getComputedInteger())
      return it->second.getType().isInteger(64) ? it->second : Value();
    return IntTensorOp::create(builder, location, builder.getI64Type(),
                               it->second);
  }
  std::optional<c10::IValue> literal = getLiteral(value);
  if (!literal)
    return {};
  if (literal->isInt())
    return getConstantNumber(builder.getI64IntegerAttr(literal->toInt()));
  if (literal->isTensor()) {
    const at::Tensor &tensor = literal->toTensor();
    if (tensor.dim() == 0 && tensor.scalar_type() == at::kLong)
      return getConstantNumber(
          builder.getI64IntegerAttr(tensor.item<int64_t>()));
  }
  return {};
}
