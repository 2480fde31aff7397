//===- NormShapes.cpp - Rules of batch_norm, layer_norm, softmax ----------===//

#include "../Rules/ReductionRules.h"
#include "../Utils/MaskedResults.h"
#include "../Utils/Windows.h"
#include "koila/Dialect/Koila/IR/Dropout.h"
#include "koila/Dialect/Koila/IR/NormOps.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// batch_norm
//===----------------------------------------------------------------------===//

/// The layout that batch_norm gives its result; extents of one do not matter.
/// Source: batch_norm_cpu in aten/src/ATen/native/Normalization.cpp.
static TensorInfo getNormalized(const TensorInfo &input) {
  if (!input.hasRank() || !input.strides || input.getRank() < 4 ||
      input.getRank() > 5 || input.isContiguous() != TriBool::No)
    return rules::inSuggestedFormat(input);
  TensorInfo wanted =
      spatial::makeImage(*input.dims, input.elementType, TriBool::Yes);
  for (int64_t dim = 0; dim < input.getRank(); ++dim) {
    if (input.dim(dim).isConstant(1))
      continue;
    switch (proveEqual((*input.strides)[dim], (*wanted.strides)[dim])) {
    case TriBool::No:
      return rules::inSuggestedFormat(input);
    case TriBool::Unknown:
      wanted.strides.reset();
      return wanted;
    case TriBool::Yes:
      break;
    }
  }
  return wanted;
}

/// The layout of the gradient of the input, which is that of the result where
/// one kernel reads both, else what the input suggests. Source:
/// batch_norm_backward_cpu_template, ibid.
static TensorInfo getGradientOfNormalized(const TensorInfo &input,
                                          const TensorInfo &gradient) {
  TensorInfo dense = getNormalized(input);
  if (gradient.isContiguous() == TriBool::Yes)
    return dense;
  TensorInfo suggested = rules::inSuggestedFormat(input);
  if (!dense.strides || !suggested.strides)
    suggested.strides.reset();
  for (int64_t dim = 0; suggested.strides && dim < input.getRank(); ++dim)
    if (!input.dim(dim).isConstant(1) &&
        proveEqual((*dense.strides)[dim], (*suggested.strides)[dim]) !=
            TriBool::Yes)
      suggested.strides.reset();
  return suggested;
}

LogicalResult BatchNormOp::inferShapes(ShapeRule &rule) {
  TensorInfo input = rule.tensor(getInput());
  if (rules::isEmpty(input) && input.getRank() > 1) {
    if (failed(rules::checkFirstElements(rule, {getWeight(), getBias()})))
      return failure();
    rule.setResult(0, rules::inSuggestedFormat(input));
    return success();
  }
  if (!getTraining() && (!getRunningMean() || !getRunningVar()))
    return rule.emitError()
           << "needs running_mean and running_var outside training";
  if (!getRunningMean() != !getRunningVar())
    return rule.emitError()
           << "takes running_mean and running_var together or neither";
  SmallVector<Value> vectors{getWeight(), getBias(), getRunningMean(),
                             getRunningVar()};
  if (input.hasRank()) {
    if (input.getRank() < 2)
      return rule.emitError()
             << "expects rank 2 or more, got " << input.getRank();
    if (failed(rules::checkChannels(rule, input.dim(1), vectors)))
      return failure();
  }
  if (failed(rules::checkParameterTypes(rule, input, vectors)))
    return failure();
  rule.setResult(0, getNormalized(input));
  return success();
}

SmallVector<OpOperand *> BatchNormOp::getUpdated() {
  SmallVector<OpOperand *> updated;
  if (getTraining())
    for (MutableOperandRange statistic :
         {getRunningMeanMutable(), getRunningVarMutable()})
      for (OpOperand &operand : statistic)
        updated.push_back(&operand);
  return updated;
}

