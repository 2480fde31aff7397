//===- Literals.cpp - Literals of input specs as attributes ---------------===//

#include "Arguments.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::detail;

static Attribute convertElements(function_ref<Type(size_t)> type,
                                 const InputSpec &spec,
                                 const SymbolTableBuilder &symbols,
                                 Builder &builder) {
  SmallVector<Attribute> attrs;
  for (auto [index, element] : llvm::enumerate(spec.elements))
    if (!attrs.emplace_back(convertLiteral(type(index), element, symbols)))
      return {};
  return builder.getArrayAttr(attrs);
}

Attribute koila::detail::convertLiteral(Type type, const InputSpec &spec,
                                        const SymbolTableBuilder &symbols) {
  MLIRContext *context = type.getContext();
  Builder builder(context);
  using Kind = InputSpec::Kind;
  if (auto optional = dyn_cast<OptionalType>(type))
    return spec.kind == Kind::None
               ? Attribute(builder.getUnitAttr())
               : convertLiteral(optional.getValueType(), spec, symbols);
  auto torch = dyn_cast<TorchType>(type);
  StringRef spelling = torch ? torch.getSpelling() : StringRef();
  bool any = spelling == "Any";
  bool number = any || spelling == "Scalar" || spelling == "number";
  switch (spec.kind) {
  case Kind::None:
    return any || spelling == "NoneType" || isa<NoneType>(type)
               ? Attribute(builder.getUnitAttr())
               : Attribute();
  case Kind::Bool:
    return number || type.isInteger(1)
               ? Attribute(builder.getBoolAttr(spec.boolValue))
               : Attribute();
  case Kind::Int:
    if (isa<FloatType>(type))
      return builder.getF64FloatAttr(static_cast<double>(spec.intValue));
    return number || type.isInteger(64)
               ? Attribute(builder.getI64IntegerAttr(spec.intValue))
               : Attribute();
  case Kind::Float:
    return number || isa<FloatType>(type)
               ? Attribute(builder.getF64FloatAttr(spec.floatValue))
               : Attribute();
  case Kind::String:
    return any || spelling == "str" || spelling == "Device"
               ? Attribute(builder.getStringAttr(spec.stringValue))
               : Attribute();
  case Kind::List:
    if (auto list = dyn_cast<ListType>(type))
      return convertElements([&](size_t) { return list.getElementType(); },
                             spec, symbols, builder);
    return {};
  case Kind::Tuple: {
    auto tuple = dyn_cast<TupleType>(type);
    if (!tuple || tuple.size() != spec.elements.size())
      return {};
    return convertElements([&](size_t index) { return tuple.getType(index); },
                           spec, symbols, builder);
  }
  case Kind::Dict: {
    auto dict = dyn_cast<DictType>(type);
    if (!dict)
      return {};
    SmallVector<Attribute> keys;
    for (const InputSpec &key : spec.keys)
      if (!keys.emplace_back(convertLiteral(dict.getKeyType(), key, symbols)))
        return {};
    Attribute values = convertElements(
        [&](size_t) { return dict.getValueType(); }, spec, symbols, builder);
    if (!values)
      return {};
    return builder.getDictionaryAttr(
        {builder.getNamedAttr("keys", builder.getArrayAttr(keys)),
         builder.getNamedAttr("values", values)});
  }
  case Kind::Tensor: {
    if (!any && !isa<TensorType>(type))
      return {};
    SmallVector<DimExpr> exprs;
    SmallVector<DimExprAttr> attrs;
    for (const InputDim &dim : spec.dims)
      attrs.push_back(exprs.emplace_back(makeExpr(context, dim)).getAttr());
    Type tensor =
        symbols.makeType(exprs, getDTypeElementType(context, spec.dtype));
    return builder.getDictionaryAttr(
        {builder.getNamedAttr("type", TypeAttr::get(tensor)),
         builder.getNamedAttr("dims", DimsAttr::get(context, attrs))});
  }
  }
  return {};
}
