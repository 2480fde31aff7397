//===- Recurrent.cpp - What recurrent layers allocate on a GPU ------------===//
//
// Source: native/cudnn/RNN.cpp (_cudnn_rnn, its gradients of inputs and of
// weights). What cuDNN asks for is known as far as a GPU was seen to allocate
// it (test/oracle/cuda_oracle.py, E10).
//
//===----------------------------------------------------------------------===//

#include "../ATen/Backward/BackwardReplay.h"
#include "../ATen/Recurrent/RecurrentLayers.h"
#include "CuDNNModels.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using recurrent::Layers;

static constexpr StringLiteral kRecord =
    "an H100 with cuDNN 9.19, test/oracle/Inputs/h100-torch-2.11.json.gz, E10";

/// Whether all weights are in one block of memory, where flatten_parameters()
/// puts them on a GPU.
static bool isFlat(const Layers &layers) {
  StringRef storage;
  for (Value value : layers.facts.params) {
    auto get = value.getDefiningOp<ParamGetOp>();
    auto param = get ? SymbolTable::lookupNearestSymbolFrom<ParamOp>(
                           get, get.getParamAttr())
                     : nullptr;
    if (!param || param.getStorage().empty() ||
        (!storage.empty() && storage != param.getStorage()))
      return false;
    storage = param.getStorage();
  }
  return !storage.empty();
}

/// All weights, as cuDNN reads them.
static int64_t getWeightBytes(const WorkspaceRule &rule, const Layers &layers) {
  int64_t bytes = 0;
  for (Value value : layers.facts.params)
    if (auto weight = rule.tensor(value))
      bytes += weight->numBytes();
  return bytes;
}

static bool isTraining(Operation *op) {
  auto train = op->getAttrOfType<BoolAttr>("train");
  return train && train.getValue();
}

/// What cuDNN keeps for the gradient: of an LSTM four gates and the cell of
/// each step, of a GRU six vectors; what a layer hands to the next one, and a
/// bit for each number of it that may be dropped.
static std::optional<int64_t> getReserveBytes(const Layers &layers) {
  if (!layers.type.isF32() || layers.facts.gates == 1 || layers.isProjected() ||
      layers.facts.bidirectional)
    return std::nullopt;
  constexpr int64_t kBits = 8, kHead = 256;
  int64_t vectors = layers.isLstm() ? 5 : 6;
  int64_t numbers = layers.steps * layers.samples;
  int64_t outputs = layers.getBytes(numbers, layers.hidden);
  int64_t between = layers.facts.layers - 1;
  int64_t dropped = layers.drops ? numbers * layers.hidden / kBits : 0;
  return layers.facts.layers * vectors * outputs +
         between * (outputs + dropped) + kHead;
}

static void doubtWorkspace(WorkspaceRule &rule) {
  rule.addDoubt(Trust::Unknown,
                "the workspace of cuDNN for recurrent layers, which is not "
                "counted",
                "cudnnGetRNNTempSpaceSizes, on the card");
}

namespace {
/// One call, and what it makes.
struct Call {
  Layers layers;
  ConcreteTensor input;
  int64_t weightBytes;
  /// Of a copy that is made in each call; 0: the weights are read as they are.
  int64_t bufferBytes;

  /// Steps first, in rows.
  int64_t getInputCopyBytes() const { return getCopyBytes(turn(input)); }
  ConcreteTensor turn(const ConcreteTensor &sequence) const {
    return layers.facts.batchFirst ? transposeDims(sequence, 0, 1) : sequence;
  }
};
} // namespace

/// None, and the rule says so, for what goes another way or is not known.
static std::optional<Call> read(WorkspaceRule &rule) {
  auto layers = recurrent::getDenseLayers(rule);
  if (!layers) {
    if (rule.isExact())
      rule.setInexact("recurrent layers of packed sequences on a GPU");
    return std::nullopt;
  }
  auto input = rule.tensor(layers->facts.input);
  if (!input || !input->getStrides()) {
    rule.setInexact("the strides of a sequence are unknown");
    return std::nullopt;
  }
  int64_t bytes = getWeightBytes(rule, *layers);
  bool flat = isFlat(*layers);
  if (!flat)
    rule.setBound("whether the weights of recurrent layers are one block of "
                  "memory; others are copied in each call");
  return Call{*layers, *input, bytes, flat ? 0 : bytes};
}

