//===- DataExtents.cpp - What extents that data decide can be at most -----===//
//
// The shape rules leave these extents open. Attached rather than declared: of
// all operators only these few have any.
//
//===----------------------------------------------------------------------===//

#include "../Rules/DataExtents.h"
#include "../Rules/OperatorRules.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Dialect/Koila/IR/SortOps.h"

using namespace mlir;
using namespace koila;

using Facts = ShapeRule::Lookup;

static TensorInfo getTensor(Value value, Facts facts) {
  return value ? facts(value).tensor.value_or(TensorInfo()) : TensorInfo();
}

/// Null if the rank is unknown.
static DimExpr countElements(Value value, Facts facts) {
  TensorInfo info = getTensor(value, facts);
  return info.hasRank() ? product(value.getContext(), *info.dims) : DimExpr();
}

/// Extent `dim` counted from behind if negative; null if unknown.
static DimExpr getExtent(Value value, int64_t dim, Facts facts) {
  TensorInfo info = getTensor(value, facts);
  if (!info.hasRank())
    return {};
  auto place = rules::normalizeDim(dim, info.getRank());
  return place && *place < info.getRank() ? info.dim(*place) : DimExpr();
}

namespace {
template <typename Op>
struct NonzeroModel : DataExtentInterface::ExternalModel<NonzeroModel<Op>, Op> {
  std::optional<ExtentBound> getExtentBound(Operation *op, unsigned,
                                            unsigned dim, Facts facts) const {
    if (dim != 0)
      return std::nullopt;
    return ExtentBound{"how many elements are not zero",
                       countElements(op->getOperand(0), facts)};
  }
};

struct MaskedSelectModel
    : DataExtentInterface::ExternalModel<MaskedSelectModel, MaskedSelectOp> {
  std::optional<ExtentBound> getExtentBound(Operation *op, unsigned, unsigned,
                                            Facts facts) const {
    auto select = cast<MaskedSelectOp>(op);
    TensorInfo self = getTensor(select.getSelf(), facts),
               mask = getTensor(select.getMask(), facts);
    ExtentBound bound{"how many elements a mask selects", {}};
    if (!self.hasRank() || !mask.hasRank())
      return bound;
    // Of both broadcast against each other.
    SmallVector<DimExpr> dims(*self.dims), other(*mask.dims);
    if (dims.size() < other.size())
      std::swap(dims, other);
    for (auto [mine, theirs] :
         llvm::zip(llvm::reverse(dims), llvm::reverse(other)))
      mine = mine.broadcast(theirs);
    bound.most = product(op->getContext(), dims);
    return bound;
  }
};

template <typename Op>
struct IndexModel : DataExtentInterface::ExternalModel<IndexModel<Op>, Op> {
  std::optional<ExtentBound> getExtentBound(Operation *op, unsigned,
                                            unsigned dim, Facts facts) const {
    auto index = cast<Op>(op);
    SmallVector<TensorInfo> indices;
    for (Value value : index.getIndices())
      indices.push_back(getTensor(value, facts));
    auto most = rules::getMostSelected(getTensor(index.getSelf(), facts),
                                       indices, getMask(index), dim);
    if (!most)
      return std::nullopt;
    return ExtentBound{"how many elements a mask selects", *most};
  }

private:
  static ArrayRef<bool> getMask(IndexTensorOp op) {
    return op.getIndicesMask();
  }
  static ArrayRef<bool> getMask(IndexHackedTwinOp) { return {}; }
};

/// Values and counts have one row for each that differs; places have one for
/// each row there is.
template <typename Op>
struct UniqueModel : DataExtentInterface::ExternalModel<UniqueModel<Op>, Op> {
  std::optional<ExtentBound> getExtentBound(Operation *op, unsigned result,
                                            unsigned dim, Facts facts) const {
    auto unique = cast<Op>(op);
    std::optional<int64_t> along = getDim(unique);
    TensorInfo self = getTensor(unique.getSelf(), facts);
    auto place = along && self.hasRank()
                     ? rules::normalizeDim(*along, self.getRank())
                     : std::optional<int64_t>(0);
    bool isCount = result == 2 && dim == 0;
    bool isRow = result == 0 && place && dim == *place;
    if (!isCount && !isRow)
      return std::nullopt;
    return ExtentBound{along ? "how many slices differ"
                             : "how many elements differ",
                       along ? getExtent(unique.getSelf(), *along, facts)
                             : countElements(unique.getSelf(), facts)};
  }

private:
  static std::optional<int64_t> getDim(Unique2Op) { return std::nullopt; }
  static std::optional<int64_t> getDim(UniqueDimOp op) { return op.getDim(); }
  static std::optional<int64_t> getDim(UniqueConsecutiveOp op) {
    return op.getDim();
  }
};

/// As many as the largest number says, or as the numbers add up to: a number
/// can be anything.
template <typename Op>
struct UnboundedModel
    : DataExtentInterface::ExternalModel<UnboundedModel<Op>, Op> {
  std::optional<ExtentBound> getExtentBound(Operation *op, unsigned, unsigned,
                                            Facts) const {
    return ExtentBound{isa<BincountOp>(op) ? "how many numbers it counts"
                       : isa<OneHotOp>(op) ? "how many classes there are"
                                           : "how often rows are repeated",
                       {}};
  }
};

struct PackModel
    : DataExtentInterface::ExternalModel<PackModel, PackPaddedSequenceOp> {
  std::optional<ExtentBound> getExtentBound(Operation *op, unsigned result,
                                            unsigned dim, Facts facts) const {
    auto pack = cast<PackPaddedSequenceOp>(op);
    if (dim != 0)
      return std::nullopt;
    DimExpr steps = getExtent(pack.getInput(), pack.getBatchFirst(), facts),
            rows = getExtent(pack.getInput(), !pack.getBatchFirst(), facts);
    DimExpr most = result == 1 ? steps : DimExpr();
    if (result == 0 && steps && rows)
      most = steps * rows;
    return ExtentBound{"how long sequences are", most};
  }
};

/// Each sequence has one step or more.
struct PadModel
    : DataExtentInterface::ExternalModel<PadModel, PadPackedSequenceOp> {
  std::optional<ExtentBound> getExtentBound(Operation *op, unsigned result,
                                            unsigned dim, Facts facts) const {
    auto pad = cast<PadPackedSequenceOp>(op);
    bool isBatch = dim == (result == 1 || pad.getBatchFirst() ? 0u : 1u);
    if (!isBatch)
      return std::nullopt;
    return ExtentBound{"how many sequences there are",
                       getExtent(pad.getData(), 0, facts)};
  }
};

/// It has no extents to bound; its memory rule counts all steps.
struct NestedModel
    : DataExtentInterface::ExternalModel<NestedModel, NestedTensorFromMaskOp> {
  std::optional<ExtentBound> getExtentBound(Operation *, unsigned, unsigned,
                                            Facts) const {
    return std::nullopt;
  }
};
} // namespace

