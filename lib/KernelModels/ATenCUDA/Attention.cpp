//===- Attention.cpp - What attention allocates on a GPU ------------------===//
//
// Sources: native/transformers/cuda/sdp_utils.cpp (which kernel runs),
// attention.cu, attention_backward.cu, flash_attn/flash_api.cpp,
// native/cudnn/MHA.cpp. Workspaces are those that a GPU was seen to allocate
// (test/oracle/cuda_oracle.py).
//
//===----------------------------------------------------------------------===//

#include "../ATen/Attention/AttentionLayers.h"
#include "../ATen/Backward/BackwardReplay.h"
#include "../ATen/TensorBytes.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"
#include "koila/KernelModels/DeviceProfile.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// Of cuDNN the seed of draws and their offset, each; of flash attention both,
/// and a number that is not used.
static constexpr int64_t kSeedBytes = 8, kFlashSeedBytes = 16,
                         kFlashUnusedBytes = 8;

namespace {
/// One call: sequences of heads.
struct Call {
  ConcreteTensor query, key, value;
  std::optional<ConcreteTensor> mask;
  enum class Kernel { Efficient, Flash, CuDNN } kernel;
  /// Of the card.
  int64_t multiprocessors = 0;
  /// Whether a multiprocessor has room for wide blocks of half types: that of
  /// the compute capability 8.0 has, later ones with less memory may not.
  bool hasWideBlocks = true;

  int64_t getBatch() const { return query.dims[0]; }
  int64_t getHeads() const { return query.dims[1]; }
  int64_t getLength() const { return query.dims[2]; }
  int64_t getWidth() const { return query.dims[3]; }
  /// One float32 for each query of each head.
  int64_t getRowBytes(int64_t length) const {
    return getBatch() * getHeads() * length * int64_t(sizeof(float));
  }
  /// Of the logarithms of the sums, which the gradient reads.
  int64_t getLogBytes() const {
    constexpr int64_t kBlock = 32;
    return getRowBytes(kernel != Kernel::Efficient
                           ? getLength()
                           : int64_t(llvm::alignTo(getLength(), kBlock)));
  }
  /// What flash attention makes of the width of a head for its sums.
  int64_t getFlashWidth() const {
    constexpr int64_t kNarrow = 128, kStep = 32;
    return llvm::alignTo(getWidth(), getWidth() <= kNarrow ? kStep : 2 * kStep);
  }
  /// Into how many parts it cuts the keys of a query.
  int64_t countKeyParts() const;
  /// Tensors have positions before heads where that kernel sees them.
  bool isByPosition(const ConcreteTensor &tensor) const {
    ConcreteTensor turned = transposeDims(tensor, 1, 2);
    return turned.contiguous;
  }
  bool isMaskConverted() const {
    return mask && mask->elementType.isInteger(1);
  }
  /// The mask in the type of the queries.
  int64_t getMaskBytes() const { return countBytes(*mask, query.elementType); }
  /// The same with rows of a multiple of 16 bytes, which the kernel reads; 0:
  /// they are.
  int64_t getPaddedBytes() const {
    int64_t step = 16 / getElementBytes(query.elementType);
    int64_t last = mask ? mask->dims.back() : 0;
    if (!mask || kernel != Kernel::Efficient || last % step == 0)
      return 0;
    return getMaskBytes() / last * int64_t(llvm::alignTo(last, step));
  }
};
} // namespace

/// Fewer blocks than multiprocessors are cut further: into the fewest parts
/// with which all are at work nearly as long as they can be. Source:
/// num_splits_heuristic and set_params_splitkv in flash_api.cpp.
int64_t Call::countKeyParts() const {
  constexpr int64_t kQueries = 64, kMostParts = 128, kTwice = 2;
  int64_t width = getWidth();
  int64_t step = width <= 64 ? 256 : width <= 128 ? 128 : 64;
  int64_t blocks =
      getBatch() * getHeads() * llvm::divideCeil(getLength(), kQueries);
  int64_t places = kTwice * multiprocessors;
  // 0.8 of the places are enough.
  if (10 * blocks >= 8 * places)
    return 1;
  int64_t keys = llvm::divideCeil(key.dims[2], step);
  auto isNew = [&](int64_t parts) {
    return parts == 1 ||
           llvm::divideCeil(keys, parts) != llvm::divideCeil(keys, parts - 1);
  };
  auto getUse = [&](int64_t parts) {
    float waves = float(blocks * parts) / float(places);
    return waves / std::ceil(waves);
  };
  int64_t most = std::min({kMostParts, places, keys});
  float best = 0;
  for (int64_t parts = 1; parts <= most; ++parts)
    if (isNew(parts))
      best = std::max(best, getUse(parts));
  constexpr float kEnough = 0.85f;
  for (int64_t parts = 1; parts <= most; ++parts)
    if (isNew(parts) && getUse(parts) >= kEnough * best)
      return parts;
  return 1;
}

