//===- SelectedMeans.cpp - Means over what masks select -------------------===//
//
// A tile weighs in a mean of the batch by how many elements a mask selects of
// its samples, not by how many samples it has. Sums and counts add up: such a
// mean becomes the sum over what is selected, divided by how often the mask is
// true in all.
//
//===----------------------------------------------------------------------===//

#include "PhasePlan.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"

using namespace mlir;
using namespace koila;

namespace {
/// How many elements a mean is of: `rest` for each that `mask` selects.
struct Count {
  Value mask;
  int64_t rest = 1;
};

class MeanExpander {
public:
  MeanExpander(FunctionOpInterface function, ArrayRef<Operation *> reads)
      : dims(function) {
    for (Operation *read : reads)
      if (const auto &info = dims.lookup(read->getResult(0)).tensor;
          info && info->hasRank())
        for (DimExpr dim : *info->dims)
          if (DimSymbol selected = getSelected(dim))
            masks.try_emplace(selected, indexing::getSelectingMask(read));
  }

  /// The same value; null, and nothing is built, if it is no such mean.
  Value expand(Operation *op);

private:
  /// The number of selected elements that an extent is; null if it is another
  /// expression.
  static DimSymbol getSelected(DimExpr dim);
  std::optional<SmallVector<DimExpr>> getElements(Operation *op) const;
  std::optional<Count> count(ArrayRef<DimExpr> extents) const;

  DimAnalysis dims;
  llvm::DenseMap<DimSymbol, Value> masks;
};
} // namespace

DimSymbol MeanExpander::getSelected(DimExpr dim) {
  DimSymbol symbol = dim ? dim.getSymbol() : DimSymbol();
  return symbol && symbol.getKind() == SymbolKind::Selected ? symbol
                                                            : DimSymbol();
}

static bool isMeanOfElements(Operation *op) {
  auto reduction = op->getAttrOfType<IntegerAttr>("reduction");
  return isa<MseLossOp, L1LossOp, SmoothL1LossOp, HuberLossOp,
             BinaryCrossEntropyOp, BinaryCrossEntropyWithLogitsOp, KlDivOp,
             SoftMarginLossOp, HingeEmbeddingLossOp, MarginRankingLossOp,
             PoissonNllLossOp>(op) &&
         reduction && reduction.getInt() == 1;
}

/// The extents over which the mean is taken.
std::optional<SmallVector<DimExpr>>
MeanExpander::getElements(Operation *op) const {
  SmallVector<DimExpr> extents;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    const std::optional<TensorInfo> &info = dims.lookup(operand).tensor;
    if (!info || !info->hasRank())
      return std::nullopt;
    if (index == 0) {
      extents = *info->dims;
      continue;
    }
    // What broadcasts is no larger than the first.
    size_t rank = info->dims->size();
    if (rank > extents.size())
      return std::nullopt;
    for (auto [mine, other] :
         llvm::zip_equal(ArrayRef(extents).take_back(rank), *info->dims))
      if (mine != other && !other.isConstant(1))
        return std::nullopt;
  }
  if (auto mean = dyn_cast<MeanDimOp>(op)) {
    auto reduced = rules::getReducedDims(op, extents.size(), true);
    if (!reduced)
      return std::nullopt;
    SmallVector<DimExpr> left;
    for (auto [extent, isReduced] : llvm::zip_equal(extents, *reduced))
      if (isReduced)
        left.push_back(extent);
    return left;
  }
  return extents;
}

std::optional<Count> MeanExpander::count(ArrayRef<DimExpr> extents) const {
  Count found;
  for (DimExpr extent : extents) {
    if (auto number = extent.getConstant()) {
      if (llvm::MulOverflow(found.rest, *number, found.rest))
        return std::nullopt;
      continue;
    }
    DimSymbol selected = getSelected(extent);
    auto mask = selected ? masks.find(selected) : masks.end();
    if (mask == masks.end() || found.mask)
      return std::nullopt;
    found.mask = mask->second;
  }
  return found.mask ? std::optional(found) : std::nullopt;
}

Value MeanExpander::expand(Operation *op) {
  if (!isa<MeanOp, MeanDimOp>(op) && !isMeanOfElements(op))
    return {};
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  auto elements = getElements(op);
  auto counted = elements ? count(*elements) : std::nullopt;
  if (!type || !counted)
    return {};
  OpBuilder builder(op);
  Location loc = op->getLoc();
  Value sum;
  if (auto mean = dyn_cast<MeanOp>(op)) {
    sum =
        SumOp::create(builder, loc, type, mean.getSelf(), mean.getDtypeAttr());
  } else if (auto mean = dyn_cast<MeanDimOp>(op)) {
    sum =
        SumDimOp::create(builder, loc, type, mean.getSelf(), mean.getDimAttr(),
                         mean.getKeepdimAttr(), mean.getDtypeAttr());
  } else {
    Operation *loss = builder.clone(*op);
    loss->setAttr("reduction", builder.getI64IntegerAttr(2));
    sum = loss->getResult(0);
  }
  auto number = RankedTensorType::get({}, builder.getI64Type());
  Value divisor = SumOp::create(builder, loc, number, counted->mask,
                                /*dtype=*/nullptr);
  if (counted->rest != 1)
    divisor = MulScalarOp::create(builder, loc, number, divisor,
                                  builder.getI64IntegerAttr(counted->rest),
                                  /*tied=*/nullptr, ValueRange());
  return DivTensorOp::create(builder, loc, type, sum, divisor,
                             /*tied=*/nullptr);
}

void koila::expandSelectedMeans(FunctionOpInterface function) {
  SmallVector<Operation *> reads, means;
  function->walk([&](Operation *op) {
    if (indexing::getSelectingMask(op))
      reads.push_back(op);
    if (isa<MeanOp, MeanDimOp>(op) || isMeanOfElements(op))
      means.push_back(op);
  });
  if (reads.empty() || means.empty())
    return;
  MeanExpander expander(function, reads);
  for (Operation *op : means)
    if (Value quotient = expander.expand(op)) {
      op->getResult(0).replaceAllUsesWith(quotient);
      op->erase();
    }
}
