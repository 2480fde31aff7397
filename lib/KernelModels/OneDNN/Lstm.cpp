//===- Lstm.cpp - What an LSTM in oneDNN holds inside ---------------------===//
//
// Sources: native/mkldnn/RNN.cpp; oneDNN's cpu/rnn/rnn_utils.cpp (set_offsets),
// cpu/x64/rnn/rnn_brgemm_utils.cpp for inference and cpu/rnn/ref_rnn.cpp for
// training.
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/AutogradReplay.h"
#include "../ATen/Recurrent/RecurrentLayers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using recurrent::getWorkspaceBytes;
using recurrent::Layers;
using recurrent::padRow;

static constexpr int64_t kGates = 4, kFloatBytes = 4;

/// Rows start at cache lines, but not all at the same place of a page.
/// Source: get_good_ld.
int64_t recurrent::padRow(int64_t elements) {
  constexpr int64_t kLine = 64 / kFloatBytes, kAliased = 256;
  int64_t padded = llvm::alignTo(elements, kLine);
  return padded % kAliased == 0 ? padded + kLine : padded;
}

static constexpr int64_t kPage = 4096, kAlignment = 128, kPointer = 8;

static int64_t addPages(ArrayRef<int64_t> spaces) {
  int64_t bytes = 0;
  for (int64_t space : spaces)
    bytes += llvm::alignTo(space * kFloatBytes, kPage);
  return bytes;
}

/// Pointers to weights of inputs, states and projections, and to the bias,
/// which is booked by the size of its elements. Source: init_scratchpad.
static int64_t getPointerBytes() {
  return 3 * (kPointer + kAlignment) + kPointer * kFloatBytes + kAlignment;
}

/// The scratchpad of one layer in one direction.
static int64_t getScratchpadBytes(const Layers &layers, int64_t features,
                                  int64_t threads) {
  int64_t samples = layers.samples, steps = layers.steps;
  int64_t hidden = layers.hidden;
  // The inputs of all steps of one sample are multiplied at once.
  bool isMerged = samples == 1 && steps > 1;
  // Inputs and states, and cells, of all steps and one before; gates; a state.
  int64_t rows = 2 * (steps + 1) * samples;
  int64_t gates = (isMerged ? steps : 1) * samples;
  int64_t bytes =
      addPages({rows * padRow(std::max(features, hidden)), rows * hidden,
                gates * padRow(kGates * hidden), samples * padRow(hidden)}) +
      kPage + getPointerBytes();
  // Each thread has a batch of matrices; inputs and states share one if they
  // are of the same width.
  constexpr int64_t kBatchElement = 40;
  int64_t matrices = features == hidden && !isMerged ? 4 : 2;
  return bytes + matrices * threads * kBatchElement + kAlignment;
}

/// In training, which brgemm does not take for float32: the gates of `merged`
/// steps, and a state.
static int64_t getTrainingScratchpadBytes(const Layers &layers,
                                          int64_t merged) {
  int64_t state = layers.samples * padRow(layers.hidden);
  return addPages({merged * layers.samples * padRow(kGates * layers.hidden),
                   state, state}) +
         kPage + getPointerBytes();
}

/// The gates of all steps. Source: merge_gemm_iter in rnn_utils.hpp.
int64_t recurrent::getGradientScratchpadBytes(const Layers &layers) {
  return getTrainingScratchpadBytes(layers, layers.steps);
}

