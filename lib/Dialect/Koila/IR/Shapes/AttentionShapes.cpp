//===- AttentionShapes.cpp - Rules of attention ---------------------------===//

#include "../Rules/AttentionRules.h"
#include "../Rules/MatmulRules.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using rules::Attention;
using rules::Labels;

//===----------------------------------------------------------------------===//
// Scaled dot products
//===----------------------------------------------------------------------===//

/// Labels of the dims after the leading ones.
enum AttentionLabel { Queries = 1, Keys, Depth, Values, KeyHeads, ValueHeads };

/// Labels of an operand whose last dims are `last`.
static SmallVector<int> getOperandLabels(int64_t rank, ArrayRef<int> last,
                                         std::optional<int> heads) {
  SmallVector<int> labels;
  for (int64_t left = rank - 2; left > 0; --left)
    labels.push_back(left == 1 && heads ? *heads
                                        : Labels::kBroadcast + left - 1);
  llvm::append_range(labels, last);
  return labels;
}

static Labels getAttentionLabels(ArrayRef<int64_t> ranks, bool grouped) {
  Labels labels;
  std::optional<int> keyHeads, valueHeads;
  if (grouped) {
    keyHeads = KeyHeads;
    valueHeads = ValueHeads;
  }
  labels.factors.push_back(
      getOperandLabels(ranks[0], {Queries, Depth}, std::nullopt));
  labels.factors.push_back(getOperandLabels(ranks[1], {Keys, Depth}, keyHeads));
  labels.factors.push_back(
      getOperandLabels(ranks[2], {Keys, Values}, valueHeads));
  labels.result = getOperandLabels(*llvm::max_element(ranks.take_front(3)),
                                   {Queries, Values}, std::nullopt);
  return labels;
}

static TriBool both(TriBool lhs, TriBool rhs) { return std::min(lhs, rhs); }
static TriBool when(bool condition) {
  return condition ? TriBool::Yes : TriBool::No;
}

/// Whether PyTorch takes its flash kernel, whose result is laid out as the
/// queries. Source: use_flash_attention_cpp in
/// aten/src/ATen/native/transformers/sdp_utils_cpp.cpp.
static TriBool usesFlash(const ShapeRule &rule, const Attention &attention,
                         ArrayRef<TensorInfo> infos) {
  if (attention.drops)
    return TriBool::No;
  TensorInfo mask = rule.tensor(attention.mask);
  if (attention.mask && !mask.hasRank())
    return TriBool::Unknown;
  TriBool flash =
      when(!attention.mask || mask.getRank() == 2 || mask.getRank() == 4);
  for (const TensorInfo &info : infos)
    flash = both(flash, when(info.getRank() == 4));
  if (flash == TriBool::No)
    return flash;
  const TensorInfo &query = infos[0];
  for (const TensorInfo &info : infos) {
    flash = both(flash, proveEqual(info.dim(0), query.dim(0)));
    if (!attention.grouped)
      flash = both(flash, proveEqual(info.dim(1), query.dim(1)));
    flash = both(flash, proveEqual(info.dim(3), query.dim(3)));
    flash = both(flash, when(!info.dim(2).isConstant(0)));
    flash = both(flash, info.strides
                            ? proveEqual((*info.strides)[3], rule.constant(1))
                            : TriBool::Unknown);
  }
  return flash;
}

