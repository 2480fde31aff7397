//===- AttentionMath.cpp - Attention by way of matmul ---------------------===//
//
// What scaled_dot_product_attention does where the flash kernel does not take
// it. Sources: _scaled_dot_product_attention_math and _safe_softmax in
// native/transformers/attention.cpp; the order of operators as a dispatch trace
// of torch 2.13 shows it.
//
//===----------------------------------------------------------------------===//

#include "../../ATenCPU/GemmOperandCopies.h"
#include "../Backward/BackwardReplay.h"
#include "AttentionLayers.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using koila::blas::Factor;
using koila::blas::MatmulCopies;

namespace {
/// The steps of one call, in bytes. Half types are computed in float32; keys
/// and values of groups are repeated for each query.
struct MathSteps {
  int64_t query, key, value, scores, rows, result;
  /// The type in which it is computed; whether it is another one.
  Type type;
  bool isWide = false;
  /// What the operands are in that type, before they are repeated.
  SmallVector<int64_t, 3> widened;
  bool isGrouped = false;
  /// A mask of numbers that is made of a bool one, or of the diagonal; what a
  /// mask of a half type becomes where it is added.
  int64_t mask = 0, addedMask = 0;
  /// The factors of the scores, and of the product with the values.
  Factor scaledQuery, scaledKey, weights, values;
  /// Of both.
  MatmulCopies first = {}, second = {};
};
/// What autograd may keep of them.
struct MathBlocks {
  AllocationTrace::Block query, key, value, softmax;
  MatmulCopies first, second;
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

/// A new tensor of this shape, contiguous.
static ConcreteTensor layInRows(ConcreteTensor tensor) {
  tensor.contiguous = true;
  tensor.strides.reset();
  return tensor;
}

/// `operand` repeated for `heads` heads.
static ConcreteTensor repeatHeads(ConcreteTensor operand, int64_t heads) {
  operand.dims.end()[-3] = heads;
  return layInRows(std::move(operand));
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
  MLIRContext *context = op.getContext();
  Type own = query->elementType;
  MathSteps steps;
  steps.isWide = isHalf(own);
  Type type = steps.type = steps.isWide ? Float32Type::get(context) : own;
  if ((!type.isF32() && !type.isF64()) || query->dims.size() < 2 ||
      query->dims.size() != key->dims.size() ||
      query->dims.size() != value->dims.size() || result->numElements() == 0 ||
      key->numElements() == 0 || key->dims.end()[-2] == 1)
    return fail("attention by way of matmul and softmax");
  if (op.getEnableGqa() && steps.isWide && rule.isRecording())
    return fail("what autograd keeps of attention of groups of a half type");
  // Source: pre_process_group_query_attention_input.
  if (op.getEnableGqa() && query->dims.size() > 2) {
    int64_t heads = query->dims.end()[-3];
    int64_t ofKey = key->dims.end()[-3], ofValue = value->dims.end()[-3];
    steps.isGrouped = heads != ofKey || heads != ofValue;
    if (steps.isGrouped && (heads == ofKey || heads == ofValue))
      return fail("attention of groups of which one has a single query");
  }
  if (steps.isWide)
    steps.widened = {countBytes(*query, type), countBytes(*key, type),
                     countBytes(*value, type)};
  query->elementType = key->elementType = value->elementType = type;
  if (steps.isGrouped)
    for (auto *operand : {&*key, &*value})
      *operand = repeatHeads(*operand, query->dims.end()[-3]);
  for (size_t dim = 0; dim + 2 < query->dims.size(); ++dim)
    if (query->dims[dim] != key->dims[dim] ||
        query->dims[dim] != value->dims[dim])
      return fail("attention of batches that broadcast");
  // There the noise is one number (DropoutModel).
  if (op.getDropoutP().convertToDouble() == 1)
    return fail("attention that drops all of its weights");
  auto left = scale(context, *query), right = scale(context, *key);
  auto values = steps.isWide ? scale(context, *value) : std::nullopt;
  if (auto strides = value->getStrides(); strides && !steps.isWide)
    values = Factor{value->dims, *strides, type};
  if (!left || !right || !values)
    return fail("the strides of a factor are unknown");
  int64_t size = getElementBytes(type), length = query->dims.end()[-2];
  int64_t keys = key->dims.end()[-2];
  int64_t rows = query->numElements() / query->dims.back();
  steps.query = query->numBytes();
  steps.key = key->numBytes();
  steps.value = value->numBytes();
  steps.scores = rows * keys * size;
  steps.rows = rows;
  steps.result = countBytes(*result, type);
  left->isTrained = rule.wantsGradient(op.getQuery());
  right->isTrained = rule.wantsGradient(op.getKey());
  steps.scaledQuery = *left;
  steps.scaledKey = blas::transpose(*right);
  steps.first = blas::getMatmulCopies(rule, *left, steps.scaledKey);
  Factor scores{query->dims, {}, type};
  scores.dims.back() = keys;
  scores.strides.assign(scores.dims.size(), 1);
  for (size_t dim = scores.dims.size() - 1; dim-- > 0;)
    scores.strides[dim] = scores.strides[dim + 1] * scores.dims[dim + 1];
  scores.isTrained = rule.isRecording();
  values->isTrained = rule.wantsGradient(op.getValue());
  steps.second = blas::getMatmulCopies(rule, scores, *values);
  steps.weights = std::move(scores);
  steps.values = std::move(*values);
  if (op.getIsCausal()) {
    steps.mask = length * keys * size;
  } else if (mask) {
    bool isBool = mask->elementType.isInteger(1);
    steps.mask = isBool ? countBytes(*mask, own) : 0;
    if ((isBool ? own : mask->elementType) != type)
      steps.addedMask = countBytes(*mask, type);
  }
  return steps;
}

/// Whether a gradient flows to the scores.
static bool trainsScores(const WorkspaceRule &rule,
                         ScaledDotProductAttentionOp op) {
  return rule.wantsGradient(op.getQuery()) || rule.wantsGradient(op.getKey()) ||
         rule.wantsGradient(op.getAttnMask());
}

/// A tensor of these bytes, computed with two numbers of `size` bytes.
static AllocationTrace::Block select(AllocationTrace &trace, int64_t bytes,
                                     int64_t size) {
  auto then = trace.allocate(size), otherwise = trace.allocate(size);
  auto selected = trace.allocate(bytes);
  trace.free(otherwise);
  trace.free(then);
  return selected;
}

AllocationTrace::Block attention::allocateBoolMask(AllocationTrace &trace,
                                                   const ConcreteTensor &mask,
                                                   Type type) {
  return select(trace, countBytes(mask, type), getElementBytes(type));
}

/// A tensor of these bytes times a Python float.
static AllocationTrace::Block scaleBy(AllocationTrace &trace, int64_t bytes,
                                      Type type) {
  auto number = trace.allocate(sizeof(double));
  auto cast = trace.allocate(type.isF64() ? 0 : getElementBytes(type));
  auto scaled = trace.allocate(bytes);
  trace.free(cast);
  trace.free(number);
  return scaled;
}

/// Ones, their lower triangle, and numbers in their place.
static AllocationTrace::Block allocateCausalMask(AllocationTrace &trace,
                                                 int64_t bytes, int64_t size) {
  int64_t elements = bytes / size;
  auto ones = trace.allocate(elements), triangle = trace.allocate(elements);
  trace.free(ones);
  auto mask = select(trace, bytes, size);
  trace.free(triangle);
  return mask;
}

/// The softmax, then zeros in rows that are -inf throughout. Source:
/// _safe_softmax.
static AllocationTrace::Block allocateSafeSoftmax(AllocationTrace &trace,
                                                  const MathSteps &steps,
                                                  int64_t size) {
  auto softmax = trace.allocate(steps.scores);
  auto elements = trace.allocate(steps.scores / size);
  auto rows = trace.allocate(steps.rows);
  trace.allocateTemporary(size);
  trace.free(rows);
  trace.free(elements);
  return softmax;
}

static MathBlocks writeMath(AllocationTrace &trace, WorkspaceRule &rule,
                            ScaledDotProductAttentionOp op,
                            const MathSteps &steps) {
  int64_t size = getElementBytes(steps.type);
  auto query = rule.tensor(op.getQuery()), mask = rule.tensor(op.getAttnMask());
  MathBlocks blocks;
  AllocationTrace::Block numbers, boolMask;
  if (!op.getIsCausal() && steps.mask > 0)
    boolMask = attention::allocateBoolMask(trace, *mask, query->elementType);
  SmallVector<AllocationTrace::Block> held;
  for (int64_t widened : steps.widened)
    held.push_back(trace.allocate(widened));
  if (steps.isWide)
    blocks.value = held.back();
  blocks.query = scaleBy(trace, steps.query, steps.type);
  if (op.getIsCausal())
    numbers = allocateCausalMask(trace, steps.mask, size);
  held.push_back(numbers);
  held.push_back(blocks.query);
  if (steps.isGrouped) {
    auto key = trace.allocate(steps.key);
    blocks.value = trace.allocate(steps.value);
    held.append({blocks.value, key});
  }
  blocks.key = scaleBy(trace, steps.key, steps.type);
  // Autograd keeps what was multiplied.
  bool wantsQuery = rule.wantsGradient(op.getQuery());
  blocks.first = blas::allocateMatmul(
      trace, rule, steps.scaledQuery, steps.scaledKey,
      /*keepsLeft=*/rule.wantsGradient(op.getKey()), /*keepsRight=*/wantsQuery);
  if (!wantsQuery || !blocks.first.rightBlock.isEmpty())
    trace.free(blocks.key);
  trace.allocateTemporary(steps.addedMask);
  blocks.softmax = allocateSafeSoftmax(trace, steps, size);
  trace.free(blocks.first.result);
  // Dropout: the noise and the product with it. Autograd keeps what it was
  // multiplied with, and the softmax.
  if (op.draws()) {
    trace.allocate(2 * steps.scores);
    if (!trainsScores(rule, op))
      trace.free(2 * steps.scores);
  }
  // The scores, which nothing asks for, are narrowed first.
  AllocationTrace::Block narrowed;
  if (steps.isWide)
    narrowed = trace.allocate(steps.scores / size *
                              getElementBytes(query->elementType));
  blocks.second =
      blas::allocateMatmul(trace, rule, steps.weights, steps.values);
  if (steps.isWide) {
    trace.allocate(rule.tensor(op.getResult())->numBytes());
    trace.free(blocks.second.result);
  }
  // Where it is widened, the operands go after the softmax.
  held.insert(steps.isWide ? held.end() : held.begin(), blocks.softmax);
  for (AllocationTrace::Block block : llvm::reverse(held))
    trace.free(block);
  trace.free(narrowed);
  trace.free(boolMask);
  return blocks;
}

void attention::describeMath(WorkspaceRule &rule,
                             ScaledDotProductAttentionOp op) {
  auto steps = getSteps(rule, op);
  if (!steps)
    return;
  AllocationTrace trace;
  writeMath(trace, rule, op, *steps);
  int64_t result = rule.tensor(op.getResult())->numBytes();
  // Which blocks a dropout has is not told apart here.
  if (op.draws())
    rule.setTransient(trace.getPeak() - result);
  else
    rule.setTrace(std::move(trace), result);
}

void attention::saveMath(SavedRule &rule, ScaledDotProductAttentionOp op) {
  auto steps = getSteps(rule, op);
  if (!steps)
    return;
  AllocationTrace trace;
  MathBlocks blocks = writeMath(trace, rule, op, *steps);
  SmallVector<AllocationTrace::Block> kept;
  auto keep = [&](AllocationTrace::Block copy, AllocationTrace::Block factor) {
    kept.push_back(copy.isEmpty() ? factor : copy);
  };
  bool query = rule.wantsGradient(op.getQuery());
  bool key = rule.wantsGradient(op.getKey());
  bool value = rule.wantsGradient(op.getValue());
  if (key)
    keep(blocks.first.leftBlock, blocks.query);
  if (query)
    keep(blocks.first.rightBlock, blocks.key);
  // The softmax keeps its result, which the product with the values reads. A
  // dropout between them keeps its noise, and gives a tensor of its own.
  bool scores = trainsScores(rule, op);
  if (op.draws())
    rule.keep((2 * scores + value) * steps->scores);
  else if (scores || value)
    kept.push_back(blocks.softmax);
  if (scores && (steps->second.right > 0 || steps->isWide || steps->isGrouped))
    keep(blocks.second.rightBlock, blocks.value);
  else if (scores)
    rule.save(op.getValue());
  blas::keepBlocks(rule, trace, kept);
}

/// `tensor` in another type, which replaces it.
static ConcreteTensor castTo(BackwardReplay &steps, ConcreteTensor tensor,
                             Type type) {
  ConcreteTensor cast = tensor;
  cast.elementType = type;
  cast = steps.makeLike(cast);
  steps.free(tensor);
  return cast;
}

/// The sum over the heads of each group of what was repeated; replaces it.
static ConcreteTensor sumGroups(BackwardReplay &steps, WorkspaceRule &rule,
                                const ConcreteTensor &repeated,
                                const ConcreteTensor &operand) {
  ConcreteTensor sum = layInRows(operand);
  sum.elementType = repeated.elementType;
  sum = steps.allocate(sum);
  steps.allocateTemporary(getPartialBytes(rule, repeated, sum));
  steps.free(repeated);
  return sum;
}

/// The nodes of the products, of the softmax and of what was scaled, the last
/// first. A mask of the extents of the scores shares their gradient.
void attention::describeMathBackward(BackwardRule &rule,
                                     ScaledDotProductAttentionOp op) {
  constexpr unsigned kQuery = 0, kKey = 1, kValue = 2, kMask = 3;
  auto math = getSteps(rule, op);
  if (!math)
    return;
  BackwardReplay steps(rule);
  ConcreteTensor query = steps.read(kQuery), ownKey = steps.read(kKey),
                 ownValue = steps.read(kValue), gradient = steps.getGradient();
  Type own = query.elementType;
  ConcreteTensor key = ownKey, value = ownValue;
  query.elementType = key.elementType = value.elementType = math->type;
  if (math->isGrouped)
    for (ConcreteTensor *operand : {&key, &value})
      *operand = repeatHeads(*operand, query.dims.end()[-3]);
  int64_t releasable = rule.getReleasableBytes();
  // The gradient of the cast of the result.
  if (math->isWide) {
    gradient.elementType = math->type;
    gradient = steps.makeLike(gradient);
    steps.AllocationTrace::free(releasable);
    releasable = gradient.numBytes();
  }
  SmallVector<int64_t> flat{gradient.numElements() / (gradient.dims.end()[-1] *
                                                      gradient.dims.end()[-2]),
                            gradient.dims.end()[-2], gradient.dims.end()[-1]};
  bool isCopied = false;
  ConcreteTensor rows = steps.reshape(gradient, flat, isCopied);
  auto strides = rows.getStrides();
  auto values = scale(op.getContext(), value);
  if (auto own = value.getStrides(); own && !math->isWide)
    values = Factor{value.dims, *own, value.elementType};
  if (!strides || !values)
    return koila::detail::describeUnknownBackward(rule);
  if (isCopied)
    steps.AllocationTrace::free(releasable);
  ConcreteTensor scores = layInRows(query);
  scores.dims.back() = key.dims.end()[-2];
  // The product with the values.
  Factor arrives{flat, *strides, gradient.elementType};
  Factor weights{{flat[0], flat[1], scores.dims.back()},
                 {flat[1] * scores.dims.back(), scores.dims.back(), 1},
                 gradient.elementType};
  int64_t copied = 0;
  Factor factor =
      blas::flattenLeading(*values, ArrayRef(value.dims).drop_back(2), copied);
  bool isScored = trainsScores(rule, op);
  if (steps.wants(kValue)) {
    steps.allocateTemporary(
        value.numBytes() +
        blas::getBmmBytes(rule, blas::transpose(weights), arrives));
    value = steps.allocate(layInRows(value));
  }
  if (isScored) {
    steps.allocateTemporary(
        scores.numBytes() +
        blas::getBmmBytes(rule, arrives, blas::transpose(factor)));
    scores = steps.allocate(scores);
  }
  // Each step hands on what it has, while a rule does so at the end: that makes
  // a difference but for the query, which is the last.
  bool areAdded =
      llvm::any_of(ArrayRef{kKey, kValue, kMask},
                   [&](unsigned operand) { return rule.isAdded(operand); });
  if (areAdded || op.getKey() == op.getValue())
    rule.setBound("gradients that are added up between the steps of attention");
  if (steps.wants(kValue) && rule.isAdded(kValue))
    steps.allocateTemporary(value.numBytes());
  steps.AllocationTrace::free(isCopied ? rows.numBytes() : releasable);
  if (isScored) {
    // What it has read of the values.
    if (math->second.right > 0)
      steps.AllocationTrace::free(math->second.right);
    else if (math->isWide || math->isGrouped)
      steps.AllocationTrace::free(math->value);
    else
      steps.freeOutside(rule.getSavedBytes(kValue));
    // What was dropped, then the noise, by which the gradient is multiplied.
    if (op.draws()) {
      if (steps.wants(kValue))
        steps.free(scores);
      steps.allocate(scores);
      steps.free({scores, scores});
    }
    // The softmax, whose result has been saved.
    steps.allocate(scores);
    steps.free({scores, scores});
  }
  bool isHeld = false;
  if (op.getAttnMask() && rule.wantsOperand(kMask)) {
    ConcreteTensor mask = steps.read(kMask);
    bool isWhole = mask.dims == scores.dims;
    isHeld = isWhole && !math->isWide;
    if (isHeld) {
      steps.give(kMask, scores);
    } else if (isWhole) {
      ConcreteTensor cast = scores;
      cast.elementType = own;
      steps.give(kMask, steps.allocate(cast));
    } else {
      ConcreteTensor sum = mask;
      sum.elementType = math->type;
      sum = steps.allocate(sum);
      steps.allocateTemporary(getPartialBytes(rule, scores, sum));
      if (math->isWide)
        sum = castTo(steps, sum, own);
      steps.give(kMask, sum,
                 !math->isWide && mask.dims.size() < scores.dims.size());
    }
  }
  // The product of both.
  ConcreteTensor ofKey, ofQuery;
  if (steps.wants(kKey))
    ofKey = steps.allocate(layInRows(key));
  if (steps.wants(kQuery))
    ofQuery = steps.allocate(layInRows(query));
  if (isScored && !isHeld)
    steps.free(scores);
  if (steps.wants(kQuery))
    steps.AllocationTrace::free(math->first.right > 0 ? math->first.right
                                                      : math->key);
  if (steps.wants(kKey)) {
    steps.AllocationTrace::free(math->first.left > 0 ? math->first.left
                                                     : math->query);
    // It was scaled as it lies transposed.
    ConcreteTensor scaled = steps.compute(ofKey, OpReplay::Number::Float);
    steps.free(ofKey);
    std::swap(scaled.dims.end()[-1], scaled.dims.end()[-2]);
    ofKey = transposeDims(scaled, -2, -1);
  }
  if (math->isGrouped) {
    if (steps.wants(kValue))
      value = sumGroups(steps, rule, value, ownValue);
    if (steps.wants(kKey))
      ofKey = sumGroups(steps, rule, ofKey, ownKey);
  }
  if (steps.wants(kQuery)) {
    ConcreteTensor scaled = steps.compute(ofQuery, OpReplay::Number::Float);
    steps.free(ofQuery);
    ofQuery = scaled;
  }
  // Views, but for what is cast.
  auto give = [&](unsigned operand, ConcreteTensor made, bool isViewed) {
    if (steps.wants(operand))
      steps.give(operand, math->isWide ? castTo(steps, made, own) : made,
                 isViewed && !math->isWide);
  };
  give(kValue, value, /*isViewed=*/true);
  give(kKey, ofKey, /*isViewed=*/true);
  give(kQuery, ofQuery, /*isViewed=*/false);
  steps.finish();
}
