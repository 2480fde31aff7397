//===- CopyShapes.cpp - Rules of casts, copies and fills ------------------===//
//
// Source: aten/src/ATen/native/TensorConversion.cpp, TensorProperties.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Rules/CopyRules.h"
#include "../Rules/NewTensors.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using rules::MemoryFormat;

//===----------------------------------------------------------------------===//
// Memory formats
//===----------------------------------------------------------------------===//

MemoryFormat rules::getMemoryFormat(Operation *op) {
  auto code = op->getAttrOfType<IntegerAttr>("memory_format");
  return code ? static_cast<MemoryFormat>(code.getInt())
              : MemoryFormat::Preserve;
}

/// The rank that channels last is defined for.
static int64_t getChannelsLastRank(MemoryFormat format) {
  return format == MemoryFormat::ChannelsLast ? 4 : 5;
}

/// Dims (N, C, ...) as (N, ..., C).
static SmallVector<DimExpr> moveChannels(ArrayRef<DimExpr> dims) {
  SmallVector<DimExpr> moved(dims);
  std::rotate(moved.begin() + 1, moved.begin() + 2, moved.end());
  return moved;
}

/// Dense row-major strides; none if an extent that counts is unknown.
static std::optional<SmallVector<DimExpr>>
getDenseStrides(ArrayRef<DimExpr> dims, MLIRContext *context) {
  SmallVector<DimExpr> strides(dims.size());
  DimExpr next = DimExpr::constant(context, 1);
  for (size_t dim = dims.size(); dim-- > 0;) {
    strides[dim] = next;
    if (dim == 0)
      break;
    if (!dims[dim])
      return std::nullopt;
    next = next * dims[dim];
  }
  return strides;
}

LogicalResult rules::setStrides(const ShapeRule &rule, TensorInfo &info,
                                MemoryFormat format) {
  if (!info.hasRank()) {
    info.strides.reset();
    return success();
  }
  MLIRContext *context = rule.getContext();
  switch (format) {
  case MemoryFormat::Preserve:
    info.strides = computePreservedStrides(info);
    return success();
  case MemoryFormat::Contiguous:
    info.strides = getDenseStrides(*info.dims, context);
    return success();
  case MemoryFormat::ChannelsLast:
  case MemoryFormat::ChannelsLast3d: {
    int64_t rank = getChannelsLastRank(format);
    if (info.getRank() != rank)
      return rule.emitError() << "channels last needs " << rank
                              << " dims; there are " << info.getRank();
    info.strides = getDenseStrides(moveChannels(*info.dims), context);
    if (info.strides)
      std::rotate(info.strides->begin() + 1, info.strides->end() - 1,
                  info.strides->end());
    return success();
  }
  }
  return rule.emitError() << "memory format " << static_cast<int64_t>(format)
                          << " does not exist";
}

/// Tensor.is_contiguous(memory_format).
static TriBool isContiguousIn(const TensorInfo &info, MemoryFormat format) {
  if (format == MemoryFormat::Contiguous || format == MemoryFormat::Preserve)
    return info.isContiguous();
  if (!info.hasRank())
    return TriBool::Unknown;
  if (info.getRank() != getChannelsLastRank(format))
    return TriBool::No;
  if (!info.strides)
    return TriBool::Unknown;
  TensorInfo moved;
  moved.dims = moveChannels(*info.dims);
  moved.strides = moveChannels(*info.strides);
  return moved.isContiguous();
}

/// Whether the strides are in the order of channels last.
/// Source: is_channels_last_strides_2d in c10/core/MemoryFormat.h.
static TriBool hasChannelsLastOrder(const TensorInfo &info) {
  SmallVector<DimExpr> dims = moveChannels(*info.dims);
  SmallVector<DimExpr> strides = moveChannels(*info.strides);
  if (strides.back().isConstant(0))
    return TriBool::No;
  DimExpr least = DimExpr::constant(dims[0].getContext(), 0);
  TriBool ordered = TriBool::Yes;
  for (size_t dim = dims.size(); dim-- > 0;) {
    if (dims[dim].isConstant(0))
      return TriBool::No;
    TriBool atMost = proveAtMost(least, strides[dim]);
    // Where channels and samples cannot be told apart the first layout counts.
    if (dim == 0 && proveEqual(least, strides.back()) == TriBool::Yes)
      return TriBool::No;
    if (atMost == TriBool::No)
      return TriBool::No;
    if (atMost == TriBool::Unknown)
      ordered = TriBool::Unknown;
    least = strides[dim];
    if (!dims[dim].isConstant(1))
      least = least * dims[dim];
  }
  return ordered;
}

