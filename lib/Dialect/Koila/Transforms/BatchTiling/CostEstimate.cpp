//===- CostEstimate.cpp - What plans go by --------------------------------===//

#include "CostEstimate.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/KernelWork.h"
#include "koila/Interfaces/Rules.h"

using namespace mlir;
using namespace koila;

SmallVector<double> CostEstimate::getShape(Value value) const {
  const std::optional<TensorInfo> &info = dims.lookup(value).tensor;
  if (!info || !info->hasRank())
    return {};
  // Of an extent that nothing says.
  constexpr int64_t kExtent = 64;
  SmallVector<double> shape;
  for (DimExpr dim : *info->dims) {
    auto extent = dim ? dim.evaluate([&](DimSymbol found) {
      return std::optional(found.isNamed(symbol) ? batch : kExtent);
    })
                      : std::nullopt;
    shape.push_back(extent.value_or(kExtent));
  }
  return shape;
}

int64_t CostEstimate::getBytes(Value value) const {
  auto [known, isNew] = bytesOf.try_emplace(value, 0);
  if (!isNew)
    return known->second;
  const std::optional<TensorInfo> &info = dims.lookup(value).tensor;
  if (!info || !info->hasRank())
    return 0;
  double bytes = getElementBytes(info->elementType);
  for (double extent : getShape(value))
    bytes *= extent;
  return bytesOf[value] = static_cast<int64_t>(std::min(bytes, 1e15));
}

/// By arithmetic and by bytes moved. Weights are small, and read once.
double CostEstimate::getTime(Operation *op) const {
  auto [known, isNew] = timeOf.try_emplace(op, 0);
  if (!isNew)
    return known->second;
  double time = table.call;
  for (Value result : op->getResults())
    time += table.byte * getBytes(result);
  for (Value operand : op->getOperands())
    if (isa<TensorType>(operand.getType()) &&
        !operand.getDefiningOp<ParamGetOp>())
      time += table.byte * getBytes(operand);
  if (auto worker = dyn_cast<KernelWorkInterface>(op)) {
    KernelWork work =
        worker.describeWork([&](Value value) { return getShape(value); });
    time += table.getOperation(work.family) * work.operations;
  }
  return timeOf[op] = time;
}
