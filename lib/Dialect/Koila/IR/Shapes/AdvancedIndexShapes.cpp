//===- AdvancedIndexShapes.cpp - Rules of several tensors of indices ------===//
//
// Source of all: make_info and AdvancedIndex in
// aten/src/ATen/native/TensorAdvancedIndexing.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Rules/DataExtents.h"
#include "../Rules/IndexRules.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"

using namespace mlir;
using namespace koila;

namespace {
/// One index of one dim. A mask has become as many as it has dims.
struct Entry {
  TensorInfo info;
  /// Position among the operands.
  size_t operand = 0;
};

/// How the dims of an indexed tensor and of what is read belong together.
struct Plan {
  /// What PyTorch refuses.
  std::string error;
  /// False if a shape is unknown.
  bool known = false;
  /// Of the result. Data decides those that depend on a symbol in `data`.
  SmallVector<DimExpr> dims;
  SmallVector<DimSymbol> data;
  /// The first of the dims of the indices in the result, and their number.
  int64_t first = 0, count = 0;
  /// For each dim of self its dim in the result, -1 if it is indexed.
  SmallVector<int64_t> places;
  SmallVector<std::optional<Entry>> entries;
  /// Whether there is a mask, and its first dim of self.
  std::optional<int64_t> maskStart;
  size_t masks = 0, defined = 0;

  bool dependsOnData(DimExpr dim) const {
    return llvm::any_of(
        data, [&](DimSymbol symbol) { return dim.dependsOn(symbol); });
  }
};
} // namespace

static bool isMask(Type type) {
  return type.isSignlessInteger(1) || type.isUnsignedInteger(8);
}

/// Fills the entries; an error or an unknown shape ends it.
static bool expandMasks(const TensorInfo &self, ArrayRef<TensorInfo> indices,
                        ArrayRef<bool> mask, Plan &plan) {
  size_t operand = 0;
  size_t count = mask.empty() ? indices.size() : mask.size();
  for (size_t position = 0; position < count; ++position) {
    if (!mask.empty() && !mask[position]) {
      plan.entries.emplace_back();
      continue;
    }
    if (operand >= indices.size())
      return false;
    const TensorInfo &info = indices[operand];
    Entry entry{info, operand++};
    ++plan.defined;
    Type type = info.elementType;
    if (type && !isMask(type) && !type.isSignlessInteger(64) &&
        !type.isSignlessInteger(32)) {
      plan.error = "an index is no int64, int32 or bool";
      return false;
    }
    // How many dims come next is decided by the type of each index.
    if (!type || !info.hasRank() || (isMask(type) && info.getRank() == 0))
      return false;
    if (!isMask(type)) {
      plan.entries.push_back(entry);
      continue;
    }
    ++plan.masks;
    plan.maskStart = plan.entries.size();
    plan.data.push_back(DimSymbol::get(type.getContext(),
                                       "_data" + std::to_string(plan.masks),
                                       SymbolKind::Selected));
    DimExpr rows = DimExpr::symbol(plan.data.back());
    for (int64_t dim = 0; dim < info.getRank(); ++dim) {
      size_t place = plan.entries.size();
      if (self.hasRank() && place < self.dims->size() &&
          proveEqual(self.dim(place), info.dim(dim)) == TriBool::No) {
        plan.error = "a mask of extent " + info.dim(dim).str() +
                     " does not fit extent " + self.dim(place).str();
        return false;
      }
      entry.info = TensorInfo::contiguous(rows, type);
      plan.entries.push_back(entry);
    }
  }
  if (self.hasRank() && plan.entries.size() > self.dims->size()) {
    plan.error = "has indices for " + std::to_string(plan.entries.size()) +
                 " dims, self has " + std::to_string(self.dims->size());
    return false;
  }
  if (plan.defined == 0) {
    plan.error = "has no index";
    return false;
  }
  return self.hasRank();
}

