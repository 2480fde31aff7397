//===- RecurrentSaved.cpp - Recurrent layers that are recorded ------------===//
//
// Every step of a cell leaves what its products and gates save. Source:
// native/RNN.cpp, whose cells write their gates in place.
//
//===----------------------------------------------------------------------===//

#include "../Backward/AutogradReplay.h"
#include "RecurrentLayers.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using blas::Factor;
using recurrent::Cell;
using recurrent::Layers;

namespace {
/// What a cell hands to the next step; the second is that of an LSTM.
struct State {
  Term hidden;
  std::optional<Term> cell;
};

/// Runs cells and notes what they allocate and save.
class Recording {
public:
  Recording(WorkspaceRule &rule, SavedRule *saved, Type type, int64_t samples,
            int64_t hidden, int64_t gates)
      : rule(rule), steps(rule, saved), type(type), samples(samples),
        hidden(hidden), gates(gates) {}

  /// torch.linear, which leaves rows of `width`.
  Term multiply(const Term &input, const Factor &factor, Value weight,
                Value bias, int64_t width);
  /// One step. The gates of the input have been multiplied before, or `input`
  /// does it.
  State runCell(const State &last, const Factor &factor, Value weight,
                Value bias, std::optional<Term> inputGates,
                llvm::function_ref<Term()> input);
  Factor getState(int64_t width) const {
    return {{samples, width}, {width, 1}, type};
  }

  WorkspaceRule &rule;
  AutogradReplay steps;
  /// Of the last result of a projected LSTM; null if there is none.
  Value projection;
  int64_t projected = 0;

private:
  Term addProduct(const Term &input, const Factor &factor, Value weight,
                  int64_t width);
  State runLstm(const State &last, const Term &all);
  State runGru(const State &last, const Term &stateGates,
               const Term &inputGates);
  Term getGate(const Term &all) const {
    return AutogradReplay::view(all, {samples, hidden});
  }

  Type type;
  int64_t samples, hidden, gates;
};
} // namespace

Term Recording::multiply(const Term &input, const Factor &factor, Value weight,
                         Value bias, int64_t width) {
  Term result = addProduct(input, factor, weight, width);
  if (bias)
    steps.follow(steps.read(bias), result);
  return result;
}

Term Recording::addProduct(const Term &input, const Factor &factor,
                           Value weight, int64_t width) {
  auto right = blas::getFactor(rule, weight);
  SmallVector<int64_t> dims(factor.dims);
  dims.back() = width;
  if (!right || right->getRank() != 2) {
    rule.setInexact("the strides of a weight are unknown");
    return steps.allocate({dims, type});
  }
  auto copies = blas::getMatmulCopies(rule, factor, blas::transpose(*right));
  Term weights = steps.read(weight);
  if (factor.getRank() == 2) {
    Term result = steps.allocate({dims, type});
    steps.allocateTemporary(copies.bytes);
    steps.record("mm", {input, weights}, result);
    return result;
  }
  // What is multiplied in the place of a factor is saved in its place.
  Term left = input, read = weights;
  auto copy = [&](Term &term, int64_t bytes, ArrayRef<int64_t> extents) {
    if (bytes == 0)
      return;
    Term made = steps.allocate({SmallVector<int64_t>(extents), type});
    steps.follow(term, made);
    term = made;
  };
  copy(left, copies.left, factor.dims);
  copy(read, copies.right, right->dims);
  Term result = steps.allocate({dims, type});
  steps.allocateTemporary(copies.bytes - copies.left - copies.right);
  steps.record("mm", {left, read}, result);
  if (copies.left > 0)
    steps.free(left);
  if (copies.right > 0)
    steps.free(read);
  return result;
}

/// The gates are written; the cell is what they forget and what they add.
State Recording::runLstm(const State &last, const Term &all) {
  Term gate = getGate(all);
  steps.write("sigmoid_", gate);
  Term cell = steps.compute("mul.Tensor", {gate, *last.cell});
  Term added = steps.compute("mul.Tensor", {gate, gate});
  steps.write("add_.Tensor", {cell, added});
  steps.free(added);
  Term bounded = steps.compute("tanh", cell);
  Term state = steps.compute("mul.Tensor", {gate, bounded});
  steps.free(bounded);
  if (projection) {
    Term narrow = multiply(state, getState(hidden), projection, {}, projected);
    steps.free(state);
    state = narrow;
  }
  return {state, cell};
}

