//===- AttentionMath.cpp - Attention by way of matmul ---------------------===//
//
// What scaled_dot_product_attention does where the flash kernel does not take
// it. Sources: _scaled_dot_product_attention_math and _safe_softmax in
// native/transformers/attention.cpp; the order of operators as a dispatch trace
// of torch 2.13 shows it.
//
//===----------------------------------------------------------------------===//

#include "../ATenCPU/GemmOperandCopies.h"
#include "AttentionLayers.h"
#include "BackwardReplay.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using koila::blas::Factor;
using koila::blas::MatmulCopies;

namespace {
/// The steps of one call, in bytes.
struct MathSteps {
  int64_t query, key, scores, rows, result;
  /// A mask of numbers that is made of a bool one, or of the diagonal.
  int64_t mask = 0;
  /// Of the scores, and of the product with the values.
  MatmulCopies first = {}, second = {};
};
} // namespace

/// The factor that is left of `tensor` times a number.
static std::optional<Factor> scale(MLIRContext *context,
                                   const ConcreteTensor &tensor) {
  auto strides = tensor.getStrides();
  if (!strides)
    return std::nullopt;
  TensorInfo info;
  info.elementType = tensor.elementType;
  auto toExprs = [&](ArrayRef<int64_t> numbers) {
    SmallVector<DimExpr> exprs;
    for (int64_t number : numbers)
      exprs.push_back(DimExpr::constant(context, number));
    return exprs;
  };
  info.dims = toExprs(tensor.dims);
  info.strides = toExprs(*strides);
  auto scaled = computeElementwiseStrides({info}, *info.dims);
  if (!scaled)
    return std::nullopt;
  Factor factor{tensor.dims, {}, tensor.elementType};
  for (DimExpr stride : *scaled) {
    auto number = stride.getConstant();
    if (!number)
      return std::nullopt;
    factor.strides.push_back(*number);
  }
  return factor;
}

static std::optional<MathSteps> getSteps(WorkspaceRule &rule,
                                         ScaledDotProductAttentionOp op) {
  auto fail = [&](StringRef why) -> std::optional<MathSteps> {
    rule.setInexact(why);
    return std::nullopt;
  };
  auto query = rule.tensor(op.getQuery()), key = rule.tensor(op.getKey());
  auto value = rule.tensor(op.getValue()), mask = rule.tensor(op.getAttnMask());
  auto result = rule.tensor(op.getResult());
  if (!query || !key || !value || !result || (op.getAttnMask() && !mask))
    return fail("a shape of attention is unknown");
  Type type = query->elementType;
  if ((!type.isF32() && !type.isF64()) || op.getEnableGqa() ||
      query->dims.size() < 2 || query->dims.size() != key->dims.size() ||
      query->dims.size() != value->dims.size() || result->numElements() == 0 ||
      key->numElements() == 0 || key->dims.end()[-2] == 1)
    return fail("attention by way of matmul and softmax");
  for (size_t dim = 0; dim + 2 < query->dims.size(); ++dim)
    if (query->dims[dim] != key->dims[dim] ||
        query->dims[dim] != value->dims[dim])
      return fail("attention of batches that broadcast");
  // There the noise is one number (DropoutModel).
  if (op.getDropoutP().convertToDouble() == 1)
    return fail("attention that drops all of its weights");
  MLIRContext *context = op.getContext();
  auto left = scale(context, *query), right = scale(context, *key);
  auto strides = value->getStrides();
  if (!left || !right || !strides)
    return fail("the strides of a factor are unknown");
  int64_t size = getElementBytes(type), length = query->dims.end()[-2];
  int64_t keys = key->dims.end()[-2];
  int64_t rows = query->numElements() / query->dims.back();
  MathSteps steps{query->numBytes(), key->numBytes(), rows * keys * size, rows,
                  result->numBytes()};
  left->isTrained = rule.wantsGradient(op.getQuery());
  right->isTrained = rule.wantsGradient(op.getKey());
  steps.first = blas::getMatmulCopies(rule, *left, blas::transpose(*right));
  Factor scores{query->dims, {}, type};
  scores.dims.back() = keys;
  scores.strides.assign(scores.dims.size(), 1);
  for (size_t dim = scores.dims.size() - 1; dim-- > 0;)
    scores.strides[dim] = scores.strides[dim + 1] * scores.dims[dim + 1];
  scores.isTrained = rule.isRecording();
  Factor values{value->dims, *strides, type, rule.wantsGradient(op.getValue())};
  steps.second = blas::getMatmulCopies(rule, scores, values);
  if (op.getIsCausal())
    steps.mask = length * keys * size;
  else if (mask && mask->elementType.isInteger(1))
    steps.mask = countBytes(*mask, type);
  return steps;
}