static Plan makePlan(const TensorInfo &self, ArrayRef<TensorInfo> indices,
                     ArrayRef<bool> mask) {
  Plan plan;
  if (!expandMasks(self, indices, mask, plan))
    return plan;
  plan.entries.resize(self.getRank());
  SmallVector<DimExpr> replacement;
  int64_t last = -1;
  bool adjacent = true, emptied = false;
  for (auto [dim, entry] : llvm::enumerate(plan.entries)) {
    if (!entry)
      continue;
    adjacent &= last == -1 || last + 1 == static_cast<int64_t>(dim);
    if (last == -1)
      plan.first = dim;
    last = dim;
    emptied |= self.dim(dim).isConstant(0);
    SmallVector<DimExpr> other = *entry->info.dims;
    if (replacement.size() < other.size())
      std::swap(replacement, other);
    size_t offset = replacement.size() - other.size();
    for (auto [at, extent] : llvm::enumerate(other)) {
      DimExpr &mine = replacement[offset + at];
      auto left = mine.getConstant(), right = extent.getConstant();
      if (left && right && *left != *right && *left != 1 && *right != 1) {
        plan.error = "indices of extents " + mine.str() + " and " +
                     extent.str() + " do not broadcast";
        return plan;
      }
      mine = mine.broadcast(extent);
    }
  }
  if (emptied && llvm::all_of(replacement, indexing::isPositive)) {
    plan.error = "indexes a dim that has no rows";
    return plan;
  }
  // Dims of the result: before the indices, theirs, and the rest; indices that
  // are not neighbours go in front.
  plan.known = true;
  plan.count = replacement.size();
  if (!adjacent)
    plan.first = 0;
  plan.places.assign(self.getRank(), -1);
  for (int64_t dim = 0; dim < plan.first; ++dim) {
    plan.places[dim] = dim;
    plan.dims.push_back(self.dim(dim));
  }
  plan.dims.append(replacement);
  for (auto [dim, entry] : llvm::enumerate(plan.entries))
    if (!entry && plan.places[dim] == -1) {
      plan.places[dim] = plan.dims.size();
      plan.dims.push_back(self.dim(dim));
    }
  return plan;
}

/// A copy of another type of the index expanded to `dims`, which is dense.
static TensorInfo castExpanded(const TensorInfo &index,
                               ArrayRef<DimExpr> dims) {
  TensorInfo info = indexing::unranked(index.elementType);
  info.dims.emplace(dims.begin(), dims.end());
  if (dims.empty() || !index.strides)
    return dims.empty() ? index : info;
  DimExpr zero = DimExpr::constant(dims.front().getContext(), 0);
  info.strides = SmallVector<DimExpr>(dims.size(), zero);
  size_t offset = dims.size() - index.dims->size();
  for (auto [dim, extent] : llvm::enumerate(*index.dims))
    if (!extent.isConstant(1) || dims[offset + dim].isConstant(1))
      (*info.strides)[offset + dim] = (*index.strides)[dim];
  info.strides = computePreservedStrides(info);
  return info;
}

