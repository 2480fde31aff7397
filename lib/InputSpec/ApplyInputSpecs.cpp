//===- ApplyInputSpecs.cpp - Writing input specs into the IR --------------===//
//
// Everything is matched and checked first; the module changes only at the
// end, so that an error leaves it as it was.
//
//===----------------------------------------------------------------------===//

#include "Arguments.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::detail;

namespace {
/// What an argument becomes.
struct Change {
  unsigned index;
  Type type;
  SmallVector<NamedAttribute> attrs;
};

class Applier {
public:
  Applier(ModuleOp module, func::FuncOp function,
          MutableArrayRef<Argument> arguments)
      : module(module), function(function), arguments(arguments),
        context(module.getContext()), builder(context),
        location(function.getLoc()), symbols(module, location) {}

  LogicalResult run(ArrayRef<SymbolValue> batchValues, StringRef batchSymbol);

private:
  LogicalResult collectSymbols(const InputSpec &spec, StringRef where);
  LogicalResult unify(const Argument &argument);
  LogicalResult change(const Argument &argument);
  LogicalResult changeTensor(const Argument &argument, Change &change);
  void commit();

  InFlightDiagnostic errorAt(const Argument &argument) {
    return emitError(location) << "argument " << argument.label() << ": ";
  }
  void set(Change &change, StringRef name, Attribute value) {
    change.attrs.push_back(builder.getNamedAttr(name, value));
  }

  ModuleOp module;
  func::FuncOp function;
  MutableArrayRef<Argument> arguments;
  MLIRContext *context;
  Builder builder;
  Location location;
  SymbolTableBuilder symbols;
  SmallVector<Change> changes;
};
} // namespace

/// Symbols and the values they are fixed to, before any type is made: `B=64`
/// in one argument is the extent of every other B.
LogicalResult Applier::collectSymbols(const InputSpec &spec, StringRef where) {
  SmallVector<InputDim> dims(spec.dims.begin(), spec.dims.end());
  if (spec.range)
    dims.append({spec.range->from, spec.range->to});
  for (const InputDim &dim : dims) {
    if (dim.isConstant())
      continue;
    symbols.declare(dim.symbol);
    int64_t extent;
    if (dim.pinned && llvm::MulOverflow(dim.factor, *dim.pinned, extent))
      return emitError(location)
             << where << ": the extent " << dim.factor << "*" << *dim.pinned
             << " does not fit in 64 bits";
    if (dim.pinned && failed(symbols.pin(dim.symbol, *dim.pinned, where)))
      return failure();
  }
  for (const InputSpec &element : spec.elements)
    if (failed(collectSymbols(element, where)))
      return failure();
  return success();
}

