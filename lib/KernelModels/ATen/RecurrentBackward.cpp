//===- RecurrentBackward.cpp - Gradients of recurrent layers --------------===//
//
// Those of an LSTM that oneDNN runs: a node for each layer in each direction,
// the last made first. Sources: mkldnn_rnn and mkldnn_rnn_layer_backward in
// native/mkldnn/RNN.cpp; lstm_backward in ideep, which hands weights to oneDNN
// in its own rows and gets their gradients in others. Of layers whose cells
// are expressions, at most what all steps together make. Source: FullLayer in
// native/RNN.cpp.
//
//===----------------------------------------------------------------------===//

#include "../BackwardRules.h"
#include "BackwardReplay.h"
#include "RecurrentLayers.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using recurrent::Layers;
using recurrent::padRow;

static constexpr int64_t kGates = 4, kFloatBytes = 4;
/// Operands before the weights: the sequence, states and cells.
static constexpr unsigned kHidden = 1, kCells = 2, kParams = 3;

/// Each is a tensor of its own, or a view of one where time is the second dim.
static void giveGradients(BackwardRule &rule, const Layers &layers) {
  for (auto [index, value] : llvm::enumerate(rule.getOp()->getOperands())) {
    if (!rule.wantsOperand(index))
      continue;
    ConcreteTensor made = *rule.tensor(value);
    made.contiguous = true;
    made.strides.reset();
    bool isViewed = index == 0 && layers.facts.batchFirst;
    if (isViewed) {
      std::swap(made.dims[0], made.dims[1]);
      made = transposeDims(made, 0, 1);
    }
    rule.setNew(index, made, isViewed);
  }
}

namespace {
/// The backward pass of one call.
class LstmBackward {
public:
  LstmBackward(BackwardRule &rule, const Layers &layers)
      : rule(rule), steps(rule), layers(layers),
        state(count(layers.samples, layers.hidden)),
        outputs(count(layers.steps * layers.samples, layers.hidden)) {}

  void run();

private:
  static int64_t count(int64_t vectors, int64_t width) {
    return vectors * width * kFloatBytes;
  }
  void allocate(int64_t bytes) { steps.AllocationTrace::allocate(bytes); }
  void free(int64_t bytes) { steps.AllocationTrace::free(bytes); }
  /// A gradient of a result that is read in rows: a copy, or zeros.
  int64_t getRowBytes(unsigned result, int64_t bytes) const;
  void runNode(int64_t layer, int64_t direction, int64_t copied);
  void selectState(unsigned operand, bool isFirst);

  BackwardRule &rule;
  BackwardReplay steps;
  const Layers &layers;
  /// Of one step, and of all.
  int64_t state, outputs;
};
} // namespace

/// Whether state and cell are of one storage: then the cell is copied.
static bool sharesState(const Layers &layers) {
  auto findBase = [](Value value) {
    while (auto fact = getStorageFact(value)) {
      if (fact->kind != StorageFact::Kind::Alias || !fact->operand)
        break;
      value = fact->operand;
    }
    return value;
  };
  return findBase(layers.facts.hidden.front()) ==
         findBase(layers.facts.hidden.back());
}

int64_t LstmBackward::getRowBytes(unsigned result, int64_t bytes) const {
  const ConcreteTensor *gradient = rule.getGradient(result);
  return gradient && gradient->contiguous ? 0 : bytes;
}

/// The gradient of one layer in one direction is left: of its input, and of the
/// weights that have no gradient yet. `copied` is what the gradient of its
/// outputs takes in rows.
void LstmBackward::runNode(int64_t layer, int64_t direction, int64_t copied) {
  int64_t cell = layer * layers.getDirections() + direction;
  int64_t features = layers.getFeatures(layer), hidden = layers.hidden;
  int64_t bias = count(1, kGates * hidden);
  int64_t input = count(layers.steps * layers.samples, features);
  int64_t weights = count(kGates * hidden, features + hidden);
  int64_t before =
      copied + getRowBytes(1, state) + getRowBytes(2, state) + bias;
  for (Value weight : layers.getParams(cell).take_front(2))
    before += getCopyBytes(*rule.tensor(weight));
  if (sharesState(layers))
    before += state;
  allocate(before);
  allocate(input + 2 * state + weights + bias);
  auto pad = [&](int64_t width) {
    return padRow(width) == width ? 0 : count(kGates * hidden, padRow(width));
  };
  steps.allocateTemporary(pad(features) + pad(hidden) +
                          count(features + hidden, padRow(kGates * hidden)) +
                          bias + recurrent::getGradientScratchpadBytes(layers));
  // The biases have one gradient each.
  allocate(bias);
  free(before);
  // What the node has saved: the workspace, the last state and cell.
  free(recurrent::getWorkspaceBytes(layers, features) + 2 * state);
  int64_t each = layers.getParams(0).size();
  int64_t made[] = {count(kGates * hidden, features),
                    count(kGates * hidden, hidden), bias, bias};
  for (auto [index, bytes] : llvm::enumerate(made)) {
    unsigned operand = kParams + cell * each + index;
    bool isKept = static_cast<int64_t>(index) < each &&
                  rule.wantsOperand(operand) && !rule.isAccumulated(operand);
    if (!isKept)
      free(bytes);
  }
  if (!rule.wantsOperand(kHidden))
    free(state);
  if (!rule.wantsOperand(kCells))
    free(state);
  if (layer == 0 && !rule.wantsOperand(0))
    free(input);
}