/// The strides that TensorIterator gives what is read: self has stride zero
/// along the dims of the indices, and each index elsewhere.
static std::optional<SmallVector<DimExpr>>
computeIndexStrides(const TensorInfo &self, const Plan &plan) {
  if (!self.strides || plan.dims.empty())
    return plan.dims.empty() ? std::optional(SmallVector<DimExpr>())
                             : std::nullopt;
  MLIRContext *context = plan.dims.front().getContext();
  DimExpr zero = DimExpr::constant(context, 0);
  DimExpr one = DimExpr::constant(context, 1);
  SmallVector<TensorInfo> operands;
  TensorInfo read = indexing::unranked({});
  read.dims = plan.dims;
  read.strides = SmallVector<DimExpr>(plan.dims.size(), zero);
  for (auto [dim, place] : llvm::enumerate(plan.places))
    if (place >= 0)
      (*read.strides)[place] = (*self.strides)[dim];
  operands.push_back(read);
  for (const std::optional<Entry> &entry : plan.entries) {
    if (!entry)
      continue;
    TensorInfo info = entry->info;
    // Cast to int64 after it is expanded.
    if (info.elementType.isSignlessInteger(32))
      info =
          castExpanded(info, ArrayRef(plan.dims).slice(plan.first, plan.count));
    TensorInfo index = indexing::unranked({});
    index.dims = SmallVector<DimExpr>(plan.dims.size(), one);
    index.strides = SmallVector<DimExpr>(plan.dims.size(), zero);
    int64_t offset = plan.first + plan.count - info.getRank();
    // The stride of a vector is compared with none.
    if (!info.strides && info.getRank() > 1)
      return std::nullopt;
    for (int64_t dim = 0; dim < info.getRank(); ++dim) {
      (*index.dims)[offset + dim] = info.dim(dim);
      (*index.strides)[offset + dim] =
          info.strides ? (*info.strides)[dim] : one;
    }
    operands.push_back(index);
  }
  auto strides = computeElementwiseStrides(operands, plan.dims);
  if (!strides || llvm::any_of(*strides, [&](DimExpr stride) {
        return plan.dependsOnData(stride);
      }))
    return std::nullopt;
  return strides;
}

template <typename Rule>
static Plan makePlan(Rule &rule, Value self, ValueRange indices,
                     ArrayRef<bool> mask) {
  SmallVector<TensorInfo> infos;
  for (Value index : indices)
    infos.push_back(rule.tensor(index));
  return makePlan(rule.tensor(self), infos, mask);
}

//===----------------------------------------------------------------------===//
// index
//===----------------------------------------------------------------------===//

LogicalResult indexing::inferIndex(ShapeRule &rule, Value self,
                                   ValueRange indices, ArrayRef<bool> mask) {
  Plan plan = makePlan(rule, self, indices, mask);
  if (!plan.error.empty())
    return rule.emitError() << plan.error;
  TensorInfo info = rule.tensor(self), result = unranked(info.elementType);
  if (plan.known) {
    result.strides = computeIndexStrides(info, plan);
    result.dims = plan.dims;
    for (DimExpr &dim : *result.dims)
      if (plan.dependsOnData(dim))
        dim = DimExpr();
  }
  rule.setResult(0, result);
  return success();
}

std::optional<DimExpr> rules::getMostSelected(const TensorInfo &self,
                                              ArrayRef<TensorInfo> indices,
                                              ArrayRef<bool> mask,
                                              unsigned dim) {
  Plan plan = makePlan(self, indices, mask);
  if (!plan.known || dim >= plan.dims.size() ||
      !plan.dependsOnData(plan.dims[dim]))
    return std::nullopt;
  // What masks select is a vector, which meets the last dims of the others.
  DimExpr most = DimExpr::constant(plan.dims[dim].getContext(), 0);
  for (const std::optional<Entry> &entry : plan.entries) {
    if (!entry)
      continue;
    const TensorInfo &info = indices[entry->operand];
    if (isMask(info.elementType))
      most = most.max(product(most.getContext(), *info.dims));
    else if (info.getRank() > 0)
      most = most.max(info.dims->back());
  }
  return most;
}

/// The dim of the result with the batch of the indices, none if they have
/// none; an error if they do not agree.
static std::optional<BatchFact> getIndexBatch(BatchRule &rule,
                                              ValueRange indices,
                                              const Plan &plan,
                                              std::string &error) {
  std::optional<BatchFact> common;
  for (const std::optional<Entry> &entry : plan.entries) {
    if (!entry)
      continue;
    BatchFact fact = rule.fact(indices[entry->operand]);
    if (fact.isFree())
      continue;
    if (isMask(entry->info.elementType))
      error = "how many elements a mask selects of a sample is decided by data";
    fact.dim += plan.first + plan.count - entry->info.getRank();
    if (common && !(*common == fact))
      error = "the indices carry the batch in different dims";
    common = fact;
  }
  for (const std::optional<Entry> &entry : plan.entries) {
    if (!entry || !common || rule.fact(indices[entry->operand]).isAt())
      continue;
    int64_t dim =
        common->dim - (plan.first + plan.count) + entry->info.getRank();
    if (dim >= 0 && !entry->info.dim(dim).isConstant(1))
      error = "an index without the batch has extent " +
              entry->info.dim(dim).str() + " in the batch dim";
  }
  return common;
}