/// What the program says of its dims against what the spec says: equal, or a
/// number for a symbol.
LogicalResult Applier::unify(const Argument &argument) {
  const InputSpec &spec = *argument.spec;
  if (!argument.dims || spec.kind != InputSpec::Kind::Tensor ||
      argument.dims.getExprs().size() != spec.dims.size())
    return success();
  for (auto [index, known, dim] :
       llvm::enumerate(argument.dims.getExprs(), spec.dims)) {
    DimExpr expr(known), wanted = makeExpr(context, dim);
    std::optional<int64_t> extent = wanted.getConstant();
    if (!extent || expr.getConstant())
      continue; // changeTensor compares.
    std::string symbol;
    expr.forEachSymbol(
        [&](DimSymbol known) { symbol = known.getName().str(); });
    std::optional<int64_t> factor = expr.getMultipleOf(symbol);
    if (!factor || *extent % *factor != 0)
      return errorAt(argument)
             << "dim " << index << " is " << expr.str()
             << " in the program, which cannot be " << *extent;
    if (failed(symbols.pin(symbol, *extent / *factor,
                           "argument " + argument.label())))
      return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

LogicalResult Applier::changeTensor(const Argument &argument, Change &change) {
  const InputSpec &spec = *argument.spec;
  Type elementType = getDTypeElementType(context, spec.dtype);
  if (!elementType)
    return errorAt(argument) << "dtype " << spec.dtype << " is not supported";
  // An argument that may be None or a tensor is known to be a tensor now.
  auto optional = dyn_cast<OptionalType>(argument.type);
  auto known =
      cast<TensorType>(optional ? optional.getValueType() : argument.type);
  Type knownElement = known.getElementType();
  if (!isa<AnyType>(knownElement) && knownElement != elementType)
    return errorAt(argument)
           << "dtype is " << getDTypeName(knownElement)
           << " in the program, and " << spec.dtype << " in --input";
  int64_t rank = spec.dims.size();
  if (known.hasRank() && known.getRank() != rank)
    return errorAt(argument)
           << "has " << known.getRank() << " dims in the program, and " << rank
           << " in --input '" << spec.str() << "'";
  SmallVector<DimExpr> exprs;
  SmallVector<DimExprAttr> attrs;
  for (auto [index, dim] : llvm::enumerate(spec.dims)) {
    DimExpr expr = makeExpr(context, dim);
    std::optional<int64_t> extent = symbols.getStatic(expr);
    DimExpr program;
    if (argument.dims)
      program = argument.dims.getExprs()[index];
    else if (known.hasRank() && !known.isDynamicDim(index))
      program = DimExpr::constant(context, known.getDimSize(index));
    if (program && program != expr &&
        (!extent || symbols.getStatic(program) != extent))
      return errorAt(argument) << "dim " << index << " is " << program.str()
                               << " in the program, and " << expr.str()
                               << " in --input '" << spec.str() << "'";
    // Names survive a number: the program's B stays B when it is 64.
    if (program && expr.getConstant())
      expr = program;
    attrs.push_back(exprs.emplace_back(expr).getAttr());
  }
  change.type = symbols.makeType(exprs, elementType);
  set(change, KoilaDialect::kDimsAttr, DimsAttr::get(context, attrs));
  if (spec.range)
    set(change, KoilaDialect::kRangeAttr,
        RangeAttr::get(context, makeExpr(context, spec.range->from).getAttr(),
                       makeExpr(context, spec.range->to).getAttr()));
  if (spec.requiresGrad)
    set(change, KoilaDialect::kRequiresGradAttr, builder.getUnitAttr());
  if (spec.channelsLast)
    set(change, KoilaDialect::kMemoryFormatAttr,
        builder.getStringAttr("channels_last"));
  return success();
}

LogicalResult Applier::change(const Argument &argument) {
  Change change{argument.index, argument.type, {}};
  if (!argument.spec) {
    auto tensor = dyn_cast<RankedTensorType>(argument.type);
    if (tensor && argument.dims) {
      // Another argument may have fixed a symbol of these.
      SmallVector<DimExpr> exprs(argument.dims.getExprs());
      change.type = symbols.makeType(exprs, tensor.getElementType());
    } else if (tensor && tensor.hasStaticShape() &&
               !isa<AnyType>(tensor.getElementType())) {
      SmallVector<DimExprAttr> attrs;
      for (int64_t extent : tensor.getShape())
        attrs.push_back(DimExpr::constant(context, extent).getAttr());
      set(change, KoilaDialect::kDimsAttr, DimsAttr::get(context, attrs));
    } else if (!argument.value && argument.defaultValue) {
      set(change, KoilaDialect::kValueAttr, argument.defaultValue);
    }
    changes.push_back(std::move(change));
    return success();
  }
  const InputSpec &spec = *argument.spec;
  auto optional = dyn_cast<OptionalType>(argument.type);
  Type inner = optional ? optional.getValueType() : argument.type;
  if (auto torch = dyn_cast<TorchType>(inner);
      torch && torch.getSpelling() == "Device" &&
      spec.kind == InputSpec::Kind::String && spec.stringValue != "cpu")
    return errorAt(argument)
           << "figures are those of the CPU, and '" << spec.stringValue
           << "' is another device; give \"cpu\"";
  if (spec.kind == InputSpec::Kind::Tensor && isa<TensorType>(inner)) {
    if (failed(changeTensor(argument, change)))
      return failure();
  } else {
    Attribute value = convertLiteral(argument.type, spec, symbols);
    if (!value)
      return errorAt(argument)
             << "'" << spec.str() << "' is no " << argument.kind()
             << "; the arguments are " << listArguments(arguments);
    set(change, KoilaDialect::kValueAttr, value);
  }
  changes.push_back(std::move(change));
  return success();
}

void Applier::commit() {
  SmallVector<Type> types;
  for (Change &change : changes) {
    types.push_back(change.type);
    for (NamedAttribute attr : change.attrs)
      function.setArgAttr(change.index, attr.getName(), attr.getValue());
    if (function.isExternal() || change.type == arguments[change.index].type)
      continue;
    BlockArgument value = function.getArgument(change.index);
    Type old = value.getType();
    value.setType(change.type);
    // Operators take a type that says more. Others, func.return and loops among
    // them, compare types; they keep seeing the old one.
    // So do branches, which may be made for other shapes than these.
    auto foreign = [&](OpOperand &use) {
      return !(isa_and_present<KoilaDialect>(use.getOwner()->getDialect()) ||
               isa<TorchOperatorInterface>(use.getOwner())) ||
             use.getOwner()->getParentRegion() != &function.getFunctionBody();
    };
    if (!llvm::any_of(value.getUses(), foreign))
      continue;
    OpBuilder atEntry = OpBuilder::atBlockBegin(&function.front());
    Value general =
        isa<TensorType>(old)
            ? RefineOp::create(atEntry, value.getLoc(), old, value).getResult()
            : UpcastOp::create(atEntry, value.getLoc(), old, value).getResult();
    value.replaceUsesWithIf(general, foreign);
  }
  function.setFunctionType(FunctionType::get(
      context, types, function.getFunctionType().getResults()));
  if (!symbols.empty())
    module->setAttr(KoilaDialect::kSymbolsAttr, symbols.build(context));
}

LogicalResult Applier::run(ArrayRef<SymbolValue> batchValues,
                           StringRef batchSymbol) {
  for (const Argument &argument : arguments) {
    if (argument.dims)
      for (DimExprAttr expr : argument.dims.getExprs())
        DimExpr(expr).forEachSymbol(
            [&](DimSymbol symbol) { symbols.declare(symbol.getName()); });
    if (argument.spec &&
        (failed(
             collectSymbols(*argument.spec, "argument " + argument.label())) ||
         failed(unify(argument))))
      return failure();
  }
  for (auto &[name, value] : batchValues)
    if (failed(symbols.setValue(name, value)))
      return failure();
  if (failed(symbols.chooseBatch(batchSymbol)))
    return failure();
  for (const Argument &argument : arguments)
    if (failed(change(argument)))
      return failure();
  commit();
  return success();
}

//===----------------------------------------------------------------------===//
// Entry
//===----------------------------------------------------------------------===//

static FailureOr<func::FuncOp> findCallable(ModuleOp module, StringRef name) {
  SmallVector<func::FuncOp> functions;
  std::string names;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isPublic())
      continue;
    if (function.getName() == name)
      return function;
    functions.push_back(function);
    names += (names.empty() ? "" : ", ") + function.getName().str();
  }
  if (name.empty() && functions.size() == 1)
    return functions.front();
  auto error = emitError(module.getLoc());
  if (functions.empty())
    return error << "the module has no function to call";
  if (name.empty())
    return error << "the module has more than one function; name one of "
                 << names << " with --function";
  return error << "there is no function '" << name << "'; known: " << names;
}

