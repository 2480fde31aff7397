//===- TraceSpecializedBatch.cpp - Batch sizes that tracing made literals -===//
//
// Tracing records Python's integers as they were: `x.view(int(x.shape[0]), 4)`
// becomes a view to the batch of the example. Such a program is legal, or even
// right, for other batches only by accident. What gives it away is an operation
// at which the samples are mixed and which has that number, as a literal or as
// an extent of a tensor without the batch.
//
//===----------------------------------------------------------------------===//

#include "TraceSpecializedBatch.h"
#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;

namespace {
/// The batch that the program was traced with.
struct Example {
  StringRef symbol;
  int64_t batch = 0;
};
} // namespace

/// From the arguments' dims and recorded types; none if there is none, or if
/// the batch is fixed to one value.
static std::optional<Example> findExample(FunctionOpInterface function) {
  auto module = function->getParentOfType<ModuleOp>();
  Example example{module ? getBatchSymbol(module) : StringRef()};
  if (example.symbol.empty())
    return std::nullopt;
  for (unsigned index = 0; index < function.getNumArguments(); ++index) {
    auto recorded = function.getArgAttrOfType<TypeAttr>(index, "koila.example");
    auto dims =
        function.getArgAttrOfType<DimsAttr>(index, KoilaDialect::kDimsAttr);
    auto type =
        recorded ? dyn_cast<RankedTensorType>(recorded.getValue()) : nullptr;
    auto stated =
        dyn_cast<RankedTensorType>(function.getArgumentTypes()[index]);
    if (!type || !dims || !stated ||
        type.getRank() != static_cast<int64_t>(dims.getExprs().size()))
      continue;
    for (auto [dim, expr] : llvm::enumerate(dims.getExprs())) {
      auto factor = DimExpr(expr).getMultipleOf(example.symbol);
      if (factor && stated.isDynamicDim(dim) &&
          type.getDimSize(dim) % *factor == 0)
        example.batch = type.getDimSize(dim) / *factor;
    }
  }
  // One is the extent of everything that broadcasts.
  if (example.batch <= 1)
    return std::nullopt;
  return example;
}

/// Whether `number` or a multiple stands in a literal list, or is an extent of
/// an operand that has no batch; or whether a literal is the extent that a
/// batch dim of several rows per sample had.
static bool mentions(Operation *op, int64_t number, const DimAnalysis &dims,
                     const BatchAnalysis &batch) {
  SmallVector<int64_t> extents;
  for (Value operand : op->getOperands())
    if (const BatchFact &fact = batch.lookup(operand);
        fact.isAt() && fact.factor > 1)
      extents.push_back(fact.factor * number);
  for (NamedAttribute attr : op->getAttrs()) {
    if (auto integer = dyn_cast<IntegerAttr>(attr.getValue()))
      if (llvm::is_contained(extents, integer.getValue().getSExtValue()))
        return true;
    if (auto list = dyn_cast<DenseI64ArrayAttr>(attr.getValue()))
      for (int64_t element : list.asArrayRef())
        if (element > 0 && element % number == 0)
          return true;
  }
  for (Value operand : op->getOperands()) {
    const ValueInfo &info = dims.lookup(operand);
    if (batch.lookup(operand).isFree() && info.tensor && info.tensor->hasRank())
      for (DimExpr dim : *info.tensor->dims)
        if (dim && dim.isConstant(number))
          return true;
  }
  return false;
}

void koila::warnOfTraceSpecializedBatch(FunctionOpInterface function,
                                        const DimAnalysis &dims) {
  std::optional<Example> example = findExample(function);
  if (!example)
    return;
  BatchAnalysis batch(function, dims, example->symbol);
  function->walk([&](TorchOperatorInterface op) {
    bool mixes = llvm::any_of(op->getResults(), [&](Value result) {
      const BatchFact &fact = batch.lookup(result);
      return fact.isMixed() && fact.origin == op.getOperation();
    });
    if (mixes && mentions(op, example->batch, dims, batch))
      op->emitWarning() << "the batch meets the number " << example->batch
                        << ", which is the batch that the program was traced "
                        << "with; if tracing baked it in, re-trace with a "
                        << "dynamic batch, or analyse at " << example->symbol
                        << "=" << example->batch << " only (--input with "
                        << example->symbol << "=" << example->batch << ")";
  });
}
