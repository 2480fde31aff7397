//===- RecurrentBackward.cpp - Gradients of recurrent layers --------------===//
//
// Those of an LSTM that oneDNN runs: a node for each layer in each direction,
// the last made first. Sources: mkldnn_rnn and mkldnn_rnn_layer_backward in
// native/mkldnn/RNN.cpp; lstm_backward in ideep, which hands weights to oneDNN
// in its own rows and gets their gradients in others. Those of a GRU: the nodes
// of the steps, the last first. Of other layers whose cells are expressions, at
// most what all steps together make. Source: FullLayer and GRUCell in
// native/RNN.cpp.
//
//===----------------------------------------------------------------------===//

#include "../../BackwardRules.h"
#include "../Recurrent/RecurrentLayers.h"
#include "BackwardReplay.h"
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
  // Their gradients, of which a single row is not padded. Source:
  // memory_desc_wrapper::size in oneDNN.
  auto getRows = [&](int64_t width) {
    int64_t row = kGates * hidden;
    return count(width, width == 1 ? row : padRow(row));
  };
  steps.allocateTemporary(pad(features) + pad(hidden) + getRows(features) +
                          getRows(hidden) + bias +
                          recurrent::getGradientScratchpadBytes(layers));
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
    // The gradient of what a dropout made, times its noise.
    if (layers.drops && layer > 0)
      steps.allocateTemporary(outputs * directions);
  }
  giveGradients(rule, layers);
  steps.finish();
}

//===----------------------------------------------------------------------===//
// GRU
//===----------------------------------------------------------------------===//

namespace {
/// The nodes of a GRU of one direction. What a node gives for a tensor that has
/// a gradient is added to that, in place where that is a tensor of its own, and
/// goes when the node ends.
class GruBackward {
public:
  GruBackward(BackwardRule &rule, const Layers &layers)
      : rule(rule), steps(rule), layers(layers),
        state(layers.getBytes(layers.samples, layers.hidden)),
        gates(kGruGates * state) {}

  static bool isKnown(BackwardRule &rule, const Layers &layers);
  void run();

private:
  static constexpr int64_t kGruGates = 3;

  void allocate(int64_t bytes) { steps.AllocationTrace::allocate(bytes); }
  void free(int64_t bytes) { steps.AllocationTrace::free(bytes); }
  int64_t getParam(int64_t layer, int64_t index) const {
    return kParam + layer * layers.getParams(0).size() + index;
  }
  /// Its gradient is complete.
  void finish(int64_t layer, int64_t index, int64_t bytes) {
    if (rule.isAccumulated(getParam(layer, index)))
      free(bytes);
  }
  void sumBias(int64_t rows);
  void runGates(int64_t step);
  void runProduct(int64_t layer, int64_t step);
  /// Gives what the gradient of the input takes.
  int64_t runLayer(int64_t layer);
  int64_t getBiasBytes() const {
    return layers.facts.biases ? layers.getBytes(1, kGruGates * layers.hidden)
                               : 0;
  }

  static constexpr unsigned kParam = 2;
  BackwardRule &rule;
  BackwardReplay steps;
  const Layers &layers;
  /// Of one step.
  int64_t state, gates;
  /// Of the outputs of the layer: what is freed with their gradient, whether
  /// one arrives, and whether the last is the sum of two.
  int64_t arrived = 0;
  bool hasOutputs = false, isSum = false;
};
} // namespace

bool GruBackward::isKnown(BackwardRule &rule, const Layers &layers) {
  auto isTrained = [&](int64_t cell) {
    return llvm::all_of(layers.getParams(cell),
                        [&](Value param) { return rule.wantsGradient(param); });
  };
  return layers.facts.gates == kGruGates && layers.getDirections() == 1 &&
         !isHalf(layers.type) && layers.steps > 0 && layers.samples > 0 &&
         !(layers.drops && layers.facts.layers > 1) &&
         !rule.wantsOperand(kHidden) &&
         llvm::all_of(llvm::seq(layers.facts.layers), isTrained);
}

void GruBackward::sumBias(int64_t rows) {
  if (!layers.facts.biases)
    return;
  int64_t columns = kGruGates * layers.hidden;
  MadeTensor sum = steps.allocate({{columns}, layers.type});
  steps.allocateBriefly(
      getPartialBytes(rule, {{rows, columns}, layers.type}, sum));
}

/// From the gradient of a state to those of its gates, which are joined.
void GruBackward::runGates(int64_t step) {
  bool isLast = step + 1 == layers.steps, isFirst = step == 0;
  // (hidden - change) * update, of which a copy has been saved.
  allocate(2 * state);
  free(state);
  // The difference: the state before has a view of what arrived, and so has the
  // change in the last step. What arrived goes with its last view.
  allocate(state);
  if (isFirst)
    free(state);
  else if (hasOutputs)
    allocate(state);
  bool isViewed = isLast && !isSum;
  if (step == 1 && !isViewed)
    free(arrived);
  if (isViewed) {
    allocate(state);
    if (step <= 1)
      free(arrived);
  }
  free(isFirst || !hasOutputs ? state : 2 * state);
  // tanh, whose result has been saved.
  allocate(state);
  free(2 * state);
  // change * reset, of which a copy has been saved.
  allocate(2 * state);
  free(state);
  // Both sigmoids, whose results lie among the gates.
  steps.allocateTemporary(state);
  steps.allocateTemporary(state);
  free(gates);
  allocate(gates);
  free(state);
}

