//===- ResampleShapes.cpp - Rules of resizing and of grids ----------------===//

#include "../Rules/OperatorRules.h"
#include "../Rules/ResampleRules.h"
#include "../Utils/Windows.h"
#include <cmath>

using namespace mlir;
using namespace koila;
using namespace koila::spatial;

//===----------------------------------------------------------------------===//
// Resizing
//===----------------------------------------------------------------------===//

/// `in * scale` as PyTorch computes it, in double and cut off. Of a symbol it
/// is known where every step is exact: for a fraction with a small numerator
/// whose denominator is a power of two.
/// Source: compute_output_size in aten/src/ATen/native/UpSample.cpp.
static FailureOr<DimExpr> scaleExtent(ShapeRule &rule, DimExpr in,
                                      double scale) {
  constexpr double kMost = 4503599627370496.0; // 2^52
  if (auto extent = in.getConstant()) {
    double scaled = static_cast<double>(*extent) * scale;
    // Also refuses what is no number.
    if (!(std::abs(scaled) < kMost))
      return rule.emitError() << "scale factor " << std::to_string(scale)
                              << " of extent " << *extent << " is too large";
    return rule.constant(static_cast<int64_t>(scaled));
  }
  constexpr double kMostNumerator = 1 << 20;
  for (int64_t denominator = 1; denominator <= 64; denominator *= 2) {
    double numerator = scale * denominator;
    if (numerator == std::floor(numerator) && numerator > 0 &&
        numerator <= kMostNumerator)
      return (in * static_cast<int64_t>(numerator)).floorDiv(denominator);
  }
  return DimExpr();
}

static FailureOr<SmallVector<DimExpr>>
getResizedExtents(ShapeRule &rule, const TensorInfo &input, int64_t rank) {
  auto scales = rule.getOp()->getAttrOfType<DenseF64ArrayAttr>("scale_factors");
  if (rule.hasArgument("output_size") == static_cast<bool>(scales))
    return rule.emitError() << "needs either output_size or scale_factors"
                            << (scales ? ", got both" : "");
  if (!scales)
    return readSizes(rule, "output_size", rank, 1);
  if (scales.size() != rank)
    return rule.emitError() << "scale_factors has " << scales.size()
                            << " entries for " << rank << " spatial dims";
  SmallVector<DimExpr> extents(rank);
  if (!input.hasRank())
    return extents;
  for (int64_t index = 0; index < rank; ++index) {
    auto extent = scaleExtent(rule, input.dim(index + 2), scales[index]);
    if (failed(extent))
      return failure();
    extents[index] = *extent;
    auto value = *extent ? extent->getConstant() : std::nullopt;
    if (value && *value < 1)
      return rule.emitError() << "the result has extent " << *value
                              << " in spatial dim " << index;
  }
  return extents;
}

LogicalResult rules::inferResize(ShapeRule &rule, int64_t rank) {
  TensorInfo input = rule.tensor(rule.getOp()->getOperand(0));
  TensorInfo result;
  result.elementType = input.elementType;
  rule.setResult(0, result);
  if (failed(checkRank(rule, input, rank + 2, rank + 2)))
    return failure();
  auto extents = getResizedExtents(rule, input, rank);
  if (failed(extents))
    return failure();
  if (!input.hasRank())
    return success();
  for (int64_t dim = 1; dim < rank + 2; ++dim)
    if (input.dim(dim).isConstant(0))
      return rule.emitError() << "resizes an image with an empty dim " << dim;
  SmallVector<DimExpr> dims = {input.dim(0), input.dim(1)};
  dims.append(*extents);
  rule.setResult(
      0, makeImage(dims, input.elementType, suggestsChannelsLast(input)));
  return success();
}

void rules::inferResizeBatch(BatchRule &rule, int64_t rank) {
  (void)rule.fact(rule.getOp()->getOperand(0));
  if (argumentsFollowBatch(rule))
    return rule.mix("the size of an image depends on the number of samples");
  inferTrailingBatch(rule, rule.getOp()->getOperand(0), rank);
}

//===----------------------------------------------------------------------===//
// Sampling at a grid
//===----------------------------------------------------------------------===//