bool indexing::isReadAsRows(Value value) {
  Operation *op = value.getDefiningOp();
  if (!isa_and_nonnull<ArangeEndOp, ArangeStartOp, ArangeStartStepOp>(op))
    return false;
  auto counts = [&](StringRef name, int64_t from) {
    Attribute attr = op->getAttr(name);
    auto number = dyn_cast_or_null<IntegerAttr>(attr);
    return !attr || (number && number.getInt() == from);
  };
  auto isIndex = [](OpOperand &use) {
    return isa<IndexTensorOp, IndexHackedTwinOp>(use.getOwner()) &&
           use.getOperandNumber() > 0;
  };
  return counts("start", 0) && counts("step", 1) && !value.use_empty() &&
         llvm::all_of(value.getUses(), isIndex);
}

Value indexing::getSelectingMask(Operation *op) {
  if (!isa_and_nonnull<IndexTensorOp, IndexHackedTwinOp>(op) ||
      op->getNumOperands() != 2)
    return {};
  Value mask = op->getOperand(1);
  auto type = dyn_cast<RankedTensorType>(mask.getType());
  return type && type.getElementType().isInteger(1) && type.getRank() > 0
             ? mask
             : Value();
}

/// Where samples are selected by their own mask alone, the rows of a sample
/// are those where it is true.
static bool inferSelectedBatch(BatchRule &rule, Value self, const Plan &plan) {
  Value mask = indexing::getSelectingMask(rule.getOp());
  if (!mask || plan.masks != 1 || plan.defined != 1)
    return false;
  BatchFact fact = rule.fact(self), own = rule.fact(mask);
  own.dim += *plan.maskStart;
  if (!fact.isAt() || !own.isAt() || !(fact == own))
    return false;
  rule.takeAnyRows();
  rule.setResult(0, BatchFact::selected(plan.first, mask));
  return true;
}

/// Whether an index counts the samples, each tile from zero on; then the
/// result, of which `common` is the batch, has the rows of `self` only where
/// these are what is counted.
static bool inferCountedBatch(BatchRule &rule, Value self, ValueRange indices,
                              const Plan &plan,
                              const std::optional<BatchFact> &common) {
  BatchFact fact = rule.fact(self);
  bool counts = false, isOwn = plan.masks == 0 && common && fact.isAt();
  for (auto [dim, entry] : llvm::enumerate(plan.entries)) {
    if (!entry || !indexing::isReadAsRows(indices[entry->operand]) ||
        rule.fact(indices[entry->operand]).isFree())
      continue;
    isOwn &= !counts && fact.dim == static_cast<int64_t>(dim) &&
             fact.factor == common->factor && entry->info.hasRank() &&
             entry->info.getRank() == 1 &&
             proveEqual(rule.tensor(self).dim(dim), entry->info.dim(0)) ==
                 TriBool::Yes;
    counts = true;
  }
  if (counts && isOwn)
    rule.setResult(0, *common);
  else if (counts)
    indexing::mixSamples(rule,
                         "the places of samples are counted over the batch");
  return counts;
}