/// The reset gate is written over what it resets, the update gate over the
/// change of the state: what is overwritten is saved as a copy.
State Recording::runGru(const State &last, const Term &stateGates,
                        const Term &inputGates) {
  Term gate = getGate(stateGates);
  steps.write("sigmoid_", gate);
  steps.write("mul_.Tensor", {gate, gate});
  Term fresh = steps.compute("add.Tensor", {getGate(inputGates), gate});
  steps.write("tanh_", fresh);
  Term state = steps.compute("sub.Tensor", {last.hidden, fresh});
  steps.write("mul_.Tensor", {state, gate});
  steps.write("add_.Tensor", {state, fresh});
  steps.free(fresh);
  return {state, std::nullopt};
}

State Recording::runCell(const State &last, const Factor &factor, Value weight,
                         Value bias, std::optional<Term> inputGates,
                         llvm::function_ref<Term()> input) {
  bool isInside = !inputGates;
  if (isInside && gates == 3)
    inputGates = input();
  Term all = multiply(last.hidden, factor, weight, bias, gates * hidden);
  if (isInside && gates != 3)
    inputGates = input();
  // A GRU has gates of the state alone, whose gradient is asked for apart.
  if (steps.wants(all) != steps.wants(*inputGates) && gates == 3)
    rule.setInexact("a GRU of which some weights are not trained");
  steps.write("add_.Tensor", {all, *inputGates});
  if (isInside && gates == 4)
    steps.free(*inputGates);
  State state;
  if (gates == 4) {
    state = runLstm(last, all);
  } else if (gates == 3) {
    state = runGru(last, all, *inputGates);
  } else {
    // relu saves its result, too.
    state.hidden = steps.compute("tanh", all);
  }
  steps.free(all);
  if (isInside && gates != 4)
    steps.free(*inputGates);
  return state;
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

namespace {
/// The layers of one call.
class RecordedLayers : public Recording {
public:
  RecordedLayers(WorkspaceRule &rule, SavedRule *saved, const Layers &layers)
      : Recording(rule, saved, layers.type, layers.samples, layers.hidden,
                  layers.facts.gates),
        layers(layers) {}

  void run();

private:
  Term allocate(ArrayRef<int64_t> dims) {
    return steps.allocate({SmallVector<int64_t>(dims), layers.type});
  }
  /// All steps of one direction; adds the states to `outputs`.
  State runSteps(State first, ArrayRef<Value> params, const Term &gates,
                 SmallVectorImpl<Term> &outputs);
  Term runLayer(int64_t layer, const Term &input);
  Term stack(ArrayRef<Term> terms, ArrayRef<int64_t> dims);

  const Layers &layers;
  SmallVector<Term> given;
  SmallVector<State, 2> last;
};
} // namespace

Term recurrent::drop(AutogradReplay &steps, const Term &outputs) {
  Term noise = steps.allocate(outputs);
  steps.write("div_.Scalar", noise, OpReplay::Number::Float);
  Term dropped = steps.compute("mul.Tensor", {outputs, noise});
  steps.free(noise);
  return dropped;
}

/// at::stack and at::cat save nothing.
Term RecordedLayers::stack(ArrayRef<Term> terms, ArrayRef<int64_t> dims) {
  Term result = allocate(dims);
  steps.follow(terms, result);
  return result;
}

State RecordedLayers::runSteps(State state, ArrayRef<Value> params,
                               const Term &gates,
                               SmallVectorImpl<Term> &outputs) {
  Factor factor = recurrent::getFirstState(rule, layers);
  for (int64_t step = 0; step < layers.steps; ++step) {
    State next = runCell(state, factor, params[1],
                         layers.facts.biases ? params[3] : Value(), gates, {});
    if (step > 0 && next.cell)
      steps.free(*state.cell);
    state = next;
    outputs.push_back(state.hidden);
    factor = getState(layers.state);
  }
  return state;
}

Term RecordedLayers::runLayer(int64_t layer, const Term &input) {
  int64_t directions = layers.getDirections();
  Factor factor = recurrent::getInput(rule, layers, layer);
  SmallVector<Term> states, outputs;
  std::optional<Term> gates;
  for (int64_t direction = 0; direction < directions; ++direction) {
    auto params = layers.getParams(layer * directions + direction);
    if (layers.isProjected()) {
      projection = params.back();
      projected = layers.state;
    }
    Term all = multiply(input, factor, params[0],
                        layers.facts.biases ? params[2] : Value(),
                        layers.facts.gates * layers.hidden);
    // Those of the other direction are replaced.
    if (gates)
      steps.free(*gates);
    gates = all;
    State first{given.front(), std::nullopt};
    if (layers.isLstm())
      first.cell = given.back();
    size_t begin = states.size();
    last.push_back(runSteps(first, params, all, states));
    outputs.push_back(stack(ArrayRef(states).drop_front(begin),
                            {layers.steps, layers.samples, layers.state}));
  }
  Term output = outputs.front();
  if (directions == 2) {
    output = stack(outputs, {layers.steps, layers.samples, 2 * layers.state});
    steps.free(outputs);
  }
  steps.free(*gates);
  // The last states are stacked in the end.
  for (int64_t direction = 0; direction < directions; ++direction)
    steps.free(ArrayRef(states)
                   .slice(direction * layers.steps, layers.steps)
                   .drop_back());
  return output;
}

void RecordedLayers::run() {
  Term input = steps.read(layers.facts.input);
  for (Value state : layers.facts.hidden) {
    Term all = steps.read(state);
    given.push_back(AutogradReplay::view(all, ArrayRef(all.dims).drop_front()));
  }
  for (int64_t layer = 0; layer < layers.facts.layers; ++layer) {
    Term output = runLayer(layer, input);
    if (layer > 0)
      steps.free(input);
    input = output;
    if (layers.drops && layer + 1 < layers.facts.layers) {
      input = recurrent::drop(steps, output);
      steps.free(output);
    }
  }
  SmallVector<Term> states, cells;
  for (const State &state : last) {
    states.push_back(state.hidden);
    if (state.cell)
      cells.push_back(*state.cell);
  }
  SmallVector<Term> results{input};
  results.push_back(
      stack(states, {layers.getCells(), layers.samples, layers.state}));
  if (layers.isLstm())
    results.push_back(
        stack(cells, {layers.getCells(), layers.samples, layers.hidden}));
  steps.finish(results);
  // Blocks of the same bytes are not told apart here.
  rule.setTransient(rule.getTransient());
}

void recurrent::describeRecorded(WorkspaceRule &rule, SavedRule *saved,
                                 const Layers &layers) {
  // Each step is looked at.
  constexpr int64_t kMostCells = 1 << 20;
  if (layers.facts.batchSizes)
    return rule.setInexact("what autograd keeps of packed sequences");
  if (layers.steps > kMostCells / layers.getCells())
    return rule.setInexact("what autograd keeps of so many steps");
  RecordedLayers(rule, saved, layers).run();
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

void recurrent::describeRecordedCell(WorkspaceRule &rule, SavedRule *saved,
                                     const Cell &cell) {
  auto input = blas::getFactor(rule, cell.input);
  auto state = blas::getFactor(rule, cell.hidden.front());
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!input || !state || !result || state->getRank() != 2 ||
      (!result->elementType.isF32() && !result->elementType.isF64()))
    return rule.setInexact("what autograd keeps of a cell of this type");
  int64_t hidden = state->dims[1];
  Recording recording(rule, saved, result->elementType, state->dims[0], hidden,
                      cell.gates);
  AutogradReplay &steps = recording.steps;
  State first{steps.read(cell.hidden.front()), std::nullopt};
  if (cell.gates == 4)
    first.cell = steps.read(cell.hidden.back());
  Term operand = steps.read(cell.input);
  auto multiply = [&] {
    return recording.multiply(operand, *input, cell.inputWeight, cell.inputBias,
                              cell.gates * hidden);
  };
  State last = recording.runCell(first, *state, cell.weight, cell.bias,
                                 std::nullopt, multiply);
  SmallVector<Term> results{last.hidden};
  if (last.cell)
    results.push_back(*last.cell);
  steps.finish(results);
  // Blocks of the same bytes are not told apart here.
  rule.setTransient(rule.getTransient());
}