/// Source: aten/src/ATen/native/GridSamplerUtils.h.
LogicalResult rules::inferGridSampler(ShapeRule &rule, int64_t rank) {
  Operation *op = rule.getOp();
  TensorInfo input = rule.tensor(op->getOperand(0));
  TensorInfo grid = rule.tensor(op->getOperand(1));
  TensorInfo result;
  result.elementType = input.elementType;
  rule.setResult(0, result);
  int64_t least = rank ? rank + 2 : 4, most = rank ? rank + 2 : 5;
  if (failed(checkRank(rule, input, least, most)) ||
      failed(checkRank(rule, grid, least, most)))
    return failure();
  if (!input.hasRank() || !grid.hasRank())
    return success();
  rank = input.getRank() - 2;
  if (grid.getRank() != input.getRank())
    return rule.emitError() << "input has rank " << input.getRank()
                            << ", the grid " << grid.getRank();
  constexpr int64_t kBicubic = 2;
  auto mode = op->getAttrOfType<IntegerAttr>("interpolation_mode");
  if (rank == 3 && mode && mode.getInt() == kBicubic)
    return rule.emitError() << "bicubic interpolation is for images only";
  if (proveEqual(input.dim(0), grid.dim(0)) == TriBool::No)
    return rule.emitError() << "input has batch " << input.dim(0).str()
                            << ", the grid " << grid.dim(0).str();
  if (proveEqual(grid.dim(rank + 1), rule.constant(rank)) == TriBool::No)
    return rule.emitError() << "the last extent of the grid is "
                            << grid.dim(rank + 1).str() << ", not " << rank;
  for (int64_t dim = 2; dim < rank + 2; ++dim)
    if (input.dim(dim).isConstant(0))
      return rule.emitError() << "samples an image with an empty dim " << dim;
  SmallVector<DimExpr> dims = {input.dim(0), input.dim(1)};
  dims.append(grid.dims->begin() + 1, grid.dims->end() - 1);
  // The kernel reads the types, if it runs.
  if (input.elementType && grid.elementType &&
      input.elementType != grid.elementType &&
      llvm::none_of(dims, [](DimExpr dim) { return dim.isConstant(0); }))
    return rule.emitError() << "input is " << input.elementType
                            << ", the grid is " << grid.elementType;
  rule.setResult(0, makeImage(dims, input.elementType, TriBool::No));
  return success();
}

void rules::inferGridSamplerBatch(BatchRule &rule) {
  Operation *op = rule.getOp();
  BatchFact input = rule.fact(op->getOperand(0));
  BatchFact grid = rule.fact(op->getOperand(1));
  if (input.isFree() || grid.isFree() || input.dim != 0 || !(input == grid))
    return rule.mix("input and grid do not both have the batch in dim 0");
  rule.setResult(0, input);
}

/// Source: aten/src/ATen/native/AffineGridGenerator.cpp.
LogicalResult rules::inferAffineGrid(ShapeRule &rule) {
  TensorInfo theta = rule.tensor(rule.getOp()->getOperand(0));
  TensorInfo result;
  result.elementType = theta.elementType;
  rule.setResult(0, result);
  if (failed(checkRank(rule, theta, 3, 3)))
    return failure();
  auto size = rule.integerList("size");
  if (!size)
    return success();
  if (size->size() != 4 && size->size() != 5)
    return rule.emitError()
           << "size has " << size->size() << " entries, not 4 or 5";
  int64_t rank = static_cast<int64_t>(size->size()) - 2;
  for (DimExpr extent : *size)
    if (auto value = extent ? extent.getConstant() : std::nullopt;
        value && *value < 0 && extent != (*size)[1])
      return rule.emitError() << "size " << *value << " is negative";
  SmallVector<DimExpr> dims = {size->front()};
  dims.append(size->begin() + 2, size->end());
  dims.push_back(rule.constant(rank));
  if (theta.hasRank()) {
    if (dims.front() && proveEqual(dims.front(), theta.dim(0)) == TriBool::No)
      return rule.emitError() << "size has batch " << dims.front().str()
                              << ", theta " << theta.dim(0).str();
    bool empty = llvm::any_of(
        dims, [](DimExpr dim) { return dim && dim.isConstant(0); });
    if (proveEqual(theta.dim(2), rule.constant(rank + 1)) == TriBool::No ||
        (!empty &&
         proveEqual(theta.dim(1), rule.constant(rank)) == TriBool::No))
      return rule.emitError()
             << "theta holds matrices of " << theta.dim(1).str() << " x "
             << theta.dim(2).str() << ", not " << rank << " x " << rank + 1;
  }
  rule.setResult(0, makeImage(dims, theta.elementType, TriBool::No));
  return success();
}

void rules::inferAffineGridBatch(BatchRule &rule) {
  BatchFact theta = rule.fact(rule.getOp()->getOperand(0));
  BatchFact count = rule.argumentFact("size");
  auto size = rule.getOp()->getAttrOfType<DenseI64ArrayAttr>("size");
  unsigned computed = llvm::count_if(size.asArrayRef(), ShapedType::isDynamic);
  for (unsigned index = 1; index < computed; ++index)
    if (!rule.argumentFact("size", index).isFree())
      return rule.mix("the extents of a grid depend on the number of samples");
  if (!theta.isAt() || theta.dim != 0)
    return rule.mix("the matrices of a grid do not have the batch in dim 0");
  // An integer, or a list whose first element it is.
  if (size.empty() || !ShapedType::isDynamic(size[0]) || !count.isAt() ||
      count.dim > 0 || count.factor != theta.factor)
    return rule.mix("the first of the grid's sizes is not the number of "
                    "samples");
  rule.setResult(0, theta);
}
