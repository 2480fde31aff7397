//===- Index.cpp - What indexing allocates on a GPU -----------------------===//
//
// Sources: native/cuda/Indexing.cu, native/cuda/Embedding.cu,
// native/cuda/EmbeddingBackwardKernel.cu. Of what cub asks for only a bound is
// known: buffers for what is sorted, and its counts.
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/BackwardReplay.h"
#include "../ATen/TensorBytes.h"
#include "CUDAModels.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using MadeBlock = AllocationTrace::Block;

/// Scratch of a sort of pairs of int64: what is sorted once more, and counts.
static int64_t boundSortBytes(WorkspaceRule &rule, int64_t pairs) {
  constexpr int64_t kCountBytes = 1 << 20;
  rule.setBound("the scratch of cub for a sort");
  return 2 * pairs * int64_t(sizeof(int64_t)) + kCountBytes;
}

/// Scratch of a scan.
static int64_t boundScanBytes() { return 8 << 10; }

static void describeEmbedding(WorkspaceRule &rule) {
  auto op = cast<EmbeddingOp>(rule.getOp());
  auto index = rule.tensor(op.getIndices());
  auto result = rule.tensor(op.getResult());
  if (!index || !result)
    return rule.setInexact("a shape of the operator is unknown");
  AllocationTrace trace;
  MadeBlock copy = trace.allocate(getCopyBytes(*index));
  trace.allocate(result->numBytes());
  trace.free(copy);
  rule.setTrace(std::move(trace), result->numBytes());
}

/// Of few rows zeros, to which a kernel adds; of many they are sorted first,
/// and sums of segments are made. Source: embedding_dense_backward_cuda.
static void describeEmbeddingBackward(BackwardRule &rule) {
  auto op = cast<EmbeddingOp>(rule.getOp());
  auto index = rule.tensor(op.getIndices());
  auto weight = rule.tensor(op.getWeight());
  if (!index || !weight || !rule.getGradient() || weight->dims.size() != 2)
    return koila::detail::describeUnknownBackward(rule);
  constexpr int64_t kFew = 3072, kRowsPerPart = 10;
  constexpr int64_t kPlace = sizeof(int64_t), kSum = sizeof(float);
  int64_t rows = index->numElements();
  BackwardReplay steps(rule);
  AllocationTrace &trace = steps;
  MadeTensor gradient = steps.contiguous(steps.getGradient());
  auto position = op.getWeight() == op->getOperand(0) ? 0u : 1u;
  if (rows <= kFew) {
    steps.giveContiguous(position);
    steps.free(gradient);
    return steps.finish();
  }
  int64_t places = rows * kPlace;
  MadeBlock sorted = trace.allocate(places), origin = trace.allocate(places);
  MadeBlock range = trace.allocate(places);
  trace.allocateTemporary(boundSortBytes(rule, rows));
  trace.free(range);
  steps.giveContiguous(position);
  MadeBlock offsets = trace.allocate(places);
  MadeBlock count = trace.allocate(kPlace);
  MadeBlock keys = trace.allocate(places);
  trace.allocateTemporary(boundScanBytes());
  trace.free(keys);
  int64_t segments = std::min(rows, weight->dims[0]);
  int64_t parts = rows / kRowsPerPart + segments;
  MadeBlock perSegment = trace.allocate(segments * kPlace);
  MadeBlock partOffsets = trace.allocate(segments * kPlace);
  trace.allocateTemporary(boundScanBytes());
  MadeBlock partCount = trace.allocate(kPlace);
  MadeBlock partPlaces = trace.allocate(parts * kPlace);
  trace.allocateTemporary(parts * weight->dims[1] * kSum);
  for (MadeBlock block : {partPlaces, partCount, partOffsets, perSegment, count,
                          offsets, origin, sorted})
    trace.free(block);
  steps.free(gradient);
  steps.finish();
}

/// Rows that one index names.
static bool isByOneIndex(Operation *op) { return op->getNumOperands() == 2; }

static void describeIndex(WorkspaceRule &rule) {
  auto index = isByOneIndex(rule.getOp())
                   ? rule.tensor(rule.getOp()->getOperand(1))
                   : std::nullopt;
  if (!index || index->elementType.isInteger(1) ||
      index->elementType.isInteger(8))
    rule.setInexact("an index of several tensors, or a mask, on CUDA");
}

/// Zeros, and the rows sorted by where they go. Source:
/// index_put_with_sort_kernel.
static void describeIndexBackward(BackwardRule &rule) {
  auto index = isByOneIndex(rule.getOp())
                   ? rule.tensor(rule.getOp()->getOperand(1))
                   : std::nullopt;
  if (!index || !index->elementType.isInteger(64) || !rule.getGradient())
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  AllocationTrace &trace = steps;
  steps.giveContiguous(0);
  int64_t rows = index->numElements(), places = index->numBytes();
  MadeBlock wrapped = trace.allocate(places);
  MadeBlock linear = trace.allocate(places);
  trace.free(wrapped);
  MadeTensor gradient = steps.contiguous(steps.getGradient());
  MadeBlock sorted = trace.allocate(places), origin = trace.allocate(places);
  MadeBlock range = trace.allocate(places);
  trace.allocateTemporary(boundSortBytes(rule, rows));
  for (MadeBlock block : {range, origin, sorted, gradient.block, linear})
    trace.free(block);
  steps.finish();
}

void cuda::addIndexModels(KernelLibrary &library) {
  library.add<EmbeddingOp>(
      {.forward = describeEmbedding, .backward = describeEmbeddingBackward});
  library.add<IndexHackedTwinOp, IndexTensorOp>(
      {.forward = describeIndex, .backward = describeIndexBackward});
  // A kernel adds to zeros.
  library.add<GatherOp, IndexSelectOp>(
      {.forward = kernels::allocateNothing, .backward = giveNew});
}