/// A mask must broadcast to the scores. The flash kernel takes no bools.
static LogicalResult checkMask(ShapeRule &rule, const Attention &attention,
                               const TensorInfo &query,
                               ArrayRef<DimExpr> scores) {
  TensorInfo info = rule.tensor(attention.mask);
  bool flash = attention.kind == Attention::Kind::Flash;
  // By way of matmul and softmax it is added to the scores in place.
  bool isAdded = attention.kind == Attention::Kind::Math && info.elementType &&
                 !isa<ComplexType>(info.elementType);
  if (info.elementType && query.elementType && !isAdded &&
      !info.elementType.isF32() && (flash || !info.elementType.isInteger(1)) &&
      info.elementType != query.elementType)
    return rule.emitError() << "the mask is " << info.elementType
                            << ", the queries are " << query.elementType;
  if (!info.hasRank())
    return success();
  int64_t offset = static_cast<int64_t>(scores.size()) - info.getRank();
  if (offset < 0)
    return rule.emitError() << "a mask of rank " << info.getRank()
                            << " for scores of rank " << scores.size();
  for (auto [index, dim] : llvm::enumerate(*info.dims))
    if (!dim.isConstant(1) &&
        proveEqual(dim, scores[offset + index]) == TriBool::No)
      return rule.emitError()
             << "the mask has extent " << dim.str() << " in dim " << index
             << ", the scores " << scores[offset + index].str();
  return success();
}

LogicalResult rules::inferAttention(ShapeRule &rule,
                                    const Attention &attention) {
  SmallVector<Value> operands{attention.query, attention.key, attention.value};
  auto ranks = getRanks(rule, operands);
  if (!ranks)
    return inferTypeOnly(rule, attention.query);
  SmallVector<TensorInfo> infos;
  for (Value operand : operands)
    infos.push_back(rule.tensor(operand));
  for (int64_t rank : *ranks)
    if (rank < 2)
      return rule.emitError() << "expects rank 2 or more, got " << rank;
  const TensorInfo &query = infos[0], &key = infos[1];
  if (attention.grouped)
    for (const TensorInfo &info : {key, infos[2]}) {
      if (info.getRank() < 3 || query.getRank() < 3)
        return rule.emitError() << "enable_gqa needs a dim of heads";
      auto heads = query.dim(query.getRank() - 3).getConstant();
      auto own = info.dim(info.getRank() - 3).getConstant();
      if (heads && own && (*own == 0 || *heads % *own != 0))
        return rule.emitError() << *own << " heads of keys or values do not "
                                << "divide " << *heads << " of queries";
    }
  Labels labels = getAttentionLabels(*ranks, attention.grouped);
  if (failed(inferLabelled(rule, labels, operands)))
    return failure();
  TensorInfo result = *rule.getResults()[0].tensor;
  SmallVector<DimExpr> scores(ArrayRef(*result.dims).drop_back());
  scores.push_back(key.dim(key.getRank() - 2));
  if (attention.mask && failed(checkMask(rule, attention, query, scores)))
    return failure();
  using Kind = Attention::Kind;
  TriBool flash = attention.kind == Kind::Flash ? TriBool::Yes
                  : attention.kind == Kind::Math
                      ? TriBool::No
                      : usesFlash(rule, attention, infos);
  if (attention.kind == Kind::Flash && query.getRank() != 4)
    return rule.emitError() << "expects rank 4, got " << query.getRank();
  if (flash != TriBool::No && query.isContiguous() != TriBool::Yes)
    result.strides =
        flash == TriBool::Yes ? computePreservedStrides(query) : std::nullopt;
  rule.setResult(0, result);
  if (attention.kind == Kind::Math)
    rule.setResult(1, TensorInfo::contiguous(scores, result.elementType));
  if (attention.kind != Kind::Flash)
    return success();
  // The logarithms of the sums, as [N, L, H] in memory (measured).
  Type type = result.elementType;
  if (type && type.getIntOrFloatBitWidth() < 32)
    type = Float32Type::get(rule.getContext());
  TensorInfo sums =
      TensorInfo::contiguous(ArrayRef(*result.dims).drop_back(), type);
  DimExpr heads = sums.dim(1);
  (*sums.strides)[1] = rule.constant(1);
  (*sums.strides)[2] = heads;
  rule.setResult(1, sums);
  return success();
}

