//===- NestedAttention.cpp - Encoder layers of nested tensors -------------===//
//
// A nested tensor is one buffer with the steps that a mask keeps, and the
// sizes, strides and offsets of its sequences. Data decide how many steps there
// are: all of them are counted, and each size here grows with that. Sources:
// native/nested/NestedTensorMath.cpp, NestedTensorTransformerFunctions.cpp,
// native/transformers/attention.cpp and transformer.cpp.
//
//===----------------------------------------------------------------------===//

#include "../TensorBytes.h"
#include "AttentionLayers.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

static constexpr int64_t kNumber = 8;

namespace {
/// The sequences of one nested tensor where nothing is masked.
class Nested {
public:
  Nested(const ConcreteTensor &padded, int64_t threads)
      : rows(padded.dims[0]), length(padded.dims[1]), width(padded.dims[2]),
        element(getElementBytes(padded.elementType)), threads(threads) {}

  int64_t countElements() const { return rows * length * width; }
  int64_t getBuffer() const { return countElements() * element; }
  /// Two sizes of each sequence, which tensors may share, as many strides, and
  /// where it starts.
  int64_t getSizes() const { return 2 * rows * kNumber; }
  int64_t getPlaces() const { return 3 * rows * kNumber; }
  int64_t getStorage() const { return getBuffer() + getSizes() + getPlaces(); }

  /// A buffer whose rows have another width, as a nested tensor of its own.
  void wrap(AllocationTrace &trace) const {
    trace.allocate(getSizes());
    trace.allocateTemporary(kNumber);
    trace.allocate(getPlaces());
  }
  /// _nested_from_padded, which leaves a buffer and its places. `isPlain` says
  /// that the padded tensor is contiguous.
  void unpad(AllocationTrace &trace, bool isPlain) const {
    int64_t elements = countElements();
    // One mask for each sequence, then one for all.
    trace.allocate(elements);
    trace.allocate(elements);
    trace.allocateTemporary((elements + 1) * kNumber);
    trace.allocate(getBuffer());
    if (!isPlain || threads > 1)
      trace.allocateTemporary(2 * elements * kNumber);
    trace.allocate(getPlaces());
    trace.free(2 * elements);
  }
  void attend(AllocationTrace &trace, int64_t heads) const;
  void normalize(AllocationTrace &trace) const;
  void feedForward(AllocationTrace &trace, int64_t inner) const;

  const int64_t rows, length, width, element, threads;
};
} // namespace

/// Leaves a nested tensor of its own.
void Nested::attend(AllocationTrace &trace, int64_t heads) const {
  int64_t buffer = getBuffer();
  trace.allocate(3 * buffer);
  wrap(trace);
  // Padded one by one, and joined; then each by itself.
  trace.allocate(6 * buffer);
  trace.free(3 * buffer);
  trace.allocate(3 * buffer);
  trace.free(3 * buffer);
  trace.free(3 * buffer + getSizes() + getPlaces());
  // Queries, keys and values are left, with padding.
  int64_t scoresOfRow = heads * length * length * element;
  trace.allocate(rows * scoresOfRow);
  trace.allocate(rows * scoresOfRow);
  trace.allocateTemporary(rows > 0 ? scoresOfRow + element : 0);
  trace.free(2 * rows * scoresOfRow);
  int64_t reordered = heads == 1 || length == 1 ? 0 : buffer;
  trace.allocate(reordered);
  unpad(trace, /*isPlain=*/true);
  trace.free(reordered);
  trace.allocate(buffer);
  wrap(trace);
  trace.free(buffer + getPlaces());
  trace.free(3 * buffer);
}

/// Leaves a buffer and its places: the sizes are shared.
void Nested::normalize(AllocationTrace &trace) const {
  int64_t statistics = 2 * rows * length * element;
  trace.allocate(getBuffer());
  trace.allocate(statistics);
  trace.allocate(getPlaces());
  trace.free(statistics);
}

void Nested::feedForward(AllocationTrace &trace, int64_t inner) const {
  int64_t hidden = rows * length * inner * element;
  trace.allocate(hidden);
  wrap(trace);
  trace.allocate(getBuffer());
  wrap(trace);
  trace.free(hidden + getSizes() + getPlaces());
}

