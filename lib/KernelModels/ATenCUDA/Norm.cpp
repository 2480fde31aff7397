//===- Norm.cpp - What normalisations of samples hold inside on a GPU -----===//
//
// Sources: native/cuda/layer_norm_kernel.cu, native/cuda/group_norm_kernel.cu.
// Compared with a recorded GPU by test/oracle/cuda_oracle.py.
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/BackwardReplay.h"
#include "../ATen/TensorBytes.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "koila/KernelModels/DeviceProfile.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// Of sums and statistics: float32 for half types.
static int64_t getSumBytes(Type type) {
  return std::max<int64_t>(4, getElementBytes(type));
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

namespace {
/// layer_norm or rms_norm.
struct Rows {
  ConcreteTensor input;
  Value weight, bias;
  int64_t rows, columns;
  /// The reciprocal deviation, and the mean before it.
  int statistics;

  int64_t getStatisticBytes() const {
    return rows * getSumBytes(input.elementType);
  }
};
} // namespace

/// None, and the rule says so, if the shape is unknown.
static std::optional<Rows> readRows(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  if (!input) {
    rule.setInexact("the shape of the input is unknown");
    return std::nullopt;
  }
  Rows rows{*input, {}, {}, 1, 1, 2};
  size_t last = 0;
  if (auto norm = dyn_cast<LayerNormOp>(op)) {
    last = norm.getNormalizedShape().size();
    rows.weight = norm.getWeight();
    rows.bias = norm.getBias();
  } else {
    auto root = cast<RmsNormOp>(op);
    last = root.getNormalizedShape().size();
    rows.weight = root.getWeight();
    rows.statistics = 1;
  }
  rows.columns = llvm::product_of(ArrayRef(input->dims).take_back(last));
  rows.rows = llvm::product_of(ArrayRef(input->dims).drop_back(last));
  return rows;
}

static void describeRows(WorkspaceRule &rule) {
  auto rows = readRows(rule);
  if (!rows)
    return;
  AllocationTrace trace;
  AllocationTrace::Block copy = trace.allocate(getCopyBytes(rows->input));
  trace.allocate(rows->input.numBytes());
  SmallVector<AllocationTrace::Block, 2> statistics;
  for (int made = 0; made < rows->statistics; ++made)
    statistics.push_back(trace.allocate(rows->getStatisticBytes()));
  // The mean goes first (recorded).
  for (AllocationTrace::Block block : statistics)
    trace.free(block);
  trace.free(copy);
  rule.setTrace(std::move(trace), rows->input.numBytes());
}

static void saveRows(SavedRule &rule) {
  auto rows = readRows(rule);
  if (!rows)
    return;
  // Strided rows as they are, not their copy.
  saveDifferentiated(rule);
  for (int made = 0; made < rows->statistics; ++made)
    rule.keep(rows->getStatisticBytes());
}

namespace {
/// Of many rows the gradients of the parameters are sums of several blocks of
/// threads, since 2.8. Source: LaunchGammaBetaBackwardCUDAKernel.
struct PartialSums {
  /// How many; one: none are made.
  int64_t count = 1;
};
} // namespace

static PartialSums getPartialSums(BackwardRule &rule, const Rows &rows) {
  constexpr int64_t kMany = 65536, kWarp = 32, kMostThreads = 32768;
  if (rows.rows <= kMany)
    return {};
  const DeviceProfile *profile = rule.getTarget().profile;
  if (profile && profile->getProperties().isBefore(2, 8))
    return {};
  auto known =
      profile ? profile->getProperties().multiprocessors : std::nullopt;
  if (!known)
    rule.setBound("into how many parts the sums of a layer are split depends "
                  "on the card, which the target does not name");
  int64_t blocks = llvm::divideCeil(rows.columns, kWarp);
  if (known && rows.columns / kWarp >= *known / 2)
    return {};
  return {std::min<int64_t>(kMostThreads / blocks,
                            llvm::divideCeil(rows.rows, kWarp))};
}

static void describeRowsBackward(BackwardRule &rule) {
  auto rows = readRows(rule);
  if (!rows || !rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  MadeTensor gradient = steps.contiguous(steps.getGradient());
  MadeTensor input = steps.contiguous(rows->input);
  if (steps.wants(0))
    steps.giveContiguous(0);
  // The gradients of the parameters, which sums of parts replace.
  SmallVector<std::pair<unsigned, MadeTensor>, 2> made;
  for (Value parameter : {rows->weight, rows->bias})
    for (OpOperand &operand : rule.getOp()->getOpOperands())
      if (parameter && operand.get() == parameter &&
          steps.wants(operand.getOperandNumber()))
        made.emplace_back(
            operand.getOperandNumber(),
            steps.allocate(steps.read(operand.getOperandNumber())));
  PartialSums parts = getPartialSums(rule, *rows);
  if (parts.count > 1) {
    SmallVector<MadeTensor, 2> partial;
    for (auto &[operand, sum] : made)
      partial.push_back(steps.allocate(
          ConcreteTensor{{parts.count, rows->columns}, sum.elementType}));
    for (auto [entry, part] : llvm::zip_equal(made, partial)) {
      MadeTensor sum = steps.OpReplay::sum(part, 0);
      sum.dims = entry.second.dims;
      steps.free(entry.second);
      entry.second = sum;
    }
    steps.free(partial);
  }
  for (auto &[operand, sum] : made)
    steps.give(operand, sum);
  steps.free(input);
  steps.free(gradient);
  steps.finish();
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

namespace {
struct Groups {
  GroupNormOp op;
  ConcreteTensor input;

  int64_t getPixels() const {
    return llvm::product_of(ArrayRef(input.dims).drop_front(2));
  }
  int64_t getStatisticBytes() {
    return input.dims[0] * op.getNumGroups() *
           getElementBytes(input.elementType);
  }
  /// A sum for each channel, or each group, of each sample.
  int64_t getChannelBytes() const {
    return input.dims[0] * input.dims[1] * getSumBytes(input.elementType);
  }
  int64_t getGroupBytes() {
    return input.dims[0] * op.getNumGroups() * getSumBytes(input.elementType);
  }
};
} // namespace

static std::optional<Groups> readGroups(WorkspaceRule &rule) {
  auto op = cast<GroupNormOp>(rule.getOp());
  auto input = rule.tensor(op.getInput());
  if (input && input->dims.size() >= 2)
    return Groups{op, *input};
  rule.setInexact("the shape of the input is unknown");
  return std::nullopt;
}

static void describeGroups(WorkspaceRule &rule) {
  auto groups = readGroups(rule);
  if (!groups)
    return;
  AllocationTrace trace;
  AllocationTrace::Block copy = trace.allocate(getCopyBytes(groups->input));
  trace.allocate(groups->input.numBytes());
  AllocationTrace::Block mean = trace.allocate(groups->getStatisticBytes());
  AllocationTrace::Block deviation =
      trace.allocate(groups->getStatisticBytes());
  // Scales and shifts, of more than single pixels.
  int64_t scales = groups->getPixels() > 1 ? groups->getChannelBytes() : 0;
  AllocationTrace::Block scale = trace.allocate(scales);
  trace.allocateTemporary(scales);
  for (AllocationTrace::Block block : {scale, deviation, mean, copy})
    trace.free(block);
  rule.setTrace(std::move(trace), groups->input.numBytes());
}

static void saveGroups(SavedRule &rule) {
  auto groups = readGroups(rule);
  if (!groups)
    return;
  // Of strided groups the copy. Source: group_norm in native/group_norm.cpp.
  saveDifferentiated(rule, [&](Value value) {
    return value == groups->op.getInput() ? getCopyBytes(groups->input) : 0;
  });
  for (int statistic = 0; statistic < 2; ++statistic)
    rule.keep(groups->getStatisticBytes());
}

static void describeGroupsBackward(BackwardRule &rule) {
  auto groups = readGroups(rule);
  if (!groups || !rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  MadeTensor gradient = steps.contiguous(steps.getGradient());
  if (steps.wants(0))
    steps.giveContiguous(0);
  for (Value parameter : {groups->op.getWeight(), groups->op.getBias()})
    for (OpOperand &operand : rule.getOp()->getOpOperands())
      if (parameter && operand.get() == parameter &&
          steps.wants(operand.getOperandNumber()))
        steps.giveContiguous(operand.getOperandNumber());
  using Block = AllocationTrace::Block;
  AllocationTrace &trace = steps;
  Block sums[] = {trace.allocate(groups->getChannelBytes()),
                  trace.allocate(groups->getChannelBytes())};
  if (steps.wants(0)) {
    Block second = trace.allocate(groups->getGroupBytes());
    Block third = trace.allocate(groups->getGroupBytes());
    // A factor for each channel, of more than single pixels.
    Block first =
        trace.allocate(groups->getPixels() > 1 && groups->op.getWeight()
                           ? groups->getChannelBytes()
                           : 0);
    for (Block block : {third, second, first})
      trace.free(block);
  }
  for (Block block : llvm::reverse(sums))
    trace.free(block);
  steps.free(gradient);
  steps.finish();
}

void cuda::addNormModels(KernelLibrary &library) {
  library.add<GroupNormOp>(
      {describeGroups, saveGroups, describeGroupsBackward});
  library.add<LayerNormOp, RmsNormOp>(
      {describeRows, saveRows, describeRowsBackward});
}
