//===- RulesLstmMemory.cpp - What an LSTM in oneDNN holds inside ----------===//
//
// Sources: native/mkldnn/RNN.cpp; oneDNN's cpu/rnn/rnn_utils.cpp (set_offsets)
// and cpu/x64/rnn/rnn_brgemm_utils.cpp, for inference.
//
//===----------------------------------------------------------------------===//

#include "Footprint.h"
#include "RecurrentLayers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;
using recurrent::Layers;

static constexpr int64_t kGates = 4, kFloatBytes = 4;

/// Rows start at cache lines, but not all at the same place of a page.
/// Source: get_good_ld.
static int64_t padRow(int64_t elements) {
  constexpr int64_t kLine = 64 / kFloatBytes, kAliased = 256;
  int64_t padded = llvm::alignTo(elements, kLine);
  return padded % kAliased == 0 ? padded + kLine : padded;
}

/// The scratchpad of one layer in one direction.
static int64_t getScratchpadBytes(const Layers &layers, int64_t features,
                                  int64_t threads) {
  constexpr int64_t kPage = 4096, kAlignment = 128, kPointer = 8;
  int64_t samples = layers.samples, steps = layers.steps;
  int64_t hidden = layers.hidden;
  // The inputs of all steps of one sample are multiplied at once.
  bool isMerged = samples == 1 && steps > 1;
  // Inputs and states, and cells, of all steps and one before; gates; a state.
  int64_t rows = 2 * (steps + 1) * samples, bytes = 0;
  int64_t gates = (isMerged ? steps : 1) * samples;
  for (int64_t space : {rows * padRow(std::max(features, hidden)),
                        rows * hidden, gates * padRow(kGates * hidden),
                        samples * padRow(hidden)})
    bytes += llvm::alignTo(space * kFloatBytes, kPage);
  bytes += kPage;
  // Pointers to weights of inputs, states and projections, and to the bias,
  // which is booked by the size of its elements.
  bytes += 3 * (kPointer + kAlignment) + kPointer * kFloatBytes + kAlignment;
  // Each thread has a batch of matrices; inputs and states share one if they
  // are of the same width.
  constexpr int64_t kBatchElement = 40;
  int64_t matrices = features == hidden && !isMerged ? 4 : 2;
  return bytes + matrices * threads * kBatchElement + kAlignment;
}

namespace {
/// One layer in one direction; bytes.
struct LayerBytes {
  int64_t outputs, state, inside;
};
} // namespace

/// None if a weight is not known.
static std::optional<LayerBytes> getLayer(const WorkspaceRule &rule,
                                          const Layers &layers, int64_t layer,
                                          int64_t direction, int64_t block) {
  int64_t features = layers.getFeatures(layer);
  int64_t blocked = kGates * llvm::alignTo(layers.hidden, block);
  // The sum of the biases, or zeros.
  int64_t inside = kGates * layers.hidden * kFloatBytes;
  auto params = layers.getParams(layer * layers.getDirections() + direction);
  for (Value weight : params.take_front(2)) {
    auto tensor = rule.tensor(weight);
    if (!tensor)
      return std::nullopt;
    inside += getCopyBytes(*tensor) + tensor->dims.back() * blocked *
                                          kFloatBytes;
    // Zeros, of which nothing is read.
    if (!layers.facts.biases)
      inside += tensor->numBytes();
  }
  inside += getScratchpadBytes(layers, features, rule.getTarget().threads);
  return LayerBytes{
      layers.getBytes(layers.steps * layers.samples, layers.hidden),
      layers.getBytes(layers.samples, layers.hidden), inside};
}

/// What is copied before the first layer: sequences whose first dim is not
/// time, and strided states. None if that is not known.
static std::optional<int64_t> getInputBytes(const WorkspaceRule &rule,
                                            const Layers &layers) {
  int64_t bytes = 0;
  for (Value state : layers.facts.hidden) {
    auto tensor = rule.tensor(state);
    if (!tensor)
      return std::nullopt;
    bytes += getCopyBytes(*tensor);
  }
  auto input = rule.tensor(layers.facts.input);
  auto strides = input ? input->getStrides() : std::nullopt;
  if (!strides)
    return std::nullopt;
  // A packed sequence of samples that all have all steps is viewed as a dense
  // one; where that copies is not known.
  if (layers.facts.batchSizes)
    return input->contiguous ? std::optional(bytes) : std::nullopt;
  SmallVector<int64_t> order{0, 1, 2};
  if (layers.facts.batchFirst)
    std::swap(order[0], order[1]);
  int64_t expected = 1;
  for (int64_t dim : llvm::reverse(order)) {
    if (input->dims[dim] != 1 && (*strides)[dim] != expected)
      return bytes + input->numBytes();
    expected *= input->dims[dim];
  }
  return bytes;
}

/// The columns that a block of a weight has; none for instruction sets of which
/// nothing is known. Source: brgemm_calc_n_block.
static std::optional<int64_t> getWeightBlock(const WorkspaceRule &rule,
                                             const Layers &layers) {
  StringRef isa = rule.getTarget().isa;
  if (isa.starts_with("avx512_core"))
    return 32;
  if (isa.starts_with("avx2"))
    return layers.samples == 1 ? 32 : 16;
  return std::nullopt;
}

void recurrent::describeOneDnn(WorkspaceRule &rule, const Layers &layers) {
  auto block = getWeightBlock(rule, layers);
  if (!block)
    return rule.setInexact("an LSTM in oneDNN on an unknown instruction set");
  auto copies = getInputBytes(rule, layers);
  if (!copies)
    return rule.setInexact("strided sequences of an LSTM in oneDNN");
  int64_t directions = layers.getDirections();
  Footprint footprint;
  footprint.allocate(*copies);
  for (int64_t layer = 0; layer < layers.facts.layers; ++layer) {
    int64_t outputs = 0;
    for (int64_t direction = 0; direction < directions; ++direction) {
      auto bytes = getLayer(rule, layers, layer, direction, *block);
      if (!bytes)
        return rule.setInexact("the shape of a weight is unknown");
      outputs = bytes->outputs;
      // Two states: the hidden one, and the cell.
      footprint.allocate(outputs);
      footprint.allocate(bytes->state);
      footprint.allocate(bytes->state);
      footprint.pass(bytes->inside);
      // In two directions those of the last layer have been joined.
      if (layer > 0 && directions == 2)
        footprint.free(outputs);
    }
    if (directions == 2)
      footprint.allocate(layers.getBytes(layers.steps * layers.samples,
                                         2 * layers.hidden));
    if (layer > 0)
      footprint.free(layers.getBytes(layers.steps * layers.samples,
                                     directions * layers.hidden));
  }
  // The states of all cells are stacked.
  int64_t states = layers.getBytes(layers.getCells() * layers.samples,
                                   layers.hidden);
  footprint.allocate(states);
  footprint.allocate(states);
  footprint.free(states);
  footprint.free(states);
  if (directions == 2)
    footprint.free(layers.getBytes(layers.steps * layers.samples,
                                   2 * layers.hidden));
  footprint.free(*copies);
  rule.setTransient(footprint.getTransient());
}
