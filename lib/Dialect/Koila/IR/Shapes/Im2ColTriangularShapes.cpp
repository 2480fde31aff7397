//===- Im2ColTriangularShapes.cpp - Rules of blocks and bands -------------===//

#include "../Rules/IndexRules.h"

using namespace mlir;
using namespace koila;

/// Known not to be a multiple.
static bool isUneven(ShapeRule &rule, DimExpr extent, int64_t divisor) {
  auto rest = extent.mod(rule.constant(divisor)).getConstant();
  return rest && *rest != 0;
}

//===----------------------------------------------------------------------===//
// Shuffles
//===----------------------------------------------------------------------===//

/// Whether there is more to check; an unknown rank gives an unknown result.
static FailureOr<bool> startShuffle(ShapeRule &rule, const TensorInfo &info,
                                    int64_t factor) {
  if (factor <= 0 || factor > (1 << 30))
    return rule.emitError() << "the factor must be positive, got " << factor;
  if (!info.hasRank()) {
    rule.setResult(0, info);
    return false;
  }
  if (info.getRank() < 3)
    return rule.emitError() << "expects rank 3 or more, got " << info.getRank();
  return true;
}

// Source: aten/src/ATen/native/PixelShuffle.cpp.
LogicalResult indexing::inferPixelShuffle(ShapeRule &rule, Value self,
                                          int64_t factor) {
  TensorInfo info = rule.tensor(self);
  auto more = startShuffle(rule, info, factor);
  if (failed(more) || !*more)
    return more;
  SmallVector<DimExpr> dims = *info.dims;
  size_t rank = dims.size();
  if (isUneven(rule, dims[rank - 3], factor * factor))
    return rule.emitError() << "cannot split " << dims[rank - 3]
                            << " channels into blocks of " << factor * factor;
  dims[rank - 3] = dims[rank - 3].floorDiv(factor * factor);
  dims[rank - 2] = dims[rank - 2] * factor;
  dims[rank - 1] = dims[rank - 1] * factor;
  rule.setResult(0, packedLike(dims, info.elementType, info));
  return success();
}

LogicalResult indexing::inferPixelUnshuffle(ShapeRule &rule, Value self,
                                            int64_t factor) {
  TensorInfo info = rule.tensor(self);
  auto more = startShuffle(rule, info, factor);
  if (failed(more) || !*more)
    return more;
  SmallVector<DimExpr> dims = *info.dims;
  size_t rank = dims.size();
  bool empty = countElements(rule, info).isConstant(0);
  for (size_t dim : {rank - 2, rank - 1}) {
    if (isUneven(rule, dims[dim], factor))
      return rule.emitError() << "cannot split extent " << dims[dim]
                              << " into blocks of " << factor;
    dims[dim] = dims[dim].floorDiv(factor);
  }
  dims[rank - 3] = dims[rank - 3] * (factor * factor);
  // An empty tensor is only copied.
  if (empty)
    dims = *info.dims;
  rule.setResult(0, packedLike(dims, info.elementType, info));
  return success();
}

// Source: aten/src/ATen/native/ChanelShuffle.cpp.
LogicalResult indexing::inferChannelShuffle(ShapeRule &rule, Value self,
                                            int64_t groups) {
  TensorInfo info = rule.tensor(self);
  auto more = startShuffle(rule, info, groups);
  if (failed(more) || !*more)
    return more;
  if (isUneven(rule, info.dim(1), groups))
    return rule.emitError() << "cannot split " << info.dim(1)
                            << " channels into " << groups << " groups";
  rule.setResult(0, packedLike(*info.dims, info.elementType, info));
  return success();
}

//===----------------------------------------------------------------------===//
// im2col, col2im
//===----------------------------------------------------------------------===//

