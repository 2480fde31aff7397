//===- EmbeddingShapes.cpp - Rules of one_hot and embedding_bag -----------===//

#include "../Rules/FactoryRules.h"
#include "../Rules/IndexRules.h"
#include "../Rules/NewTensors.h"

using namespace mlir;
using namespace koila;

// Source: aten/src/ATen/native/Onehot.cpp.
LogicalResult indexing::inferOneHot(ShapeRule &rule, Value self,
                                    int64_t classes) {
  TensorInfo info = rule.tensor(self);
  if (failed(checkIndexType(rule, info, /*allowsInt32=*/false)))
    return failure();
  if (classes == 0 || classes < -1)
    return rule.emitError() << "num_classes " << classes << " is not positive";
  if (!info.hasRank()) {
    rule.setResult(0, info);
    return success();
  }
  if (classes < 0 && countElements(rule, info).isConstant(0))
    return rule.emitError() << "cannot count the classes of an empty tensor";
  SmallVector<DimExpr> dims = *info.dims;
  dims.push_back(classes < 0 ? DimExpr() : rule.constant(classes));
  rule.setResult(0, packed(dims, info.elementType));
  return success();
}

static LogicalResult checkBags(ShapeRule &rule, const indexing::Bags &bags,
                               const TensorInfo &weight,
                               const TensorInfo &indices,
                               const TensorInfo &offsets) {
  // Indices and offsets are promoted to a common type first.
  TensorInfo common =
      indexing::unranked(indexing::promoteAll({indices, offsets}));
  if (failed(indexing::checkIndexType(rule, common)))
    return failure();
  if (weight.hasRank() && weight.getRank() != 2)
    return rule.emitError()
           << "takes a weight of rank 2, got " << weight.getRank();
  if (indices.hasRank() && indices.getRank() != 1 && indices.getRank() != 2)
    return rule.emitError()
           << "takes indices of rank 1 or 2, got " << indices.getRank();
  if (offsets.hasRank() && offsets.getRank() != 1)
    return rule.emitError()
           << "takes a vector of offsets, got rank " << offsets.getRank();
  if (bags.includeLastOffset && offsets.hasRank() &&
      offsets.dim(0).isConstant(0))
    return rule.emitError() << "needs the last offset";
  if (bags.paddingIndex && weight.hasRank()) {
    auto rows = weight.dim(0).getConstant();
    if (rows && (*bags.paddingIndex < -*rows || *bags.paddingIndex >= *rows))
      return rule.emitError() << "padding_idx " << *bags.paddingIndex
                              << " is no row of " << *rows;
  }
  if (!bags.perSampleWeights)
    return success();
  TensorInfo scale = rule.tensor(bags.perSampleWeights);
  if (bags.mode != 0)
    return rule.emitError() << "takes per_sample_weights only for sums";
  if (failed(indexing::checkSameType(rule, weight, scale)))
    return failure();
  if (scale.hasRank() && indices.hasRank() &&
      (scale.getRank() != 1 ||
       proveEqual(scale.dim(0), indexing::countElements(rule, indices)) ==
           TriBool::No))
    return rule.emitError() << "per_sample_weights must have one element for "
                            << "each index";
  return success();
}

