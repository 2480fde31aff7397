//===- Attention.cpp - What attention holds inside ------------------------===//
//
// Sources: native/transformers/attention.cpp and sdp_utils_cpp.cpp,
// native/cpu/FlashAttentionKernel.cpp.
//
//===----------------------------------------------------------------------===//

#include "../../ATenCPU/GemmOperandCopies.h"
#include "../../Models.h"
#include "../Backward/BackwardReplay.h"
#include "AttentionLayers.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

namespace {
/// The operands of one call.
struct AttentionShapes {
  ConcreteTensor query, key, value;
  std::optional<ConcreteTensor> mask;
};
} // namespace

template <typename Op>
static std::optional<AttentionShapes> getShapes(const WorkspaceRule &rule,
                                                Op op) {
  auto query = rule.tensor(op.getQuery()), key = rule.tensor(op.getKey());
  auto value = rule.tensor(op.getValue()), mask = rule.tensor(op.getAttnMask());
  if (!query || !key || !value || (op.getAttnMask() && !mask))
    return std::nullopt;
  return AttentionShapes{*query, *key, *value, mask};
}

/// Whether a call takes the flash kernel, which reads vectors of one dense head
/// size and drops nothing. Source: use_flash_attention_cpp.
static bool takesFlash(const AttentionShapes &shapes,
                       ScaledDotProductAttentionOp op) {
  const ConcreteTensor &query = shapes.query;
  bool grouped = op.getEnableGqa();
  if (op.draws() || query.dims.size() != 4 || query.numElements() == 0 ||
      shapes.key.numElements() == 0)
    return false;
  for (const ConcreteTensor *tensor :
       {&shapes.query, &shapes.key, &shapes.value}) {
    auto strides = tensor->getStrides();
    if (tensor->dims.size() != 4 || tensor->dims[0] != query.dims[0] ||
        tensor->dims[3] != query.dims[3] || !strides || (*strides)[3] != 1 ||
        (!grouped && tensor->dims[1] != query.dims[1]))
      return false;
  }
  return !shapes.mask || shapes.mask->dims.size() == 2 ||
         shapes.mask->dims.size() == 4;
}

/// The queries and keys that a thread takes at a time.
static std::pair<int64_t, int64_t> getBlock(const AttentionShapes &shapes) {
  constexpr int64_t kLong = 768, kMedium = 192, kKeys = 512;
  int64_t queries = shapes.query.dims[2], keys = shapes.key.dims[2];
  int64_t most = queries >= kLong ? 256 : queries >= kMedium ? 64 : 32;
  return {std::min(queries, most), std::min(keys, kKeys)};
}

/// Keys and values as matrix units read them, in pairs of rows, a transposed
/// block for each thread, and rows of queries of odd length. Only where they
/// are read often enough. Source: need_pack in cpu_flash_attention.
static int64_t getPackedBytes(const WorkspaceRule &rule,
                              const AttentionShapes &shapes, bool isCausal) {
  const ConcreteTensor &query = shapes.query, &key = shapes.key;
  StringRef isa = rule.getTarget().isa;
  bool isF16 = query.elementType.isF16();
  if (!isHalf(query.elementType) ||
      (isa != "avx512_core_amx_fp16" && (isF16 || isa != "avx512_core_amx")))
    return 0;
  int64_t threads = rule.getTarget().threads, head = query.dims[3];
  int64_t queries = query.dims[2], keys = key.dims[2];
  auto [queryBlock, keyBlock] = getBlock(shapes);
  int64_t least = isF16 ? 16 : 64, often = isF16 ? 1 : 4;
  if (queries < least || keys < least)
    return 0;
  int64_t matrices = query.dims[0] * key.dims[1];
  int64_t blocks =
      query.dims[0] * query.dims[1] * llvm::divideCeil(queries, queryBlock);
  double packed = static_cast<double>(matrices) * keys * head;
  double read = static_cast<double>(llvm::divideCeil(blocks, threads)) *
                queryBlock * (isCausal ? std::min(queries, keys) : keys) * head;
  if (read / packed < often)
    return 0;
  auto pad = [](int64_t extent) { return extent + extent % 2; };
  int64_t last = (keys - 1) % keyBlock + 1;
  int64_t rows = (keys - 1) / keyBlock * pad(keyBlock) + pad(last);
  int64_t elements = matrices * (pad(head) * keys + rows * head);
  elements += threads * keyBlock * head;
  // Also of the narrowed weights.
  elements += threads * queryBlock * (pad(keyBlock) - keyBlock);
  if (head % 2 != 0)
    elements += threads * queryBlock * pad(head);
  return elements * getElementBytes(query.elementType);
}

