//===- RecurrentLayers.h - Recurrent layers in numbers ----------*- C++ -*-===//
//
// Private to lib/KernelModels: what the workspace rules of recurrent layers
// share.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_RECURRENT_RECURRENTLAYERS_H
#define KOILA_KERNELMODELS_ATEN_RECURRENT_RECURRENTLAYERS_H

#include "../../ATenCPU/GemmOperandCopies.h"
#include "koila/Dialect/Koila/IR/AttentionOps.h"

namespace koila::kernels {
class AutogradReplay;
struct Term;
} // namespace koila::kernels

namespace koila::recurrent {

/// The layers of one call with numbers for symbols.
struct Layers {
  rules::Recurrent facts;
  mlir::Type type;
  int64_t steps = 0, samples = 0, features = 0;
  /// Of a cell, and of what it hands to the next step: less if projected.
  int64_t hidden = 0, state = 0;
  /// Whether a dropout follows each layer but the last.
  bool drops = false;

  bool isLstm() const { return facts.gates == 4; }
  bool isProjected() const { return state != hidden; }
  int64_t getDirections() const { return facts.bidirectional ? 2 : 1; }
  int64_t getCells() const { return facts.layers * getDirections(); }
  /// The weights of a cell: of inputs, of states, biases, of a projection.
  llvm::ArrayRef<mlir::Value> getParams(int64_t cell) const;
  /// What the inputs of a layer have.
  int64_t getFeatures(int64_t layer) const {
    return layer == 0 ? features : state * getDirections();
  }
  /// The bytes of that many vectors of that width.
  int64_t getBytes(int64_t vectors, int64_t width) const;
};

/// What the cells of all steps of a layer are multiplied with.
blas::Factor getInput(WorkspaceRule &rule, const Layers &layers, int64_t layer);
/// That of any cell; all are slices of one tensor.
blas::Factor getFirstState(WorkspaceRule &rule, const Layers &layers);

/// Those of a call on sequences of one length; none, and then the rule may say
/// why, for other operators and where something is not known.
std::optional<Layers> getDenseLayers(WorkspaceRule &rule);
/// Whether oneDNN runs the layers: an LSTM of float32.
bool isOfOneDnn(const Layers &layers);

/// What oneDNN makes of a row of float32.
int64_t padRow(int64_t elements);
/// What it keeps of one layer in one direction for the gradient.
int64_t getWorkspaceBytes(const Layers &layers, int64_t features);
/// Its scratchpad while it computes that gradient.
int64_t getGradientScratchpadBytes(const Layers &layers);

/// An LSTM of float32, which goes to oneDNN layer by layer. `saved` is told
/// what autograd keeps, here and below.
void describeOneDnn(WorkspaceRule &rule, SavedRule *saved,
                    const Layers &layers);
/// What a dropout makes of the outputs of a layer, which live on. Source:
/// _dropout_impl in native/Dropout.cpp.
kernels::Term drop(kernels::AutogradReplay &steps,
                   const kernels::Term &outputs);
/// Layers of products where autograd records.
void describeRecorded(WorkspaceRule &rule, SavedRule *saved,
                      const Layers &layers);

/// One step of one layer.
struct Cell {
  int64_t gates;
  mlir::Value input;
  llvm::SmallVector<mlir::Value> hidden;
  mlir::Value inputWeight, weight;
  /// Null if there is none.
  mlir::Value inputBias, bias;
};
void describeRecordedCell(WorkspaceRule &rule, SavedRule *saved,
                          const Cell &cell);

} // namespace koila::recurrent

#endif // KOILA_KERNELMODELS_ATEN_RECURRENT_RECURRENTLAYERS_H
