//===- BatchNorm.cpp - Normalisations of channels on a GPU ----------------===//
//
// Sources: native/Normalization.cpp (_select_batch_norm_backend),
// native/cudnn/BatchNorm.cpp, native/cuda/Normalization.{cu,cuh}. Compared with
// a recorded GPU by test/oracle/cuda_oracle.py.
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/BackwardReplay.h"
#include "../ATen/TensorBytes.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

namespace {
/// One call.
struct Call {
  BatchNormOp op;
  ConcreteTensor input;

  int64_t getChannels() const { return input.dims[1]; }
  /// Of a sum: float32 for half types.
  int64_t getSumBytes() const {
    return std::max<int64_t>(4, getElementBytes(input.elementType));
  }
  int64_t getVectorBytes() const { return getChannels() * getSumBytes(); }
  bool isByCuDNN();
  /// Whether channels are next to each other in memory, for which the native
  /// code has kernels of its own.
  bool hasChannelsInside() const {
    return input.dims.size() == 2 ? input.contiguous
                                  : isChannelsLast(input) && !input.contiguous;
  }
};
} // namespace

static std::optional<Call> read(WorkspaceRule &rule) {
  auto op = cast<BatchNormOp>(rule.getOp());
  auto input = rule.tensor(op.getInput());
  if (input && input->dims.size() >= 2)
    return Call{op, *input};
  rule.setInexact("the shape of the input is unknown");
  return std::nullopt;
}

bool Call::isByCuDNN() {
  constexpr int64_t kMostTrained = 880801, kMostEvaluated = 65535;
  bool isTraining = op.getTraining();
  bool hasStatistics = op.getRunningMean() && op.getRunningVar();
  bool hasNone = !op.getRunningMean() && !op.getRunningVar();
  return op.getCudnnEnabled() && input.dims.size() >= 3 &&
         !input.elementType.isBF16() && op.getWeight() && op.getBias() &&
         (hasStatistics || (isTraining && hasNone)) &&
         input.dims[0] <= (isTraining ? kMostTrained : kMostEvaluated);
}

namespace {
/// Into how many blocks of threads the kernels of channels that are next to
/// each other are split. Source: flexible_launch_configs.
struct Grid {
  int64_t x, y;
};
} // namespace

static Grid getGrid(Call &call) {
  constexpr int64_t kThreads = 512, kWidth = 32, kRowsPerThread = 16,
                    kMostRows = 128, kLeastRows = 8;
  // Of no rows no kernel runs.
  int64_t rows =
      std::max<int64_t>(call.input.numElements() / call.getChannels(), 1);
  auto floorPower = [](int64_t extent) {
    return int64_t(llvm::bit_floor(uint64_t(extent)));
  };
  int64_t x = std::min(floorPower(call.getChannels()), kWidth);
  int64_t y =
      std::min(floorPower(int64_t(llvm::divideCeil(rows, kRowsPerThread))),
               kThreads / x);
  if (x * y != kThreads)
    x = std::min(floorPower(call.getChannels()), kThreads / y);
  int64_t blocks =
      std::min<int64_t>(llvm::divideCeil(rows, kRowsPerThread * y), kMostRows);
  return {int64_t(llvm::divideCeil(call.getChannels(), x)),
          blocks < kLeastRows ? 1 : blocks};
}

/// `vectors` sums of each channel and block of threads, and a counter.
static void allocateStaging(AllocationTrace &trace, Call &call,
                            int64_t vectors) {
  constexpr int64_t kCounterBytes = 4;
  Grid grid = getGrid(call);
  if (grid.y == 1)
    return;
  AllocationTrace::Block staged =
      trace.allocate(vectors * call.getVectorBytes() * grid.y);
  trace.allocateTemporary(grid.x * kCounterBytes);
  trace.free(staged);
}

/// Says that the workspace of cuDNN is not known.
static void doubtChannelsLast(WorkspaceRule &rule) {
  rule.setInexact("the workspace of cuDNN for batch normalisation of "
                  "channels-last tensors");
}

