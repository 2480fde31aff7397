//===- Signature.cpp - The arguments of a method as IR --------------------===//

#include "Signature.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"
#include "koila/Target/TorchScript/Types.h"
#include "llvm/Support/raw_ostream.h"
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

using namespace mlir;
using namespace koila;
using namespace koila::run;

/// The recorded example of an input as a type; null if there is none.
static Type getExample(const c10::TypePtr &type, MLIRContext *context) {
  auto tensor = type->cast<c10::TensorType>();
  if (!tensor)
    return {};
  auto sizes = tensor->sizes().concrete_sizes();
  if (!sizes || !tensor->scalarType())
    return {};
  Type element = rules::getTypeForScalarTypeCode(
      context, static_cast<int64_t>(*tensor->scalarType()));
  return element ? RankedTensorType::get(*sizes, element) : Type();
}

Signature::Signature(const torch::jit::Method &method, const Options &options,
                     MLIRContext *context) {
  context->loadDialect<KoilaDialect, func::FuncDialect>();
  Builder builder(context);
  Location location = builder.getUnknownLoc();
  module = ModuleOp::create(location);
  // What is missing is an error, as for a program that was imported.
  (*module)->setAttr(KoilaDialect::kArchiveAttr,
                     ArchiveAttr::get(context, "", "", method.name()));
  const c10::FunctionSchema &schema = method.function().getSchema();
  auto inputs =
      torch::jit::toGraphFunction(method.function()).graph()->inputs();
  SmallVector<Type> types;
  for (size_t index = 1; index < schema.arguments().size(); ++index)
    types.push_back(torchscript::convertType(schema.arguments()[index].type(),
                                             context,
                                             torchscript::NamedTuples::Fields));
  function = func::FuncOp::create(location, method.name(),
                                  builder.getFunctionType(types, {}));
  module->push_back(function);
  for (size_t index = 1; index < schema.arguments().size(); ++index) {
    const c10::Argument &argument = schema.arguments()[index];
    function.setArgAttr(index - 1, KoilaDialect::kNameAttr,
                        builder.getStringAttr(argument.name()));
    // A mark: the value is taken from the schema when the call is made.
    if (argument.default_value())
      function.setArgAttr(index - 1, "koila.default",
                          TypeAttr::get(builder.getNoneType()));
    if (Type example = getExample(inputs[index]->type(), context))
      function.setArgAttr(index - 1, "koila.example", TypeAttr::get(example));
  }
  if (failed(options.call.apply(*module, method.name(), llvm::errs())))
    throw DiagnosedError();

  auto attrs = (*module)->getAttrOfType<ArrayAttr>(KoilaDialect::kSymbolsAttr);
  for (SymbolAttr symbol :
       attrs ? attrs.getAsRange<SymbolAttr>()
             : ArrayAttr::get(context, {}).getAsRange<SymbolAttr>()) {
    if (symbol.getValue() == -1)
      throw UserError("running needs a value for symbol '" +
                      symbol.getName().str() + "' (--batch " +
                      symbol.getName().str() + "=N)");
    symbols.emplace_back(symbol.getName().str(), symbol.getValue());
    if (symbol.getBatch())
      batch = symbols.back();
  }
}

int64_t Signature::evaluate(DimExpr expr) const {
  std::optional<int64_t> value =
      expr.evaluate([&](DimSymbol known) -> std::optional<int64_t> {
        for (const SymbolValue &symbol : symbols)
          if (known.isNamed(symbol.first))
            return symbol.second;
        return std::nullopt;
      });
  if (!value)
    throw UserError("the extent " + expr.str() + " does not fit in 64 bits");
  return *value;
}

SymbolValue Signature::getBatch() const { return batch; }