void BatchNormOp::inferBatch(BatchRule &rule) {
  if (getTraining() && !(*this)->hasAttr(KoilaDialect::kPerTileAttr))
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

LogicalResult rules::inferBatchNormStats(ShapeRule &rule, Value input) {
  TensorInfo info = rule.tensor(input), channels;
  channels.elementType = info.elementType;
  if (info.hasRank()) {
    if (info.getRank() < 2)
      return rule.emitError()
             << "expects rank 2 or more, got " << info.getRank();
    if (isEmpty(info))
      return rule.emitError() << "has no statistics of an empty input";
    channels = TensorInfo::contiguous({info.dim(1)}, info.elementType);
  }
  rule.setResult(0, channels);
  rule.setResult(1, channels);
  return success();
}

void rules::inferBatchNormStatsBatch(BatchRule &rule, Value input) {
  BatchFact fact = rule.fact(input);
  if (fact.dim == 1)
    return rule.mix("the batch is the channel dim of batch_norm_update_stats");
  rule.mix("statistics over the batch mix samples",
           fact.isAt() && fact.dim == 0 ? Combine::MeanAndVariance
                                        : Combine::None);
}

// Source: batch_norm_backward_cpu in native/Normalization.cpp, which reads what
// it is given without a look at its shape, and divides by the extents.
LogicalResult rules::inferNativeBatchNormBackward(ShapeRule &rule) {
  auto op = cast<NativeBatchNormBackwardOp>(rule.getOp());
  if (op.getOutputMask().size() != 3)
    return rule.emitError()
           << "output_mask names input, weight and bias, and "
           << "has " << op.getOutputMask().size() << " elements";
  TensorInfo gradient = rule.tensor(op.getGradOut());
  TensorInfo input = rule.tensor(op.getInput());
  SmallVector<Value> vectors(op->getOperands().drop_front(2));
  TensorInfo made, channels;
  made.elementType = channels.elementType = input.elementType;
  // Parameters may be wider than what they scale.
  for (Value vector : vectors)
    if (Type type = rule.tensor(vector).elementType)
      channels.elementType = type;
  bool train = op.getTrain();
  if (train ? !op.getSaveMean() || !op.getSaveInvstd()
            : !op.getRunningMean() || !op.getRunningVar())
    return rule.emitError()
           << "needs "
           << (train ? "save_mean and save_invstd in training"
                     : "running_mean and running_var outside training");
  if (gradient.elementType && input.elementType &&
      gradient.elementType != input.elementType)
    return rule.emitError() << "input is " << input.elementType
                            << ", grad_out is " << gradient.elementType;
  if (input.hasRank()) {
    if (input.getRank() < 2)
      return rule.emitError()
             << "expects rank 2 or more, got " << input.getRank();
    if (isEmpty(input))
      return rule.emitError() << "has no gradient of an empty input";
    bool fits = !gradient.hasRank() || gradient.getRank() == input.getRank();
    for (int64_t dim = 0; fits && gradient.hasRank() && dim < input.getRank();
         ++dim)
      fits = proveEqual(gradient.dim(dim), input.dim(dim)) != TriBool::No;
    if (!fits)
      return rule.emitError() << "grad_out is not shaped as the input";
    if (failed(checkChannels(rule, input.dim(1), vectors)))
      return failure();
    channels = TensorInfo::contiguous({input.dim(1)}, channels.elementType);
    made = getGradientOfNormalized(input, gradient);
  }
  if (failed(checkParameterTypes(rule, input, vectors)))
    return failure();
  setMaskedResults(rule, op.getOutputMask(), {made, channels, channels});
  return success();
}

void rules::inferNativeBatchNormBackwardBatch(BatchRule &rule) {
  auto op = cast<NativeBatchNormBackwardOp>(rule.getOp());
  BatchFact fact = rule.fact(op.getInput());
  for (Value vector : op->getOperands().drop_front(2))
    if (!rule.fact(vector).isFree())
      return rule.mix("the statistics of batch_norm depend on the batch");
  if (!fact.isAt() || fact.dim != 0 || !(rule.fact(op.getGradOut()) == fact))
    return rule.mix("the batch is not dim 0 of the gradient and of the input");
  if (op.getTrain() && op.getOutputMask()[0])
    return rule.mix("the gradient of batch_norm in training mode mixes "
                    "samples");
  BatchFact sum = BatchFact::mixed(
      "the gradient of a weight is a sum over the samples", op);
  sum.combine = Combine::GradientSum;
  for (auto [index, isMade] : llvm::enumerate(op.getOutputMask())) {
    BatchFact result = index == 0 ? fact : sum;
    rule.setResult(index, isMade ? result : BatchFact::free());
  }
}

//===----------------------------------------------------------------------===//
// layer_norm
//===----------------------------------------------------------------------===//

LogicalResult LayerNormOp::inferShapes(ShapeRule &rule) {
  TensorInfo input = rule.tensor(getInput());
  SmallVector<Value> parameters{getWeight(), getBias()};
  if (failed(rules::inferTrailingNorm(rule, getInput(), parameters)) ||
      failed(rules::checkParameterTypes(rule, input, parameters)))
    return failure();
  if (input.hasRank())
    input = TensorInfo::contiguous(*input.dims, input.elementType);
  rule.setResult(0, input);
  return success();
}

void LayerNormOp::inferBatch(BatchRule &rule) {
  rules::inferTrailingNormBatch(rule, getInput(), {getWeight(), getBias()});
}

void LayerNormOp::describeStorage(StorageRule &) {}

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
    info = TensorInfo::contiguous(*info.dims, info.elementType);
  }
  rule.setResult(0, info);
  return success();
}

void rules::inferAlongDimBatch(BatchRule &rule, Value self, int64_t dim,
                               StringRef what) {
  rule.takeAnyRows();
  TensorInfo info = rule.tensor(self);
  BatchFact fact = rule.fact(self);
  if (!info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  auto along = normalizeDim(dim, info.getRank());
  if (!along || *along == fact.dim)
    return rule.mix(what + " over dim " + Twine(dim) + " mixes samples");
  rule.setResult(0, fact);
}
