//===- PermuteRepeatShapes.cpp - Other orders and numbers of rows ---------===//

#include "../Rules/IndexRules.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// flip, roll, rot90
//===----------------------------------------------------------------------===//

/// Refuses dims out of range or given twice.
static LogicalResult checkDims(ShapeRule &rule, ArrayRef<int64_t> dims,
                               int64_t rank) {
  SmallVector<int64_t> seen;
  for (int64_t dim : dims) {
    int64_t wrapped = 0;
    if (failed(indexing::wrapDim(rule, dim, rank, wrapped)))
      return failure();
    if (llvm::is_contained(seen, wrapped))
      return rule.emitError() << "dim " << dim << " is given twice";
    seen.push_back(wrapped);
  }
  return success();
}

// Source: flip in aten/src/ATen/native/TensorTransformations.cpp.
LogicalResult indexing::inferFlip(ShapeRule &rule, Value self,
                                  ArrayRef<int64_t> dims, int64_t minRank) {
  TensorInfo info = rule.tensor(self);
  if (info.hasRank() && info.getRank() < minRank)
    return rule.emitError()
           << "expects rank " << minRank << " or more, got " << info.getRank();
  if (info.hasRank() && failed(checkDims(rule, dims, info.getRank())))
    return failure();
  return setWritten(rule, self, Copy::Preserved);
}

// Source: roll in aten/src/ATen/native/TensorTransformations.cpp.
LogicalResult indexing::inferRoll(ShapeRule &rule, Value self,
                                  ArrayRef<int64_t> dims) {
  TensorInfo info = rule.tensor(self);
  auto shifts = rule.integerList("shifts");
  bool empty = info.hasRank() && countElements(rule, info).isConstant(0);
  bool onlyOne = shifts && shifts->size() == 1;
  if (shifts && shifts->empty())
    return rule.emitError() << "needs shifts";
  if (shifts && shifts->size() != dims.size() && !(dims.empty() && onlyOne))
    return rule.emitError() << "has " << shifts->size() << " shifts for "
                            << dims.size() << " dims";
  if (info.hasRank() && !empty) {
    if (info.getRank() == 0 && !dims.empty())
      return rule.emitError() << "a number has no dims to roll";
    int64_t wrapped = 0;
    for (int64_t dim : dims)
      if (failed(wrapDim(rule, dim, info.getRank(), wrapped)))
        return failure();
  }
  if (!info.hasRank()) {
    rule.setResult(0, info);
    return success();
  }
  // cat of two parts; of channels last, an empty one decides for row-major.
  TriBool channelsLast = suggestsChannelsLast(info);
  TensorInfo result = packed(*info.dims, info.elementType);
  if (!dims.empty() && channelsLast != TriBool::No)
    result.strides.reset();
  rule.setResult(0, result);
  return success();
}

/// The number of quarter turns, 0 to 3.
static int64_t getTurns(int64_t k) { return ((k % 4) + 4) % 4; }

// Source: rot90 in aten/src/ATen/native/TensorTransformations.cpp.
LogicalResult indexing::inferRot90(ShapeRule &rule, Value self, int64_t k,
                                   ArrayRef<int64_t> dims) {
  TensorInfo info = rule.tensor(self);
  if (dims.size() != 2)
    return rule.emitError() << "turns two dims, got " << dims.size();
  if (!info.hasRank()) {
    rule.setResult(0, info);
    return success();
  }
  if (info.getRank() < 2)
    return rule.emitError() << "expects rank 2 or more, got " << info.getRank();
  if (failed(checkDims(rule, dims, info.getRank())))
    return failure();
  int64_t turns = getTurns(k);
  TensorInfo result = packed(*info.dims, info.elementType);
  if (turns != 0)
    result.strides = computePreservedStrides(info);
  if (turns % 2 == 1) {
    int64_t a = *rules::normalizeDim(dims[0], info.getRank());
    int64_t b = *rules::normalizeDim(dims[1], info.getRank());
    std::swap((*result.dims)[a], (*result.dims)[b]);
    if (result.strides)
      std::swap((*result.strides)[a], (*result.strides)[b]);
  }
  rule.setResult(0, result);
  return success();
}

