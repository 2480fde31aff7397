//===- ArgumentFacts.cpp - What a function says of its calls --------------===//

#include "ArgumentFacts.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;

/// Facts of the elements of a container as `koila.value` says them. Numbers
/// are not taken from there: the program runs with others, too.
static std::vector<ValueInfo> getElements(Attribute value) {
  std::vector<ValueInfo> infos;
  if (auto dict = dyn_cast<DictionaryAttr>(value))
    value = dict.get("values");
  auto elements = dyn_cast_or_null<ArrayAttr>(value);
  if (!elements)
    return infos;
  for (Attribute element : elements) {
    ValueInfo &info = infos.emplace_back();
    auto tensor = dyn_cast<DictionaryAttr>(element);
    auto type = tensor ? tensor.getAs<TypeAttr>("type") : TypeAttr();
    auto dims = tensor ? tensor.getAs<DimsAttr>("dims") : DimsAttr();
    if (type && dims && isa<TensorType>(type.getValue())) {
      SmallVector<DimExpr> exprs(dims.getExprs());
      info.tensor = TensorInfo::contiguous(
          exprs, cast<TensorType>(type.getValue()).getElementType());
    } else {
      info.elements = getElements(element);
    }
  }
  return infos;
}

/// Whether the function is for one value of the argument.
static bool isAssumed(FunctionOpInterface function, unsigned index) {
  if (function.isExternal())
    return false;
  Block &entry = function.getFunctionBody().front();
  return llvm::any_of(entry.getOps<AssumeOp>(), [&](AssumeOp op) {
    return op.getFact() == Fact::Value &&
           op.getValue() == entry.getArgument(index);
  });
}

ValueInfo koila::getArgumentInfo(FunctionOpInterface function, unsigned index) {
  ValueInfo info;
  Type type = function.getArgumentTypes()[index];
  if (Attribute value = function.getArgAttr(index, KoilaDialect::kValueAttr)) {
    info.elements = getElements(value);
    // None, a bool or a text decide branches, under an assumption; of numbers
    // those do that are assumed.
    if (isa<UnitAttr, BoolAttr, StringAttr>(value) ||
        (isa<IntegerAttr>(value) && isAssumed(function, index)))
      info.literal = value;
    if (auto number = dyn_cast_or_null<IntegerAttr>(info.literal);
        number && !isa<BoolAttr>(number))
      info.integer = DimExpr::constant(function.getContext(), number.getInt());
  }
  if (!isa<TensorType>(type))
    return info;
  std::string prefix = "_a" + std::to_string(index);
  info.tensor = getTensorInfoFromType(type, prefix, SymbolKind::ArgumentExtent);
  TensorInfo &tensor = *info.tensor;
  if (auto dims =
          function.getArgAttrOfType<DimsAttr>(index, KoilaDialect::kDimsAttr)) {
    tensor.dims.emplace();
    for (DimExprAttr expr : dims.getExprs())
      tensor.dims->push_back(expr);
  }
  if (!tensor.hasRank())
    return info;
  // Contiguous unless said otherwise; an assumption that the guard checks
  // where a rewritten program relies on it.
  auto format = function.getArgAttrOfType<StringAttr>(
      index, KoilaDialect::kMemoryFormatAttr);
  tensor = format && format.getValue() == "channels_last"
               ? TensorInfo::channelsLast(*tensor.dims, tensor.elementType)
               : TensorInfo::contiguous(*tensor.dims, tensor.elementType);
  return info;
}

/// Whether what the facts say is the same for no call.
static bool contradict(Attribute lhs, Attribute rhs) {
  if (auto left = dyn_cast<DimExprAttr>(lhs))
    return isa<DimExprAttr>(rhs) &&
           proveEqual(left, cast<DimExprAttr>(rhs)) == TriBool::No;
  auto left = dyn_cast<IntegerAttr>(lhs), right = dyn_cast<IntegerAttr>(rhs);
  if (left && right)
    return left.getValue().trySExtValue() != right.getValue().trySExtValue();
  return lhs != rhs;
}

LogicalResult koila::checkAssumptions(Operation *function) {
  Region &body = function->getRegion(0);
  if (body.empty())
    return success();
  using Subject = std::tuple<Fact, Value, Attribute, Attribute>;
  llvm::DenseMap<Subject, AssumeOp> facts;
  for (AssumeOp op : body.front().getOps<AssumeOp>()) {
    Subject subject(op.getFact(), op.getValue(), op.getDimAttr(),
                    op.getPathAttr());
    auto [known, isNew] = facts.try_emplace(subject, op);
    if (!isNew && contradict(known->second.getExpected(), op.getExpected())) {
      InFlightDiagnostic error = op->emitOpError()
                                 << "'" << stringifyFact(op.getFact())
                                 << "' cannot be both " << op.getExpected()
                                 << " and " << known->second.getExpected();
      error.attachNote(known->second->getLoc()) << "the other is here";
      return failure();
    }
    auto argument = dyn_cast_or_null<BlockArgument>(op.getValue());
    auto owner = dyn_cast<FunctionOpInterface>(function);
    if (op.getFact() != Fact::Extent || !owner || !argument ||
        argument.getOwner() != &body.front())
      continue;
    auto dims = owner.getArgAttrOfType<DimsAttr>(argument.getArgNumber(),
                                                 KoilaDialect::kDimsAttr);
    int64_t dim = *op.getDim();
    if (dims && dim >= 0 &&
        dim < static_cast<int64_t>(dims.getExprs().size()) &&
        contradict(dims.getExprs()[dim], op.getExpected()))
      return op->emitOpError()
             << "says that dim " << dim << " of argument "
             << argument.getArgNumber() << " is "
             << DimExpr(cast<DimExprAttr>(op.getExpected())).str() << ", '"
             << KoilaDialect::kDimsAttr << "' has "
             << DimExpr(dims.getExprs()[dim]).str();
  }
  return success();
}

FunctionOpInterface koila::findFunction(ModuleOp module, StringRef name) {
  FunctionOpInterface found;
  std::string names;
  for (auto function : module.getOps<FunctionOpInterface>()) {
    if (function.isExternal())
      continue;
    if (!name.empty() && function.getName() == name)
      return function;
    if (!function.isPublic())
      continue;
    names += (names.empty() ? "'" : ", '") + function.getName().str() + "'";
    if (name.empty() && found) {
      module.emitError() << "several functions: say which by function=NAME "
                         << "(" << names << ")";
      return {};
    }
    found = function;
  }
  if (name.empty() && found)
    return found;
  if (names.empty()) {
    InFlightDiagnostic error = module.emitError()
                               << "the module has no function";
    FunctionOpInterface nested;
    module.walk([&](FunctionOpInterface function) {
      nested = function;
      return WalkResult::interrupt();
    });
    if (nested)
      error.attachNote(nested.getLoc())
          << "'" << nested.getName() << "' is in a module of its own: name it "
          << "in the pipeline, as builtin.module(builtin.module(...))";
  } else
    module.emitError() << "no function '" << name << "'; there is " << names;
  return {};
}
