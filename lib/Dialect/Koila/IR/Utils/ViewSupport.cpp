//===- ViewSupport.cpp - What the rules of views share --------------------===//

#include "../Rules/ViewRules.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace koila;

void rules::describeViews(StorageRule &rule, Value self) {
  for (unsigned index = 0; index < rule.getOp()->getNumResults(); ++index)
    rule.setAlias(index, self);
}

LogicalResult rules::emitDimOutOfRange(const ShapeRule &rule, int64_t dim,
                                       int64_t rank) {
  return rule.emitError() << "dim " << dim << " is out of range for rank "
                          << rank;
}

void rules::setUnknownRank(ShapeRule &rule, const TensorInfo &info) {
  TensorInfo result;
  result.elementType = info.elementType;
  for (unsigned index = 0; index < rule.getOp()->getNumResults(); ++index)
    rule.setResult(index, result);
}

bool rules::hasBatchArgument(BatchRule &rule) {
  bool found = false;
  for (Value argument : OperatorArguments(rule.getOp()).getDynamic())
    found |= !rule.fact(argument).isFree();
  return found;
}

//===----------------------------------------------------------------------===//
// Symbols
//===----------------------------------------------------------------------===//

static ArrayAttr getSymbols(Operation *op) {
  auto module = op->getParentOfType<ModuleOp>();
  return module ? module->getAttrOfType<ArrayAttr>(KoilaDialect::kSymbolsAttr)
                : ArrayAttr();
}

StringRef rules::getBatchName(Operation *op) {
  if (ArrayAttr symbols = getSymbols(op))
    for (auto symbol : symbols.getAsRange<SymbolAttr>())
      if (symbol.getBatch())
        return symbol.getName();
  return {};
}

DimExpr rules::substituteFixed(Operation *op, DimExpr expr) {
  ArrayAttr symbols = getSymbols(op);
  if (!symbols || expr.getConstant())
    return expr;
  return expr.substitute([&](DimSymbol known) {
    for (auto symbol : symbols.getAsRange<SymbolAttr>())
      if (known.isNamed(symbol.getName()) &&
          symbol.getLower() == symbol.getUpper())
        return DimExpr::constant(expr.getContext(), symbol.getLower());
    return DimExpr();
  });
}

TensorInfo rules::substituteFixed(Operation *op, TensorInfo info) {
  for (auto *list : {&info.dims, &info.strides})
    if (*list)
      for (DimExpr &expr : **list)
        if (expr)
          expr = substituteFixed(op, expr);
  return info;
}

bool rules::isBakedIn(Operation *op, DimExpr extent, int64_t number) {
  if (extent.hasLocalSymbol())
    return false;
  // The two rows of x[:2] are min(2, B), and no number that tracing wrote.
  constexpr int64_t kLarge = 1 << 20;
  auto large = [=](DimSymbol) { return std::optional<int64_t>(kLarge); };
  DimExpr open = substituteFixed(op, extent);
  return !open.isConstant(number) && open.evaluate(large) != number;
}

//===----------------------------------------------------------------------===//
// Signs
//===----------------------------------------------------------------------===//

static bool isNonNegativeAtom(Attribute atom) {
  if (auto symbol = dyn_cast<DimSymbol>(atom))
    return symbol.isExtent();
  auto call = cast<DimAtomAttr>(atom);
  bool lhs = rules::isNonNegative(call.getLhs());
  bool rhs = rules::isNonNegative(call.getRhs());
  return call.getFunction().getValue() == "max" ? lhs || rhs : lhs && rhs;
}

bool rules::isNonNegative(DimExpr expr) {
  if (auto constant = expr.getConstant())
    return *constant >= 0;
  DimExprAttr attr = expr.getAttr();
  for (auto [coefficient, monomial] :
       llvm::zip_equal(attr.getCoefficients(), attr.getMonomials())) {
    if (coefficient > 0) {
      if (!llvm::all_of(monomial, isNonNegativeAtom))
        return false;
      continue;
    }
    // Only what bounds an atom from above can make up for a minus.
    auto call = monomial.size() == 1 ? dyn_cast<DimAtomAttr>(monomial[0])
                                     : DimAtomAttr();
    if (!call)
      return false;
    DimExpr atom = DimExprAttr::get(expr.getContext(), 1, monomial);
    DimExpr rest = expr + atom * -coefficient;
    DimExpr lhs = call.getLhs(), rhs = call.getRhs();
    StringRef function = call.getFunction().getValue();
    if (function == "min")
      return isNonNegative(rest + lhs * coefficient) ||
             isNonNegative(rest + rhs * coefficient);
    auto divisor = rhs.getConstant();
    return function == "floordiv" && divisor && *divisor > 0 &&
           isNonNegative(rest * *divisor + lhs * coefficient);
  }
  return true;
}

DimExpr rules::getSmaller(DimExpr lhs, DimExpr rhs) {
  if (isNonNegative(rhs - lhs))
    return lhs;
  return isNonNegative(lhs - rhs) ? rhs : lhs.min(rhs);
}

DimExpr rules::clampToZero(DimExpr expr) {
  if (isNonNegative(expr))
    return expr;
  DimExpr zero = DimExpr::constant(expr.getContext(), 0);
  return isNonNegative(zero - expr) ? zero : expr.max(zero);
}