/// Whether none of the kernels takes the call, which is a matmul, a softmax and
/// a matmul then. Source: check_tensor_shapes in sdp_utils_cpp.h.
static bool takesMath(const WorkspaceRule &rule,
                      ScaledDotProductAttentionOp op) {
  auto query = rule.tensor(op.getQuery());
  return query && query->dims.size() != 4;
}

/// None, and the rule says so, where which kernel runs, or what it takes, is
/// not known.
static std::optional<Call> read(WorkspaceRule &rule) {
  auto op = cast<ScaledDotProductAttentionOp>(rule.getOp());
  auto query = rule.tensor(op.getQuery()), key = rule.tensor(op.getKey()),
       value = rule.tensor(op.getValue());
  auto refuse = [&](const Twine &why) {
    rule.setInexact(why);
    return std::nullopt;
  };
  if (!query || !key || !value)
    return refuse("a shape of attention is unknown");
  Call call{*query, *key, *value, rule.tensor(op.getAttnMask()),
            Call::Kernel::Efficient};
  Type type = query->elementType;
  const DeviceProfile *profile = rule.getTarget().profile;
  auto major = profile ? profile->getProperties().major : std::nullopt;
  if (isHalf(type) && (major == 9 || major == 10)) {
    call.kernel = Call::Kernel::CuDNN;
  } else if (isHalf(type) && major && *major >= 8 &&
             profile->getProperties().multiprocessors) {
    // It takes no masks, and causal ones of squares alone.
    bool isSquare = query->dims.size() == 4 && key->dims.size() == 4 &&
                    query->dims[2] == key->dims[2];
    if (!op.getAttnMask() && (!op.getIsCausal() || isSquare))
      call.kernel = Call::Kernel::Flash;
    call.multiprocessors = *profile->getProperties().multiprocessors;
    call.hasWideBlocks = major == 8 && profile->getProperties().minor == 0;
  } else if (!type.isF32()) {
    return refuse("attention of this type on this card");
  }
  constexpr int64_t kMostWidth = 128, kMostOfFlash = 192;
  // Half types are read in sixteen bytes.
  int64_t step = type.isF32() ? 4 : 8;
  if (call.getWidth() % step != 0 ||
      call.getWidth() >
          (call.kernel == Call::Kernel::Flash ? kMostOfFlash : kMostWidth) ||
      value->dims.back() != call.getWidth() || op.getEnableGqa() ||
      query->numElements() == 0)
    return refuse("attention of wide or odd heads, or of groups of heads, on "
                  "CUDA");
  // The other kernel draws on the host where no graph is captured.
  if (call.kernel == Call::Kernel::CuDNN && op.draws())
    return refuse("attention with dropout, on this card");
  if (op.getAttnMask() && !call.mask)
    return refuse("a shape of attention is unknown");
  if (call.kernel == Call::Kernel::CuDNN &&
      rule.wantsGradient(op.getAttnMask()))
    return refuse("attention with a mask that is trained, on this card");
  return call;
}

/// What an unfused mask becomes; the last is read by the kernel.
static AllocationTrace::Block convertMask(AllocationTrace &trace,
                                          const Call &call) {
  AllocationTrace::Block mask;
  if (call.isMaskConverted()) {
    int64_t number = getElementBytes(call.query.elementType);
    AllocationTrace::Block numbers[] = {trace.allocate(number),
                                        trace.allocate(number)};
    mask = trace.allocate(call.getMaskBytes());
    trace.free(numbers[1]);
    trace.free(numbers[0]);
  }
  if (int64_t padded = call.getPaddedBytes()) {
    AllocationTrace::Block whole = trace.allocate(padded);
    trace.free(mask);
    mask = whole;
  }
  return mask;
}

/// What flash attention takes beside its result, and gives back with it.
static void allocateFlash(const Call &call, bool draws, AllocationTrace &trace,
                          SmallVectorImpl<AllocationTrace::Block> &made) {
  made.push_back(trace.allocate(call.getLogBytes()));
  int64_t parts = draws ? 1 : call.countKeyParts();
  SmallVector<AllocationTrace::Block, 2> sums;
  if (parts > 1) {
    int64_t rows = parts * call.getRowBytes(call.getLength());
    sums.push_back(trace.allocate(rows));
    sums.push_back(trace.allocate(rows * call.getFlashWidth()));
  }
  AllocationTrace::Block seed = trace.allocate(kFlashSeedBytes);
  AllocationTrace::Block unused = trace.allocate(kFlashUnusedBytes);
  if (draws) {
    AllocationTrace::Block drawn = trace.allocate(kFlashSeedBytes);
    trace.free(seed);
    seed = drawn;
  }
  for (AllocationTrace::Block block : sums)
    trace.free(block);
  made.append({seed, unused});
}

