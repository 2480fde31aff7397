//===- Windows.cpp - What operators over images share ---------------------===//

#include "Windows.h"
#include "../Rules/OperatorRules.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

/// The strides of (N, C, ...) in the order N, ..., C of memory.
static SmallVector<DimExpr> channelsLastStrides(ArrayRef<DimExpr> dims) {
  SmallVector<DimExpr> strides(dims.size());
  DimExpr next = DimExpr::constant(dims.front().getContext(), 1);
  auto take = [&](size_t dim) {
    strides[dim] = next;
    next = next * dims[dim];
  };
  take(1);
  for (size_t dim = dims.size() - 1; dim >= 2; --dim)
    take(dim);
  take(0);
  return strides;
}

TriBool spatial::suggestsChannelsLast(const TensorInfo &info) {
  if (!info.hasRank())
    return TriBool::Unknown;
  int64_t rank = info.getRank();
  if (rank != 4 && rank != 5)
    return TriBool::No;
  if (!info.strides)
    return TriBool::Unknown;
  ArrayRef<DimExpr> dims = *info.dims, strides = *info.strides;
  // Where both layouts have the same strides PyTorch takes the first.
  if (strides == ArrayRef(*TensorInfo::contiguous(dims, {}).strides))
    return TriBool::No;
  // is_channels_last_strides_2d_s4 and _3d_s5 in c10/core/MemoryFormat.h.
  if (strides[1].isConstant(0))
    return TriBool::No;
  SmallVector<int64_t> order = {1};
  for (int64_t dim = rank - 1; dim >= 2; --dim)
    order.push_back(dim);
  order.push_back(0);
  DimExpr least = DimExpr::constant(dims.front().getContext(), 0);
  for (int64_t dim : order) {
    if (dims[dim].isConstant(0))
      return TriBool::No;
    if (TriBool holds = proveAtMost(least, strides[dim]); holds != TriBool::Yes)
      return holds;
    // `least` has grown from the stride of C: it is that or more.
    if (dim == 0)
      switch (proveAtMost(least, strides[1])) {
      case TriBool::Yes:
        return TriBool::No;
      case TriBool::Unknown:
        return TriBool::Unknown;
      case TriBool::No:
        break;
      }
    least = strides[dim] * dims[dim];
  }
  return TriBool::Yes;
}

TensorInfo spatial::makeImage(ArrayRef<DimExpr> dims, Type type,
                              TriBool channelsLast) {
  TensorInfo info;
  info.dims.emplace(dims.begin(), dims.end());
  info.elementType = type;
  if (llvm::any_of(dims, [](DimExpr dim) { return !dim; }))
    return info;
  info = TensorInfo::contiguous(dims, type);
  if (channelsLast == TriBool::No || (dims.size() != 4 && dims.size() != 5))
    return info;
  SmallVector<DimExpr> wanted = channelsLastStrides(dims);
  if (channelsLast == TriBool::Yes)
    info.strides = wanted;
  else if (*info.strides != wanted)
    info.strides.reset();
  return info;
}

TensorInfo spatial::unsqueeze(TensorInfo info, int64_t dim) {
  MLIRContext *context = info.dim(0).getContext();
  DimExpr one = DimExpr::constant(context, 1);
  if (info.strides)
    info.strides->insert(
        info.strides->begin() + dim,
        dim < info.getRank() ? info.dim(dim) * (*info.strides)[dim] : one);
  info.dims->insert(info.dims->begin() + dim, one);
  return info;
}

TensorInfo spatial::squeeze(TensorInfo info, int64_t dim) {
  info.dims->erase(info.dims->begin() + dim);
  if (info.strides)
    info.strides->erase(info.strides->begin() + dim);
  return info;
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

static LogicalResult checkEntries(ShapeRule &rule, StringRef name,
                                  ArrayRef<DimExpr> entries, int64_t least) {
  for (DimExpr entry : entries) {
    auto value = entry ? entry.getConstant() : std::nullopt;
    if (!value)
      continue;
    if (*value < least && least == 0)
      return rule.emitError() << name << " " << *value << " is negative";
    if (*value < least)
      return rule.emitError() << name << " " << *value << " is below " << least;
    if (*value > spatial::MostEntry)
      return rule.emitError()
             << name << " " << *value << " is above " << spatial::MostEntry;
  }
  return success();
}

FailureOr<SmallVector<DimExpr>>
spatial::readEntries(ShapeRule &rule, StringRef name, int64_t rank,
                     int64_t least, ArrayRef<DimExpr> ifEmpty) {
  auto entries = rule.integerList(name);
  if (!entries)
    return SmallVector<DimExpr>(rank);
  if (entries->empty()) {
    if (ifEmpty.empty())
      return rule.emitError() << "needs a " << name;
    return SmallVector<DimExpr>(ifEmpty);
  }
  if (entries->size() == 1)
    entries->assign(rank, entries->front());
  if (static_cast<int64_t>(entries->size()) != rank)
    return rule.emitError() << name << " has " << entries->size()
                            << " entries for " << rank << " spatial dims";
  if (failed(checkEntries(rule, name, *entries, least)))
    return failure();
  return *entries;
}

FailureOr<SmallVector<DimExpr>> spatial::readSizes(ShapeRule &rule,
                                                   StringRef name, int64_t rank,
                                                   int64_t least) {
  auto entries = rule.integerList(name);
  if (!entries)
    return SmallVector<DimExpr>(rank);
  if (static_cast<int64_t>(entries->size()) != rank)
    return rule.emitError() << name << " has " << entries->size()
                            << " entries for " << rank << " spatial dims";
  if (failed(checkEntries(rule, name, *entries, least)))
    return failure();
  return *entries;
}

LogicalResult spatial::checkRank(ShapeRule &rule, const TensorInfo &info,
                                 int64_t least, int64_t most) {
  if (!info.hasRank() || (info.getRank() >= least && info.getRank() <= most))
    return success();
  InFlightDiagnostic error = rule.emitError();
  error << "expects rank " << least;
  if (most > least)
    error << " or " << most;
  return error << ", got " << info.getRank();
}

std::optional<int64_t> spatial::countBytes(int64_t count, int64_t size) {
  int64_t bytes;
  if (llvm::MulOverflow(count, size, bytes))
    return std::nullopt;
  return bytes;
}

//===----------------------------------------------------------------------===//
// Batch
//===----------------------------------------------------------------------===//

bool spatial::argumentsFollowBatch(const BatchRule &rule) {
  bool follow = false;
  for (Value value : OperatorArguments(rule.getOp()).getDynamic())
    follow |= !rule.fact(value).isFree();
  return follow;
}

void rules::inferTrailingBatch(BatchRule &rule, Value self, int64_t trailing) {
  TensorInfo input = rule.tensor(self);
  BatchFact fact = rule.fact(self);
  if (fact.isFree())
    return rule.mix("an argument depends on the number of samples");
  if (!input.hasRank() || fact.dim >= input.getRank() - trailing)
    return rule.mix(
        "the batch is among the last " + Twine(trailing) + " dims, in which '" +
        rule.getOp()->getName().getStringRef() + "' mixes the elements");
  rule.setResult(0, fact);
}
