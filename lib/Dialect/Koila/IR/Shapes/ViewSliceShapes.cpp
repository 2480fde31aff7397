//===- ViewSliceShapes.cpp - Parts of a dim -------------------------------===//

#include "../Rules/ViewRules.h"
#include <cstdlib>

using namespace mlir;
using namespace koila;
using rules::Lengths;

//===----------------------------------------------------------------------===//
// slice, narrow
//===----------------------------------------------------------------------===//

/// Counted from the end, for all values.
static bool isNegative(DimExpr position) {
  return rules::isNonNegative(position * -1 - 1);
}

/// Where a slice of a dim of `extent` begins or ends; null if unknown.
static DimExpr getPosition(DimExpr position, DimExpr extent) {
  if (!position)
    return {};
  if (position.isConstant(std::numeric_limits<int64_t>::max()))
    return extent;
  // No extent is below zero, though nothing may be known of a symbol. Slices of
  // slices would double otherwise.
  if (position.isConstant(0))
    return position;
  if (rules::isNonNegative(position))
    return rules::getSmaller(position, extent);
  return isNegative(position) ? rules::clampToZero(extent + position)
                              : DimExpr();
}

/// The number of positions from `start` to `end`, as Python slices them; null
/// if unknown. Source: slice in aten/src/ATen/native/TensorShape.cpp.
static DimExpr getSliceLength(DimExpr start, DimExpr end, DimExpr extent) {
  DimExpr from = getPosition(start, extent), to = getPosition(end, extent);
  if (!from || !to)
    return {};
  if (to == extent)
    return to - from;
  // Of a position from the start and one from the end, one clamp is enough:
  // x[1:-1] has max(S - 2, 0). Not of ones so far out that they overflow.
  auto isNear = [](DimExpr position) {
    auto constant = position.getConstant();
    return !constant ||
           std::abs(*constant) < std::numeric_limits<int32_t>::max();
  };
  if (!isNegative(start) && isNegative(end) && isNear(start) && isNear(end))
    return rules::clampToZero(extent + end - start);
  return rules::clampToZero(to - from);
}