/// The padded sequences of `nested`; none if their shape is unknown.
static std::optional<Nested> getSequences(WorkspaceRule &rule, Value nested) {
  auto padded = rule.tensor(rules::getPadded(nested));
  if (!padded || padded->dims.size() != 3) {
    rule.setInexact("which sequences a nested tensor holds is unknown");
    return std::nullopt;
  }
  if (!padded->elementType.isF32() && !padded->elementType.isF64()) {
    rule.setInexact("a nested tensor of another type than float32 or float64");
    return std::nullopt;
  }
  rule.setBound("how many steps a mask keeps is decided by data; the most "
                "there can be is counted");
  return Nested(*padded, rule.getTarget().threads);
}

/// A node of autograd knows its nested result by the sizes, which it holds as
/// long as it lives: longer than the tensor, which has the same. Source:
/// InputMetadata::shape_ in autograd/input_metadata.cpp.
static bool nodeHoldsSizes(const WorkspaceRule &rule) {
  return llvm::any_of(rule.getOp()->getOperands(), [&](Value operand) {
    return rule.wantsGradient(operand);
  });
}

/// Leaves the nested tensor that `trace` has made.
static void leave(WorkspaceRule &rule, const Nested &nested,
                  const AllocationTrace &trace) {
  int64_t sizes = nodeHoldsSizes(rule) ? nested.getSizes() : 0;
  rule.setTransient(trace.getTransient() + sizes);
  rule.setStorageBytes(rule.getOp()->getResult(0), nested.getStorage() - sizes);
}

void attention::saveNested(SavedRule &rule) {
  koila::detail::describeSaved(rule);
  auto padded = rule.tensor(rules::getPadded(rule.getOp()->getResult(0)));
  if (padded && padded->dims.size() == 3 && nodeHoldsSizes(rule))
    rule.keep(Nested(*padded, rule.getTarget().threads).getSizes());
}

void attention::describeNesting(WorkspaceRule &rule) {
  auto op = cast<NestedTensorFromMaskOp>(rule.getOp());
  auto nested = getSequences(rule, op.getResult());
  auto padded = rule.tensor(op.getT());
  if (!nested)
    return;
  int64_t rows = nested->rows, length = nested->length;
  AllocationTrace trace;
  // Where each mask ends: one column more, as int32.
  trace.allocate(rows);
  trace.allocate(rows * (length + 1));
  trace.allocate(rows * (length + 1) * 4);
  trace.allocate(rows * kNumber);
  trace.free(rows * (length + 1) * 5);
  // How many steps each sequence has.
  int64_t counts = rows * length * kNumber;
  trace.allocate(counts);
  trace.allocateTemporary(counts);
  trace.allocate(rows * kNumber);
  trace.allocate(nested->getSizes());
  trace.free(counts);
  nested->unpad(trace, padded->contiguous);
  trace.free(rows * (1 + 2 * kNumber));
  leave(rule, *nested, trace);
}

void attention::describePadding(WorkspaceRule &rule) {
  auto op = cast<ToPaddedTensorOp>(rule.getOp());
  auto nested = getSequences(rule, op.getSelf());
  auto result = rule.tensor(op.getResult());
  if (!nested || !result)
    return;
  // Each as long as the longest sequence, all of them joined, and padded again
  // to the size.
  AllocationTrace trace;
  trace.allocate(2 * nested->getBuffer());
  trace.allocate(result->numBytes());
  trace.free(2 * nested->getBuffer());
  rule.setTrace(std::move(trace));
}

void attention::describeNestedLayer(WorkspaceRule &rule,
                                    TransformerEncoderLayerFwdOp op) {
  auto nested = getSequences(rule, op.getSrc());
  auto inner = rule.tensor(op.getFfnWeight_1());
  if (!nested || !inner)
    return rule.setInexact("a shape of the layer is unknown");
  // Of a tensor that shares its sizes.
  int64_t buffer = nested->getBuffer() + nested->getPlaces();
  AllocationTrace trace;
  if (op.getNormFirst()) {
    nested->normalize(trace);
    nested->attend(trace, op.getNumHeads());
    trace.free(buffer);
    nested->normalize(trace);
    nested->feedForward(trace, inner->dims[0]);
    trace.free(buffer);
    trace.free(nested->getStorage());
  } else {
    nested->attend(trace, op.getNumHeads());
    nested->normalize(trace);
    trace.free(buffer);
    nested->feedForward(trace, inner->dims[0]);
    nested->normalize(trace);
    trace.free(buffer);
    trace.free(nested->getStorage());
  }
  leave(rule, *nested, trace);
}