/// Whether Tensor.suggest_memory_format() is `format`.
static TriBool suggests(const TensorInfo &info, MemoryFormat format) {
  if (!info.hasRank())
    return TriBool::Unknown;
  bool rows = format == MemoryFormat::Contiguous;
  if (info.getRank() != 4 && info.getRank() != 5)
    return rows ? TriBool::Yes : TriBool::No;
  if (!rows && info.getRank() != getChannelsLastRank(format))
    return TriBool::No;
  if (!info.strides)
    return TriBool::Unknown;
  TriBool last = hasChannelsLastOrder(info);
  if (!rows || last == TriBool::Unknown)
    return last;
  return last == TriBool::Yes ? TriBool::No : TriBool::Yes;
}

//===----------------------------------------------------------------------===//
// Casts
//===----------------------------------------------------------------------===//

namespace {
/// What a cast is asked for.
struct Cast {
  TensorInfo self;
  /// Null if not known.
  Type type;
  MemoryFormat format;
  /// Whether the result is the operand itself.
  TriBool isAlias;

  template <typename Rule>
  explicit Cast(const Rule &rule) {
    Operation *op = rule.getOp();
    self = rule.tensor(op->getOperand(0));
    bool hasOther = op->getNumOperands() > 1 &&
                    isa<TensorType>(op->getOperand(1).getType());
    bool typed = op->hasAttr("dtype") || hasOther;
    Type otherwise = rule.tensor(op->getOperand(hasOther)).elementType;
    // The other rules ask about shapes only, not about numbers.
    if constexpr (std::is_same_v<Rule, ShapeRule>)
      type = rules::getDtype(rule, otherwise);
    else if (OperatorArguments(op).getDynamic("dtype"))
      type = rule.tensor(op->getResult(0)).elementType;
    else
      type = rules::getDtype(op, otherwise);
    format = rules::getMemoryFormat(op);
    auto copy = op->getAttrOfType<BoolAttr>("copy");
    // Source: to_will_alias in native/TensorConversion.cpp.
    TriBool sameType = !typed                       ? TriBool::Yes
                       : !type || !self.elementType ? TriBool::Unknown
                       : type == self.elementType   ? TriBool::Yes
                                                    : TriBool::No;
    TriBool sameFormat = format == MemoryFormat::Preserve
                             ? TriBool::Yes
                             : suggests(self, format);
    isAlias =
        copy && copy.getValue() ? TriBool::No : std::min(sameType, sameFormat);
  }
};
} // namespace

LogicalResult rules::inferCast(ShapeRule &rule, bool copies) {
  Cast cast(rule);
  if (copies)
    cast.isAlias = TriBool::No;
  TensorInfo result = cast.self;
  result.elementType = cast.type;
  if (cast.isAlias != TriBool::Yes) {
    if (failed(setStrides(rule, result, cast.format)))
      return failure();
    if (cast.isAlias == TriBool::Unknown && result.strides != cast.self.strides)
      result.strides.reset();
  }
  rule.setResult(0, result);
  return success();
}

/// A view, a copy, or the one that counts more where it is not known.
static void setAliasIf(StorageRule &rule, Value self, TriBool isAlias) {
  if (isAlias == TriBool::No)
    return rule.setNew(0);
  rule.setAlias(0, self);
  if (isAlias == TriBool::Unknown)
    rule.setInexact(0);
}

void rules::describeCastStorage(StorageRule &rule) {
  setAliasIf(rule, rule.getOp()->getOperand(0), Cast(rule).isAlias);
}

LogicalResult rules::inferContiguous(ShapeRule &rule, Value self,
                                     int64_t code) {
  auto format = static_cast<MemoryFormat>(code);
  TensorInfo info = rule.tensor(self);
  TriBool is = isContiguousIn(info, format);
  if (format == MemoryFormat::Preserve) {
    if (is == TriBool::No)
      return rule.emitError() << "has no format to preserve";
    format = MemoryFormat::Contiguous;
  }
  if (is != TriBool::Yes && failed(setStrides(rule, info, format)))
    return failure();
  rule.setResult(0, info);
  return success();
}