/// The gradient of the state of one cell, among zeros for the others.
void LstmBackward::selectState(unsigned operand, bool isFirst) {
  if (!rule.wantsOperand(operand))
    return;
  int64_t all = layers.getCells() * state;
  allocate(all);
  free(state);
  if (!isFirst)
    free(all);
}

void LstmBackward::run() {
  int64_t directions = layers.getDirections();
  const ConcreteTensor *gradient = rule.getGradient(0);
  bool isInRows = false;
  if (gradient) {
    ConcreteTensor rows =
        layers.facts.batchFirst ? transposeDims(*gradient, 0, 1) : *gradient;
    isInRows = rows.contiguous && directions == 1;
  }
  for (int64_t layer = layers.facts.layers; layer-- > 0;) {
    bool isLast = layer + 1 == layers.facts.layers;
    int64_t input =
        count(layers.steps * layers.samples, layers.getFeatures(layer));
    for (int64_t direction = directions; direction-- > 0;) {
      bool isFirst = isLast && direction + 1 == directions;
      bool isCopied = isLast ? !isInRows : directions == 2;
      runNode(layer, direction, isCopied ? outputs : 0);
      // What arrived for the outputs of the layer, or what the next one made.
      if (direction == 0)
        free(isLast ? rule.getReleasableBytes() : outputs * directions);
      // That of the other direction is added in place.
      if (direction + 1 < directions && (layer > 0 || rule.wantsOperand(0)))
        free(input);
      selectState(kCells, isFirst);
      selectState(kHidden, isFirst);
    }
    // The outputs of the layer before go with the node that made them.
    if (!isLast)
      free(outputs * directions);
  }
  giveGradients(rule, layers);
  steps.finish();
}

//===----------------------------------------------------------------------===//
// Cells of products
//===----------------------------------------------------------------------===//

static int64_t getBound(const Layers &layers) {
  // The nodes of a step make fewer tensors as large as a state; those of a GRU
  // are the most.
  constexpr int64_t kMostOfStep = 24;
  int64_t samples = layers.samples, rows = layers.steps * samples;
  int64_t directions = layers.getDirections();
  int64_t gates = layers.facts.gates * layers.hidden;
  int64_t states = 2 * layers.getCells() * layers.getBytes(samples, gates);
  int64_t weights = 0, most = 0;
  for (int64_t layer = 0; layer < layers.facts.layers; ++layer) {
    int64_t features = layers.getFeatures(layer);
    // Of inputs, states, biases and a projection.
    int64_t own =
        layers.getBytes(gates, features + layers.state + 2) +
        (layers.isProjected() ? layers.getBytes(layers.state, layers.hidden)
                              : 0);
    weights += directions * own;
    // The gradients of the gates wait for the first step, and are stacked. The
    // inputs are multiplied with them, perhaps in a copy; their gradients add
    // up, as those of the weights do. Those of the outputs come from the next
    // layer.
    int64_t layerMost = 2 * layers.getBytes(rows, gates) +
                        (directions + 1) * layers.getBytes(rows, features) +
                        directions * layers.getBytes(rows, layers.state) +
                        kMostOfStep * layers.getBytes(samples, layers.hidden) +
                        layers.getBytes(samples, gates) + 4 * own;
    most = std::max(most, layerMost);
  }
  return states + weights + most;
}

void rules::describeRecurrentBackward(BackwardRule &rule) {
  auto layers = recurrent::getDenseLayers(rule);
  if (!layers || llvm::any_of(rule.getOp()->getOperands(), [&](Value operand) {
        return !rule.tensor(operand);
      }))
    return koila::detail::describeUnknownBackward(rule);
  if (!recurrent::isOfOneDnn(*layers)) {
    giveGradients(rule, *layers);
    rule.setPeak(getBound(*layers));
    return rule.setBound("what the steps of a recurrent layer free meanwhile");
  }
  LstmBackward(rule, *layers).run();
  if (layers->getCells() > 1 &&
      (rule.getGradient(kHidden) || rule.getGradient(kCells)))
    rule.setBound("when the layers of an LSTM drop gradients of states");
}