/// Whether a gradient flows to the scores.
static bool trainsScores(const WorkspaceRule &rule,
                         ScaledDotProductAttentionOp op) {
  return rule.wantsGradient(op.getQuery()) || rule.wantsGradient(op.getKey()) ||
         rule.wantsGradient(op.getAttnMask());
}

void attention::describeMath(WorkspaceRule &rule,
                             ScaledDotProductAttentionOp op) {
  auto steps = getSteps(rule, op);
  if (!steps)
    return;
  Type type = rule.tensor(op.getQuery())->elementType;
  int64_t size = getElementBytes(type);
  AllocationTrace trace;
  if (!op.getIsCausal())
    trace.allocate(steps->mask);
  trace.allocate(steps->query);
  if (op.getIsCausal()) {
    // Ones, their lower triangle, and numbers in their place.
    int64_t elements = steps->mask / size;
    trace.allocate(2 * elements);
    trace.free(elements);
    trace.allocate(steps->mask);
    trace.free(elements);
  }
  trace.allocate(steps->key);
  trace.allocate(steps->scores);
  trace.allocateTemporary(steps->first.bytes);
  // Autograd keeps what was multiplied.
  trace.free(steps->key);
  int64_t kept = 0;
  if (rule.wantsGradient(op.getQuery()))
    kept += steps->first.right > 0 ? steps->first.right : steps->key;
  if (rule.wantsGradient(op.getKey()))
    kept += steps->first.left;
  trace.allocate(kept);
  // _safe_softmax: the softmax, then zeros in rows that are -inf throughout.
  int64_t elements = steps->scores / size;
  trace.allocate(steps->scores);
  trace.allocateTemporary(elements + steps->rows + size);
  trace.free(steps->scores);
  // Dropout: the noise and the product with it. Autograd keeps what it was
  // multiplied with, and the softmax.
  if (op.draws()) {
    trace.allocate(2 * steps->scores);
    if (!trainsScores(rule, op))
      trace.free(2 * steps->scores);
  }
  trace.allocate(steps->result);
  trace.allocateTemporary(steps->second.bytes);
  rule.setTransient(trace.getPeak() - steps->result);
}

void attention::saveMath(SavedRule &rule, ScaledDotProductAttentionOp op) {
  auto steps = getSteps(rule, op);
  if (!steps)
    return;
  bool query = rule.wantsGradient(op.getQuery());
  bool key = rule.wantsGradient(op.getKey());
  bool value = rule.wantsGradient(op.getValue());
  if (key)
    rule.keep(steps->first.left > 0 ? steps->first.left : steps->query);
  if (query)
    rule.keep(steps->first.right > 0 ? steps->first.right : steps->key);
  // The softmax keeps its result, which the product with the values reads. A
  // dropout between them keeps its noise, and gives a tensor of its own.
  bool scores = trainsScores(rule, op);
  if (op.draws())
    rule.keep((2 * scores + value) * steps->scores);
  else if (scores || value)
    rule.keep(steps->scores);
  if (!scores)
    return;
  if (steps->second.right > 0)
    rule.keep(steps->second.right);
  else
    rule.save(op.getValue());
}

