//===- RulesNorm.cpp - Rules of normalisations, softmax, dropout ----------===//

#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// batch_norm
//===----------------------------------------------------------------------===//

LogicalResult BatchNormOp::inferShapes(ShapeRule &rule) {
  TensorInfo input = rule.tensor(getInput());
  if (!getTraining() && (!getRunningMean() || !getRunningVar()))
    return rule.emitError()
           << "needs running_mean and running_var outside training";
  if (input.hasRank()) {
    if (input.getRank() < 2)
      return rule.emitError()
             << "expects rank 2 or more, got " << input.getRank();
    auto channels = input.dim(1).getConstant();
    for (Value vector :
         {getWeight(), getBias(), getRunningMean(), getRunningVar()}) {
      TensorInfo info = rule.tensor(vector);
      if (!info.hasRank() || !channels)
        continue;
      auto count = info.getRank() == 1 ? info.dim(0).getConstant()
                                       : std::optional<int64_t>(-1);
      if (count && *count != *channels)
        return rule.emitError() << "normalises " << *channels
                                << " channels with a vector for " << *count;
    }
  }
  if (!input.isDense())
    input.strides.reset();
  rule.setResult(0, input);
  return success();
}

void BatchNormOp::inferBatch(BatchRule &rule) {
  if (getTraining())
    return rule.mix("batch_norm in training mode normalises over the batch");
  for (Value vector :
       {getWeight(), getBias(), getRunningMean(), getRunningVar()})
    if (!rule.fact(vector).isFree())
      return rule.mix("the statistics of batch_norm depend on the batch");
  BatchFact fact = rule.fact(getInput());
  if (fact.dim == 1)
    return rule.mix("the batch is the channel dim of batch_norm");
  rule.setResult(0, fact);
}

void BatchNormOp::describeStorage(StorageRule &) {}

void BatchNormOp::describeWorkspace(WorkspaceRule &rule) {
  auto input = rule.tensor(getInput());
  if (!input || input->dims.size() < 2)
    return rule.setInexact("the shape of the input is unknown");
  // Scale and shift of each channel (measured; see docs/Workspaces.md). An
  // empty batch takes another path with two more vectors.
  int64_t channels = input->dims[1];
  int64_t bytes = getElementBytes(input->elementType);
  rule.setTransient((input->numElements() == 0 ? 4 : 2) * channels * bytes);
  if (!input->contiguous && !input->channelsLast)
    rule.setTransient(3 * channels * bytes);
  if (!input->elementType.isF32())
    rule.setInexact("batch_norm of another type than float32");
}

//===----------------------------------------------------------------------===//
// layer_norm
//===----------------------------------------------------------------------===//

LogicalResult LayerNormOp::inferShapes(ShapeRule &rule) {
  TensorInfo input = rule.tensor(getInput());
  if (input.hasRank()) {
    ArrayRef<int64_t> shape = getNormalizedShape();
    int64_t leading = input.getRank() - static_cast<int64_t>(shape.size());
    if (shape.empty() || leading < 0)
      return rule.emitError()
             << "normalises " << shape.size() << " dims of an input of rank "
             << input.getRank();
    for (auto [index, extent] : llvm::enumerate(shape)) {
      auto found = input.dim(leading + index).getConstant();
      if (found && *found != extent)
        return rule.emitError() << "normalises extent " << extent
                                << ", the input has " << *found;
    }
    bool contiguous = input.isContiguous() == Proof::Yes;
    input = TensorInfo::contiguous(*input.dims, input.elementType);
    if (!contiguous)
      input.strides.reset();
  }
  rule.setResult(0, input);
  return success();
}

void LayerNormOp::inferBatch(BatchRule &rule) {
  TensorInfo input = rule.tensor(getInput());
  BatchFact fact = rule.fact(getInput());
  if (!rule.fact(getWeight()).isFree() || !rule.fact(getBias()).isFree())
    return rule.mix("the weight of layer_norm depends on the batch");
  int64_t normalised = getNormalizedShape().size();
  if (!input.hasRank() || fact.dim >= input.getRank() - normalised)
    return rule.mix("layer_norm normalises over the batch dim");
  rule.setResult(0, fact);
}

void LayerNormOp::describeStorage(StorageRule &) {}

void LayerNormOp::describeWorkspace(WorkspaceRule &rule) {
  auto input = rule.tensor(getInput());
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  int64_t row = 1;
  for (int64_t extent : getNormalizedShape())
    row *= extent;
  // Mean and reciprocal deviation, one each per row
  // (aten/src/ATen/native/layer_norm.cpp).
  int64_t bytes = std::max<int64_t>(getElementBytes(input->elementType), 4);
  rule.setTransient(row == 0 ? 0 : 2 * (input->numElements() / row) * bytes);
  if (!input->elementType.isF32())
    rule.setInexact("layer_norm of another type than float32");
}

//===----------------------------------------------------------------------===//
// softmax
//===----------------------------------------------------------------------===//

LogicalResult rules::inferSoftmax(ShapeRule &rule, Value self, int64_t dim,
                                  std::optional<int64_t> dtype) {
  TensorInfo info = rule.tensor(self);
  if (dtype) {
    info.elementType = getTypeForScalarTypeCode(rule.getContext(), *dtype);
    if (!info.elementType)
      return rule.emitError() << "dtype code " << *dtype << " is unknown";
  }
  if (info.hasRank()) {
    if (!normalizeDim(dim, info.getRank()))
      return rule.emitError()
             << "dim " << dim << " is out of range for rank " << info.getRank();
    bool contiguous = info.isContiguous() == Proof::Yes;
    info = TensorInfo::contiguous(*info.dims, info.elementType);
    if (!contiguous)
      info.strides.reset();
  }
  rule.setResult(0, info);
  return success();
}

void rules::inferAlongDimBatch(BatchRule &rule, Value self, int64_t dim,
                               StringRef what) {
  TensorInfo info = rule.tensor(self);
  BatchFact fact = rule.fact(self);
  if (!info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  auto along = normalizeDim(dim, info.getRank());
  if (!along || *along == fact.dim)
    return rule.mix(what + " over dim " + Twine(dim) + " mixes samples");
  rule.setResult(0, fact);
}

void rules::describeSoftmaxWorkspace(WorkspaceRule &rule, Value self,
                                     Value result) {
  auto input = rule.tensor(self), output = rule.tensor(result);
  if (!input || !output)
    return rule.setInexact("a shape of softmax is unknown");
  if (!input->contiguous)
    rule.setInexact("softmax copies an input that is not contiguous");
  if (input->elementType != output->elementType)
    rule.setInexact("softmax casts its input");
}

//===----------------------------------------------------------------------===//
// dropout
//===----------------------------------------------------------------------===//

LogicalResult DropoutOp::inferShapes(ShapeRule &rule) {
  rule.setResult(0, rule.tensor(getInput()));
  return success();
}
void DropoutOp::inferBatch(BatchRule &rule) {
  rule.setResult(0, rule.fact(getInput()));
}
void DropoutOp::describeStorage(StorageRule &rule) {
  rule.setAlias(0, getInput());
}
void DropoutOp::describeWorkspace(WorkspaceRule &) {}
