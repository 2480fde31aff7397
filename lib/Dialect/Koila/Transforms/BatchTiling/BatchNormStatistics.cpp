//===- BatchNormStatistics.cpp - Statistics of the batch, apart -----------===//

#include "BatchNormStatistics.h"
#include "PhasePlan.h"
#include "Reductions.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "koila/Dialect/Koila/IR/PointwiseOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace koila;

namespace {
/// Makes operators by their attributes.
struct Maker {
  OpBuilder &builder;
  Location loc;

  template <typename OpT>
  Value make(ValueRange operands, Type type,
             ArrayRef<std::pair<StringRef, Attribute>> attributes = {}) const {
    OperationState state(loc, OpT::getOperationName());
    state.addOperands(operands);
    state.addTypes(type);
    for (auto [name, attribute] : attributes)
      state.addAttribute(name, attribute);
    return builder.create(state)->getResult(0);
  }
  Value multiply(Value lhs, Value rhs) const {
    return make<MulTensorOp>({lhs, rhs}, lhs.getType());
  }
  Value negate(Value tensor) const {
    return make<MulScalarOp>(tensor, tensor.getType(),
                             {{"other", builder.getF64FloatAttr(-1.0)}});
  }
  /// By a number that the program computes.
  Value multiplyBy(Value tensor, Value number) const {
    return make<MulScalarOp>({tensor, number}, tensor.getType(),
                             {{"other", DynamicAttr::get(loc.getContext())}});
  }
  Value divideBy(Value tensor, Value number) const {
    return make<DivScalarOp>({tensor, number}, tensor.getType(),
                             {{"other", DynamicAttr::get(loc.getContext())}});
  }
  Value convert(Value tensor, Type type) const {
    return convertElements(builder, loc, tensor, type);
  }
};
} // namespace

static RankedTensorType getInputType(BatchNormOp op) {
  return cast<RankedTensorType>(op.getInput().getType());
}

/// What statistics are in: of half types in float32, as PyTorch adds them up.
/// Source: batch_norm_cpu in aten/src/ATen/native/Normalization.cpp.
static Type getStatisticsType(BatchNormOp op) {
  Type type = getInputType(op).getElementType();
  return isHalf(type) ? Float32Type::get(type.getContext()) : type;
}

/// Of one number for each channel.
static RankedTensorType getChannelType(BatchNormOp op) {
  return RankedTensorType::get({getInputType(op).getDimSize(1)},
                               getStatisticsType(op));
}

/// How many elements a statistic is of, an integer of the program.
static Value countElements(const Maker &maker, BatchNormOp op) {
  Value product;
  for (int64_t dim = 0; dim < getInputType(op).getRank(); ++dim) {
    if (dim == 1)
      continue;
    Value extent =
        SizeIntOp::create(maker.builder, maker.loc, maker.builder.getI64Type(),
                          op.getInput(), maker.builder.getI64IntegerAttr(dim));
    product = product ? arith::MulIOp::create(maker.builder, maker.loc, product,
                                              extent)
                            .getResult()
                      : extent;
  }
  return product;
}

//===----------------------------------------------------------------------===//
// Statistics
//===----------------------------------------------------------------------===//

/// Source: batch_norm_cpu_update_stats_template in
/// aten/src/ATen/native/Normalization.cpp.
static void updateStatistic(const Maker &maker, Value statistic, Value found,
                            const APFloat &momentum) {
  maker.make<LerpScalarOp>(
      {statistic, found}, statistic.getType(),
      {{"weight", maker.builder.getF64FloatAttr(momentum.convertToDouble())},
       {"tied", maker.builder.getUnitAttr()},
       {KoilaDialect::kWritesAttr, maker.builder.getUnitAttr()}});
}

static void decompose(BatchNormOp op) {
  OpBuilder builder(op);
  Maker maker{builder, op.getLoc()};
  SmallVector<Type> types(2, getChannelType(op));
  auto stats = BatchNormUpdateStatsOp::create(
      builder, op.getLoc(), types,
      maker.convert(op.getInput(), getStatisticsType(op)),
      {builder.getNamedAttr("momentum", builder.getF64FloatAttr(0.0)),
       builder.getNamedAttr("operandSegmentSizes",
                            builder.getDenseI32ArrayAttr({1, 0, 0}))});
  Value mean = stats.getMean(), variance = stats.getVariance();
  if (Value running = op.getRunningMean())
    updateStatistic(maker, running, mean, op.getMomentum());
  if (Value running = op.getRunningVar()) {
    Value count = countElements(maker, op);
    Value others = arith::SubIOp::create(
        builder, op.getLoc(), count,
        arith::ConstantIntOp::create(builder, op.getLoc(), 1, 64));
    Value unbiased = maker.divideBy(maker.multiplyBy(variance, count), others);
    updateStatistic(maker, running, unbiased, op.getMomentum());
  }
  op.getRunningMeanMutable().assign(mean);
  op.getRunningVarMutable().assign(variance);
  op.setTraining(false);
  op->setAttr(kNormalisesBatchAttr, builder.getUnitAttr());
  op->removeDiscardableAttr(KoilaDialect::kReadsAttr);
}

