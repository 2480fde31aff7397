//===- Attention.cpp - What attention allocates on a GPU ------------------===//
//
// Sources: native/transformers/cuda/sdp_utils.cpp (which kernel runs),
// attention.cu, attention_backward.cu, native/cudnn/MHA.cpp. Workspaces are
// those that a GPU was seen to allocate (test/oracle/cuda_oracle.py).
//
//===----------------------------------------------------------------------===//

#include "../ATen/Attention/AttentionLayers.h"
#include "../ATen/Backward/BackwardReplay.h"
#include "../ATen/TensorBytes.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"
#include "koila/KernelModels/DeviceProfile.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

namespace {
/// One call: sequences of heads.
struct Call {
  ConcreteTensor query, key, value;
  std::optional<ConcreteTensor> mask;
  enum class Kernel { Efficient, CuDNN } kernel;

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
    return getRowBytes(kernel == Kernel::CuDNN
                           ? getLength()
                           : int64_t(llvm::alignTo(getLength(), kBlock)));
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
  if (isHalf(type) && (major == 9 || major == 10))
    call.kernel = Call::Kernel::CuDNN;
  else if (!type.isF32())
    return refuse("attention of this type on this card");
  constexpr int64_t kMostWidth = 128, kEfficientStep = 4, kCuDNNStep = 8;
  int64_t step =
      call.kernel == Call::Kernel::CuDNN ? kCuDNNStep : kEfficientStep;
  if (call.getWidth() % step != 0 || call.getWidth() > kMostWidth ||
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
  // The seed and offset of draws.
  constexpr int64_t kSeedBytes = 8;
  for (int seed = 0; isCuDNN && seed < 2; ++seed)
    made.push_back(trace.allocate(kSeedBytes));
  trace.allocate(result->numBytes());
  if (isCuDNN || rule.isRecording())
    made.push_back(trace.allocate(call->getLogBytes()));
  constexpr int64_t kPlanBytes = 256;
  if (isCuDNN && call->getLength() > 1)
    trace.allocateTemporary(kPlanBytes);
  for (AllocationTrace::Block block : llvm::reverse(made))
    trace.free(block);
  trace.free(mask);
  rule.setTrace(std::move(trace), result->numBytes());
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
      rule.keep(8);
  rule.keep(call->getLogBytes());
}

/// Sums of the gradient times the result by query, then what the kernel adds
/// up. Source: _efficient_attention_backward; the workspace, with a lock for
/// each 64 queries, as in mem_eff_attention/kernel_backward.h.
static void runEfficient(const Call &call, BackwardReplay &steps) {
  AllocationTrace &trace = steps;
  auto whole = trace.allocate(call.query.numBytes());
  auto sums = trace.allocate(call.getRowBytes(call.getLength()));
  if (call.getLength() > 1 && call.getHeads() > 1) {
    auto turned = trace.allocate(call.getRowBytes(call.getLength()));
    trace.free(sums);
    sums = turned;
  }
  trace.free(whole);
  constexpr int64_t kNarrow = 64, kWide = 128, kLockBytes = 16;
  int64_t width = call.getWidth() <= kNarrow ? kNarrow : kWide;
  int64_t rows = llvm::alignTo(call.getLength(), width);
  int64_t heads = call.getBatch() * call.getHeads();
  auto workspace =
      trace.allocate(heads * (rows * width * int64_t(sizeof(float)) +
                              rows / kNarrow * kLockBytes));
  trace.free(sums);
  trace.free(workspace);
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