/// What the gradient reads: gates and states of all steps; inputs, cells, and
/// room for their gradients, of one step more. Source: set_workspace_sizes.
int64_t recurrent::getWorkspaceBytes(const Layers &layers, int64_t features) {
  int64_t rows = layers.steps * layers.samples;
  int64_t more = 2 * (layers.steps + 1) * layers.samples;
  int64_t states = more * padRow(std::max(features, layers.hidden));
  int64_t cells = more * layers.hidden;
  return addPages({rows * padRow(kGates * layers.hidden),
                   rows * padRow(layers.hidden), states, cells, states, states,
                   cells});
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

namespace {
/// Runs the layers of one call.
class OneDnn {
public:
  OneDnn(WorkspaceRule &rule, SavedRule *saved, const Layers &layers,
         int64_t block)
      : rule(rule), steps(rule, saved), layers(layers), block(block) {}

  void run(int64_t copies);

private:
  Term allocate(int64_t vectors, int64_t width) {
    return steps.allocate({{vectors, width}, layers.type});
  }
  /// The bytes of a weight in the layout of the kernel.
  int64_t getWeightBytes(const ConcreteTensor &weight) const;
  Term runLayer(const Term &input, int64_t layer, int64_t direction);

  WorkspaceRule &rule;
  AutogradReplay steps;
  const Layers &layers;
  int64_t block;
  SmallVector<Term, 2> given;
  SmallVector<Term> states, cells;
};
} // namespace

int64_t OneDnn::getWeightBytes(const ConcreteTensor &weight) const {
  int64_t width = weight.dims.back();
  if (!rule.isRecording())
    return width * kGates * llvm::alignTo(layers.hidden, block) * kFloatBytes;
  // A single column is in both orders at once. Source: set_good_strides.
  return width == 1 ? 0 : width * padRow(kGates * layers.hidden) * kFloatBytes;
}

/// mkldnn_rnn_layer, which autograd records as a whole.
Term OneDnn::runLayer(const Term &input, int64_t layer, int64_t direction) {
  auto params = layers.getParams(layer * layers.getDirections() + direction);
  SmallVector<Term> read{input};
  read.append(given);
  // The sum of the biases, or zeros.
  int64_t inside = kGates * layers.hidden * kFloatBytes;
  SmallVector<Term> zeros;
  for (Value param : params)
    read.push_back(steps.read(param));
  for (Value weight : params.take_front(2)) {
    auto tensor = rule.tensor(weight);
    inside += getCopyBytes(*tensor) + getWeightBytes(*tensor);
    if (!layers.facts.biases)
      zeros.push_back(steps.allocate(*tensor));
  }
  Term output = allocate(layers.steps * layers.samples, layers.hidden);
  Term state = allocate(layers.samples, layers.hidden);
  Term cell = allocate(layers.samples, layers.hidden);
  int64_t features = layers.getFeatures(layer);
  if (rule.isRecording()) {
    IntegerType byte =
        IntegerType::get(layers.type.getContext(), 8, IntegerType::Unsigned);
    zeros.push_back(
        steps.allocate({{getWorkspaceBytes(layers, features)}, byte}));
    // Source: merge_gemm_layer in rnn_utils.hpp.
    constexpr int64_t kManySamples = 128;
    inside += getTrainingScratchpadBytes(
        layers, layers.samples < kManySamples ? layers.steps : 1);
  } else {
    inside += getScratchpadBytes(layers, features, rule.getTarget().threads);
  }
  steps.allocateTemporary(inside);
  for (const Term &made : {output, state, cell})
    steps.follow(read, made);
  // Source: mkldnn_rnn_layer in derivatives.yaml.
  if (steps.wants(output)) {
    read.append(zeros);
    read.append({output, state, cell});
    llvm::for_each(read, [&](const Term &term) { steps.save(term); });
  }
  steps.free(zeros);
  states.push_back(state);
  cells.push_back(cell);
  return output;
}

void OneDnn::run(int64_t copies) {
  int64_t directions = layers.getDirections();
  Term input = steps.read(layers.facts.input);
  for (Value state : layers.facts.hidden)
    given.push_back(steps.read(state));
  auto copy = [&](Term &term) {
    Term rows = steps.allocate(term);
    steps.follow(term, rows);
    term = rows;
  };
  for (Term &state : given)
    if (!state.contiguous) {
      copies -= state.numBytes();
      copy(state);
    }
  if (copies > 0)
    copy(input);
  SmallVector<Term, 2> outputs;
  for (int64_t layer = 0; layer < layers.facts.layers; ++layer) {
    SmallVector<Term, 2> before = outputs;
    outputs.clear();
    for (int64_t direction = 0; direction < directions; ++direction) {
      outputs.push_back(runLayer(input, layer, direction));
      // In two directions those of the last layer have been joined; or what a
      // dropout made of them was read.
      if (layer > 0 && (directions == 2 || layers.drops))
        steps.free(before[direction]);
    }
    Term next = outputs.front();
    if (directions == 2) {
      next = allocate(layers.steps * layers.samples, 2 * layers.hidden);
      steps.follow(outputs, next);
    }
    if (layer > 0)
      steps.free(input);
    input = next;
    if (layers.drops && layer + 1 < layers.facts.layers) {
      input = recurrent::drop(steps, next);
      if (directions == 2)
        steps.free(next);
    }
  }
  // The states of all cells are stacked.
  Term state = allocate(layers.getCells() * layers.samples, layers.hidden);
  Term cell = allocate(layers.getCells() * layers.samples, layers.hidden);
  steps.finish({input, state, cell});
  // Blocks of the same bytes are not told apart here.
  rule.setTransient(rule.getTransient());
}

void recurrent::describeOneDnn(WorkspaceRule &rule, SavedRule *saved,
                               const Layers &layers) {
  // What is trained does not depend on the instruction set.
  auto block = getWeightBlock(rule, layers);
  if (!block && !rule.isRecording())
    return rule.setInexact("an LSTM in oneDNN on an unknown instruction set");
  if (rule.isRecording() && layers.facts.batchSizes)
    return rule.setInexact("what autograd keeps of packed sequences");
  auto copies = getInputBytes(rule, layers);
  if (!copies)
    return rule.setInexact("strided sequences of an LSTM in oneDNN");
  for (Value state : layers.facts.hidden) {
    auto tensor = rule.tensor(state);
    if (!tensor || (!tensor->contiguous && !tensor->strides))
      return rule.setInexact("the strides of a state are unknown");
  }
  for (Value param : layers.facts.params) {
    auto tensor = rule.tensor(param);
    if (!tensor || tensor->dims.empty())
      return rule.setInexact("the shape of a weight is unknown");
  }
  OneDnn(rule, saved, layers, block.value_or(1)).run(*copies);
}
