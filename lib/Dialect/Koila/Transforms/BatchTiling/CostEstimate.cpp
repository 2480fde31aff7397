//===- CostEstimate.cpp - What plans go by --------------------------------===//

#include "CostEstimate.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/Rules.h"

using namespace mlir;
using namespace koila;

int64_t CostEstimate::getBytes(Value value) const {
  auto [known, isNew] = bytesOf.try_emplace(value, 0);
  if (!isNew)
    return known->second;
  const std::optional<TensorInfo> &info = dims.lookup(value).tensor;
  if (!info || !info->hasRank())
    return 0;
  // Of an extent that nothing says.
  constexpr int64_t kExtent = 64;
  double bytes = getElementBytes(info->elementType);
  for (DimExpr dim : *info->dims) {
    auto extent = dim ? dim.evaluate([&](DimSymbol found) {
      return std::optional(found.isNamed(symbol) ? batch : kExtent);
    })
                      : std::nullopt;
    bytes *= extent.value_or(kExtent);
  }
  return bytesOf[value] = static_cast<int64_t>(std::min(bytes, 1e15));
}

/// By work and by bytes moved. The rates of one core, 25 products and 8 bytes a
/// nanosecond, are estimates, not measured.
double CostEstimate::getTime(Operation *op) const {
  auto [known, isNew] = timeOf.try_emplace(op, 0);
  if (!isNew)
    return known->second;
  constexpr double kProduct = 40, kByte = 125;
  double time = 0;
  for (Value result : op->getResults())
    time += kByte * getBytes(result);
  int64_t made = op->getNumResults() > 0 ? getBytes(op->getResult(0)) : 0;
  for (Value operand : op->getOperands()) {
    if (!isa<TensorType>(operand.getType()))
      continue;
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    if (!operand.getDefiningOp<ParamGetOp>()) {
      time += kByte * getBytes(operand);
    } else if (type && type.getRank() > 1 && type.hasStaticShape()) {
      // Each element is a sum over what one filter, or row, holds.
      int64_t terms =
          type.getNumElements() / std::max<int64_t>(type.getDimSize(0), 1);
      time += kProduct * made / getElementBytes(type.getElementType()) * terms;
    }
  }
  return timeOf[op] = time;
}