/// The nodes of the products, of the softmax and of what was scaled, the last
/// first. A mask of the extents of the scores shares their gradient.
void attention::describeMathBackward(BackwardRule &rule,
                                     ScaledDotProductAttentionOp op) {
  constexpr unsigned kMask = 3;
  auto math = getSteps(rule, op);
  if (!math)
    return;
  if (!rule.wantsOperand(0) || !rule.wantsOperand(1) || !rule.wantsOperand(2))
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  ConcreteTensor query = steps.read(0), key = steps.read(1),
                 value = steps.read(2), gradient = steps.getGradient();
  auto getSaved = [&](int64_t copied, unsigned operand) {
    return copied > 0 ? copied : rule.getSavedBytes(operand);
  };
  SmallVector<int64_t> flat{gradient.numElements() / (gradient.dims.end()[-1] *
                                                      gradient.dims.end()[-2]),
                            gradient.dims.end()[-2], gradient.dims.end()[-1]};
  bool isCopied = false;
  ConcreteTensor rows = steps.reshape(gradient, flat, isCopied);
  auto strides = rows.getStrides();
  auto values = blas::getFactor(rule, op.getValue());
  if (!strides || !values)
    return koila::detail::describeUnknownBackward(rule);
  int64_t releasable = rule.getReleasableBytes();
  if (isCopied)
    steps.AllocationTrace::free(releasable);
  ConcreteTensor scores = query;
  scores.dims.back() = key.dims.end()[-2];
  // The product with the values.
  Factor arrives{flat, *strides, gradient.elementType};
  Factor weights{{flat[0], flat[1], scores.dims.back()},
                 {flat[1] * scores.dims.back(), scores.dims.back(), 1},
                 gradient.elementType};
  int64_t copied = 0;
  Factor factor =
      blas::flattenLeading(*values, ArrayRef(value.dims).drop_back(2), copied);
  steps.allocateTemporary(
      value.numBytes() +
      blas::getBmmBytes(rule, blas::transpose(weights), arrives));
  steps.give(2, steps.allocate(value), /*isViewed=*/true);
  steps.allocateTemporary(
      scores.numBytes() +
      blas::getBmmBytes(rule, arrives, blas::transpose(factor)));
  scores = steps.allocate(scores);
  steps.AllocationTrace::free(isCopied ? rows.numBytes() : releasable);
  steps.AllocationTrace::free(getSaved(math->second.right, 2));
  // What was dropped, then the noise, by which the gradient is multiplied.
  if (op.draws()) {
    steps.free(scores);
    steps.allocate(scores);
    steps.free({scores, scores});
  }
  // The softmax, whose result has been saved.
  steps.allocate(scores);
  steps.free({scores, scores});
  bool isHeld = false;
  if (op.getAttnMask() && rule.wantsOperand(kMask)) {
    ConcreteTensor mask = steps.read(kMask);
    isHeld = mask.dims == scores.dims;
    if (isHeld) {
      steps.give(kMask, scores);
    } else {
      ConcreteTensor sum = steps.allocate(mask);
      steps.allocateTemporary(getPartialBytes(rule, scores, sum));
      steps.give(kMask, sum, mask.dims.size() < scores.dims.size());
    }
  }
  // The product of both.
  ConcreteTensor ofKey = steps.allocate(key), ofQuery = steps.allocate(query);
  if (!isHeld)
    steps.free(scores);
  steps.AllocationTrace::free(math->first.right > 0 ? math->first.right
                                                    : math->key);
  steps.AllocationTrace::free(math->first.left > 0 ? math->first.left
                                                   : math->query);
  // Both were scaled, the key as it lies transposed.
  ConcreteTensor scaled = steps.compute(ofKey, OpReplay::Number::Float);
  steps.free(ofKey);
  std::swap(scaled.dims.end()[-1], scaled.dims.end()[-2]);
  steps.give(1, transposeDims(scaled, -2, -1), /*isViewed=*/true);
  scaled = steps.compute(ofQuery, OpReplay::Number::Float);
  steps.free(ofQuery);
  steps.give(0, scaled);
  steps.finish();
}
