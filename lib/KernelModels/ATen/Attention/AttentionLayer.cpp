//===- AttentionLayer.cpp - What fused layers hold inside -----------------===//
//
// The fast path that nn.MultiheadAttention and nn.TransformerEncoderLayer take
// without a gradient. Sources: native/transformers/attention.cpp
// (native_multi_head_attention_cpu), native/transformers/transformer.cpp
// (transformer_encoder_layer_forward).
//
//===----------------------------------------------------------------------===//

#include "../TensorBytes.h"
#include "AttentionLayers.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

namespace {
/// What the sequences of one call need; bytes.
struct SequenceBytes {
  /// One vector for each step, and a score for each pair and head.
  int64_t steps, scores;
  /// What orders the results of the heads by step.
  int64_t reordered;
  /// The mask as bool, if there is one.
  std::optional<int64_t> mask;
};
} // namespace

static std::optional<SequenceBytes>
getSequences(WorkspaceRule &rule, Value query, Value mask, int64_t heads) {
  auto steps = rule.tensor(query);
  auto hidden = rule.tensor(mask);
  if (!steps || steps->dims.size() != 3 || (mask && !hidden)) {
    rule.setInexact("a shape of attention is unknown");
    return std::nullopt;
  }
  if (!steps->elementType.isF32() && !steps->elementType.isF64()) {
    rule.setInexact("attention of another type than float32 or float64");
    return std::nullopt;
  }
  int64_t length = steps->dims[1];
  SequenceBytes bytes{steps->numBytes(),
                      steps->dims[0] * heads * length * length *
                          getElementBytes(steps->elementType),
                      heads == 1 || length == 1 ? 0 : steps->numBytes(),
                      std::nullopt};
  if (mask)
    bytes.mask = getCastBytes(
        *hidden, IntegerType::get(steps->elementType.getContext(), 1));
  return bytes;
}

/// Self-attention, which leaves one vector for each step; `keepScores` says
/// that it leaves the scores, too.
static void attend(AllocationTrace &trace, const SequenceBytes &bytes,
                   bool keepScores) {
  // One projection for queries, keys and values; then each by itself.
  trace.allocate(3 * bytes.steps);
  trace.allocate(3 * bytes.steps);
  trace.free(3 * bytes.steps);
  trace.allocate(bytes.scores);
  // Under a mask the softmax is not in place.
  if (bytes.mask)
    trace.allocateTemporary(*bytes.mask + bytes.scores);
  // The product with the values is written over the queries.
  if (!keepScores)
    trace.free(bytes.scores);
  trace.allocate(bytes.reordered);
  trace.allocate(bytes.steps);
  trace.free(bytes.reordered);
  trace.free(3 * bytes.steps);
}

void attention::describeMultiHead(WorkspaceRule &rule) {
  auto op = cast<NativeMultiHeadAttentionOp>(rule.getOp());
  if (op.getQuery() != op.getKey() || op.getKey() != op.getValue())
    return rule.setInexact("attention to another sequence");
  auto bytes = getSequences(rule, op.getQuery(), op.getMask(), op.getNumHead());
  auto weights = rule.tensor(op.getWeights());
  if (!bytes || (op.getNeedWeights() && !weights))
    return;
  AllocationTrace trace;
  attend(trace, *bytes, op.getNeedWeights());
  int64_t projections = 3 * bytes->steps;
  if (op.getNeedWeights() && op.getAverageAttnWeights()) {
    // The mean over the heads, while the projections are alive.
    trace.allocate(projections);
    trace.allocate(weights->numBytes());
    trace.free(bytes->scores);
    trace.allocateTemporary(getIntegerBytes(weights->elementType));
    trace.free(projections);
  }
  // The order of its blocks is not known.
  rule.setTransient(trace.getTransient());
}

void attention::describeEncoder(WorkspaceRule &rule) {
  auto op = cast<TransformerEncoderLayerFwdOp>(rule.getOp());
  if (rules::getPadded(op.getSrc()))
    return describeNestedLayer(rule, op);
  auto bytes = getSequences(rule, op.getSrc(), op.getMask(), op.getNumHeads());
  auto inner = rule.tensor(op.getFfnWeight_1());
  auto steps = rule.tensor(op.getSrc());
  if (!bytes || !inner)
    return rule.setInexact("a shape of the layer is unknown");
  int64_t rows = steps->dims[0] * steps->dims[1];
  int64_t size = getElementBytes(steps->elementType);
  int64_t hidden = rows * inner->dims[0] * size, statistics = 2 * rows * size;
  AllocationTrace trace;
  auto normalize = [&] {
    trace.allocate(bytes->steps);
    trace.allocateTemporary(statistics);
  };
  auto feedForward = [&] {
    trace.allocate(hidden);
    trace.allocate(bytes->steps);
    trace.free(hidden);
  };
  if (op.getNormFirst()) {
    normalize();
    attend(trace, *bytes, false);
    trace.free(bytes->steps);
    normalize();
    feedForward();
    trace.free(2 * bytes->steps);
  } else {
    attend(trace, *bytes, false);
    normalize();
    trace.free(bytes->steps);
    feedForward();
    normalize();
    trace.free(2 * bytes->steps);
  }
  // The order of its blocks is not known.
  rule.setTransient(trace.getTransient());
}
