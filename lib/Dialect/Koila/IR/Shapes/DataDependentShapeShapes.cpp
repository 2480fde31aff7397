//===- DataDependentShapeShapes.cpp - Extents that data decide ------------===//

#include "../Rules/IndexRules.h"

using namespace mlir;
using namespace koila;

static LogicalResult checkMask(ShapeRule &rule, const TensorInfo &mask) {
  if (!mask.elementType || mask.elementType.isSignlessInteger(1))
    return success();
  return rule.emitError() << "takes a mask of bool, got " << mask.elementType;
}

// Source: masked_select_out_impl_cpu in TensorAdvancedIndexing.cpp.
LogicalResult indexing::inferMaskedSelect(ShapeRule &rule, Value self,
                                          Value mask) {
  TensorInfo info = rule.tensor(self), where = rule.tensor(mask);
  SmallVector<DimExpr> dims;
  if (failed(checkMask(rule, where)) ||
      (info.hasRank() && where.hasRank() &&
       failed(broadcastDims(rule, *info.dims, *where.dims, dims))))
    return failure();
  rule.setResult(0, packed(DimExpr(), info.elementType));
  return success();
}

// Source: masked_scatter in TensorAdvancedIndexing.cpp.
LogicalResult indexing::inferMaskedScatter(ShapeRule &rule, Value self,
                                           Value mask, Value source) {
  TensorInfo info = rule.tensor(self), where = rule.tensor(mask);
  if (failed(checkMask(rule, where)) ||
      failed(checkSameType(rule, info, rule.tensor(source))))
    return failure();
  auto op = dyn_cast<TorchOperatorInterface>(rule.getOp());
  if (op && op.isTied()) {
    if (info.hasRank() && failed(checkExpands(rule, where, *info.dims)))
      return failure();
    return setWritten(rule, self, Copy::Packed);
  }
  TensorInfo result = unranked(info.elementType);
  SmallVector<DimExpr> dims;
  if (info.hasRank() && where.hasRank()) {
    if (failed(broadcastDims(rule, *info.dims, *where.dims, dims)))
      return failure();
    result = packed(dims, info.elementType);
  }
  rule.setResult(0, result);
  return success();
}

// Source: nonzero_out_cpu in TensorAdvancedIndexing.cpp.
LogicalResult indexing::inferNonzero(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  Type type = IntegerType::get(rule.getContext(), 64);
  TensorInfo result = unranked(type);
  // One column after the other, whose length data decides (measured).
  result.dims = SmallVector<DimExpr>{
      DimExpr(), info.hasRank() ? rule.constant(info.getRank()) : DimExpr()};
  if (info.hasRank() && info.getRank() == 1)
    result = packed(*result.dims, type);
  rule.setResult(0, result);
  return success();
}

LogicalResult indexing::inferNonzeroNumpy(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  int64_t results = rule.getResults().size();
  bool list = results == 1 && isa<ListType>(rule.getOp()->getResultTypes()[0]);
  if (list)
    return success();
  int64_t count = info.hasRank() ? std::max<int64_t>(info.getRank(), 1) : 0;
  if (info.hasRank() && results != count)
    return rule.emitError() << "returns " << count << " tensors, the program "
                            << "takes " << results;
  for (int64_t index = 0; index < results; ++index)
    rule.setResult(index,
                   packed(DimExpr(), IntegerType::get(rule.getContext(), 64)));
  return success();
}

// Source: aten/src/ATen/native/SummaryOps.cpp.
LogicalResult indexing::inferBincount(ShapeRule &rule, Value self,
                                      Value weights) {
  TensorInfo info = rule.tensor(self), amounts = rule.tensor(weights);
  DimExpr least = rule.integerArgument("minlength");
  if (least && proveAtMost(rule.constant(0), least) == TriBool::No)
    return rule.emitError() << "minlength " << least << " is negative";
  if (info.hasRank() && info.getRank() != 1)
    return rule.emitError()
           << "counts in a vector, got rank " << info.getRank();
  if (info.elementType && !isa<IntegerType>(info.elementType))
    return rule.emitError() << "counts integers, got " << info.elementType;
  bool empty = info.hasRank() && info.dim(0).isConstant(0);
  if (weights && !empty && amounts.hasRank() && info.hasRank() &&
      (amounts.getRank() != 1 ||
       proveEqual(amounts.dim(0), info.dim(0)) == TriBool::No))
    return rule.emitError() << "weights must have one element for each of self";
  Type type = IntegerType::get(rule.getContext(), 64);
  if (weights && !empty) {
    type = amounts.elementType;
    if (type && !type.isF32())
      type = Float64Type::get(rule.getContext());
  }
  // An empty vector has minlength counts of int64, whatever the weights are.
  rule.setResult(0, packed(empty ? least : DimExpr(), type));
  return success();
}
