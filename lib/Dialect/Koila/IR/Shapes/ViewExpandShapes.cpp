//===- ViewExpandShapes.cpp - Repetition without a copy -------------------===//

#include "../Rules/ViewRules.h"

using namespace mlir;
using namespace koila;

static InFlightDiagnostic emitBakedIn(const ShapeRule &rule, DimExpr extent,
                                      DimExpr size, int64_t dim) {
  return rule.emitError() << "cannot expand extent " << extent.str() << " to "
                          << size.str() << " in dim " << dim
                          << ": a number was baked in by tracing";
}

/// `info` expanded to `sizes`. Source: inferExpandGeometry in
/// aten/src/ATen/ExpandUtils.cpp.
static FailureOr<TensorInfo> expandTo(ShapeRule &rule, const TensorInfo &info,
                                      ArrayRef<DimExpr> sizes) {
  int64_t rank = sizes.size(), offset = rank - info.getRank();
  if (offset < 0)
    return rule.emitError() << "has " << rank << " sizes for an operand of "
                            << "rank " << info.getRank();
  TensorInfo result;
  result.elementType = info.elementType;
  result.dims.emplace();
  result.strides.emplace();
  DimExpr one = rule.constant(1), zero = rule.constant(0);
  for (int64_t dim = 0; dim < rank; ++dim) {
    DimExpr size = sizes[dim];
    DimExpr extent = dim < offset ? one : info.dim(dim - offset);
    DimExpr stride = dim < offset   ? zero
                     : info.strides ? (*info.strides)[dim - offset]
                                    : DimExpr();
    if (size && size.isConstant(-1)) {
      if (dim < offset)
        return rule.emitError()
               << "size -1 in dim " << dim << ", which the operand has not";
      size = extent;
    }
    auto wanted = size ? size.getConstant() : std::nullopt;
    auto given = extent.getConstant();
    if (wanted && *wanted < 0)
      return rule.emitError() << "size " << *wanted << " is negative";
    if (given && *given != 1) {
      if (wanted && *wanted != *given)
        return rule.emitError() << "cannot expand extent " << *given << " to "
                                << *wanted << " in dim " << dim;
      if (size && !wanted && rules::isBakedIn(rule.getOp(), size, *given))
        return emitBakedIn(rule, extent, size, dim);
      size = extent;
    } else if (wanted && !given &&
               rules::isBakedIn(rule.getOp(), extent, *wanted)) {
      return emitBakedIn(rule, extent, size, dim);
    }
    // A symbol is an extent of two or more, so the elements are there.
    if (given && *given == 1 && !(size && size.isConstant(1)))
      stride = zero;
    result.dims->push_back(size);
    if (stride && result.strides)
      result.strides->push_back(stride);
    else
      result.strides.reset();
  }
  return result;
}

LogicalResult rules::inferExpand(ShapeRule &rule, Value self,
                                 const Sizes &sizes) {
  TensorInfo info = rule.tensor(self);
  if (!sizes || !info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  FailureOr<TensorInfo> result = expandTo(rule, info, *sizes);
  if (failed(result))
    return failure();
  rule.setResult(0, *result);
  return success();
}

LogicalResult rules::inferBroadcastTensors(ShapeRule &rule,
                                           ValueRange tensors) {
  unsigned count = rule.getOp()->getNumResults();
  if (tensors.size() != count)
    return rule.emitError() << "gives " << tensors.size()
                            << " tensors, the program takes " << count;
  SmallVector<DimExpr> dims; // From the last.
  for (Value tensor : tensors) {
    TensorInfo info = rule.tensor(tensor);
    if (!info.hasRank()) {
      for (auto [index, each] : llvm::enumerate(tensors)) {
        TensorInfo unknown;
        unknown.elementType = rule.tensor(each).elementType;
        rule.setResult(index, unknown);
      }
      return success();
    }
    for (auto [index, extent] : llvm::enumerate(llvm::reverse(*info.dims))) {
      if (index == dims.size())
        dims.push_back(extent);
      auto lhs = dims[index].getConstant(), rhs = extent.getConstant();
      if (lhs && rhs && *lhs != *rhs && *lhs != 1 && *rhs != 1)
        return rule.emitError()
               << "cannot broadcast extents " << *lhs << " and " << *rhs;
      dims[index] = dims[index].broadcast(extent);
    }
  }
  std::reverse(dims.begin(), dims.end());
  for (auto [index, tensor] : llvm::enumerate(tensors)) {
    FailureOr<TensorInfo> result = expandTo(rule, rule.tensor(tensor), dims);
    if (failed(result))
      return failure();
    rule.setResult(index, *result);
  }
  return success();
}

void rules::inferExpandBatch(BatchRule &rule, Value self, Value other) {
  BatchFact fact = rule.fact(self);
  (void)rule.fact(other);
  (void)hasBatchArgument(rule);
  TensorInfo from = rule.tensor(self);
  TensorInfo to = rule.tensor(rule.getOp()->getResult(0));
  StringRef symbol = getBatchName(rule.getOp());
  if (!from.hasRank() || !to.hasRank() || symbol.empty())
    return rule.mix("the rank of an operand is unknown");
  std::optional<BatchFact> found;
  for (auto [index, extent] : llvm::enumerate(*to.dims)) {
    if (!extent.dependsOn(symbol))
      continue;
    auto factor = extent.getMultipleOf(symbol);
    if (!factor || found)
      return rule.mix("expands to extent " + extent.str() +
                      ", so that samples are mixed");
    found = BatchFact::at(index, *factor);
  }
  if (!found)
    return rule.mix("expands to sizes that do not follow the batch; a literal "
                    "batch size was perhaps baked in by tracing");
  // Of an operand without batch, the same is repeated for every sample.
  fact.dim += to.getRank() - from.getRank();
  if (fact.isAt() && !(*found == fact))
    return rule.mix("expands the batch into another dim");
  rule.setResult(0, *found);
}