static void describeAttention(WorkspaceRule &rule) {
  auto op = cast<ScaledDotProductAttentionOp>(rule.getOp());
  if (takesMath(rule, op))
    return attention::describeMath(rule, op);
  auto call = read(rule);
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!call || !result)
    return;
  AllocationTrace trace;
  AllocationTrace::Block mask = convertMask(trace, *call);
  SmallVector<AllocationTrace::Block, 4> made;
  bool isCuDNN = call->kernel == Call::Kernel::CuDNN;
  for (int seed = 0; isCuDNN && seed < 2; ++seed)
    made.push_back(trace.allocate(kSeedBytes));
  trace.allocate(result->numBytes());
  if (call->kernel == Call::Kernel::Flash)
    allocateFlash(*call, op.draws(), trace, made);
  else if (isCuDNN || rule.isRecording())
    made.push_back(trace.allocate(call->getLogBytes()));
  constexpr int64_t kPlanBytes = 256;
  if (isCuDNN && call->getLength() > 1)
    trace.allocateTemporary(kPlanBytes);
  for (AllocationTrace::Block block : llvm::reverse(made))
    trace.free(block);
  trace.free(mask);
  rule.setTrace(std::move(trace), result->numBytes());
  // The dims are inferred as a CPU has them.
  if (call->kernel == Call::Kernel::Efficient && !call->isByPosition(*result))
    rule.setInexact("the order in memory of what attention gives: by position "
                    "on this card, and that of the queries on a CPU");
}

static void saveAttention(SavedRule &rule) {
  auto op = cast<ScaledDotProductAttentionOp>(rule.getOp());
  if (takesMath(rule, op))
    return attention::saveMath(rule, op);
  auto call = read(rule);
  if (!call)
    return;
  for (Value value : {op.getQuery(), op.getKey(), op.getValue()})
    rule.save(value);
  rule.save(op.getResult());
  if (int64_t padded = call->getPaddedBytes())
    rule.keep(padded);
  else if (call->isMaskConverted())
    rule.keep(call->getMaskBytes());
  else
    rule.save(op.getAttnMask());
  if (call->kernel == Call::Kernel::CuDNN)
    for (int seed = 0; seed < 2; ++seed)
      rule.keep(kSeedBytes);
  rule.keep(call->getLogBytes());
  if (call->kernel == Call::Kernel::Flash) {
    rule.keep(kFlashSeedBytes);
    rule.keep(kFlashUnusedBytes);
  }
}

/// Sums of the gradient times the result by query, then what the kernel adds
/// up. Source: _efficient_attention_backward; the workspace, with a lock for
/// each 64 queries, as in mem_eff_attention/kernel_backward.h.
static void runEfficient(const Call &call, BackwardReplay &steps) {
  AllocationTrace &trace = steps;
  // Of half types the kernel makes the products itself.
  bool isHalf = koila::isHalf(call.query.elementType);
  AllocationTrace::Block whole;
  if (!isHalf)
    whole = trace.allocate(call.query.numBytes());
  auto sums = trace.allocate(call.getRowBytes(call.getLength()));
  if (!isHalf && call.getLength() > 1 && call.getHeads() > 1) {
    auto turned = trace.allocate(call.getRowBytes(call.getLength()));
    trace.free(sums);
    sums = turned;
  }
  trace.free(whole);
  constexpr int64_t kNarrow = 64, kWide = 128, kLockBytes = 16;
  int64_t width = call.getWidth() <= kNarrow ? kNarrow : kWide;
  int64_t rows = llvm::alignTo(call.getLength(), width);
  int64_t heads = call.getBatch() * call.getHeads();
  int64_t lock = isHalf && call.hasWideBlocks ? width : kNarrow;
  auto workspace =
      trace.allocate(heads * (rows * width * int64_t(sizeof(float)) +
                              rows / lock * kLockBytes));
  trace.free(sums);
  trace.free(workspace);
}

