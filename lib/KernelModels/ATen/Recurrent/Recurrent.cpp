//===- Recurrent.cpp - What recurrent layers hold inside ------------------===//
//
// Source: native/RNN.cpp. An LSTM of float32 goes to oneDNN.
//
//===----------------------------------------------------------------------===//

#include "../../ATenCPU/GemmOperandCopies.h"
#include "../../WorkspaceRules.h"
#include "../AllocationTrace.h"
#include "RecurrentLayers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using blas::Factor;
using recurrent::Layers;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

ArrayRef<Value> Layers::getParams(int64_t cell) const {
  int64_t each = (facts.biases ? 4 : 2) + (isProjected() ? 1 : 0);
  return ArrayRef(facts.params).slice(cell * each, each);
}

int64_t Layers::getBytes(int64_t vectors, int64_t width) const {
  ConcreteTensor tensor;
  tensor.dims = {vectors, width};
  tensor.elementType = type;
  return tensor.numBytes();
}

static bool isComputed(Type type) { return type.isF32() || type.isF64(); }

/// The extents of a call; says why if they are not known.
static std::optional<Layers>
getLayers(WorkspaceRule &rule, rules::Recurrent facts, const APFloat &dropout) {
  // There the noise is one number.
  if (dropout.isExactlyValue(1.0) && facts.layers > 1) {
    rule.setInexact("a dropout of all that recurrent layers hand on");
    return std::nullopt;
  }
  auto input = rule.tensor(facts.input);
  auto state = rule.tensor(facts.hidden.front());
  auto cell = rule.tensor(facts.hidden.back());
  if (!input || !state || !cell || state->dims.size() != 3) {
    rule.setInexact("a shape of a recurrent layer is unknown");
    return std::nullopt;
  }
  Layers layers;
  layers.type = input->elementType;
  layers.features = input->dims.back();
  layers.samples = state->dims[1];
  layers.state = state->dims[2];
  layers.hidden = cell->dims[2];
  layers.drops = !dropout.isZero();
  if (facts.batchSizes) {
    auto sizes = rule.tensor(facts.batchSizes);
    layers.steps = sizes ? sizes->dims[0] : 0;
    // Samples only ever end: with that many rows, all have all steps.
    if (input->dims[0] != layers.steps * layers.samples) {
      rule.setInexact("how many samples have each step is data");
      return std::nullopt;
    }
  } else {
    layers.steps = input->dims[facts.batchFirst ? 1 : 0];
  }
  layers.facts = std::move(facts);
  // What is summed up below is less than this.
  ConcreteTensor most;
  most.elementType = layers.type;
  most.dims = {layers.steps + 1, layers.samples, layers.getCells(),
               layers.features + layers.hidden + 64, 64};
  if (most.numBytes() == std::numeric_limits<int64_t>::max())
    rule.setInexact("a recurrent layer of more bytes than 64 bits count");
  else if (!isComputed(layers.type))
    rule.setInexact("a recurrent layer of another type than float32 or "
                    "float64");
  else if (layers.steps == 0 || layers.samples == 0 || layers.features == 0 ||
           layers.hidden == 0 || layers.state == 0)
    rule.setInexact("a recurrent layer without steps, samples or features");
  return rule.isExact() ? std::optional(layers) : std::nullopt;
}

Factor recurrent::getFirstState(WorkspaceRule &rule, const Layers &layers) {
  Factor state{{layers.samples, layers.state}, {layers.state, 1}, layers.type};
  if (auto states = blas::getFactor(rule, layers.facts.hidden.front()))
    state.strides = {states->strides[1], states->strides[2]};
  else
    rule.setInexact("the strides of a state are unknown");
  return state;
}

Factor recurrent::getInput(WorkspaceRule &rule, const Layers &layers,
                           int64_t layer) {
  if (layer == 0) {
    auto input = blas::getFactor(rule, layers.facts.input);
    if (!input)
      rule.setInexact("the strides of a sequence are unknown");
    if (input && layers.facts.batchFirst) {
      std::swap(input->dims[0], input->dims[1]);
      std::swap(input->strides[0], input->strides[1]);
    }
    if (input)
      return *input;
  }
  int64_t features = layers.getFeatures(layer);
  return {{layers.steps, layers.samples, features},
          {layers.samples * features, features, 1},
          layers.type};
}

