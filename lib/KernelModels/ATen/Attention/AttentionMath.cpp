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
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
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
  int64_t query, key, value, scores, rows;
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
};
/// What autograd may keep of them, and both products; `noise` and `dropped` are
/// of a dropout.
struct MathBlocks {
  AllocationTrace::Block query, key, value, softmax, noise, dropped;
  MatmulCopies first, second;
};
/// What it keeps: the factors of both products, the softmax, and the noise.
/// Where one is empty, it keeps nothing, or an operand.
struct MathKept {
  AllocationTrace::Block query, key, weights, value, softmax, noise;

  SmallVector<AllocationTrace::Block> getAll() const {
    SmallVector<AllocationTrace::Block> all{query, key, value, softmax, noise};
    if (weights != softmax)
      all.push_back(weights);
    return all;
  }
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
  left->isTrained = rule.wantsGradient(op.getQuery());
  right->isTrained = rule.wantsGradient(op.getKey());
  steps.scaledQuery = *left;
  steps.scaledKey = blas::transpose(*right);
  Factor scores{query->dims, {}, type};
  scores.dims.back() = keys;
  scores.strides.assign(scores.dims.size(), 1);
  for (size_t dim = scores.dims.size() - 1; dim-- > 0;)
    scores.strides[dim] = scores.strides[dim + 1] * scores.dims[dim + 1];
  scores.isTrained = rule.isRecording();
  values->isTrained = rule.wantsGradient(op.getValue());
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

/// A tensor of these bytes times a Python float, in place if they are zero.
static AllocationTrace::Block scaleBy(AllocationTrace &trace,
                                      const WorkspaceRule &rule, int64_t bytes,
                                      Type type) {
  if (readsAnyType(rule))
    return trace.allocate(bytes);
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
  blocks.query = scaleBy(trace, rule, steps.query, steps.type);
  if (op.getIsCausal())
    numbers = allocateCausalMask(trace, steps.mask, size);
  held.push_back(numbers);
  held.push_back(blocks.query);
  if (steps.isGrouped) {
    auto key = trace.allocate(steps.key);
    blocks.value = trace.allocate(steps.value);
    held.append({blocks.value, key});
  }
  blocks.key = scaleBy(trace, rule, steps.key, steps.type);
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
  // Autograd keeps what the noise was multiplied with, and the noise.
  if (op.draws()) {
    blocks.noise = trace.allocate(steps.scores);
    scaleBy(trace, rule, 0, steps.type);
    blocks.dropped = trace.allocate(steps.scores);
    if (!trainsScores(rule, op)) {
      trace.free(blocks.noise);
      trace.free(blocks.softmax);
    }
  }
  // The scores, which nothing asks for, are narrowed first.
  AllocationTrace::Block narrowed;
  if (steps.isWide)
    narrowed = trace.allocate(steps.scores / size *
                              getElementBytes(query->elementType));
  blocks.second = blas::allocateMatmul(trace, rule, steps.weights, steps.values,
                                       /*keepsLeft=*/false,
                                       /*keepsRight=*/trainsScores(rule, op));
  if (steps.isWide) {
    trace.allocate(rule.tensor(op.getResult())->numBytes());
    trace.free(blocks.second.result);
  }
  // Where it is widened, the operands go after the weights.
  held.insert(steps.isWide ? held.end() : held.begin(),
              op.draws() ? blocks.dropped : blocks.softmax);
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
  rule.setTrace(std::move(trace), rule.tensor(op.getResult())->numBytes());
}

/// The value is kept as it is where no copy is multiplied in its place.
static MathKept getKept(const WorkspaceRule &rule,
                        ScaledDotProductAttentionOp op,
                        const MathBlocks &blocks) {
  auto choose = [](AllocationTrace::Block copy, AllocationTrace::Block factor) {
    return copy.isEmpty() ? factor : copy;
  };
  MathKept kept;
  if (rule.wantsGradient(op.getKey()))
    kept.query = choose(blocks.first.leftBlock, blocks.query);
  if (rule.wantsGradient(op.getQuery()))
    kept.key = choose(blocks.first.rightBlock, blocks.key);
  if (rule.wantsGradient(op.getValue()))
    kept.weights = op.draws() ? blocks.dropped : blocks.softmax;
  // The softmax keeps its result, and so does a product with noise.
  if (trainsScores(rule, op)) {
    kept.softmax = blocks.softmax;
    kept.noise = blocks.noise;
    kept.value = choose(blocks.second.rightBlock, blocks.value);
  }
  return kept;
}

void attention::saveMath(SavedRule &rule, ScaledDotProductAttentionOp op) {
  auto steps = getSteps(rule, op);
  if (!steps)
    return;
  AllocationTrace trace;
  MathBlocks blocks = writeMath(trace, rule, op, *steps);
  MathKept kept = getKept(rule, op, blocks);
  if (trainsScores(rule, op) && kept.value.isEmpty())
    rule.save(op.getValue());
  blas::keepBlocks(rule, trace, kept.getAll());
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

namespace {
/// The nodes of the products, of the softmax and of what was scaled, the last
/// first.
class MathBackward {
public:
  MathBackward(BackwardRule &rule, ScaledDotProductAttentionOp op,
               const MathSteps &math)
      : rule(rule), op(op), math(math), steps(rule),
        own(rule.tensor(op.getQuery())->elementType),
        blocks(writeMath(forward, rule, op, math)),
        kept(getKept(rule, op, blocks)), isScored(trainsScores(rule, op)) {}

  void run();

private:
  /// Operands, by their numbers.
  enum : unsigned { kQuery, kKey, kValue, kMask };

  void free(AllocationTrace::Block block) {
    steps.AllocationTrace::free(block);
  }
  /// What the forward pass has kept goes.
  void freeKept(AllocationTrace::Block block) {
    blas::freeKept(rule, steps, forward, kept.getAll(), block);
  }
  bool isWeight(unsigned operand) {
    return isa_and_nonnull<ParamGetOp, LeafOp>(
        op->getOperand(operand).getDefiningOp());
  }
  /// An operand as it is computed with.
  ConcreteTensor readOperand(unsigned operand);
  /// The gradient that arrived goes, and `block` is there in its place.
  void replaceArrived(AllocationTrace::Block block);
  /// The product with the values; whether it is known.
  bool runValues();
  void runSoftmax();
  void giveMask();
  /// The product of the queries with the keys.
  void runScores();
  /// `made` in another type, which replaces it.
  MadeTensor castTo(const MadeTensor &made, Type type);
  /// A gradient times the number by which the factor was multiplied.
  MadeTensor scale(const MadeTensor &made);
  /// The sum over the heads of each group of what was repeated; replaces it.
  MadeTensor sumGroups(const MadeTensor &repeated, unsigned operand);
  void give(unsigned operand, const MadeTensor &made, bool isViewed);

  BackwardRule &rule;
  ScaledDotProductAttentionOp op;
  const MathSteps &math;
  BackwardReplay steps;
  Type own;
  AllocationTrace forward;
  MathBlocks blocks;
  MathKept kept;
  /// Whether a gradient flows to the scores.
  bool isScored;
  int64_t releasable = 0;
  AllocationTrace::Block arrived;
  /// Gradients.
  MadeTensor scores, query, key, value;
  /// Whether that of the scores is that of the mask, too.
  bool isHeld = false;
  /// Whether a gradient is copied for a weight, which has other strides or is
  /// not alone to have it, while others are computed.
  bool isCopiedEarly = false;
};
} // namespace

ConcreteTensor MathBackward::readOperand(unsigned operand) {
  ConcreteTensor read = steps.read(operand);
  read.elementType = math.type;
  if (operand != kQuery && math.isGrouped)
    return repeatHeads(read, steps.read(kQuery).dims.end()[-3]);
  return read;
}

void MathBackward::replaceArrived(AllocationTrace::Block block) {
  free(arrived);
  steps.freeOutside(std::exchange(releasable, 0));
  arrived = block;
}

MadeTensor MathBackward::castTo(const MadeTensor &made, Type type) {
  ConcreteTensor cast = made;
  cast.elementType = type;
  MadeTensor result = steps.makeLike(cast);
  free(made.block);
  return result;
}

MadeTensor MathBackward::scale(const MadeTensor &made) {
  MadeTensor scaled = steps.compute(made, OpReplay::Number::Float);
  free(made.block);
  return scaled;
}

MadeTensor MathBackward::sumGroups(const MadeTensor &repeated,
                                   unsigned operand) {
  ConcreteTensor like = layInRows(steps.read(operand));
  like.elementType = repeated.elementType;
  MadeTensor sum = steps.allocate(like);
  steps.allocateBriefly(getPartialBytes(rule, repeated, sum));
  free(repeated.block);
  return sum;
}

bool MathBackward::runValues() {
  ConcreteTensor gradient = steps.getGradient(), read = readOperand(kValue);
  releasable = rule.getReleasableBytes();
  // The gradient of the cast of the result.
  if (math.isWide) {
    gradient.elementType = math.type;
    MadeTensor cast = steps.makeLike(gradient);
    gradient = cast;
    replaceArrived(cast.block);
  }
  SmallVector<int64_t> flat{gradient.numElements() / (gradient.dims.end()[-1] *
                                                      gradient.dims.end()[-2]),
                            gradient.dims.end()[-2], gradient.dims.end()[-1]};
  bool isCopied = false;
  AllocationTrace::Block copy(steps.getNumBlocks());
  ConcreteTensor rows = steps.reshape(gradient, flat, isCopied);
  auto strides = rows.getStrides();
  auto values = ::scale(op.getContext(), read);
  if (auto seen = read.getStrides(); seen && !math.isWide)
    values = Factor{read.dims, *seen, read.elementType};
  if (!strides || !values)
    return false;
  if (isCopied)
    replaceArrived(copy);
  scores = {layInRows(readOperand(kQuery)), {}};
  scores.dims.back() = readOperand(kKey).dims.end()[-2];
  Factor arrives{flat, *strides, gradient.elementType};
  Factor weights{{flat[0], flat[1], scores.dims.back()},
                 {flat[1] * scores.dims.back(), scores.dims.back(), 1},
                 gradient.elementType};
  int64_t copied = 0;
  Factor factor =
      blas::flattenLeading(*values, ArrayRef(read.dims).drop_back(2), copied);
  if (steps.wants(kValue)) {
    value = steps.allocate(layInRows(read));
    blas::allocateBmm(steps, rule, blas::transpose(weights), arrives);
  }
  if (isScored) {
    scores = steps.allocate(scores);
    blas::allocateBmm(steps, rule, arrives, blas::transpose(factor));
  }
  if (steps.wants(kValue) && rule.isAdded(kValue))
    steps.allocateTemporary(value.numBytes());
  replaceArrived({});
  freeKept(kept.value);
  if (isScored && kept.value.isEmpty())
    rule.freeSaved(steps, kValue);
  // Those that the softmax has kept, too, go there.
  if (kept.weights != kept.softmax)
    freeKept(kept.weights);
  return true;
}

/// The dropout, whose noise multiplies the gradient, and the softmax.
void MathBackward::runSoftmax() {
  for (AllocationTrace::Block saved : {kept.noise, kept.softmax}) {
    if (saved.isEmpty())
      continue;
    MadeTensor next = steps.allocate(scores);
    free(scores.block);
    freeKept(saved);
    scores = next;
  }
}

/// A mask of the extents of the scores shares their gradient.
void MathBackward::giveMask() {
  ConcreteTensor mask = steps.read(kMask);
  bool isWhole = mask.dims == scores.dims;
  isHeld = isWhole && !math.isWide;
  isCopiedEarly |= isHeld && isWeight(kMask);
  if (isHeld)
    return steps.give(kMask, scores);
  ConcreteTensor sum = mask;
  if (isWhole) {
    sum = scores;
    sum.elementType = own;
    return steps.give(kMask, steps.allocate(sum));
  }
  sum.elementType = math.type;
  MadeTensor made = steps.allocate(sum);
  steps.allocateBriefly(getPartialBytes(rule, scores, made));
  if (math.isWide)
    made = castTo(made, own);
  steps.give(kMask, made,
             !math.isWide && mask.dims.size() < scores.dims.size());
}

void MathBackward::runScores() {
  if (steps.wants(kKey))
    key = steps.allocate(layInRows(readOperand(kKey)));
  if (steps.wants(kQuery))
    query = steps.allocate(layInRows(readOperand(kQuery)));
  if (!isHeld)
    free(scores.block);
  freeKept(kept.key);
  freeKept(kept.query);
  if (!steps.wants(kKey))
    return;
  // It was scaled as it lies transposed.
  key = scale(key);
  std::swap(key.dims.end()[-1], key.dims.end()[-2]);
  key = {transposeDims(key, -2, -1), key.block};
}

/// Views, but for what is cast.
void MathBackward::give(unsigned operand, const MadeTensor &made,
                        bool isViewed) {
  if (!steps.wants(operand))
    return;
  steps.give(operand, math.isWide ? castTo(made, own) : made,
             isViewed && !math.isWide);
  if (operand != kQuery && isWeight(operand))
    isCopiedEarly |= made.getStrides() != steps.read(operand).getStrides();
}

void MathBackward::run() {
  // Each step hands on what it has, while a rule does so at the end: that makes
  // a difference but for the query, which is the last.
  bool areAdded =
      llvm::any_of(ArrayRef<unsigned>{kKey, kValue, kMask},
                   [&](unsigned operand) { return rule.isAdded(operand); });
  if (areAdded || op.getKey() == op.getValue())
    rule.setBound("gradients that are added up between the steps of attention");
  if (!runValues())
    return koila::detail::describeUnknownBackward(rule);
  if (isScored)
    runSoftmax();
  if (op.getAttnMask() && rule.wantsOperand(kMask))
    giveMask();
  if (isScored)
    runScores();
  if (math.isGrouped) {
    if (steps.wants(kValue))
      value = sumGroups(value, kValue);
    if (steps.wants(kKey))
      key = sumGroups(key, kKey);
  }
  if (steps.wants(kQuery))
    query = scale(query);
  give(kValue, value, /*isViewed=*/true);
  give(kKey, key, /*isViewed=*/true);
  give(kQuery, query, /*isViewed=*/false);
  for (unsigned operand : {kValue, kMask, kKey, kQuery})
    rule.splitIntoOwnNode(operand);
  if (isCopiedEarly)
    return rule.setPeak(steps.getPeak());
  steps.finish();
}

void attention::describeMathBackward(BackwardRule &rule,
                                     ScaledDotProductAttentionOp op) {
  if (auto math = getSteps(rule, op))
    MathBackward(rule, op, *math).run();
}
