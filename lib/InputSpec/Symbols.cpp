//===- Symbols.cpp - The symbols of input specs ---------------------------===//

#include "Arguments.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace koila;
using namespace koila::detail;

SymbolTableBuilder::SymbolTableBuilder(ModuleOp module, Location location)
    : location(location) {
  auto known = module->getAttrOfType<ArrayAttr>(KoilaDialect::kSymbolsAttr);
  if (!known)
    return;
  for (SymbolAttr attr : known.getAsRange<SymbolAttr>()) {
    Symbol &symbol = symbols[attr.getName().str()];
    if (attr.getValue() != -1)
      symbol.value = attr.getValue();
    symbol.lower = attr.getLower();
    symbol.upper = attr.getUpper();
    symbol.batch = attr.getBatch();
  }
}

/// `upper` is -1 where there is none.
static std::string describeRange(int64_t lower, int64_t upper) {
  std::string text = "from " + std::to_string(lower);
  return upper == -1 ? text : text + " to " + std::to_string(upper);
}

LogicalResult SymbolTableBuilder::pin(StringRef name, int64_t value,
                                      StringRef where) {
  Symbol &symbol = symbols[name.str()];
  if (symbol.isPinned() && *symbol.value == value)
    return success();
  if (symbol.isPinned())
    return emitError(location)
           << "symbol '" << name << "' is " << *symbol.value << ", but "
           << value << " in " << where << "; a symbol has one value";
  if (value < symbol.lower || (symbol.upper != -1 && value > symbol.upper))
    return emitError(location)
           << "symbol '" << name << "' is " << value << " in " << where
           << ", outside the range that the program was made for ("
           << describeRange(symbol.lower, symbol.upper) << ")";
  symbol.value = symbol.lower = symbol.upper = value;
  return success();
}

LogicalResult SymbolTableBuilder::setValue(StringRef name, int64_t value) {
  auto *found = symbols.find(name.str());
  if (found == symbols.end())
    return emitError(location)
           << "--batch " << name << "=" << value << ": there is no symbol '"
           << name << "'; known: " << list();
  Symbol &symbol = found->second;
  if (symbol.isPinned() && *symbol.value != value)
    return emitError(location)
           << "--batch " << name << "=" << value << ": symbol '" << name
           << "' is fixed to " << *symbol.value
           << "; write it without '=" << *symbol.value
           << "' in --input to vary it";
  if (value < symbol.lower || (symbol.upper != -1 && value > symbol.upper))
    return emitError(location)
           << "--batch " << name << "=" << value << ": outside the range of '"
           << name << "', which is "
           << describeRange(symbol.lower, symbol.upper);
  symbol.value = value;
  return success();
}

LogicalResult SymbolTableBuilder::chooseBatch(StringRef requested) {
  if (symbols.empty() && requested.empty())
    return success();
  auto *batch = symbols.end();
  if (!requested.empty()) {
    batch = symbols.find(requested.str());
    if (batch == symbols.end())
      return emitError(location)
             << "--batch-symbol " << requested << ": there is no symbol '"
             << requested << "'; known: " << list();
  } else {
    batch =
        llvm::find_if(symbols, [](auto &entry) { return entry.second.batch; });
    if (batch == symbols.end())
      batch = symbols.find("B");
    if (batch == symbols.end() && symbols.size() == 1)
      batch = symbols.begin();
    if (batch == symbols.end())
      return emitError(location) << "which symbol is the batch? Name it with "
                                    "--batch-symbol; known: "
                                 << list();
  }
  for (auto &entry : symbols)
    entry.second.batch = false;
  batch->second.batch = true;
  return success();
}

std::optional<int64_t> SymbolTableBuilder::getStatic(DimExpr expr) const {
  return expr.evaluate([&](DimSymbol symbol) -> std::optional<int64_t> {
    auto *found = symbols.find(symbol.getName().str());
    if (found == symbols.end() || !found->second.isPinned())
      return std::nullopt;
    return found->second.value;
  });
}

RankedTensorType SymbolTableBuilder::makeType(ArrayRef<DimExpr> dims,
                                              Type elementType) const {
  SmallVector<int64_t> shape;
  for (DimExpr dim : dims)
    shape.push_back(getStatic(dim).value_or(ShapedType::kDynamic));
  return RankedTensorType::get(shape, elementType);
}

DimExpr koila::detail::makeExpr(MLIRContext *context, const InputDim &dim) {
  DimExpr factor = DimExpr::constant(context, dim.factor);
  return dim.isConstant() ? factor
                          : factor * DimExpr::symbol(context, dim.symbol);
}

std::string SymbolTableBuilder::list() const {
  if (symbols.empty())
    return "none (every extent is a number)";
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::interleaveComma(symbols, os, [&](auto &entry) { os << entry.first; });
  return text;
}

ArrayAttr SymbolTableBuilder::build(MLIRContext *context) const {
  SmallVector<Attribute> attrs;
  for (auto &[name, symbol] : symbols)
    attrs.push_back(SymbolAttr::get(context, name, symbol.value.value_or(-1),
                                    symbol.lower, symbol.upper, symbol.batch));
  return ArrayAttr::get(context, attrs);
}