LogicalResult koila::applyInputSpecs(ModuleOp module, StringRef name,
                                     ArrayRef<InputSpec> specs,
                                     ArrayRef<SymbolValue> batchValues,
                                     StringRef batchSymbol,
                                     llvm::raw_ostream &notes) {
  FailureOr<func::FuncOp> function = findCallable(module, name);
  if (failed(function))
    return failure();
  Location location = function->getLoc();
  SmallVector<Argument> arguments = getArguments(*function);
  std::string recordedNotes;
  llvm::raw_string_ostream recordedStream(recordedNotes);
  std::vector<InputSpec> recorded;
  if (failed(matchSpecs(location, specs, arguments)))
    return failure();

  // Text without an archive may leave what is no tensor open.
  bool strict = module->hasAttr(KoilaDialect::kArchiveAttr) || !specs.empty();
  for (Argument &argument : arguments)
    argument.required = strict || argument.isTensor();
  auto isMissing = [](const Argument &argument) {
    return argument.isMissing();
  };
  if (specs.empty() && llvm::any_of(arguments, isMissing)) {
    if (failed(
            makeRecordedSpecs(location, arguments, recorded, recordedStream)))
      return failure();
    auto *next = recorded.data();
    for (Argument &argument : arguments)
      if (isMissing(argument))
        argument.spec = next++;
  }
  auto *missing = llvm::find_if(arguments, isMissing);
  if (missing != arguments.end())
    return emitError(location)
           << "argument " << missing->label() << " (" << missing->kind()
           << ") has no input; add:" << suggestInputs(arguments)
           << "\nThe arguments are " << listArguments(arguments);
  if (failed(
          Applier(module, *function, arguments).run(batchValues, batchSymbol)))
    return failure();
  notes << recordedNotes;
  return success();
}