// Source: aten/src/ATen/native/EmbeddingBag.cpp; extents measured.
LogicalResult indexing::inferEmbeddingBag(ShapeRule &rule, const Bags &bags) {
  TensorInfo weight = rule.tensor(bags.weight);
  TensorInfo indices = rule.tensor(bags.indices);
  TensorInfo offsets = rule.tensor(bags.offsets);
  if (failed(checkBags(rule, bags, weight, indices, offsets)))
    return failure();
  constexpr int64_t kSum = 0, kMax = 2;
  DimExpr given = offsets.hasRank() ? offsets.dim(0) : DimExpr();
  DimExpr count = given && bags.includeLastOffset ? given - 1 : given;
  DimExpr columns = weight.hasRank() ? weight.dim(1) : DimExpr();
  // int32 only where indices and offsets are.
  Type type = promoteAll({indices, offsets});
  // A fast path for sums skips the bag of each index.
  bool fast = bags.mode == kSum && !bags.paddingIndex &&
              !(weight.elementType && weight.elementType.isF64());
  rule.setResult(0, packed({count, columns}, weight.elementType));
  rule.setResult(1,
                 packed(fast ? DimExpr() : countElements(rule, indices), type));
  DimExpr sizes = bags.mode == kSum ? given : count;
  rule.setResult(2, packed(sizes, type));
  rule.setResult(3, bags.mode == kMax ? packed({count, columns}, type)
                                      : packed(sizes, type));
  return success();
}

//===----------------------------------------------------------------------===//
// Bags of equal size
//===----------------------------------------------------------------------===//

bool indexing::isReadAsOffsets(Value value) {
  constexpr unsigned kOffsets = 2;
  auto isOffset = [](OpOperand &use) {
    return isa<EmbeddingBagOp, EmbeddingBagPaddingOp>(use.getOwner()) &&
           use.getOperandNumber() == kOffsets;
  };
  return !value.use_empty() && llvm::all_of(value.getUses(), isOffset);
}

std::optional<int64_t> indexing::getBagSize(const BatchRule &rule,
                                            Value offsets) {
  auto steps = offsets.getDefiningOp<ArangeStartStepOp>();
  if (!steps)
    return std::nullopt;
  auto get = [&](StringRef name) -> std::optional<int64_t> {
    if (Value value = OperatorArguments(steps).getDynamic(name)) {
      DimExpr number = rule.info(value).integer;
      return number ? number.getConstant() : std::nullopt;
    }
    auto literal = dyn_cast_or_null<IntegerAttr>(steps->getAttr(name));
    return literal ? std::optional(literal.getInt()) : std::nullopt;
  };
  auto start = get("start"), step = get("step");
  Type type = rule.tensor(offsets).elementType;
  if (start != 0 || !step || *step < 1 || !isa_and_nonnull<IntegerType>(type))
    return std::nullopt;
  return step;
}

void indexing::inferEmbeddingBagBatch(BatchRule &rule, const Bags &bags) {
  BatchFact rows = rule.fact(bags.indices), starts = rule.fact(bags.offsets);
  BatchFact scale = rule.fact(bags.perSampleWeights);
  bool isFixed = rule.fact(bags.weight).isFree();
  if (isFixed && rows.isFree() && starts.isFree() && scale.isFree())
    return rule.setAll(BatchFact::free());
  if (!isFixed)
    return rule.mix("the table that is read depends on the batch");
  auto size = getBagSize(rule, bags.offsets);
  TensorInfo indices = rule.tensor(bags.indices);
  TensorInfo offsets = rule.tensor(bags.offsets);
  auto isVector = [](const TensorInfo &info) {
    return info.hasRank() && info.getRank() == 1 && info.dim(0);
  };
  bool isRegular =
      size && isReadAsOffsets(bags.offsets) && !bags.includeLastOffset &&
      rows.isAt() && starts.isAt() && rows.factor == starts.factor * *size &&
      isVector(indices) && isVector(offsets) &&
      proveEqual(indices.dim(0), offsets.dim(0) * *size) == TriBool::Yes &&
      (!bags.perSampleWeights || (scale.isAt() && scale.factor == rows.factor));
  if (!isRegular)
    return rule.mix(
        "which indices of embedding_bag belong to a sample is decided by data");
  // The bag of each index counts from the first sample.
  Operation *op = rule.getOp();
  if (llvm::any_of(op->getResults().drop_front(),
                   [](Value made) { return !made.use_empty(); }))
    return rule.mix("the bags of embedding_bag are counted over all samples");
  rule.setAll(BatchFact::free());
  rule.setResult(0, BatchFact::at(0, starts.factor));
}
