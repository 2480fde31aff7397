//===- Derivatives.cpp - Differentiation of composed operators ------------===//
//
// Operators that PyTorch composes of others are not in its table of derivatives
// (SavedTensors.cpp). Here is what their gradients read; what kernels keep in
// its place is said in lib/KernelModels.
//
//===----------------------------------------------------------------------===//

#include "Rules/Derivatives.h"
#include "Rules/IndexRules.h"
#include "Rules/LossRules.h"
#include "Rules/MatmulRules.h"
#include "Rules/PoolRules.h"
#include "Rules/ReductionRules.h"
#include "koila/Dialect/Koila/IR/Dropout.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;

static void describeUnknown(DifferentiationRule &rule) {
  rule.setUnknown("what autograd keeps of it is not known");
}

void rules::passFrom(DifferentiationRule &rule, Value source) {
  if (!rule.wantsGradient(source))
    rule.setDetached();
}

void rules::describeFactors(DifferentiationRule &rule, Value first,
                            Value second) {
  // By their names in a node: mat1 and mat2 of addmm, self and vec of mv; but
  // mat2 and self of mm and bmm.
  auto getRank = [](Value factor) {
    auto type = dyn_cast<RankedTensorType>(factor.getType());
    return type ? type.getRank() : 0;
  };
  auto linear = dyn_cast<LinearOp>(rule.getOp());
  bool isInOrder = linear ? static_cast<bool>(linear.getBias())
                          : getRank(second) == 1 ||
                                (getRank(first) == 2 && getRank(second) > 2);
  if (isInOrder)
    rule.saveFor(second, first);
  rule.saveFor(first, second);
  if (!isInOrder)
    rule.saveFor(second, first);
}

void rules::describeExpressionDerivative(DifferentiationRule &rule) {
  rule.saveInner();
}

void rules::describeConvolutionDerivative(DifferentiationRule &rule) {
  Operation *op = rule.getOp();
  rule.save(op->getOperand(1));
  rule.save(op->getOperand(0));
}

void rules::describeMatrixFunctionDerivative(DifferentiationRule &rule) {
  Operation *op = rule.getOp();
  Value self = op->getOperand(0), result = op->getResult(0);
  llvm::TypeSwitch<Operation *>(op)
      .Case<LinalgInvOp, InverseOp>(
          [&](auto) { describeDerivativeAs(rule, "linalg_inv_ex"); })
      .Case<LinalgCholeskyOp>(
          [&](auto) { describeDerivativeAs(rule, "linalg_cholesky_ex"); })
      // Factors and pivots are made inside.
      .Case<LinalgSolveOp, LinalgSolveExOp, LinalgDetOp, DetOp, LinalgSlogdetOp,
            SlogdetOp>([&](auto) {
        rule.save(self);
        rule.save(result);
        rule.saveInner();
      })
      .Case<LogdetOp>([&](auto) {
        rule.save(self);
        rule.saveInner();
      })
      .Case<LinalgEighOp>([&](auto eigh) {
        rule.save(eigh.getEigenvalues());
        rule.save(eigh.getEigenvectors());
      })
      .Case<LinalgEigvalshOp, LinalgSvdvalsOp>([&](auto) {
        rule.save(result);
        rule.saveInner();
      })
      .Case<LinalgSvdOp>([&](auto svd) {
        rule.save(svd.getU());
        rule.save(svd.getS());
        rule.save(svd.getVh());
      })
      .Case<PinverseOp>([&](auto) {
        rule.save(self);
        rule.save(result);
      })
      .Case<MatrixExpOp>(
          [&](auto) { describeDerivativeAs(rule, "linalg_matrix_exp"); })
      .Case<LinalgMatrixPowerOp, MatrixPowerOp>(
          [&](auto) { describeUnknown(rule); })
      .Default([&](Operation *) { describeDerivative(rule); });
}

void rules::describeEinsumDerivative(DifferentiationRule &rule) {
  ValueRange tensors = cast<EinsumOp>(rule.getOp()).getTensors();
  // A view or a sum of one reads nothing.
  if (tensors.size() == 1)
    return;
  // The product of those on the left, which a copy inside may hold, meets the
  // next one.
  for (auto [index, tensor] : llvm::enumerate(tensors.drop_front())) {
    for (Value before : tensors.take_front(index + 1))
      rule.saveFor(before, tensor);
    if (index == 0)
      rule.saveFor(tensor, tensors.front());
  }
  if (tensors.size() > 2)
    rule.saveInner();
}

