//===- Recurrent.cpp - What recurrent layers hold inside ------------------===//
//
// Source: native/RNN.cpp. An LSTM of float32 goes to oneDNN.
//
//===----------------------------------------------------------------------===//

#include "../../ATenCPU/GemmOperandCopies.h"
#include "../../BackwardRules.h"
#include "../../Models.h"
#include "../TensorBytes.h"
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
using Held = AllocationTrace::Block;
using Blocks = SmallVector<Held>;

/// What a cell hands on; the second is that of an LSTM.
struct State {
  Held hidden, cell;
};

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
  /// Of more steps the list would be too long.
  bool isLong() const { return layers.steps > 1 << 12; }
  Held multiply(const Factor &input, Value weight);
  State runCell(const Factor &last, ArrayRef<Value> params);
  State runLstm(ArrayRef<Value> params);
  Blocks runSteps(ArrayRef<Value> params);
  Held runLayer(int64_t layer);
  Held drop(Held output);
  void finishPacked(Blocks &states, Held gates, bool isFirst);
  void free(ArrayRef<Held> blocks) {
    for (Held block : blocks)
      trace.free(block);
  }
  /// A second direction starts at the end.
  void freeReversed(Blocks &states) {
    std::reverse(states.begin(), states.end());
    free(states);
  }

  WorkspaceRule &rule;
  const Layers &layers;
  AllocationTrace trace;
  /// Of all steps of a direction, and of one step.
  int64_t outputs, state, hidden;
  /// The last ones of each direction of each layer.
  Blocks lastStates, lastCells;
};
} // namespace

/// torch.linear.
static Held allocateLinear(AllocationTrace &trace, WorkspaceRule &rule,
                           const Factor &input, const Factor &weight) {
  return blas::allocateMatmul(trace, rule, input, blas::transpose(weight))
      .result;
}

Held Replay::multiply(const Factor &input, Value weight) {
  auto factor = blas::getFactor(rule, weight);
  if (factor && factor->getRank() == 2)
    return allocateLinear(trace, rule, input, *factor);
  rule.setInexact("the strides of a weight are unknown");
  return {};
}

/// Of the gates: both products that make the cell; its tanh and the state,
/// which may be projected.
static State allocateLstm(AllocationTrace &trace, int64_t hidden) {
  State made;
  made.cell = trace.allocate(hidden);
  trace.allocateTemporary(hidden);
  auto bounded = trace.allocate(hidden);
  made.hidden = trace.allocate(hidden);
  trace.free(bounded);
  return made;
}

/// The change of a state is mixed with the last one.
static State allocateGru(AllocationTrace &trace, int64_t hidden) {
  auto fresh = trace.allocate(hidden);
  auto mixed = trace.allocate(hidden);
  trace.free(fresh);
  return {mixed, {}};
}

State Replay::runLstm(ArrayRef<Value> params) {
  State made = allocateLstm(trace, hidden);
  if (!layers.isProjected())
    return made;
  Factor wide{{layers.samples, layers.hidden}, {layers.hidden, 1}, layers.type};
  auto narrow = multiply(wide, params.back());
  trace.free(made.hidden);
  made.hidden = narrow;
  return made;
}

/// One step after the state `last`.
State Replay::runCell(const Factor &last, ArrayRef<Value> params) {
  auto gates = multiply(last, params[1]);
  State made;
  if (layers.isLstm())
    made = runLstm(params);
  else if (layers.facts.gates == 3)
    made = allocateGru(trace, hidden);
  else
    made.hidden = trace.allocate(hidden);
  trace.free(gates);
  return made;
}

/// All steps of one direction: the states but the last one, all of which are
/// left; of the cells of an LSTM only the last one is.
Blocks Replay::runSteps(ArrayRef<Value> params) {
  // The first state may be strided.
  Factor last = recurrent::getFirstState(rule, layers);
  Blocks states;
  Held cell;
  int64_t told = isLong() ? 2 : layers.steps;
  for (int64_t step = 0; step < told; ++step) {
    if (isLong() && step == 1)
      states.push_back(trace.allocate(outputs - 2 * state));
    State made = runCell(last, params);
    trace.free(cell);
    cell = made.cell;
    states.push_back(made.hidden);
    last = {{layers.samples, layers.state}, {layers.state, 1}, layers.type};
  }
  lastStates.push_back(states.pop_back_val());
  lastCells.push_back(cell);
  return states;
}

/// Of a packed sequence each direction ends by itself. The last state of the
/// first one is a copy.
void Replay::finishPacked(Blocks &states, Held gates, bool isFirst) {
  if (!isFirst) {
    trace.free(gates);
    freeReversed(states);
    return;
  }
  auto cell = trace.allocate(layers.isLstm() ? hidden : 0);
  auto last = trace.allocate(state);
  trace.free(gates);
  trace.free(std::exchange(lastCells.back(), cell));
  free(states);
  trace.free(std::exchange(lastStates.back(), last));
}

/// Leaves the output, and the last state of each direction.
Held Replay::runLayer(int64_t layer) {
  int64_t directions = layers.getDirections();
  bool isPacked = static_cast<bool>(layers.facts.batchSizes);
  Factor input = recurrent::getInput(rule, layers, layer);
  Held gates;
  SmallVector<Blocks, 2> states;
  Blocks joined;
  for (int64_t direction = 0; direction < directions; ++direction) {
    auto params = layers.getParams(layer * directions + direction);
    // The gates of all inputs at once; those of the other direction are
    // replaced.
    auto made = multiply(input, params[0]);
    trace.free(gates);
    gates = made;
    states.push_back(runSteps(params));
    joined.push_back(trace.allocate(outputs));
    if (isPacked) {
      finishPacked(states.back(), gates, direction == 0);
      states.back().clear();
      gates = {};
    }
  }
  Held output = joined.front();
  if (directions == 2) {
    output = trace.allocate(2 * outputs);
    trace.free(joined.back());
    freeReversed(states.back());
    trace.free(joined.front());
  }
  free(states.front());
  trace.free(gates);
  return output;
}

