//===- PadShapes.cpp - Rules of padding -----------------------------------===//

#include "../Rules/IndexRules.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace koila;
using indexing::Padding;

std::optional<Padding> indexing::getPadding(StringRef mode) {
  return llvm::StringSwitch<std::optional<Padding>>(mode)
      .Case("constant", Padding::Constant)
      .Case("reflect", Padding::Reflect)
      .Case("replicate", Padding::Replicate)
      .Case("circular", Padding::Circular)
      .Default(std::nullopt);
}

/// Known to be below `bound`.
static bool isBelow(ShapeRule &rule, DimExpr value, int64_t bound) {
  return value && proveAtMost(rule.constant(bound), value) == TriBool::No;
}

/// Where the amounts of `dim` are in a list that begins at the last dim; none
/// if that dim is not padded.
static std::optional<size_t> getPosition(int64_t dim, int64_t rank,
                                         size_t length) {
  size_t position = 2 * (rank - 1 - dim);
  return position + 1 < length ? std::optional(position) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

// Source: _pad_enum in aten/src/ATen/native/PadNd.cpp.
LogicalResult indexing::inferPad(ShapeRule &rule, Value self, StringRef mode,
                                 std::optional<APFloat> value) {
  std::optional<Padding> padding = getPadding(mode);
  if (!padding)
    return rule.emitError() << "there is no padding mode '" << mode << "'";
  if (*padding == Padding::Constant)
    return inferConstantPad(rule, self);
  if (value && !value->isZero())
    return rule.emitError() << "mode '" << mode << "' takes no value";
  TensorInfo info = rule.tensor(self);
  auto pad = rule.integerList("pad");
  if (!info.hasRank() || !pad) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  int64_t rank = info.getRank(), spatial = pad->size() / 2;
  if (pad->size() % 2 != 0 || spatial < 1 || spatial > 3 ||
      (rank != spatial + 1 && rank != spatial + 2))
    return rule.emitError()
           << "cannot pad rank " << rank << " by " << pad->size()
           << " amounts in mode '" << mode << "'";
  if (*padding == Padding::Circular)
    return inferCircularPad(rule, self);
  return inferWindowPad(rule, self, "pad", *padding, spatial);
}

// Source: constant_pad_nd in aten/src/ATen/native/PadNd.cpp.
LogicalResult indexing::inferConstantPad(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  auto pad = rule.integerList("pad");
  if (pad && pad->size() % 2 != 0)
    return rule.emitError()
           << "needs an even number of amounts, got " << pad->size();
  if (!info.hasRank() || !pad) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  if (static_cast<int64_t>(pad->size()) > 2 * info.getRank())
    return rule.emitError()
           << "has " << pad->size() << " amounts for rank " << info.getRank();
  SmallVector<DimExpr> dims = *info.dims;
  bool grows = false, shrinks = true;
  for (int64_t dim = 0; dim < info.getRank(); ++dim) {
    auto position = getPosition(dim, info.getRank(), pad->size());
    if (!position)
      continue;
    for (DimExpr amount : {(*pad)[*position], (*pad)[*position + 1]}) {
      TriBool atMostZero =
          amount ? proveAtMost(amount, rule.constant(0)) : TriBool::Unknown;
      grows |= atMostZero == TriBool::No;
      shrinks &= atMostZero == TriBool::Yes;
      // What is cut off must be there before anything is added.
      if (amount && isBelow(rule, amount, 0) &&
          isBelow(rule, info.dim(dim) + amount, 0))
        return rule.emitError() << "cuts " << amount * -1 << " rows off "
                                << info.dim(dim) << " in dim " << dim;
      dims[dim] = amount && dims[dim] ? dims[dim] + amount : DimExpr();
    }
    if (isBelow(rule, dims[dim], 0))
      return rule.emitError()
             << "leaves " << dims[dim] << " rows in dim " << dim;
  }
  // Without anything added it is a copy of a part.
  TensorInfo grown = packedLike(dims, info.elementType, info);
  TensorInfo part = unranked(info.elementType);
  part.dims = dims;
  part.strides = info.strides;
  if (!grows && llvm::all_of(dims, [](DimExpr dim) { return !!dim; }))
    part.strides = computePreservedStrides(part);
  if (!grows && (shrinks || part.strides != grown.strides))
    grown.strides = shrinks ? part.strides : std::nullopt;
  rule.setResult(0, grown);
  return success();
}

// Source: aten/src/ATen/native/{ReflectionPad,ReplicationPadding,Padding.h}.
LogicalResult indexing::inferWindowPad(ShapeRule &rule, Value self,
                                       StringRef list, Padding mode,
                                       int64_t spatial) {
  TensorInfo info = rule.tensor(self);
  auto pad = rule.integerList(list);
  if (pad && static_cast<int64_t>(pad->size()) != 2 * spatial)
    return rule.emitError()
           << "needs " << 2 * spatial << " amounts, got " << pad->size();
  if (!info.hasRank() || !pad) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  int64_t rank = info.getRank();
  if (rank != spatial + 1 && rank != spatial + 2)
    return rule.emitError() << "expects rank " << spatial + 1 << " or "
                            << spatial + 2 << ", got " << rank;
  SmallVector<DimExpr> dims = *info.dims;
  bool vanishes = true;
  for (int64_t dim = rank - spatial - 1; dim < rank; ++dim)
    if (dims[dim].isConstant(0))
      return rule.emitError() << "pads an empty dim " << dim;
  for (int64_t dim = rank - spatial; dim < rank; ++dim) {
    size_t position = *getPosition(dim, rank, pad->size());
    for (DimExpr amount : {(*pad)[position], (*pad)[position + 1]}) {
      if (mode == Padding::Reflect && amount &&
          proveAtMost(amount + 1, info.dim(dim)) == TriBool::No)
        return rule.emitError() << "reflects " << amount << " of "
                                << info.dim(dim) << " rows in dim " << dim;
      dims[dim] = amount && dims[dim] ? dims[dim] + amount : DimExpr();
    }
    if (isBelow(rule, dims[dim], 0))
      return rule.emitError()
             << "leaves " << dims[dim] << " rows in dim " << dim;
    vanishes &= isBelow(rule, dims[dim], 1);
  }
  // One dim with rows is enough for PyTorch.
  if (vanishes)
    return rule.emitError() << "leaves no rows in any padded dim";
  rule.setResult(0, packedLike(dims, info.elementType, info));
  return success();
}

// Source: _pad_circular in aten/src/ATen/native/PadNd.cpp.
LogicalResult indexing::inferCircularPad(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  auto pad = rule.integerList("pad");
  if (!info.hasRank() || !pad) {
    rule.setResult(0, unranked(info.elementType));
    return success();
  }
  int64_t rank = info.getRank(), spatial = pad->size() / 2;
  if (pad->size() % 2 != 0 || (rank != spatial + 1 && rank != spatial + 2))
    return rule.emitError()
           << "has " << pad->size() << " amounts for rank " << rank;
  SmallVector<DimExpr> dims = *info.dims;
  for (int64_t dim = rank - spatial; dim < rank; ++dim) {
    size_t position = *getPosition(dim, rank, pad->size());
    for (DimExpr amount : {(*pad)[position], (*pad)[position + 1]}) {
      if (amount && proveAtMost(amount, info.dim(dim)) == TriBool::No)
        return rule.emitError() << "wraps " << info.dim(dim)
                                << " rows around more than once in dim " << dim;
      dims[dim] = amount && dims[dim] ? dims[dim] + amount : DimExpr();
    }
    if (isBelow(rule, dims[dim], 0))
      return rule.emitError()
             << "leaves " << dims[dim] << " rows in dim " << dim;
  }
  rule.setResult(0, packed(dims, info.elementType));
  return success();
}

//===----------------------------------------------------------------------===//
// Batch
//===----------------------------------------------------------------------===//

void indexing::inferPadBatch(BatchRule &rule, Value self,
                             ArrayRef<int64_t> pad) {
  TensorInfo info = rule.tensor(self);
  BatchFact fact = rule.fact(self);
  if (!info.hasRank())
    return mixSamples(rule, "the rank of the operand is unknown");
  for (Value amount : OperatorArguments(rule.getOp()).getDynamic())
    if (!rule.fact(amount).isFree() || isa<ListType>(amount.getType()))
      return mixSamples(rule, "the amounts of padding are computed");
  auto position = getPosition(fact.dim, info.getRank(), pad.size());
  if (position && (pad[*position] != 0 || pad[*position + 1] != 0))
    return mixSamples(rule, "the batch dim is padded");
  rule.setResult(0, fact);
}
