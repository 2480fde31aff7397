//===- DrawnOffsets.cpp - How far a program moves the generator -----------===//

#include "DrawnOffsets.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/RandomOp.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace koila;

static SymbolMap getGivenSizes(ModuleOp module) {
  SymbolMap sizes;
  if (auto symbols =
          module->getAttrOfType<ArrayAttr>(KoilaDialect::kSymbolsAttr))
    for (auto symbol : symbols.getAsRange<SymbolAttr>())
      if (symbol.getValue() >= 0)
        sizes[DimSymbol::get(module.getContext(), symbol.getName())] =
            symbol.getValue();
  return sizes;
}

std::optional<int64_t> koila::getPhiloxOffset(FunctionOpInterface function,
                                              const PhiloxDevice &device) {
  SymbolMap sizes = getGivenSizes(function->getParentOfType<ModuleOp>());
  DimAnalysis dims(function);
  auto getSize = [&](DimSymbol symbol) -> std::optional<int64_t> {
    auto found = sizes.find(symbol);
    return found == sizes.end() ? std::nullopt : std::optional(found->second);
  };
  auto lookup = [&](Value value) -> std::optional<ConcreteTensor> {
    const std::optional<TensorInfo> &info = dims.lookup(value).tensor;
    if (!info || !info->hasRank() || !info->elementType)
      return std::nullopt;
    ConcreteTensor tensor;
    tensor.elementType = info->elementType;
    for (DimExpr dim : *info->dims) {
      auto extent = dim ? dim.evaluate(getSize) : std::nullopt;
      if (!extent || *extent < 0)
        return std::nullopt;
      tensor.dims.push_back(*extent);
    }
    return tensor;
  };
  int64_t total = 0;
  for (Operation &op : function.getFunctionBody().getOps()) {
    if (!mayDraw(&op))
      continue;
    auto offset = op.getNumRegions() == 0 ? getPhiloxOffset(&op, lookup, device)
                                          : std::nullopt;
    if (!offset)
      return std::nullopt;
    total += *offset;
  }
  return total;
}

LogicalResult koila::reportPhiloxOffset(FunctionOpInterface function,
                                        std::optional<int64_t> untiled,
                                        const PhiloxDevice &device) {
  auto tiled = getPhiloxOffset(function, device);
  if (!untiled || !tiled || *untiled == 0)
    return success();
  if (*untiled != *tiled)
    return function.emitError()
           << "random=full-batch-masks would move the generator by " << *tiled
           << ", and the untiled program moves it by " << *untiled;
  remark::passed(function.getLoc(), remark::RemarkOpts::name("RandomNumbers")
                                        .category("koila-tile-batch")
                                        .function(function.getName()))
      << remark::add("the generator is moved as by the untiled program")
      << remark::metric("PhiloxOffset", *tiled);
  return success();
}