static LogicalResult checkBlocks(ShapeRule &rule,
                                 const indexing::Blocks &blocks) {
  for (ArrayRef<int64_t> list :
       {blocks.kernel, blocks.dilation, blocks.padding, blocks.stride})
    if (list.size() != 2)
      return rule.emitError()
             << "takes lists of two numbers, got " << list.size();
  for (ArrayRef<int64_t> list : {blocks.kernel, blocks.dilation, blocks.stride})
    for (int64_t number : list)
      if (number <= 0)
        return rule.emitError() << "kernel_size, dilation and stride must be "
                                << "positive, got " << number;
  for (int64_t number : blocks.padding)
    if (number < 0)
      return rule.emitError() << "padding " << number << " is negative";
  return success();
}

/// How many blocks fit into an extent.
static DimExpr countBlocks(DimExpr extent, const indexing::Blocks &blocks,
                           int64_t at) {
  int64_t span = blocks.dilation[at] * (blocks.kernel[at] - 1) + 1;
  return (extent + 2 * blocks.padding[at] - span).floorDiv(blocks.stride[at]) +
         1;
}

/// Input of `rank` or, without batch, of one dim less; no dim but that of the
/// batch is empty.
static LogicalResult checkImage(ShapeRule &rule, const TensorInfo &info,
                                int64_t rank) {
  if (info.getRank() != rank && info.getRank() != rank - 1)
    return rule.emitError() << "expects rank " << rank - 1 << " or " << rank
                            << ", got " << info.getRank();
  for (DimExpr dim : ArrayRef(*info.dims).take_back(rank - 1))
    if (dim.isConstant(0))
      return rule.emitError() << "the input has an empty dim";
  return success();
}

// Source: aten/src/ATen/native/im2col_shape_check.h.
LogicalResult indexing::inferIm2col(ShapeRule &rule, Value self,
                                    const Blocks &blocks) {
  TensorInfo info = rule.tensor(self);
  if (failed(checkBlocks(rule, blocks)))
    return failure();
  if (!info.hasRank()) {
    rule.setResult(0, info);
    return success();
  }
  if (failed(checkImage(rule, info, 4)))
    return failure();
  int64_t rank = info.getRank();
  DimExpr count = rule.constant(1);
  for (int64_t at = 0; at < 2; ++at) {
    DimExpr fitting = countBlocks(info.dim(rank - 2 + at), blocks, at);
    if (proveAtMost(rule.constant(1), fitting) == TriBool::No)
      return rule.emitError()
             << "no block fits into extent " << info.dim(rank - 2 + at);
    count = count * fitting;
  }
  SmallVector<DimExpr> dims(info.dims->begin(), info.dims->end() - 3);
  dims.push_back(info.dim(rank - 3) * (blocks.kernel[0] * blocks.kernel[1]));
  dims.push_back(count);
  rule.setResult(0, packed(dims, info.elementType));
  return success();
}

LogicalResult indexing::inferCol2im(ShapeRule &rule, Value self,
                                    const Blocks &blocks) {
  TensorInfo info = rule.tensor(self);
  auto size = rule.integerList("output_size");
  if (failed(checkBlocks(rule, blocks)))
    return failure();
  if (size && size->size() != 2)
    return rule.emitError()
           << "takes an output_size of two numbers, got " << size->size();
  if (!info.hasRank() || !size) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  if (failed(checkImage(rule, info, 3)))
    return failure();
  int64_t rank = info.getRank(), block = blocks.kernel[0] * blocks.kernel[1];
  DimExpr planes = info.dim(rank - 2), count = rule.constant(1);
  if (isUneven(rule, planes, block))
    return rule.emitError() << "cannot split " << planes << " rows into blocks "
                            << "of " << block;
  for (int64_t at = 0; at < 2; ++at) {
    DimExpr fitting;
    if ((*size)[at])
      fitting = countBlocks((*size)[at], blocks, at);
    if (fitting && proveAtMost(rule.constant(1), fitting) == TriBool::No)
      return rule.emitError() << "no block fits into extent " << (*size)[at];
    count = count && fitting ? count * fitting : DimExpr();
  }
  if (count && proveEqual(count, info.dim(rank - 1)) == TriBool::No)
    return rule.emitError() << "has " << info.dim(rank - 1) << " blocks, "
                            << "output_size takes " << count;
  SmallVector<DimExpr> dims(info.dims->begin(), info.dims->end() - 2);
  dims.push_back(planes.floorDiv(block));
  dims.append(*size);
  rule.setResult(0, packed(dims, info.elementType));
  return success();
}