void indexing::inferIndexBatch(BatchRule &rule, Value self, ValueRange indices,
                               ArrayRef<bool> mask) {
  Plan plan = makePlan(rule, self, indices, mask);
  if (!plan.known)
    return mixSamples(rule, "a shape is unknown");
  if (inferSelectedBatch(rule, self, plan))
    return;
  std::string error;
  auto common = getIndexBatch(rule, indices, plan, error);
  BatchFact fact = rule.fact(self);
  if (!error.empty())
    return mixSamples(rule, error);
  if (inferCountedBatch(rule, self, indices, plan, common))
    return;
  if (fact.isFree() && common)
    return rule.setResult(0, *common);
  if (common)
    return mixSamples(rule, "indices of one sample reach rows of another");
  if (plan.places[fact.dim] < 0)
    return mixSamples(rule, "indexing dim " + Twine(fact.dim) +
                                " chooses among the samples");
  rule.setResult(0, BatchFact::at(plan.places[fact.dim], fact.factor));
}

//===----------------------------------------------------------------------===//
// index_put
//===----------------------------------------------------------------------===//

/// Known to have one element.
static bool isOneElement(const TensorInfo &info) {
  return info.hasRank() && llvm::all_of(*info.dims, [](DimExpr dim) {
           return dim.isConstant(1);
         });
}

LogicalResult indexing::inferIndexPut(ShapeRule &rule, Value self,
                                      ValueRange indices, ArrayRef<bool> mask,
                                      Value values) {
  Plan plan = makePlan(rule, self, indices, mask);
  if (!plan.error.empty())
    return rule.emitError() << plan.error;
  TensorInfo info = rule.tensor(self), from = rule.tensor(values);
  // One number where a mask is true: masked_fill, which casts.
  auto accumulate = rule.getOp()->getAttrOfType<BoolAttr>("accumulate");
  bool fills = plan.masks == 1 && plan.defined == 1 && isOneElement(from) &&
               !(accumulate && accumulate.getValue());
  if (!fills && from.hasRank() && failed(checkSameType(rule, info, from)))
    return failure();
  if (plan.known && !fills) {
    SmallVector<DimExpr> dims = plan.dims;
    for (DimExpr &dim : dims)
      if (plan.dependsOnData(dim))
        dim = DimExpr();
    if (failed(checkExpands(rule, from, dims)))
      return failure();
  }
  return setWritten(rule, self, Copy::Preserved);
}

void indexing::inferIndexPutBatch(BatchRule &rule, Value self,
                                  ValueRange indices, ArrayRef<bool> mask,
                                  Value values) {
  Plan plan = makePlan(rule, self, indices, mask);
  TensorInfo from = rule.tensor(values);
  if (!plan.known || !from.hasRank())
    return mixSamples(rule, "a shape is unknown");
  BatchFact fact = rule.fact(self), written = rule.fact(values);
  if (fact.isFree())
    return mixSamples(rule, "rows of all samples are written into one tensor");
  // A number where a mask of each sample is true.
  BatchFact masked = rule.fact(indices.front());
  if (plan.masks == 1 && plan.defined == 1 && isOneElement(from) &&
      written.isFree() && masked.isAt()) {
    masked.dim += *plan.maskStart;
    if (!(masked == fact))
      return mixSamples(rule, "the mask has the batch in another dim");
    return rule.setResult(0, fact);
  }
  for (Value index : indices)
    if (!rule.fact(index).isFree())
      return mixSamples(rule, "indices of one sample reach rows of another");
  int64_t place = plan.places[fact.dim];
  if (place < 0)
    return mixSamples(rule, "indexing dim " + Twine(fact.dim) +
                                " chooses among the samples");
  int64_t offset = static_cast<int64_t>(plan.dims.size()) - from.getRank();
  if (written.isAt()) {
    written.dim += offset;
    if (!(written == BatchFact::at(place, fact.factor)))
      return mixSamples(rule, "what is written has the batch in another dim");
  } else if (place >= offset && !from.dim(place - offset).isConstant(1)) {
    return mixSamples(rule, "what is written has no batch, but extent " +
                                from.dim(place - offset).str() +
                                " in the batch dim");
  }
  rule.setResult(0, fact);
}