void indexing::inferRot90Batch(BatchRule &rule, Value self, int64_t k,
                               ArrayRef<int64_t> dims) {
  if (getTurns(k) == 0)
    dims = {};
  keepBatchOutside(rule, self, dims, "rot90 moves samples");
}

//===----------------------------------------------------------------------===//
// repeat, tile
//===----------------------------------------------------------------------===//

// Source: repeat in aten/src/ATen/native/TensorShape.cpp.
LogicalResult indexing::inferRepeat(ShapeRule &rule, Value self, StringRef list,
                                    bool padded) {
  TensorInfo info = rule.tensor(self);
  auto repeats = rule.integerList(list);
  if (!info.hasRank() || !repeats) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  int64_t rank = info.getRank(), count = repeats->size();
  if (count < rank && !padded)
    return rule.emitError() << "has " << count << " repeats for rank " << rank;
  int64_t all = std::max(rank, count);
  SmallVector<DimExpr> dims(all, rule.constant(1));
  for (int64_t dim = 0; dim < all; ++dim) {
    if (dim >= all - rank)
      dims[dim] = info.dim(dim - (all - rank));
    if (dim < all - count)
      continue;
    DimExpr times = (*repeats)[dim - (all - count)];
    // PyTorch looks at the extent that it becomes.
    if (times && proveAtMost(rule.constant(0), times) == TriBool::No &&
        !dims[dim].isConstant(0))
      return rule.emitError()
             << "repeats dim " << dim << " " << times << " times";
    dims[dim] = times ? dims[dim] * times : DimExpr();
  }
  rule.setResult(0, packed(dims, info.elementType));
  return success();
}

void indexing::inferRepeatBatch(BatchRule &rule, Value self, StringRef list,
                                ArrayRef<int64_t> repeats) {
  TensorInfo info = rule.tensor(self);
  BatchFact fact = rule.fact(self);
  OperatorArguments arguments(rule.getOp());
  if (!info.hasRank() || llvm::any_of(arguments.getDynamic(), [](Value value) {
        return isa<ListType>(value.getType());
      }))
    return mixSamples(rule, "how often is repeated is computed as a whole");
  int64_t rank = info.getRank(), count = repeats.size();
  int64_t all = std::max(rank, count);
  std::optional<BatchFact> times;
  unsigned marked = 0;
  for (auto [index, literal] : llvm::enumerate(repeats)) {
    if (!ShapedType::isDynamic(literal))
      continue;
    BatchFact argument = rule.argumentFact(list, marked++);
    if (argument.isFree())
      continue;
    if (times || argument.dim != -1)
      return mixSamples(rule, "two dims are repeated by the batch");
    int64_t dim = index + (all - count);
    DimExpr rows = dim >= all - rank ? info.dim(dim - (all - rank)) : DimExpr();
    auto extent = rows ? rows.getConstant() : std::optional<int64_t>(1);
    if (!extent || *extent == 0)
      return mixSamples(rule, "the extent that is repeated is unknown");
    times = BatchFact::at(dim, *extent * argument.factor);
  }
  if (fact.isFree() && times)
    return rule.setResult(0, *times);
  if (times)
    return mixSamples(rule, "what has the batch is repeated by the batch");
  fact.dim += all - rank;
  int64_t position = fact.dim - (all - count);
  if (position >= 0 && repeats[position] != 1)
    return mixSamples(rule, "repeat puts all samples after all samples");
  rule.setResult(0, fact);
}

//===----------------------------------------------------------------------===//
// repeat_interleave
//===----------------------------------------------------------------------===//

