//===- Embedding.cpp - What embedding_bag holds inside --------------------===//
//
// Source: native/EmbeddingBag.cpp. Beside the rows it returns the bag of each
// index, the sizes of the bags and the indices of maxima: storages that are as
// large as they ever were, whatever is read of them.
//
//===----------------------------------------------------------------------===//

#include "Embedding.h"
#include "../ATenCPU/GemmOperandCopies.h"
#include "../WorkspaceRules.h"
#include "Backward/BackwardReplay.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

namespace {
/// One call in numbers.
struct Bags {
  enum Mode { Sum, Mean, Max };
  int64_t mode, indices, offsets, bags, columns;
  Type type, indexType;
  /// A sum of rows that are read in place asks for no bag of an index.
  bool isFast;
  /// weight.requires_grad(), which is asked without autograd, too.
  bool isTrained;

  bool hasMaxima() const { return mode == Max; }
  int64_t countIndices(int64_t count) const {
    return count * getElementBytes(indexType);
  }
  int64_t getMaximaBytes() const {
    if (mode == Max)
      return countIndices(bags * columns);
    return countIndices(mode == Sum && !isTrained ? offsets : bags);
  }
  int64_t getPlaceBytes() const {
    return isFast ? 0 : countIndices(indices + 1);
  }
  int64_t getRowBytes() const { return bags * columns * getElementBytes(type); }
};
} // namespace

template <typename OpT>
static std::optional<Bags> getBags(WorkspaceRule &rule, OpT op,
                                   bool hasPadding) {
  auto weight = rule.tensor(op.getWeight());
  auto indices = rule.tensor(op.getIndices());
  auto offsets = rule.tensor(op.getOffsets());
  auto factor = blas::getFactor(rule, op.getWeight());
  if (!weight || !indices || !offsets || !factor || weight->dims.size() != 2 ||
      offsets->dims.size() != 1) {
    rule.setInexact("a shape of embedding_bag is unknown");
    return std::nullopt;
  }
  for (Value operand : op->getOperands())
    if (auto tensor = rule.tensor(operand); !tensor || !tensor->contiguous) {
      rule.setInexact("strided operands of embedding_bag");
      return std::nullopt;
    }
  int64_t count = offsets->dims[0];
  Bags bags{static_cast<int64_t>(op.getMode()),
            indices->numElements(),
            count,
            count - (op.getIncludeLastOffset() ? 1 : 0),
            weight->dims[1],
            weight->elementType,
            indices->elementType,
            /*isFast=*/false,
            factor->isTrained};
  // Source: is_fast_path.
  bags.isFast = bags.mode == Bags::Sum && bags.type.isF32() && !hasPadding;
  if (!bags.type.isF32() && !bags.type.isF64())
    rule.setInexact("embedding_bag of a half type");
  else if (indices->elementType != offsets->elementType)
    rule.setInexact("embedding_bag of two types of indices");
  else if (indices->dims.size() != 1)
    rule.setInexact("embedding_bag of indices in two dims");
  else if (bags.indices == 0 || bags.bags < 1 || bags.columns == 0)
    rule.setInexact("embedding_bag of nothing");
  return rule.isExact() ? std::optional(bags) : std::nullopt;
}

/// make_offset2bag: ones at `offsets`, less one, summed up.
static AllocationTrace::Block makePlaces(AllocationTrace &steps, const Bags &of,
                                         int64_t offsets) {
  int64_t bytes = of.countIndices(of.indices + 1);
  AllocationTrace::Block marks = steps.allocate(bytes);
  steps.allocateTemporary(of.countIndices(offsets));
  allocateInteger(steps, of.indexType);
  AllocationTrace::Block places = steps.allocate(bytes);
  steps.free(marks);
  return places;
}