//===----------------------------------------------------------------------===//
// Layers of products
//===----------------------------------------------------------------------===//

namespace {
/// Runs the layers and notes what they allocate.
class Replay {
public:
  Replay(WorkspaceRule &rule, const Layers &layers)
      : rule(rule), layers(layers),
        outputs(layers.getBytes(layers.steps * layers.samples, layers.state)),
        state(layers.getBytes(layers.samples, layers.state)),
        hidden(layers.getBytes(layers.samples, layers.hidden)) {}

  void run();

private:
  /// torch.linear, which leaves `bytes`.
  void multiply(const Factor &input, Value weight, int64_t bytes);
  void runCell(const Factor &last, ArrayRef<Value> params, bool isFirst);
  void runSteps(ArrayRef<Value> params);
  void runLayer(int64_t layer);

  WorkspaceRule &rule;
  const Layers &layers;
  AllocationTrace trace;
  /// Of all steps of a direction, and of one step.
  int64_t outputs, state, hidden;
};
} // namespace

void Replay::multiply(const Factor &input, Value weight, int64_t bytes) {
  trace.allocate(bytes);
  auto factor = blas::getFactor(rule, weight);
  if (!factor || factor->getRank() != 2)
    return rule.setInexact("the strides of a weight are unknown");
  trace.allocateTemporary(
      blas::getMatmulCopies(rule, input, blas::transpose(*factor)).bytes);
}

/// One step after the state `last`. Its state is left, and the cell of an LSTM,
/// of which only the last one lives on.
void Replay::runCell(const Factor &last, ArrayRef<Value> params, bool isFirst) {
  int64_t gates =
      layers.getBytes(layers.samples, layers.facts.gates * layers.hidden);
  multiply(last, params[1], gates);
  if (layers.isLstm()) {
    // Both products that make the cell; its tanh and the state.
    trace.allocate(hidden);
    trace.allocateTemporary(hidden);
    trace.allocate(2 * hidden);
    trace.free(hidden);
    if (layers.isProjected()) {
      multiply(
          {{layers.samples, layers.hidden}, {layers.hidden, 1}, layers.type},
          params.back(), state);
      trace.free(hidden);
    }
    if (!isFirst)
      trace.free(hidden);
  } else {
    // The new state; of a GRU it is mixed with the last one.
    trace.allocate(hidden);
    if (layers.facts.gates == 3) {
      trace.allocate(hidden);
      trace.free(hidden);
    }
  }
  trace.free(gates);
}

/// All steps of one direction, whose states are left.
void Replay::runSteps(ArrayRef<Value> params) {
  // The first state may be copied. Of the others, none holds more than the last
  // one; BLAS can read them, whichever order they are in.
  runCell(recurrent::getFirstState(rule, layers), params, /*isFirst=*/true);
  if (layers.steps == 1)
    return;
  trace.allocate(outputs - 2 * state);
  runCell({{layers.samples, layers.state}, {layers.state, 1}, layers.type},
          params, /*isFirst=*/false);
}

/// Leaves the outputs, and the last state of each direction.
void Replay::runLayer(int64_t layer) {
  int64_t directions = layers.getDirections();
  int64_t gates = layers.getBytes(layers.steps * layers.samples,
                                  layers.facts.gates * layers.hidden);
  bool isPacked = static_cast<bool>(layers.facts.batchSizes);
  Factor input = recurrent::getInput(rule, layers, layer);
  for (int64_t direction = 0; direction < directions; ++direction) {
    auto params = layers.getParams(layer * directions + direction);
    // The gates of all inputs at once.
    multiply(input, params[0], gates);
    // Those of the other direction are replaced.
    if (direction == 1 && !isPacked)
      trace.free(gates);
    runSteps(params);
    trace.allocate(outputs);
    if (isPacked) {
      // The last states of a first direction are copied.
      int64_t last = state + (layers.isLstm() ? hidden : 0);
      if (direction == 0)
        trace.allocate(last);
      trace.free(outputs - state + gates);
      if (direction == 0)
        trace.free(last);
    }
  }
  if (directions == 2) {
    trace.allocate(2 * outputs);
    trace.free(2 * outputs);
  }
  if (!isPacked)
    trace.free(gates + directions * (outputs - state));
}