void rules::describeContiguousStorage(StorageRule &rule, Value self,
                                      int64_t format) {
  setAliasIf(
      rule, self,
      isContiguousIn(rule.tensor(self), static_cast<MemoryFormat>(format)));
}

void rules::keepBatch(BatchRule &rule) {
  rule.takeAnyRows();
  for (Value operand : rule.getOp()->getOperands())
    (void)rule.fact(operand);
  rule.setResult(0, rule.fact(rule.getOp()->getOperand(0)));
}

//===----------------------------------------------------------------------===//
// Overwritten tensors
//===----------------------------------------------------------------------===//

LogicalResult rules::inferCopyOf(ShapeRule &rule, Value self,
                                 MemoryFormat format) {
  TensorInfo info = rule.tensor(self);
  auto op = dyn_cast<TorchOperatorInterface>(rule.getOp());
  if (!(op && op.isTied()) && failed(setStrides(rule, info, format)))
    return failure();
  rule.setResult(0, info);
  return success();
}

LogicalResult rules::checkExpands(const ShapeRule &rule, Value from, Value to) {
  TensorInfo source = rule.tensor(from), target = rule.tensor(to);
  if (!source.hasRank() || !target.hasRank())
    return success();
  int64_t missing = target.getRank() - source.getRank();
  if (missing < 0)
    return rule.emitError()
           << "a tensor of " << source.getRank()
           << " dims does not broadcast to one of " << target.getRank();
  for (int64_t dim = 0; dim < source.getRank(); ++dim) {
    auto extent = source.dim(dim).getConstant();
    auto wanted = target.dim(missing + dim).getConstant();
    if (extent && wanted && *extent != *wanted && *extent != 1)
      return rule.emitError()
             << "extent " << *extent << " does not broadcast to " << *wanted
             << " in dim " << missing + dim;
  }
  return success();
}

LogicalResult rules::inferOverwrite(ShapeRule &rule, Value self, Value source) {
  if (failed(checkExpands(rule, source, self)))
    return failure();
  TensorInfo info = rule.tensor(self);
  // Source: copy in native/Copy.cpp: strides are kept unless elements share
  // memory.
  bool overlaps =
      info.hasRank() && info.strides &&
      llvm::any_of(llvm::zip(*info.dims, *info.strides),
                   [](std::tuple<DimExpr, DimExpr> pair) {
                     auto [dim, stride] = pair;
                     return stride.isConstant(0) && !dim.isConstant(1);
                   });
  if (overlaps)
    return inferCopyOf(rule, self, MemoryFormat::Preserve);
  rule.setResult(0, info);
  return success();
}

void rules::inferFillBatch(BatchRule &rule, Value self) {
  BatchFact fact = rule.fact(self);
  if (!rule.argumentFact("value").isFree())
    return rule.mix("the number of samples becomes values of the tensor; a "
                    "tile has another number");
  rule.setResult(0, fact);
}

//===----------------------------------------------------------------------===//
// Complex conjugates
//===----------------------------------------------------------------------===//

/// Whether the result is `self`. Real tensors may have a negation that is
/// pending, too, which only resolve_neg carries out.
static TriBool isConjugateView(const TensorInfo &self, TriBool view) {
  if (view == TriBool::Yes || !self.elementType)
    return view == TriBool::Yes ? view : TriBool::Unknown;
  return isa<ComplexType>(self.elementType) ? view : TriBool::Yes;
}

LogicalResult rules::inferConjugate(ShapeRule &rule, Value self, TriBool view) {
  TensorInfo info = rule.tensor(self), copy = info;
  TriBool isView = isConjugateView(info, view);
  auto op = cast<TorchOperatorInterface>(rule.getOp());
  if (isView != TriBool::Yes && !op.isTied()) {
    if (failed(setStrides(rule, copy, MemoryFormat::Preserve)))
      return failure();
    if (isView == TriBool::No)
      info.strides = copy.strides;
    else if (copy.strides != info.strides)
      info.strides.reset();
  }
  rule.setResult(0, info);
  return success();
}

void rules::describeConjugateStorage(StorageRule &rule, Value self,
                                     TriBool view) {
  if (cast<TorchOperatorInterface>(rule.getOp()).isTied())
    return rule.setTied(0, self);
  setAliasIf(rule, self, isConjugateView(rule.tensor(self), view));
}