static void describeLayers(WorkspaceRule &rule) {
  auto call = read(rule);
  if (!call)
    return;
  AllocationTrace trace;
  AllocationTrace::Block input = trace.allocate(call->getInputCopyBytes());
  int64_t results = 0;
  for (Value value : rule.getOp()->getResults()) {
    auto result = rule.tensor(value);
    if (!result)
      return rule.setInexact("a shape of a recurrent layer is unknown");
    trace.allocate(result->numBytes());
    results += result->numBytes();
  }
  AllocationTrace::Block buffer = trace.allocate(call->bufferBytes);
  doubtWorkspace(rule);
  AllocationTrace::Block reserve;
  if (isTraining(rule.getOp())) {
    auto bytes = getReserveBytes(call->layers);
    if (bytes)
      rule.addDoubt(Trust::Unknown, "the reserve of cuDNN on this card",
                    kRecord);
    else
      rule.setInexact("the reserve of cuDNN for recurrent layers of this kind, "
                      "which is not counted");
    reserve = trace.allocate(bytes.value_or(0));
  }
  trace.free(input);
  trace.free(reserve);
  trace.free(buffer);
  rule.setTrace(std::move(trace), results);
}

/// Source: _cudnn_rnn in derivatives.yaml.
static void saveLayers(SavedRule &rule) {
  auto call = read(rule);
  if (!call)
    return;
  Operation *op = rule.getOp();
  for (Value value : op->getOperands())
    rule.save(value);
  rule.save(op->getResult(0));
  if (isTraining(op))
    rule.keep(getReserveBytes(call->layers).value_or(0));
  if (call->bufferBytes > 0)
    rule.keep(call->bufferBytes);
}

/// The gradient of inputs and states, then that of all weights in one block.
static void describeBackward(BackwardRule &rule) {
  auto call = read(rule);
  Operation *op = rule.getOp();
  const Layers *layers = call ? &call->layers : nullptr;
  auto output = rule.tensor(op->getResult(0));
  if (!layers || !output)
    return koila::detail::describeUnknownBackward(rule);
  BackwardReplay steps(rule);
  AllocationTrace &trace = steps;
  // Of results that nothing reads zeros arrive.
  SmallVector<AllocationTrace::Block, 3> zeros;
  for (auto [index, value] : llvm::enumerate(op->getResults()))
    if (!rule.getGradient(index)) {
      auto missing = rule.tensor(value);
      zeros.push_back(trace.allocate(missing ? missing->numBytes() : 0));
    }
  auto input = trace.allocate(call->getInputCopyBytes());
  AllocationTrace::Block copy;
  if (const ConcreteTensor *gradient = rule.getGradient())
    copy = trace.allocate(getCopyBytes(call->turn(*gradient)));
  // Operands are the sequence, states and weights; one value may be several.
  constexpr unsigned sequence = 0, states = 1;
  unsigned weights = states + layers->facts.hidden.size();
  unsigned count = op->getNumOperands();
  SmallVector<std::pair<unsigned, MadeTensor>, 3> made;
  ConcreteTensor turned = call->turn(call->input);
  turned.contiguous = true;
  turned.strides.reset();
  MadeTensor block = steps.allocate(turned);
  made.emplace_back(sequence, MadeTensor(call->turn(turned), block.block));
  for (unsigned state = states; state < weights; ++state)
    made.emplace_back(state, steps.allocate(steps.read(state)));
  doubtWorkspace(rule);
  trace.free(copy);
  trace.free(input);
  if (llvm::any_of(llvm::seq(weights, count),
                   [&](unsigned weight) { return steps.wants(weight); })) {
    auto again = trace.allocate(call->getInputCopyBytes());
    // They are views of one block.
    for (unsigned weight = weights; weight < count; ++weight) {
      MadeTensor part = steps.allocate(steps.read(weight));
      if (steps.wants(weight))
        steps.give(weight, part, /*isViewed=*/true);
    }
    trace.free(again);
  }
  for (AllocationTrace::Block zero : llvm::reverse(zeros))
    trace.free(zero);
  for (auto &[operand, gradient] : made)
    if (steps.wants(operand))
      steps.give(operand, gradient,
                 operand == sequence && layers->facts.batchFirst);
    else
      steps.free(gradient);
  steps.finish();
}

void cudnn::addRecurrentModels(KernelLibrary &library) {
  library.add<GruInputOp, LstmInputOp, RnnReluInputOp, RnnTanhInputOp>(
      {describeLayers, saveLayers, describeBackward});
}
