//===- ClassLossMeanShapes.cpp - Means over classes as quotients ----------===//
//
// The divisor of a mean is the sum of the weights of all targets that are not
// ignored, with label smoothing, too. Source: nll_loss_out_frame in
// aten/src/ATen/native/LossNLL.cpp, and cross_entropy_loss_label_smoothing.
//
//===----------------------------------------------------------------------===//

#include "../Rules/ElementwiseRules.h"
#include "../Rules/IndexRules.h"
#include "../Rules/LossRules.h"
#include "../Rules/ReductionRules.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"

using namespace mlir;
using namespace koila;

Value rules::expandClassLossMean(Operation *op, Value weight,
                                 OpBuilder &builder) {
  constexpr int64_t kMean = 1, kSum = 2;
  int64_t ignored = op->getAttrOfType<IntegerAttr>("ignore_index").getInt();
  Value target = op->getOperand(1);
  auto type = dyn_cast<RankedTensorType>(target.getType());
  auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  // Probabilities of classes have an ordinary mean.
  if (op->getAttrOfType<IntegerAttr>("reduction").getInt() != kMean ||
      ShapedType::isDynamic(ignored) || !type || !result ||
      !type.getElementType().isInteger(64))
    return {};
  Location loc = op->getLoc();
  Operation *sum = builder.clone(*op);
  sum->setAttr("reduction", builder.getI64IntegerAttr(kSum));
  Type truth = type.clone(builder.getI1Type());
  Attribute index = builder.getI64IntegerAttr(ignored);
  Value divisor;
  if (weight) {
    Attribute zero = builder.getI64IntegerAttr(0);
    Value isIgnored = EqScalarOp::create(builder, loc, truth, target, index,
                                         /*tied=*/nullptr, ValueRange());
    Value known =
        MaskedFillScalarOp::create(builder, loc, type, target, isIgnored, zero,
                                   /*tied=*/nullptr, ValueRange());
    Type weights = type.clone(result.getElementType());
    Value each = TakeOp::create(builder, loc, weights, weight, known);
    each = MaskedFillScalarOp::create(builder, loc, weights, each, isIgnored,
                                      zero, /*tied=*/nullptr, ValueRange());
    divisor = SumOp::create(builder, loc, result, each, /*dtype=*/nullptr);
  } else {
    Value counts = NeScalarOp::create(builder, loc, truth, target, index,
                                      /*tied=*/nullptr, ValueRange());
    divisor = SumOp::create(builder, loc, result.clone(builder.getI64Type()),
                            counts, /*dtype=*/nullptr);
  }
  return DivTensorOp::create(builder, loc, result, sum->getResult(0), divisor,
                             /*tied=*/nullptr);
}