// Source: _cdist_forward and _pdist_forward in derivatives.yaml.
void rules::describeDistanceDerivative(DifferentiationRule &rule) {
  Operation *op = rule.getOp();
  if (isa<PairwiseDistanceOp, CosineSimilarityOp>(op))
    return describeExpressionDerivative(rule);
  for (Value operand : op->getOperands())
    rule.save(operand);
  rule.save(op->getResult(0));
}

// Source: _embedding_bag in derivatives.yaml.
void rules::describeEmbeddingBagDerivative(DifferentiationRule &rule) {
  auto describe = [&](auto op) {
    if (!rule.wantsGradient(op.getWeight()))
      return rule.setUnknown("embedding_bag of a weight that is not trained");
    rule.save(op.getIndices());
    rule.save(op.getOffsets());
    rule.save(op.getPerSampleWeights());
    rule.saveFor(op.getPerSampleWeights(), op.getWeight());
    for (Value made : op->getResults().drop_front())
      rule.save(made);
  };
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<EmbeddingBagOp, EmbeddingBagPaddingOp>(describe);
}

// Source: native/Loss.cpp and native/LossCTC.cpp.
void rules::describeLossDerivative(DifferentiationRule &rule) {
  llvm::TypeSwitch<Operation *>(rule.getOp())
      // target * (log(target) - self)
      .Case<KlDivOp>([&](auto op) {
        if (op.getLogTarget() || rule.wantsGradient(op.getTarget()))
          return describeExpressionDerivative(rule);
        rule.save(op.getTarget());
      })
      .Case<CosineEmbeddingLossOp, CrossEntropyLossOp, CtcLossOp,
            HingeEmbeddingLossOp, L1LossOp, MarginRankingLossOp, NllLossOp,
            NllLoss2dOp, NllLossNdOp, PoissonNllLossOp, TripletMarginLossOp>(
          [&](auto) { describeExpressionDerivative(rule); })
      .Default([&](Operation *) { describeDerivative(rule); });
}

// Mean and deviation are tensors of their own.
void rules::describeNormDerivative(DifferentiationRule &rule) {
  llvm::TypeSwitch<Operation *>(rule.getOp())
      .Case<WeightNormOp, RmsNormOp>(
          [&](auto) { describeExpressionDerivative(rule); })
      .Case<BatchNormOp>([&](auto norm) {
        for (Value value : {norm.getInput(), norm.getRunningMean(),
                            norm.getRunningVar(), norm.getWeight()})
          rule.save(value);
        if (norm.getTraining())
          rule.saveInner();
      })
      .Case<LayerNormOp>([&](auto norm) {
        for (Value value : {norm.getBias(), norm.getInput(), norm.getWeight()})
          rule.save(value);
        rule.saveInner();
      })
      .Case<GroupNormOp>([&](auto norm) {
        for (Value value : {norm.getInput(), norm.getWeight()})
          rule.save(value);
        rule.saveInner();
      })
      .Case<InstanceNormOp>([&](auto norm) {
        for (Value value : {norm.getInput(), norm.getRunningMean(),
                            norm.getRunningVar(), norm.getWeight()})
          rule.save(value);
        if (norm.getUseInputStats())
          rule.saveInner();
      })
      .Default([&](Operation *) { describeUnknown(rule); });
}

void rules::describePoolDerivative(DifferentiationRule &rule) {
  Operation *op = rule.getOp();
  llvm::TypeSwitch<Operation *>(op)
      // Places, which are no result.
      .Case<MaxPool1dOp, MaxPool2dOp, MaxPool3dOp>([&](auto pool) {
        rule.save(pool.getSelf());
        rule.saveInner();
      })
      .Case<MaxPool1dWithIndicesOp, AdaptiveMaxPool1dOp>([&](auto pool) {
        rule.save(pool.getSelf());
        rule.save(op->getResult(1));
      })
      .Case<AvgPool1dOp>([&](auto pool) { rule.save(pool.getSelf()); })
      // To one element each they are means.
      .Case<AdaptiveAvgPool1dOp, AdaptiveAvgPool2dOp, AdaptiveAvgPool3dOp>(
          [&](auto pool) {
            if (!llvm::all_of(pool.getOutputSize(),
                              [](int64_t extent) { return extent == 1; }))
              rule.save(pool.getSelf());
          })
      .Default([&](Operation *) { describeDerivative(rule); });
}