void rules::inferAttentionBatch(BatchRule &rule, const Attention &attention) {
  SmallVector<Value> operands{attention.query, attention.key, attention.value};
  if (attention.mask)
    operands.push_back(attention.mask);
  auto ranks = getRanks(rule, operands);
  if (!ranks)
    return rule.mix("the rank of an operand is unknown");
  Labels labels = getAttentionLabels(*ranks, attention.grouped);
  int64_t rank = static_cast<int64_t>(labels.result.size());
  if (attention.mask) {
    SmallVector<int> scores(labels.result);
    scores.back() = Keys;
    labels.factors.emplace_back(
        ArrayRef(scores).take_back(std::min<int64_t>(rank, ranks->back())));
    if (ranks->back() > rank)
      return rule.mix("the mask has more dims than the scores");
  }
  // The softmax weighs all keys against each other.
  inferLabelledBatch(rule, labels, operands, Combine::None);
  BatchFact fact = rule.getResults()[0];
  if (!fact.isAt())
    return;
  if (attention.grouped && fact.dim == rank - 3)
    return rule.mix("the batch is the dim of heads, which are grouped");
  if (attention.causal && fact.dim == rank - 2)
    return rule.mix("causal attention goes by the place in the batch");
  if (rule.getResults().size() > 1 && fact.dim == rank - 1)
    rule.setResult(1, BatchFact::free());
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

static LogicalResult checkWeight(ShapeRule &rule, Value weight, int64_t rows,
                                 int64_t columns) {
  TensorInfo info = rule.tensor(weight);
  if (!info.hasRank() ||
      (info.getRank() == 2 &&
       proveEqual(info.dim(0), rule.constant(rows)) != TriBool::No &&
       proveEqual(info.dim(1), rule.constant(columns)) != TriBool::No))
    return success();
  return rule.emitError() << "expects a weight of " << rows << " rows and "
                          << columns << " columns";
}

LogicalResult rules::inferAttentionLayer(ShapeRule &rule,
                                         const AttentionLayer &layer) {
  TensorInfo input = rule.tensor(layer.input), result;
  result.elementType = input.elementType;
  if (!input.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  if (input.getRank() != 3)
    return rule.emitError() << "expects rank 3, got " << input.getRank();
  if (proveEqual(input.dim(2), rule.constant(layer.width)) == TriBool::No)
    return rule.emitError() << "expects " << layer.width << " features, got "
                            << input.dim(2).str();
  if (layer.heads < 1 || layer.width % layer.heads != 0)
    return rule.emitError() << layer.width << " features do not divide into "
                            << layer.heads << " heads";
  for (Value operand : rule.getOp()->getOperands())
    if (operand != layer.mask &&
        failed(checkOneElementType(rule, input.elementType,
                                   rule.tensor(operand).elementType)))
      return failure();
  TensorInfo bias = rule.tensor(layer.bias);
  if (failed(checkWeight(rule, layer.weight, 3 * layer.width, layer.width)) ||
      failed(checkWeight(rule, layer.projection, layer.width, layer.width)))
    return failure();
  if (bias.hasRank() &&
      (bias.getRank() != 1 ||
       proveEqual(bias.dim(0), rule.constant(3 * layer.width)) == TriBool::No))
    return rule.emitError()
           << "expects a bias of " << 3 * layer.width << " elements";
  TensorInfo mask = rule.tensor(layer.mask);
  if (mask.hasRank() && mask.getRank() == 2 && layer.maskType) {
    DimExpr rows = input.dim(*layer.maskType == 0 ? 1 : 0);
    if (*layer.maskType > 1 || proveEqual(mask.dim(0), rows) == TriBool::No ||
        proveEqual(mask.dim(1), input.dim(1)) == TriBool::No)
      return rule.emitError()
             << "a mask of " << mask.dim(0).str() << " rows and "
             << mask.dim(1).str() << " columns does not fit";
  }
  TensorInfo added = rule.tensor(layer.projectionBias);
  result = TensorInfo::contiguous(*input.dims, input.elementType);
  if (failed(checkAdded(rule, added, result)))
    return failure();
  rule.setResult(0, result);
  if (rule.getResults().size() == 1)
    return success();
  if (!layer.needsWeights) {
    // The second tensor is undefined, which `is None`.
    ValueInfo none;
    none.literal = UnitAttr::get(rule.getContext());
    rule.setInfo(1, none);
    return success();
  }
  SmallVector<DimExpr> dims{input.dim(0)};
  if (!layer.averages)
    dims.push_back(rule.constant(layer.heads));
  dims.append({input.dim(1), input.dim(1)});
  rule.setResult(1, TensorInfo::contiguous(dims, input.elementType));
  return success();
}

void rules::inferAttentionLayerBatch(BatchRule &rule,
                                     const AttentionLayer &layer) {
  // Key and value of a layer are its query.
  BatchFact fact = rule.fact(layer.input);
  TensorInfo mask = rule.tensor(layer.mask);
  BatchFact own = rule.fact(layer.mask);
  for (Value operand : rule.getOp()->getOperands()) {
    TensorInfo info = rule.tensor(operand);
    bool weight = info.hasRank() && operand != layer.mask &&
                  !llvm::is_contained(layer.inputs, operand);
    if (weight && !rule.fact(operand).isFree())
      return rule.mix("a weight depends on the batch");
  }
  for (Value input : layer.inputs)
    if (!(rule.fact(input) == fact))
      return rule.mix("query, key and value carry the batch differently");
  if (!fact.isAt() || fact.dim != 0)
    return rule.mix("the batch is not dim 0 of the sequences");
  bool repeats = own.isFree() && layer.mask && mask.hasRank() &&
                 ((layer.maskType == 0 && mask.getRank() == 2) ||
                  (mask.getRank() == 4 && mask.dim(0).isConstant(1)));
  bool follows = own == fact && layer.maskType != 0;
  if (layer.mask && !repeats && !follows)
    return rule.mix("the mask does not follow the batch");
  rule.setAll(fact);
}

//===----------------------------------------------------------------------===//
// Nested tensors
//===----------------------------------------------------------------------===//

Value rules::getPadded(Value nested) {
  while (nested) {
    if (auto made = nested.getDefiningOp<NestedTensorFromMaskOp>())
      return made.getT();
    auto layer = nested.getDefiningOp<TransformerEncoderLayerFwdOp>();
    nested = layer ? layer.getSrc() : Value();
  }
  return {};
}

LogicalResult rules::inferNested(ShapeRule &rule, Value padded, Value mask) {
  TensorInfo info = rule.tensor(padded), kept = rule.tensor(mask), result;
  if (info.hasRank() && info.getRank() != 3)
    return rule.emitError()
           << "expects sequences of rank 3, got " << info.getRank();
  if (kept.hasRank() && kept.getRank() != 2)
    return rule.emitError()
           << "expects a mask of rank 2, got " << kept.getRank();
  if (kept.elementType && !kept.elementType.isInteger(1))
    return rule.emitError() << "expects a mask of type bool";
  if (info.hasRank() && kept.hasRank())
    for (int64_t dim : {0, 1})
      if (proveEqual(info.dim(dim), kept.dim(dim)) == TriBool::No)
        return rule.emitError()
               << "a mask of " << kept.dim(0).str() << " rows and "
               << kept.dim(1).str() << " columns does not fit";
  result.elementType = info.elementType;
  rule.setResult(0, result);
  return success();
}

LogicalResult rules::inferToPadded(ShapeRule &rule, Value nested) {
  TensorInfo info = rule.tensor(nested);
  if (info.hasRank())
    return rule.emitError() << "expects a nested tensor";
  // Without a size it is as long as the longest sequence, which data decide.
  info.dims = rule.integerList("output_size");
  if (info.hasRank() && !llvm::is_contained(*info.dims, DimExpr()))
    info = TensorInfo::contiguous(*info.dims, info.elementType);
  rule.setResult(0, info);
  return success();
}