static void describe(WorkspaceRule &rule, const Bags &of) {
  int64_t number = getElementBytes(of.indexType);
  AllocationTrace steps;
  steps.allocate(of.getRowBytes());
  if (!of.isFast)
    makePlaces(steps, of, of.bags);
  // make_bag_size: differences, and the last one.
  steps.allocate(of.countIndices(of.offsets));
  if (of.isTrained || of.mode != Bags::Sum) {
    steps.allocateTemporary(of.countIndices(of.bags - 1));
    steps.allocateTemporary(number);
  }
  // make_max_indices: like the sizes, then as large as the rows.
  AllocationTrace::Block small;
  if (of.mode == Bags::Max && of.columns > 1)
    small = steps.allocate(of.countIndices(of.bags));
  steps.allocate(of.getMaximaBytes());
  steps.free(small);
  // apply_bag_size: ones, the larger of both, and that as a divisor.
  if (of.mode == Bags::Mean) {
    AllocationTrace::Block ones = steps.allocate(of.countIndices(of.bags));
    AllocationTrace::Block larger = steps.allocate(of.countIndices(of.bags));
    AllocationTrace::Block divisor =
        steps.allocate(of.bags * getElementBytes(of.type));
    for (AllocationTrace::Block block : {larger, ones, divisor})
      steps.free(block);
  }
  rule.setTrace(std::move(steps));
  Operation *op = rule.getOp();
  rule.setStorageBytes(op->getResult(1), of.getPlaceBytes());
  rule.setStorageBytes(op->getResult(2), of.countIndices(of.offsets));
  rule.setStorageBytes(op->getResult(3), of.getMaximaBytes());
}

void indexing::describeBagMemory(WorkspaceRule &rule) {
  auto run = [&](auto op, bool hasPadding) {
    if (auto bags = getBags(rule, op, hasPadding))
      describe(rule, *bags);
  };
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<EmbeddingBagOp>([&](auto op) { run(op, false); })
      .Case<EmbeddingBagPaddingOp>(
          [&](auto op) { run(op, op.getPaddingIdx().has_value()); });
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// The indices in their order, and the bags and the weights of each.
/// Source: _embedding_bag_dense_backward_cpu_sum_mean, with _fill_indices in
/// native/Sorting.cpp.
static void sortIndices(BackwardReplay &steps, const Bags &of,
                        bool isWeighted) {
  constexpr int64_t kPlaceBytes = 8;
  int64_t places = of.indices * kPlaceBytes;
  int64_t indices = of.countIndices(of.indices);
  int64_t weights = isWeighted ? of.indices * getElementBytes(of.type) : 0;
  AllocationTrace &trace = steps;
  AllocationTrace::Block sorted = trace.allocate(indices);
  AllocationTrace::Block order = trace.allocate(places);
  trace.allocateTemporary(places);
  AllocationTrace::Block bags = trace.allocate(indices);
  trace.allocateTemporary(weights);
  for (AllocationTrace::Block block : {bags, sorted, order})
    trace.free(block);
}

/// The maxima of bags that are not empty, and their gradients, column by
/// column. Source: _embedding_bag_dense_backward_cpu_max.
static void addMaxima(BackwardReplay &steps, const Bags &of) {
  constexpr int64_t kPlaceBytes = 8;
  int64_t filled = of.bags * kPlaceBytes;
  steps.AllocationTrace::allocate(filled);
  steps.AllocationTrace::allocate(of.getMaximaBytes());
  steps.AllocationTrace::free(filled);
  steps.AllocationTrace::allocate(filled);
  steps.AllocationTrace::allocate(of.getRowBytes());
  steps.AllocationTrace::free(filled);
  steps.allocateTemporary(of.columns > 1 ? of.countIndices(of.bags) : 0);
  steps.AllocationTrace::free(of.getMaximaBytes() + of.getRowBytes());
}

void indexing::describeBagBackward(BackwardRule &rule) {
  auto run = [&](auto op, bool hasPadding) {
    constexpr unsigned kWeights = 3;
    bool isWeighted = static_cast<bool>(op.getPerSampleWeights());
    if (isWeighted && rule.wantsOperand(kWeights))
      return koila::detail::describeUnknownBackward(rule);
    auto of = getBags(rule, op, hasPadding);
    if (!of)
      return;
    BackwardReplay steps(rule);
    AllocationTrace::Block places;
    if (of->isFast)
      places = makePlaces(steps, *of, of->offsets);
    steps.contiguous(steps.getGradient());
    steps.giveContiguous(0);
    if (of->hasMaxima()) {
      addMaxima(steps, *of);
      rule.setBound("how many bags are empty is decided by data");
    } else {
      sortIndices(steps, *of, isWeighted);
    }
    steps.freeContiguous(steps.getGradient());
    steps.AllocationTrace::free(places);
    steps.finish();
  };
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<EmbeddingBagOp>([&](auto op) { run(op, false); })
      .Case<EmbeddingBagPaddingOp>(
          [&](auto op) { run(op, op.getPaddingIdx().has_value()); });
}