/// A mask that is copied, then the buffers of the threads: each has scores,
/// maxima, sums and results of a block of queries and keys. Source:
/// cpu_flash_attention.
static void allocateFlash(AllocationTrace &trace, const WorkspaceRule &rule,
                          const AttentionShapes &shapes, int64_t maskCopy,
                          bool isCausal) {
  int64_t head = shapes.query.dims[3];
  auto [queryBlock, keyBlock] = getBlock(shapes);
  int64_t scores = queryBlock * keyBlock;
  int64_t size = shapes.query.elementType.isF64() ? 8 : 4;
  int64_t bytes = (scores + 2 * queryBlock + queryBlock * head) * size;
  int64_t threads = rule.getTarget().threads;
  auto mask = trace.allocate(maskCopy);
  auto buffers = trace.allocate(bytes * threads);
  // Half types are summed in float32, and their weights narrowed.
  bool isNarrowed = isHalf(shapes.query.elementType);
  auto narrowed = trace.allocate(isNarrowed ? scores * 2 * threads : 0);
  trace.lump(getPackedBytes(rule, shapes, isCausal));
  trace.free(narrowed);
  trace.free(buffers);
  trace.free(mask);
}

/// A mask whose columns are neither dense nor one is copied, for all queries
/// and keys (measured).
static int64_t getMaskCopyBytes(WorkspaceRule &rule,
                                const AttentionShapes &shapes) {
  if (!shapes.mask)
    return 0;
  const ConcreteTensor &mask = *shapes.mask;
  auto strides = mask.getStrides();
  if (!strides || mask.dims.size() < 2) {
    rule.setInexact("the strides of the mask are unknown");
    return 0;
  }
  int64_t keys = shapes.key.dims[2], last = strides->back();
  if (last == 0 || last == 1 || (mask.dims.back() == 1 && keys != 1))
    return 0;
  if (keys == 1 || mask.elementType.isInteger(1)) {
    rule.setInexact("a mask whose columns are strided");
    return 0;
  }
  int64_t elements = shapes.query.dims[2] * keys;
  if (mask.dims.size() == 4)
    for (int64_t dim : {0, 1})
      if (mask.dims[dim] == shapes.query.dims[dim])
        elements *= mask.dims[dim];
  return elements * getElementBytes(mask.elementType);
}

namespace {
/// What autograd keeps of the flash kernel: the logarithms of the sums, and a
/// mask of numbers in the place of a bool one.
struct FlashBlocks {
  AllocationTrace::Block mask, sums;
};
} // namespace

/// The logarithms of the sums are dropped; a bool mask becomes numbers.
static FlashBlocks writeFlash(AllocationTrace &trace, WorkspaceRule &rule,
                              ScaledDotProductAttentionOp op,
                              const AttentionShapes &shapes) {
  const ConcreteTensor &query = shapes.query;
  int64_t rows = query.dims[0] * query.dims[1] * query.dims[2];
  FlashBlocks blocks;
  if (shapes.mask && shapes.mask->elementType.isInteger(1))
    blocks.mask =
        attention::allocateBoolMask(trace, *shapes.mask, query.elementType);
  trace.allocate(query.numBytes());
  blocks.sums = trace.allocate(rows * (query.elementType.isF64() ? 8 : 4));
  allocateFlash(trace, rule, shapes, getMaskCopyBytes(rule, shapes),
                op.getIsCausal());
  trace.free(blocks.sums);
  trace.free(blocks.mask);
  return blocks;
}

static void describeAttention(WorkspaceRule &rule) {
  auto op = cast<ScaledDotProductAttentionOp>(rule.getOp());
  auto shapes = getShapes(rule, op);
  if (!shapes)
    return rule.setInexact("a shape of attention is unknown");
  // A mask that is trained takes the other way, too.
  if (!takesFlash(*shapes, op) ||
      blas::requiresGradient(rule, op.getAttnMask()))
    return attention::describeMath(rule, op);
  AllocationTrace trace;
  writeFlash(trace, rule, op, *shapes);
  rule.setTrace(std::move(trace));
}

static void describeFlash(WorkspaceRule &rule) {
  auto op = cast<ScaledDotProductFlashAttentionForCpuOp>(rule.getOp());
  auto shapes = getShapes(rule, op);
  if (!op.getDropoutP().isZero())
    return rule.setInexact("flash attention refuses to drop weights");
  if (!shapes || shapes->query.dims.size() != 4)
    return rule.setInexact("a shape of attention is unknown");
  AllocationTrace trace;
  allocateFlash(trace, rule, *shapes, getMaskCopyBytes(rule, *shapes),
                op.getIsCausal());
  rule.setTrace(std::move(trace));
}