/// Noise, and its product with the output.
Held Replay::drop(Held output) {
  int64_t bytes = layers.getDirections() * outputs;
  auto noise = trace.allocate(bytes);
  auto number = trace.allocate(sizeof(double));
  if (!layers.type.isF64())
    trace.allocateTemporary(getElementBytes(layers.type));
  trace.free(number);
  auto dropped = trace.allocate(bytes);
  trace.free(noise);
  trace.free(output);
  return dropped;
}

void Replay::run() {
  Held output;
  for (int64_t layer = 0; layer < layers.facts.layers; ++layer) {
    auto made = runLayer(layer);
    trace.free(output);
    output = made;
    if (layers.drops && layer + 1 < layers.facts.layers)
      output = drop(output);
  }
  // The states of all cells are stacked; the last argument comes first.
  if (layers.isLstm())
    trace.allocate(layers.getCells() * hidden);
  trace.allocate(layers.getCells() * state);
  free(lastCells);
  free(lastStates);
  if (isLong())
    rule.setTransient(trace.getTransient());
  else
    rule.setTrace(std::move(trace));
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

/// The gates of the input and those of the state are alive together; what a
/// cell makes of them is less, but for the reset state of a GRU.
static void traceCell(WorkspaceRule &rule, int64_t gates, Value input,
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
  int64_t bytes = state->numBytes();
  AllocationTrace trace;
  auto multiply = [&](bool isOfInput) {
    return isOfInput ? allocateLinear(trace, rule, *x, *xWeight)
                     : allocateLinear(trace, rule, *h, *hWeight);
  };
  // A GRU starts with the input, the others with the state.
  auto first = multiply(/*isOfInput=*/gates == 3);
  auto second = multiply(/*isOfInput=*/gates != 3);
  if (gates == 4) {
    trace.free(second);
    allocateLstm(trace, bytes);
  } else if (gates == 3) {
    allocateGru(trace, bytes);
    trace.free(second);
  } else {
    trace.allocate(bytes);
    trace.free(second);
  }
  trace.free(first);
  rule.setTrace(std::move(trace));
}

template <typename OpT, int64_t Gates>
static void describeCell(WorkspaceRule &rule, SavedRule *saved) {
  auto op = cast<OpT>(rule.getOp());
  auto hidden = llvm::to_vector_of<Value>(ValueRange(op.getHx()));
  if (rule.isRecording())
    return recurrent::describeRecordedCell(rule, saved,
                                           {Gates, op.getInput(), hidden,
                                            op.getWIh(), op.getWHh(),
                                            op.getBIh(), op.getBHh()});
  traceCell(rule, Gates, op.getInput(), hidden.front(), op.getWIh(),
            op.getWHh());
}

//===----------------------------------------------------------------------===//
// Layers
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

template <typename OpT, int64_t Gates>
static void describeDense(WorkspaceRule &rule, SavedRule *saved) {
  auto op = cast<OpT>(rule.getOp());
  describeLayers(rule, saved, getDenseFacts(op, Gates), getDropout(op));
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

template <typename OpT, int64_t Gates>
static void describePacked(WorkspaceRule &rule, SavedRule *saved) {
  auto op = cast<OpT>(rule.getOp());
  rules::Recurrent facts = getFacts(op, Gates);
  facts.input = op.getData();
  facts.batchSizes = op.getBatchSizes();
  describeLayers(rule, saved, std::move(facts), getDropout(op));
}

/// Of one step, whose gradient has no model.
template <typename OpT, int64_t Gates>
static constexpr KernelModel getCellModel() {
  return {.forward = forwardOf<describeCell<OpT, Gates>>,
          .saved = savedOf<describeCell<OpT, Gates>>};
}

template <void (*Replay)(WorkspaceRule &, SavedRule *)>
static constexpr KernelModel getModel() {
  return {forwardOf<Replay>, savedOf<Replay>, rules::describeRecurrentBackward};
}

void kernels::addRecurrentModels(KernelLibrary &library) {
  library.add<GruCellOp>(getCellModel<GruCellOp, 3>());
  library.add<GruDataOp>(getModel<describePacked<GruDataOp, 3>>());
  library.add<GruInputOp>(getModel<describeDense<GruInputOp, 3>>());
  library.add<LstmCellOp>(getCellModel<LstmCellOp, 4>());
  library.add<LstmDataOp>(getModel<describePacked<LstmDataOp, 4>>());
  library.add<LstmInputOp>(getModel<describeDense<LstmInputOp, 4>>());
  library.add<RnnReluCellOp>(getCellModel<RnnReluCellOp, 1>());
  library.add<RnnReluDataOp>(getModel<describePacked<RnnReluDataOp, 1>>());
  library.add<RnnReluInputOp>(getModel<describeDense<RnnReluInputOp, 1>>());
  library.add<RnnTanhCellOp>(getCellModel<RnnTanhCellOp, 1>());
  library.add<RnnTanhDataOp>(getModel<describePacked<RnnTanhDataOp, 1>>());
  library.add<RnnTanhInputOp>(getModel<describeDense<RnnTanhInputOp, 1>>());
}