/// Whether the statistics are of a type that sums are exact enough in, and all
/// else is of it: parameters of half types would round them.
static bool isDecomposed(BatchNormOp op, FunctionOpInterface function) {
  auto type = dyn_cast<RankedTensorType>(op.getInput().getType());
  bool isAlone = op.getTraining() && type && type.getRank() >= 2 &&
                 op->getParentRegion() == &function.getFunctionBody() &&
                 !op->hasAttr(KoilaDialect::kPerTileAttr);
  if (!isAlone)
    return false;
  Type statistics = getStatisticsType(op);
  OperandRange parameters = op->getOperands().drop_front();
  return (statistics.isF32() || statistics.isF64()) &&
         // Without any PyTorch rounds statistics to the type of the input.
         (!parameters.empty() || !isHalf(type.getElementType())) &&
         llvm::all_of(parameters, [&](Value operand) {
           return getElementTypeOrSelf(operand.getType()) == statistics;
         });
}

bool koila::normalisesByBatch(Operation *op) {
  return op
      ->walk([](BatchStatisticsInterface op) {
        return op.usesBatchStatistics() ? WalkResult::interrupt()
                                        : WalkResult::advance();
      })
      .wasInterrupted();
}

bool koila::decomposeBatchNorms(FunctionOpInterface function) {
  SmallVector<BatchNormOp> norms;
  function->walk([&](BatchNormOp op) {
    if (isDecomposed(op, function))
      norms.push_back(op);
  });
  if (norms.empty())
    return false;
  releaseReaders(function);
  llvm::for_each(norms, decompose);
  return true;
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

BatchNormGradient::BatchNormGradient(OpBuilder &builder, BatchNormOp op,
                                     Value gradient, Value input)
    : norm(op), gradient(gradient) {
  Type channels = getChannelType(op);
  Type none = UnrankedTensorType::get(getInputType(op).getElementType());
  auto sums = NativeBatchNormBackwardOp::create(
      builder, op.getLoc(), TypeRange{none, channels, channels},
      {gradient, input, op.getRunningMean(), op.getRunningVar()},
      {builder.getNamedAttr("train", builder.getBoolAttr(false)),
       builder.getNamedAttr("eps", op.getEpsAttr()),
       builder.getNamedAttr("output_mask",
                            builder.getDenseBoolArrayAttr({false, true, true})),
       builder.getNamedAttr(
           "operandSegmentSizes",
           builder.getDenseI32ArrayAttr({1, 1, 0, 1, 1, 0, 0}))});
  ofDeviation = sums.getGradWeight();
  ofMean = sums.getGradBias();
}

/// w/s * (dy - mean(dy) - x * mean(dy * x)), x the normalised input: the last
/// two terms are a normalisation by another weight and bias. It is rounded to a
/// half type once, as PyTorch does.
void BatchNormGradient::prepareInputGradient(OpBuilder &builder) {
  auto op = cast<BatchNormOp>(norm);
  Maker maker{builder, op.getLoc()};
  RankedTensorType channels = getChannelType(op);
  Value shifted = AddScalarOp::create(
      builder, op.getLoc(), channels, op.getRunningVar(), op.getEpsAttr(),
      builder.getI64IntegerAttr(1), nullptr, ValueRange());
  scale = maker.make<RsqrtOp>(shifted, channels);
  if (Value factor = op.getWeight())
    scale = maker.multiply(scale, factor);
  Value share = maker.divideBy(maker.negate(scale), countElements(maker, op));
  weight = maker.multiply(share, ofDeviation);
  bias = maker.multiply(share, ofMean);
  for (int64_t dim = 2; dim < getInputType(op).getRank(); ++dim) {
    auto narrow = cast<RankedTensorType>(scale.getType());
    SmallVector<int64_t> shape(narrow.getShape());
    shape.push_back(1);
    scale =
        maker.make<UnsqueezeOp>(scale, narrow.clone(shape),
                                {{"dim", builder.getI64IntegerAttr(dim - 1)}});
  }
}

Value BatchNormGradient::buildInputGradient(OpBuilder &builder, Value input,
                                            Value gradient) const {
  Maker maker{builder, norm->getLoc()};
  Type type = cast<TensorType>(input.getType()).getElementType();
  Type wide = cast<TensorType>(weight.getType()).getElementType();
  Value exact = maker.convert(input, wide);
  auto rest = cast<BatchNormOp>(builder.clone(*norm));
  rest.getInputMutable().assign(exact);
  rest.getWeightMutable().assign(weight);
  rest.getBiasMutable().assign(bias);
  rest->getResult(0).setType(exact.getType());
  rest->removeDiscardableAttr(kNormalisesBatchAttr);
  Value made = AddcmulOp::create(
      builder, norm->getLoc(), exact.getType(), rest.getResult(), gradient,
      scale, builder.getI64IntegerAttr(1), nullptr, ValueRange());
  return maker.convert(made, type);
}