static void describeBatchNorm(WorkspaceRule &rule) {
  auto call = read(rule);
  if (!call || call->input.numElements() == 0)
    return;
  bool isByCuDNN = call->isByCuDNN(), isTraining = call->op.getTraining();
  AllocationTrace trace;
  AllocationTrace::Block copy;
  if (!call->input.contiguous && !isChannelsLast(call->input)) {
    if (!isByCuDNN)
      rule.setInexact("batch normalisation of strided channels");
    copy = trace.allocate(getSuggestedCopyBytes(call->input));
  }
  trace.allocate(call->input.numBytes());
  // cuDNN needs no statistics of its own outside of training.
  if (isTraining || !isByCuDNN) {
    AllocationTrace::Block statistics[] = {
        trace.allocate(call->getVectorBytes()),
        trace.allocate(call->getVectorBytes())};
    if (isByCuDNN && call->hasChannelsInside())
      doubtChannelsLast(rule);
    else if (!isByCuDNN && isTraining && call->hasChannelsInside())
      allocateStaging(trace, *call, /*vectors=*/4);
    for (AllocationTrace::Block block : llvm::reverse(statistics))
      trace.free(block);
  }
  trace.free(copy);
  rule.setTrace(std::move(trace), call->input.numBytes());
}

static void saveBatchNorm(SavedRule &rule) {
  auto call = read(rule);
  if (!call)
    return;
  saveDifferentiated(rule);
  if (call->input.numElements() == 0 ||
      (!call->op.getTraining() && call->isByCuDNN()))
    return;
  for (int statistic = 0; statistic < 2; ++statistic)
    rule.keep(call->getVectorBytes());
}

/// A gradient for the weight and one for the bias, where they are asked for.
static void giveParameters(BackwardRule &rule, BackwardReplay &steps,
                           Call &call) {
  for (Value parameter : {call.op.getWeight(), call.op.getBias()})
    for (OpOperand &operand : rule.getOp()->getOpOperands())
      if (parameter && operand.get() == parameter &&
          steps.wants(operand.getOperandNumber()))
        steps.giveContiguous(operand.getOperandNumber());
}

/// Sums of the gradient first, then the gradient of the input.
static void describeChannelsInside(BackwardRule &rule, BackwardReplay &steps,
                                   Call &call) {
  SmallVector<AllocationTrace::Block, 3> sums;
  // Of cuDNN's evaluation the reciprocal deviations are made anew.
  int count = !call.op.getTraining() && call.isByCuDNN() ? 3 : 2;
  for (int sum = 0; sum < count; ++sum)
    sums.push_back(steps.AllocationTrace::allocate(call.getVectorBytes()));
  giveParameters(rule, steps, call);
  allocateStaging(steps, call, /*vectors=*/2);
  if (steps.wants(0))
    steps.give(0, steps.makeLike(call.input));
  for (AllocationTrace::Block sum : llvm::reverse(sums))
    steps.AllocationTrace::free(sum);
}

static void describeBatchNormBackward(BackwardRule &rule) {
  auto call = read(rule);
  if (!call || !rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  const ConcreteTensor &gradient = *rule.getGradient();
  bool isRows = call->input.contiguous;
  if (!isRows && !isChannelsLast(call->input))
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  bool isTrainedByCuDNN = call->isByCuDNN() && call->op.getTraining();
  bool isAlike = isRows ? gradient.contiguous : isChannelsLast(gradient);
  if (!isTrainedByCuDNN && !isAlike)
    return koila::detail::describeUnknownBackward(rule);
  if (!isTrainedByCuDNN && call->hasChannelsInside()) {
    describeChannelsInside(rule, steps, *call);
    return steps.finish();
  }
  AllocationTrace::Block copy =
      steps.AllocationTrace::allocate(isAlike ? 0 : gradient.numBytes());
  if (steps.wants(0))
    steps.give(0, steps.makeLike(call->input));
  giveParameters(rule, steps, *call);
  if (isTrainedByCuDNN && call->hasChannelsInside())
    doubtChannelsLast(rule);
  steps.AllocationTrace::free(copy);
  steps.finish();
}

void cuda::addBatchNormModels(KernelLibrary &library) {
  library.add<BatchNormOp>(
      {describeBatchNorm, saveBatchNorm, describeBatchNormBackward});
}