void Replay::run() {
  int64_t directions = layers.getDirections();
  for (int64_t layer = 0; layer < layers.facts.layers; ++layer) {
    runLayer(layer);
    if (layer > 0)
      trace.free(directions * outputs);
    if (!layers.drops || layer + 1 == layers.facts.layers)
      continue;
    // Noise, and its product with the outputs.
    trace.allocate(directions * outputs);
    trace.allocateTemporary(getFloatBytes(layers.type));
    trace.allocate(directions * outputs);
    trace.free(2 * directions * outputs);
  }
  int64_t states = layers.getCells() * state;
  int64_t cells = layers.isLstm() ? layers.getCells() * hidden : 0;
  trace.allocate(states + cells);
  trace.free(states + cells);
  rule.setTransient(trace.getTransient());
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

/// The gates of the input and those of the state are alive together; what a
/// cell makes of them is less, but for the reset state of a GRU.
static void describeCell(WorkspaceRule &rule, int64_t gates, Value input,
                         Value hidden, Value inputWeight, Value weight) {
  auto state = rule.tensor(rule.getOp()->getResult(0));
  auto x = blas::getFactor(rule, input), h = blas::getFactor(rule, hidden);
  auto xWeight = blas::getFactor(rule, inputWeight);
  auto hWeight = blas::getFactor(rule, weight);
  if (!blas::checkFactors(rule, x, xWeight) ||
      !blas::checkFactors(rule, h, hWeight) || !state)
    return rule.setInexact("the strides of a cell are unknown");
  if (!isComputed(state->elementType))
    return rule.setInexact("a cell of a half type");
  int64_t inputCopies =
      blas::getMatmulCopies(rule, *x, blas::transpose(*xWeight)).bytes;
  int64_t stateCopies =
      blas::getMatmulCopies(rule, *h, blas::transpose(*hWeight)).bytes;
  int64_t bytes = state->numBytes();
  AllocationTrace trace;
  // A GRU starts with the input, the others with the state.
  trace.allocate(gates * bytes);
  trace.allocateTemporary(gates == 3 ? inputCopies : stateCopies);
  trace.allocate(gates * bytes);
  trace.allocateTemporary(gates == 3 ? stateCopies : inputCopies);
  if (gates == 3) {
    trace.allocate(bytes);
    trace.allocate(bytes);
    trace.free(7 * bytes);
  } else if (gates == 4) {
    // The cell, its tanh and the state.
    trace.free(4 * bytes);
    trace.allocate(3 * bytes);
    trace.free(5 * bytes);
  } else {
    trace.allocate(bytes);
    trace.free(2 * bytes);
  }
  rule.setTransient(trace.getTransient());
}

//===----------------------------------------------------------------------===//
// Entry
//===----------------------------------------------------------------------===//

template <typename OpT>
static rules::Recurrent getFacts(OpT op, int64_t gates) {
  rules::Recurrent facts;
  facts.gates = gates;
  facts.params = llvm::to_vector_of<Value>(op.getParams());
  if constexpr (std::is_same_v<OpT, LstmInputOp> ||
                std::is_same_v<OpT, LstmDataOp>)
    facts.hidden = llvm::to_vector_of<Value>(op.getHx());
  else
    facts.hidden = {op.getHx()};
  facts.layers = op.getNumLayers();
  facts.biases = op.getHasBiases();
  facts.bidirectional = op.getBidirectional();
  return facts;
}

static void describeLayers(WorkspaceRule &rule, SavedRule *saved,
                           rules::Recurrent facts, const APFloat &dropout) {
  auto layers = getLayers(rule, std::move(facts), dropout);
  if (!layers)
    return;
  if (recurrent::isOfOneDnn(*layers))
    return recurrent::describeOneDnn(rule, saved, *layers);
  if (rule.isRecording())
    return recurrent::describeRecorded(rule, saved, *layers);
  Replay(rule, *layers).run();
}

/// The probability with which an output is dropped on its way up.
template <typename OpT>
static APFloat getDropout(OpT op) {
  return op.getTrain() ? op.getDropout() : APFloat(0.0);
}

template <typename OpT>
static rules::Recurrent getDenseFacts(OpT op, int64_t gates) {
  rules::Recurrent facts = getFacts(op, gates);
  facts.input = op.getInput();
  facts.batchFirst = op.getBatchFirst();
  return facts;
}

template <typename OpT>
static void describeDense(WorkspaceRule &rule, SavedRule *saved, OpT op,
                          int64_t gates) {
  describeLayers(rule, saved, getDenseFacts(op, gates), getDropout(op));
}

// Source: use_mkldnn; packed ones of equal lengths, too (measured).
bool recurrent::isOfOneDnn(const Layers &layers) {
  return layers.isLstm() && layers.type.isF32() && !layers.isProjected();
}

std::optional<Layers> recurrent::getDenseLayers(WorkspaceRule &rule) {
  auto get = [&](auto op, int64_t gates) -> std::optional<Layers> {
    return getLayers(rule, getDenseFacts(op, gates), getDropout(op));
  };
  return llvm::TypeSwitch<Operation *, std::optional<Layers>>(rule.getOp())
      .Case<LstmInputOp>([&](auto op) { return get(op, 4); })
      .Case<GruInputOp>([&](auto op) { return get(op, 3); })
      .Case<RnnTanhInputOp, RnnReluInputOp>([&](auto op) { return get(op, 1); })
      .Default([](Operation *) { return std::nullopt; });
}

template <typename OpT>
static void describePacked(WorkspaceRule &rule, SavedRule *saved, OpT op,
                           int64_t gates) {
  rules::Recurrent facts = getFacts(op, gates);
  facts.input = op.getData();
  facts.batchSizes = op.getBatchSizes();
  describeLayers(rule, saved, std::move(facts), getDropout(op));
}

/// `saved` is told what autograd keeps.
static void describe(WorkspaceRule &rule, SavedRule *saved) {
  auto cell = [&](auto op, int64_t gates, ValueRange hidden) {
    if (rule.isRecording())
      return recurrent::describeRecordedCell(
          rule, saved,
          {gates, op.getInput(), llvm::to_vector(hidden), op.getWIh(),
           op.getWHh(), op.getBIh(), op.getBHh()});
    describeCell(rule, gates, op.getInput(), hidden.front(), op.getWIh(),
                 op.getWHh());
  };
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<LstmCellOp>([&](auto op) { cell(op, 4, op.getHx()); })
      .Case<GruCellOp>([&](auto op) { cell(op, 3, op.getHx()); })
      .Case<RnnTanhCellOp, RnnReluCellOp>(
          [&](auto op) { cell(op, 1, op.getHx()); })
      .Case<LstmInputOp>([&](auto op) { describeDense(rule, saved, op, 4); })
      .Case<GruInputOp>([&](auto op) { describeDense(rule, saved, op, 3); })
      .Case<RnnTanhInputOp, RnnReluInputOp>(
          [&](auto op) { describeDense(rule, saved, op, 1); })
      .Case<LstmDataOp>([&](auto op) { describePacked(rule, saved, op, 4); })
      .Case<GruDataOp>([&](auto op) { describePacked(rule, saved, op, 3); })
      .Case<RnnTanhDataOp, RnnReluDataOp>(
          [&](auto op) { describePacked(rule, saved, op, 1); })
      .Default([&](Operation *) { rules::describeUnknownWorkspace(rule); });
}

void rules::describeRecurrentWorkspace(WorkspaceRule &rule) {
  describe(rule, /*saved=*/nullptr);
}

void rules::describeRecurrentSaved(SavedRule &rule) { describe(rule, &rule); }