template <typename... Ops>
static void attachNonzero(MLIRContext &context) {
  (Ops::template attachInterface<NonzeroModel<Ops>>(context), ...);
}

void rules::attachDataExtents(MLIRContext &context) {
  attachNonzero<NonzeroOp, ArgwhereOp, NonzeroNumpyOp, WhereConditionOp>(
      context);
  MaskedSelectOp::attachInterface<MaskedSelectModel>(context);
  IndexTensorOp::attachInterface<IndexModel<IndexTensorOp>>(context);
  IndexHackedTwinOp::attachInterface<IndexModel<IndexHackedTwinOp>>(context);
  Unique2Op::attachInterface<UniqueModel<Unique2Op>>(context);
  UniqueDimOp::attachInterface<UniqueModel<UniqueDimOp>>(context);
  UniqueConsecutiveOp::attachInterface<UniqueModel<UniqueConsecutiveOp>>(
      context);
  BincountOp::attachInterface<UnboundedModel<BincountOp>>(context);
  OneHotOp::attachInterface<UnboundedModel<OneHotOp>>(context);
  RepeatInterleaveTensorOp::attachInterface<
      UnboundedModel<RepeatInterleaveTensorOp>>(context);
  RepeatInterleaveSelfTensorOp::attachInterface<
      UnboundedModel<RepeatInterleaveSelfTensorOp>>(context);
  PackPaddedSequenceOp::attachInterface<PackModel>(context);
  PadPackedSequenceOp::attachInterface<PadModel>(context);
  NestedTensorFromMaskOp::attachInterface<NestedModel>(context);
}