// Source: aten/src/ATen/native/Repeat.cpp.
LogicalResult indexing::inferRepeatInterleave(ShapeRule &rule, Value self,
                                              std::optional<int64_t> dim) {
  TensorInfo info = rule.tensor(self);
  DimExpr times = rule.integerArgument("repeats");
  if (times && proveAtMost(rule.constant(0), times) == TriBool::No)
    return rule.emitError() << "repeats " << times << " times";
  if (!info.hasRank()) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  SmallVector<DimExpr> dims = *info.dims;
  int64_t along = 0;
  if (!dim)
    dims = {countElements(rule, info)};
  else if (failed(wrapDim(rule, *dim, info.getRank(), along)))
    return failure();
  if (dims.empty())
    return rule.emitError() << "a number has no dim to repeat along";
  dims[along] = times ? dims[along] * times : DimExpr();
  DimExpr size = rule.integerArgument("output_size");
  if (size && dims[along] && proveEqual(size, dims[along]) == TriBool::No)
    return rule.emitError() << "output_size is " << size << ", the result has "
                            << dims[along] << " rows";
  rule.setResult(0, packed(dims, info.elementType));
  return success();
}

void indexing::inferRepeatInterleaveBatch(BatchRule &rule, Value self,
                                          int64_t repeats,
                                          std::optional<int64_t> dim) {
  TensorInfo info = rule.tensor(self);
  BatchFact fact = rule.fact(self), times = rule.argumentFact("repeats");
  (void)rule.argumentFact("output_size");
  if (!info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  auto along = dim ? rules::normalizeDim(*dim, info.getRank()) : 0;
  if (!along)
    return;
  if (fact.isFree()) {
    // Every row as often as there are samples: one row only is one of each.
    bool one = dim ? info.getRank() > 0 && info.dim(*along).isConstant(1)
                   : llvm::all_of(*info.dims, [](DimExpr extent) {
                       return extent.isConstant(1);
                     });
    if (!one || times.dim != -1 || !times.isAt())
      return rule.mix("every row is repeated for each sample");
    return rule.setResult(0, BatchFact::at(*along, times.factor));
  }
  if (!times.isFree())
    return rule.mix("what has the batch is repeated by the batch");
  if (!dim) {
    if (fact.dim != 0)
      return rule.mix("repeat_interleave without dim puts samples between one "
                      "another");
    for (DimExpr extent : ArrayRef(*info.dims).drop_front())
      if (llvm::MulOverflow(fact.factor, extent.getConstant().value_or(0),
                            fact.factor))
        return;
  }
  if (fact.dim == *along) {
    if (ShapedType::isDynamic(repeats) ||
        llvm::MulOverflow(fact.factor, repeats, fact.factor) ||
        fact.factor == 0)
      return rule.mix("how often samples are repeated is unknown");
  }
  rule.setResult(0, fact);
}

LogicalResult indexing::inferRepeatRows(ShapeRule &rule, Value self,
                                        Value repeats,
                                        std::optional<int64_t> dim) {
  TensorInfo info = rule.tensor(self ? self : repeats);
  TensorInfo times = rule.tensor(repeats);
  if (failed(checkIndexType(rule, times)))
    return failure();
  if (times.hasRank() &&
      (times.getRank() > 1 || (!self && times.getRank() < 1)))
    return rule.emitError()
           << "takes a vector of repeats, got rank " << times.getRank();
  if (!info.hasRank()) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  SmallVector<DimExpr> dims = *info.dims;
  int64_t along = 0;
  if (!dim)
    dims = {countElements(rule, info)};
  else if (failed(wrapDim(rule, *dim, info.getRank(), along)))
    return failure();
  if (dims.empty())
    return rule.emitError() << "a number has no dim to repeat along";
  if (times.hasRank() && times.getRank() == 1 && !times.dim(0).isConstant(1) &&
      proveEqual(times.dim(0), dims[along]) == TriBool::No)
    return rule.emitError() << "has " << times.dim(0) << " repeats for "
                            << dims[along] << " rows";
  DimExpr size = rule.integerArgument("output_size");
  // Without rows there is nothing to repeat.
  dims[along] = dims[along].isConstant(0) ? dims[along] : size;
  rule.setResult(0, packed(dims, info.elementType));
  return success();
}