void indexing::inferFoldBatch(BatchRule &rule, Value self, int64_t rank) {
  TensorInfo info = rule.tensor(self);
  BatchFact fact = rule.fact(self);
  // Each channel becomes the rows of its blocks.
  auto columns = dyn_cast<Im2colOp>(rule.getOp());
  if (columns && fact.isAt() && info.hasRank() &&
      fact.dim == info.getRank() - 3) {
    for (int64_t extent : columns.getKernelSize())
      fact.factor *= extent;
    return rule.setResult(0, fact);
  }
  if (fact.isFree() || !info.hasRank() || info.getRank() != rank ||
      fact.dim != 0)
    return mixSamples(rule, "the batch is a channel or spatial dim of blocks");
  rule.setResult(0, fact);
}

//===----------------------------------------------------------------------===//
// Bands
//===----------------------------------------------------------------------===//

// Source: aten/src/ATen/native/TriangularOps.cpp.
LogicalResult indexing::inferTriangle(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  if (info.hasRank() && info.getRank() < 2)
    return rule.emitError() << "expects rank 2 or more, got " << info.getRank();
  return setWritten(rule, self, Copy::Packed);
}

// Source: diag_embed in aten/src/ATen/native/TensorShape.cpp.
LogicalResult indexing::inferDiagEmbed(ShapeRule &rule, Value self,
                                       int64_t offset, int64_t dim1,
                                       int64_t dim2) {
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank()) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  int64_t rank = info.getRank(), first = 0, second = 0;
  if (rank == 0)
    return rule.emitError() << "a number has no dim to embed";
  if (failed(wrapDim(rule, dim1, rank + 1, first)) ||
      failed(wrapDim(rule, dim2, rank + 1, second)))
    return failure();
  if (first == second)
    return rule.emitError() << "dim1 and dim2 are both " << first;
  DimExpr extent = info.dim(rank - 1) + std::abs(offset);
  SmallVector<DimExpr> dims(info.dims->begin(), info.dims->end() - 1);
  dims.insert(dims.begin() + std::min(first, second), extent);
  dims.insert(dims.begin() + std::max(first, second), extent);
  rule.setResult(0, packed(dims, info.elementType));
  return success();
}

void indexing::inferDiagEmbedBatch(BatchRule &rule, Value self, int64_t dim1,
                                   int64_t dim2) {
  TensorInfo info = rule.tensor(self);
  BatchFact fact = rule.fact(self);
  if (!info.hasRank() || fact.dim == info.getRank() - 1)
    return rule.mix("the batch becomes a diagonal");
  auto first = rules::normalizeDim(dim1, info.getRank() + 1);
  auto second = rules::normalizeDim(dim2, info.getRank() + 1);
  if (!first || !second)
    return;
  fact.dim += fact.dim >= std::min(*first, *second);
  fact.dim += fact.dim >= std::max(*first, *second);
  rule.setResult(0, fact);
}

// Source: diag in aten/src/ATen/native/TensorShape.cpp.
LogicalResult indexing::inferDiag(ShapeRule &rule, Value self,
                                  int64_t diagonal) {
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank()) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  if (info.getRank() == 1)
    return inferDiagEmbed(rule, self, diagonal, 0, 1);
  if (info.getRank() != 2)
    return rule.emitError() << "expects rank 1 or 2, got " << info.getRank();
  DimExpr rows = info.dim(0), columns = info.dim(1);
  if (diagonal >= 0)
    columns = columns - diagonal;
  else
    rows = rows + diagonal;
  DimExpr extent = rows.min(columns).max(rule.constant(0));
  rule.setResult(0, packed(extent, info.elementType));
  return success();
}