static void saveAttention(SavedRule &rule) {
  auto op = cast<ScaledDotProductAttentionOp>(rule.getOp());
  auto shapes = getShapes(rule, op);
  if (!shapes)
    return rule.setInexact("a shape of attention is unknown");
  if (!takesFlash(*shapes, op) || rule.wantsGradient(op.getAttnMask()))
    return attention::saveMath(rule, op);
  for (Value value : {op.getQuery(), op.getKey(), op.getValue()})
    rule.save(value);
  rule.save(op.getResult());
  AllocationTrace trace;
  FlashBlocks blocks = writeFlash(trace, rule, op, *shapes);
  if (blocks.mask.isEmpty())
    rule.save(op.getAttnMask());
  blas::keepBlocks(rule, trace, {blocks.sums, blocks.mask});
}

//===----------------------------------------------------------------------===//
// The backward pass
//===----------------------------------------------------------------------===//

/// A tensor `[batch, heads, rows, size]` whose heads lie within its rows.
static ConcreteTensor layHeadsInRows(const ConcreteTensor &tensor) {
  ConcreteTensor rows = tensor;
  std::swap(rows.dims[1], rows.dims[2]);
  rows.contiguous = true;
  rows.strides.reset();
  return transposeDims(rows, 1, 2);
}

/// Scores and their gradients of a block, and sums of its rows. Source:
/// cpu_flash_attention_backward.
static void describeAttentionBackward(BackwardRule &rule) {
  auto op = cast<ScaledDotProductAttentionOp>(rule.getOp());
  auto shapes = getShapes(rule, op);
  if (!shapes || !rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  if (!takesFlash(*shapes, op) || rule.wantsGradient(op.getAttnMask()))
    return attention::describeMathBackward(rule, op);
  constexpr unsigned kQuery = 0, kKey = 1, kValue = 2, kMask = 3;
  BackwardReplay steps(rule);
  SmallVector<AllocationTrace::Block> unasked;
  for (unsigned operand : {kQuery, kKey, kValue}) {
    MadeTensor made = steps.allocate(steps.read(operand));
    if (steps.wants(operand))
      steps.give(operand, MadeTensor(layHeadsInRows(made), made.block));
    else
      unasked.push_back(made.block);
  }
  MadeTensor rows = steps.contiguous(transposeDims(steps.getGradient(), 1, 2));
  // Each thread has its scores and their gradients, of half types in float32
  // and narrowed; the sums are shared.
  auto [queries, keys] = getBlock(*shapes);
  int64_t scores = 2 * queries * keys * rule.getTarget().threads;
  Type type = shapes->query.elementType;
  int64_t size = type.isF64() ? 8 : 4;
  AllocationTrace &trace = steps;
  auto buffers = trace.allocate(scores * size);
  auto narrowed =
      trace.allocate(isHalf(type) ? scores * getElementBytes(type) : 0);
  trace.allocateTemporary(queries * size);
  if (isHalf(type) &&
      blas::takesOneDnn(rule, type, {queries, keys, shapes->query.dims[3]}))
    rule.setInexact("what oneDNN holds in the products of the gradient of "
                    "attention of half types");
  for (AllocationTrace::Block block : {narrowed, buffers, rows.block})
    trace.free(block);
  llvm::for_each(unasked, [&](auto block) { trace.free(block); });
  trace.freeOutside(rule.getReleasableBytes());
  // Operands, then results, each in the order of their names.
  AllocationTrace forward;
  FlashBlocks blocks = writeFlash(forward, rule, op, *shapes);
  auto freeKept = [&](AllocationTrace::Block block) {
    blas::freeKept(rule, trace, forward, {blocks.mask, blocks.sums}, block);
  };
  SmallVector<unsigned> saved{kKey, kQuery, kValue, op->getNumOperands()};
  if (!blocks.mask.isEmpty())
    freeKept(blocks.mask);
  else if (op.getAttnMask())
    saved.insert(saved.begin(), kMask);
  for (ArrayRef<unsigned> rest = saved; !rest.empty();) {
    unsigned first = rest.front();
    if (rest = rest.drop_front(); rest.empty())
      freeKept(blocks.sums);
    rule.freeSaved(trace, first, rest);
  }
  steps.finish();
}

void kernels::addAttentionModels(KernelLibrary &library) {
  library.add<NativeMultiHeadAttentionOp>(
      {.forward = attention::describeMultiHead});
  library.add<NestedTensorFromMaskOp>(
      {.forward = attention::describeNesting, .saved = attention::saveNested});
  library.add<ScaledDotProductAttentionOp>(
      {describeAttention, saveAttention, describeAttentionBackward});
  library.add<ScaledDotProductFlashAttentionForCpuOp>(
      {.forward = describeFlash});
  library.add<ToPaddedTensorOp>({.forward = attention::describePadding});
  library.add<TransformerEncoderLayerFwdOp>(
      {.forward = attention::describeEncoder, .saved = attention::saveNested});
}