/// The product of the state with its weights.
void GruBackward::runProduct(int64_t layer, int64_t step) {
  int64_t hidden = layers.hidden;
  int64_t weight = layers.getBytes(kGruGates * hidden, hidden);
  int64_t bias = getBiasBytes();
  bool isFirst = step == 0;
  int64_t done = layers.steps - 1 - step;
  if (!isFirst)
    allocate(state);
  allocate(weight);
  sumBias(layers.samples);
  free(gates);
  free(isFirst ? rule.getSavedBytes(kHidden) : state);
  // Views come first, so that the second is not added in place.
  if (done == 1) {
    allocate(bias);
    free(bias);
  }
  if (done > 0)
    free(bias);
  if (!isFirst)
    free(state);
  if (isFirst && layers.facts.biases)
    finish(layer, 3, bias);
  if (done == 1) {
    allocate(weight);
    free(weight);
  }
  if (done > 0)
    free(weight);
  if (isFirst)
    finish(layer, 1, weight);
}

int64_t GruBackward::runLayer(int64_t layer) {
  isSum = hasOutputs && rule.getGradient(1);
  if (isSum) {
    allocate(state);
    if (layers.steps == 1)
      free(arrived);
  }
  for (int64_t step = layers.steps; step-- > 0;) {
    runGates(step);
    runProduct(layer, step);
    // Those of the gates of the input are joined.
    allocate(gates);
    free(3 * state);
  }
  int64_t all = layers.steps * gates, features = layers.getFeatures(layer);
  int64_t rows = layers.steps * layers.samples;
  allocate(all);
  free(all);
  sumBias(rows);
  if (layers.facts.biases)
    finish(layer, 2, getBiasBytes());
  int64_t input =
      layer > 0 || rule.wantsOperand(0) ? layers.getBytes(rows, features) : 0;
  int64_t weight = layers.getBytes(kGruGates * layers.hidden, features);
  allocate(input);
  allocate(weight);
  free(all);
  if (layer > 0) {
    free(layers.steps * state);
  } else if (auto own = blas::getFactor(rule, layers.getParams(0)[0])) {
    auto copies = blas::getMatmulCopies(
        rule, recurrent::getInput(rule, layers, 0), blas::transpose(*own));
    free(copies.left);
  }
  finish(layer, 0, weight);
  return input;
}

void GruBackward::run() {
  hasOutputs = rule.getGradient(0);
  arrived = hasOutputs ? rule.getReleasableBytes() : 0;
  for (int64_t layer = layers.facts.layers; layer-- > 0;) {
    arrived = runLayer(layer);
    hasOutputs = true;
  }
  if (rule.getGradient(1))
    rule.setBound("when a GRU drops the gradient of its last states");
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
    // A gradient of a weight and its sum with the one before, which is another
    // tensor where that is a view. Of half types also what a product reorders.
    int64_t largest = layers.getBytes(
        1, std::max({gates * features, gates * layers.state,
                     layers.isProjected() ? layers.state * layers.hidden : 0}));
    int64_t added = isHalf(layers.type) ? 4 * own : 2 * largest;
    // The gradients of the gates wait for the first step, and are stacked. The
    // inputs are multiplied with them, perhaps in a copy; their gradients add
    // up, as those of the weights do. Those of the outputs come from the next
    // layer.
    int64_t layerMost = 2 * layers.getBytes(rows, gates) +
                        (directions + 1) * layers.getBytes(rows, features) +
                        directions * layers.getBytes(rows, layers.state) +
                        kMostOfStep * layers.getBytes(samples, layers.hidden) +
                        layers.getBytes(samples, gates) + added;
    if (layers.drops)
      layerMost += directions * layers.getBytes(rows, layers.state);
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
  if (GruBackward::isKnown(rule, *layers))
    return GruBackward(rule, *layers).run();
  if (!recurrent::isOfOneDnn(*layers)) {
    giveGradients(rule, *layers);
    rule.setPeak(getBound(*layers));
    return rule.setBound("what the steps of a recurrent layer free meanwhile");
  }
  LstmBackward(rule, *layers).run();
  if (layers->drops && layers->facts.layers > 1)
    rule.setBound("when a dropout between recurrent layers frees its noise");
  if (layers->getCells() > 1 &&
      (rule.getGradient(kHidden) || rule.getGradient(kCells)))
    rule.setBound("when the layers of an LSTM drop gradients of states");
}