LogicalResult rules::inferSlice(ShapeRule &rule, Value self, int64_t dim) {
  TensorInfo info = rule.tensor(self);
  DimExpr step = rule.integerArgument("step");
  if (auto constant = step ? step.getConstant() : std::nullopt;
      constant && *constant <= 0)
    return rule.emitError() << "step " << *constant << " is not positive";
  if (!info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  auto normal = normalizeDim(dim, info.getRank());
  if (!normal)
    return emitDimOutOfRange(rule, dim, info.getRank());
  if (info.getRank() == 0)
    return rule.emitError() << "a tensor without dims has no slices";
  DimExpr start = rule.hasArgument("start") ? rule.integerArgument("start")
                                            : rule.constant(0);
  DimExpr end = rule.hasArgument("end")
                    ? rule.integerArgument("end")
                    : rule.constant(std::numeric_limits<int64_t>::max());
  DimExpr length = getSliceLength(start, end, info.dim(*normal));
  if (!step || !step.getConstant())
    length = {};
  else if (length && !step.isConstant(1))
    length = (length - 1).floorDiv(step) + 1;
  (*info.dims)[*normal] = length;
  if (!step)
    info.strides.reset();
  else if (info.strides)
    (*info.strides)[*normal] = (*info.strides)[*normal] * step;
  rule.setResult(0, info);
  return success();
}

LogicalResult rules::inferNarrow(ShapeRule &rule, Value self, int64_t dim) {
  TensorInfo info = rule.tensor(self);
  DimExpr start = rule.integerArgument("start");
  DimExpr length = rule.integerArgument("length");
  auto count = length ? length.getConstant() : std::nullopt;
  if (count && *count < 0)
    return rule.emitError() << "length " << *count << " is negative";
  if (!info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  auto normal = normalizeDim(dim, info.getRank());
  if (!normal)
    return emitDimOutOfRange(rule, dim, info.getRank());
  if (info.getRank() == 0)
    return rule.emitError() << "a tensor without dims has no slices";
  DimExpr extent = info.dim(*normal);
  if (start && isNegative(start))
    start = extent + start;
  // Out of range for all values of the symbols.
  if (start &&
      (isNegative(start) || (length && isNegative(extent - start - length))))
    return rule.emitError()
           << "takes " << (length ? length.str() : "some") << " from position "
           << start.str() << " of extent " << extent.str();
  (*info.dims)[*normal] = length;
  rule.setResult(0, info);
  return success();
}

void rules::inferSliceBatch(BatchRule &rule, Value self) {
  rule.takeAnyRows();
  BatchFact fact = rule.fact(self);
  bool computed = hasBatchArgument(rule);
  TensorInfo from = rule.tensor(self);
  TensorInfo to = rule.tensor(rule.getOp()->getResult(0));
  if (!from.hasRank() || !to.hasRank())
    return rule.mix("the rank of the operand is unknown");
  // What has the extent of the operand is the whole of the dim.
  bool whole = fact.isAt() &&
               proveEqual(from.dim(fact.dim), to.dim(fact.dim)) == TriBool::Yes;
  for (auto [before, after] : llvm::zip_equal(*from.dims, *to.dims))
    whole &= !computed || before == after;
  if (whole)
    return rule.setResult(0, fact);
  rule.mix(
      fact.isAt() && !computed
          ? "a slice of the batch dim takes some samples and leaves others"
          : "a slice whose bounds are computed from the number of samples");
}

//===----------------------------------------------------------------------===//
// Lists of parts
//===----------------------------------------------------------------------===//

LogicalResult
rules::inferSplit(ShapeRule &rule, Value self, int64_t dim,
                  llvm::function_ref<Lengths(DimExpr)> getLengths) {
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  auto normal = normalizeDim(dim, info.getRank());
  if (!normal)
    return emitDimOutOfRange(rule, dim, info.getRank());
  if (info.getRank() == 0)
    return rule.emitError() << "a tensor without dims cannot be split";
  Lengths lengths = getLengths(info.dim(*normal));
  if (failed(lengths))
    return failure();
  unsigned count = rule.getOp()->getNumResults();
  if (*lengths && (*lengths)->size() != count)
    return rule.emitError() << "gives " << (*lengths)->size()
                            << " tensors, the program takes " << count;
  for (unsigned index = 0; index < count; ++index) {
    (*info.dims)[*normal] = *lengths ? (**lengths)[index] : DimExpr();
    rule.setResult(index, info);
  }
  return success();
}

/// Parts that each hold all samples once or more often. False if they do not.
static bool splitRows(BatchRule &rule, Value self, int64_t dim) {
  BatchFact fact = rule.rows(self);
  StringRef symbol = rules::getBatchName(rule.getOp());
  for (auto [index, part] : llvm::enumerate(rule.getOp()->getResults())) {
    TensorInfo info = rule.tensor(part);
    auto rows =
        info.hasRank() ? info.dim(dim).getMultipleOf(symbol) : std::nullopt;
    if (!fact.isInner() || !rows || *rows % fact.factor != 0)
      return false;
    MLIRContext *context = rule.getOp()->getContext();
    rule.setResult(index, BatchFact::inner(
                              dim, fact.factor,
                              DimExpr::constant(context, *rows / fact.factor)));
  }
  return true;
}

void rules::inferSplitBatch(BatchRule &rule, Value self, int64_t dim) {
  BatchFact fact = rule.fact(self);
  bool computed = hasBatchArgument(rule);
  TensorInfo info = rule.tensor(self);
  TensorInfo first = rule.tensor(rule.getOp()->getResult(0));
  auto normal =
      info.hasRank() ? normalizeDim(dim, info.getRank()) : std::nullopt;
  if (!fact.isAt() || !normal || !first.hasRank() || info.getRank() == 0)
    return rule.mix("the rank of the operand is unknown");
  // One part is the whole; but of more samples there may be more.
  if (rule.getOp()->getNumResults() == 1 && fact.dim != *normal &&
      info.dim(*normal) == first.dim(*normal))
    return rule.setResult(0, fact);
  if (fact.dim == *normal && splitRows(rule, self, *normal))
    return;
  if (computed)
    return rule.mix("splits by a size computed from the number of samples");
  if (fact.dim == *normal)
    return rule.mix("splits along the batch dim, so that the parts hold "
                    "different samples");
  rule.setAll(fact);
}

/// All parts of `size`, but for the last, which takes the rest. As many as
/// the program takes where the count is not known.
Lengths rules::splitBySize(ShapeRule &rule, DimExpr extent, DimExpr size) {
  int64_t count = rule.getOp()->getNumResults();
  if (!size)
    return Lengths(std::nullopt);
  auto length = extent.getConstant(), part = size.getConstant();
  if (part && *part < 0)
    return rule.emitError() << "split size " << *part << " is negative";
  if (part && *part == 0) {
    if (length && *length != 0)
      return rule.emitError() << "split size 0 for extent " << *length;
    count = 1;
  } else if (part && length) {
    count = std::max<int64_t>(llvm::divideCeil(*length, *part), 1);
  } else if (count == 1) {
    return Lengths(SmallVector<DimExpr>{extent});
  }
  // A tiny part of a huge extent: more tensors than any program takes.
  if (count > (1 << 16))
    return rule.emitError() << "gives " << count << " tensors, the program "
                            << "takes " << rule.getOp()->getNumResults();
  SmallVector<DimExpr> lengths(count, size);
  lengths.back() = extent - size * (count - 1);
  return Lengths(std::move(lengths));
}

Lengths rules::splitBySizes(ShapeRule &rule, DimExpr extent,
                            const Sizes &sizes) {
  if (!sizes)
    return Lengths(std::nullopt);
  DimExpr total = rule.constant(0);
  for (DimExpr size : *sizes) {
    if (!size)
      return Lengths(*sizes);
    if (auto part = size.getConstant(); part && *part < 0)
      return rule.emitError() << "split size " << *part << " is negative";
    total = total + size;
  }
  if (proveEqual(total, extent) == TriBool::No)
    return rule.emitError() << "split sizes sum to " << total.str()
                            << ", the extent is " << extent.str();
  return Lengths(*sizes);
}

Lengths rules::splitByChunks(ShapeRule &rule, DimExpr extent, DimExpr chunks) {
  auto count = chunks ? chunks.getConstant() : std::nullopt;
  if (!count)
    return Lengths(std::nullopt);
  if (*count <= 0)
    return rule.emitError() << "needs at least one chunk, got " << *count;
  if (*count < rule.getOp()->getNumResults())
    return rule.emitError()
           << "gives " << *count << " tensors at most, the "
           << "program takes " << rule.getOp()->getNumResults();
  if (extent.isConstant(0))
    return Lengths(
        SmallVector<DimExpr>(std::min<int64_t>(*count, 1 << 16), extent));
  return splitBySize(rule, extent, (extent + *count - 1).floorDiv(*count));
}

Lengths rules::splitBySections(ShapeRule &rule, DimExpr extent,
                               DimExpr sections) {
  auto count = sections ? sections.getConstant() : std::nullopt;
  if (!count)
    return Lengths(std::nullopt);
  if (*count <= 0)
    return rule.emitError() << "needs at least one section, got " << *count;
  SmallVector<DimExpr> lengths;
  // The first ones are longer by one where the extent does not divide.
  for (int64_t i = 0; i < std::min<int64_t>(*count, 1 << 16); ++i)
    lengths.push_back((extent + *count - 1 - i).floorDiv(*count));
  return Lengths(std::move(lengths));
}