/// Gradient and result by position; then gradients like what they are of,
/// beside sums of float32 of whole blocks of queries.
static void runFlash(const Call &call, const ConcreteTensor &result,
                     BackwardReplay &steps) {
  AllocationTrace &trace = steps;
  SmallVector<AllocationTrace::Block, 2> copies;
  for (const ConcreteTensor *tensor : {&steps.getGradient(), &result})
    if (!call.isByPosition(*tensor))
      copies.push_back(trace.allocate(tensor->numBytes()));
  SmallVector<MadeTensor, 3> gradients;
  for (unsigned operand : {0u, 1u, 2u})
    gradients.push_back(steps.makeLike(steps.read(operand)));
  constexpr int64_t kBlock = 128;
  int64_t rows = call.getRowBytes(llvm::alignTo(call.getLength(), kBlock));
  AllocationTrace::Block products = trace.allocate(rows);
  AllocationTrace::Block sums = trace.allocate(rows * call.getFlashWidth());
  trace.free(sums);
  trace.free(products);
  for (AllocationTrace::Block copy : llvm::reverse(copies))
    trace.free(copy);
  for (auto [operand, gradient] : llvm::enumerate(gradients)) {
    if (steps.wants(operand))
      steps.give(operand, gradient);
    else
      steps.free(gradient);
  }
  steps.finish();
}

/// The gradient of the queries is added up in float32, beside the sums.
static void runCuDNN(const Call &call, BackwardReplay &steps) {
  constexpr int64_t kPlanBytes = 256;
  int64_t rows = call.getRowBytes(call.getLength());
  steps.allocateBriefly(rows * call.getWidth() + rows + kPlanBytes);
}

/// The gradient of a mask that is trained: of all scores, in rows of a multiple
/// of 16 elements; the kernel writes it.
static MadeTensor allocateMaskGradient(const Call &call,
                                       BackwardReplay &steps) {
  constexpr int64_t kStep = 16;
  int64_t keys = call.key.dims[2];
  ConcreteTensor scores{{call.getBatch(), call.getHeads(), call.getLength(),
                         int64_t(llvm::alignTo(keys, kStep))},
                        call.query.elementType};
  MadeTensor made = steps.allocate(scores);
  made.dims.back() = keys;
  made.strides = scores.getStrides();
  made.contiguous = keys == scores.dims.back();
  return made;
}

/// It is summed to the extents of the mask. A mask whose rows were padded takes
/// zeros with the padding, and then is cut. Source: preprocess_mask in
/// native/transformers/attention.cpp, and the gradients of pad and slice.
static void giveMaskGradient(const Call &call, BackwardReplay &steps,
                             unsigned operand, MadeTensor made) {
  const ConcreteTensor &mask = *call.mask;
  auto replace = [&](const ConcreteTensor &by) {
    MadeTensor next = steps.allocate(by);
    steps.free(made);
    made = next;
  };
  if (mask.numElements() != made.numElements()) {
    ConcreteTensor sum{{}, mask.elementType};
    sum.dims.append(mask.dims.begin(), mask.dims.end());
    replace(sum);
  }
  if (int64_t padded = call.getPaddedBytes()) {
    ConcreteTensor zeros{{padded / getElementBytes(mask.elementType)},
                         mask.elementType};
    replace(zeros);
    replace(steps.read(operand));
  }
  steps.give(operand, made);
}

static void describeAttentionBackward(BackwardRule &rule) {
  auto op = cast<ScaledDotProductAttentionOp>(rule.getOp());
  if (takesMath(rule, op))
    return attention::describeMathBackward(rule, op);
  auto call = read(rule);
  if (!call || !rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  if (call->kernel == Call::Kernel::Flash) {
    auto result = rule.tensor(op.getResult());
    if (!result)
      return koila::detail::describeUnknownBackward(rule);
    return runFlash(*call, *result, steps);
  }
  SmallVector<std::pair<unsigned, MadeTensor>, 3> gradients;
  for (unsigned operand : {0u, 1u, 2u})
    gradients.emplace_back(operand, steps.allocate(steps.read(operand)));
  constexpr unsigned kMask = 3;
  std::optional<MadeTensor> mask;
  if (op.getAttnMask() && steps.wants(kMask))
    mask = allocateMaskGradient(*call, steps);
  if (call->kernel == Call::Kernel::CuDNN)
    runCuDNN(*call, steps);
  else
    runEfficient(*call, steps);
  if (isHalf(call->query.elementType) && !call->hasWideBlocks)
    rule.setBound("the locks of attention's gradient on this card");
  for (auto &[operand, gradient] : gradients) {
    if (!steps.wants(operand)) {
      steps.free(gradient);
      continue;
    }
    // Heads lie beside each other in memory.
    ConcreteTensor turned =
        transposeDims(ConcreteTensor{{gradient.dims[0], gradient.dims[2],
                                      gradient.dims[1], gradient.dims[3]},
                                     gradient.elementType},
                      1, 2);
    steps.give(operand, MadeTensor(turned, gradient.block));
  }
  if (mask)
    giveMaskGradient(*call, steps, kMask, *mask);
  steps.finish();
}

void cuda::addAttentionModels(KernelLibrary &library) {
  library.add<ScaledDotProductAttentionOp>(
      {describeAttention, saveAttention, describeAttentionBackward});
}
