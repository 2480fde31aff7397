//===- DropoutShapes.cpp - Rules of dropout in training -------------------===//
//
// Sources: aten/src/ATen/native/Dropout.cpp, _dropout_impl: noise of zeros and
// ones, scaled, and a product with it; of the fused kernel, which is not for
// the CPU, aten/src/ATen/native/cuda/Dropout.cu.
//
//===----------------------------------------------------------------------===//

#include "../Rules/ElementwiseRules.h"
#include "../Rules/FactoryRules.h"
#include "../Rules/NewTensors.h"
#include "../Rules/ReductionRules.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/Dropout.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include <cmath>

using namespace mlir;
using namespace koila;
using rules::Dropout;

LogicalResult Dropout::inferShapes(ShapeRule &rule) const {
  Value input = rule.getOp()->getOperand(0);
  TensorInfo info = rule.tensor(input);
  if (feature && info.hasRank() && info.getRank() < 2)
    return rule.emitError() << "drops channels, and there is no dim of them";
  return inferElementwise(rule, {input}, Elementwise());
}

LogicalResult rules::inferNativeDropout(ShapeRule &rule) {
  auto op = cast<NativeDropoutOp>(rule.getOp());
  TensorInfo mask = rule.tensor(op.getInput());
  bool trains = op.getTrain().value_or(true);
  if (trains && isa_and_nonnull<IntegerType>(mask.elementType))
    return rule.emitError() << "drops no integers";
  // Outside of training nothing asks for the probability.
  double p = trains ? op.getP().convertToDouble() : 0;
  if (failed(inferDropout(rule, p)) ||
      failed(inferElementwise(rule, {op.getInput()}, Elementwise())))
    return failure();
  mask = *rule.getResults().front().tensor;
  // The CPU makes an empty one of the type of the input.
  auto isZero = [](DimExpr dim) { return dim && dim.isConstant(0); };
  if (!mask.hasRank() || llvm::none_of(*mask.dims, isZero))
    mask.elementType = IntegerType::get(rule.getContext(), 1);
  rule.setResult(1, mask);
  return success();
}

void Dropout::inferBatch(BatchRule &rule) const {
  BatchFact fact = rule.fact(rule.getOp()->getOperand(0));
  if (feature && fact.isAt() && fact.dim > 1)
    return rule.mix("samples of one channel share a draw");
  rule.setResult(0, fact);
}

std::optional<ConcreteTensor>
Dropout::getNoise(const ConcreteTensor &input) const {
  if (p == 1 || !isa<FloatType>(input.elementType) || input.numElements() == 0)
    return std::nullopt;
  if (!feature)
    return input;
  SmallVector<int64_t> dims(input.dims);
  for (int64_t &extent : llvm::drop_begin(dims, 2))
    extent = 1;
  return ConcreteTensor{std::move(dims), input.elementType};
}

// The product saves the noise, which wants no gradient, and not the input; what
// an alpha dropout adds is not saved.
void Dropout::describeDifferentiation(DifferentiationRule &rule) const {
  if (p == 1)
    return rule.setUnknown("what autograd keeps of this dropout is not known");
  rule.saveInner();
}

TensorInfo Dropout::getNoise(const TensorInfo &input) const {
  // Of integers there is no quotient in place.
  if (!input.hasRank() || !input.elementType ||
      isa<IntegerType>(input.elementType))
    return {};
  if (!feature)
    return input;
  SmallVector<DimExpr> dims(*input.dims);
  for (DimExpr &dim : llvm::drop_begin(dims, 2))
    dim = DimExpr::constant(dim.getContext(), 1);
  return TensorInfo::contiguous(dims, input.elementType);
}

namespace {
/// Makes operations at one place.
struct Maker {
  OpBuilder &builder;
  Location loc;

  template <typename OpT>
  Value make(ValueRange operands, Type type,
             ArrayRef<std::pair<StringRef, Attribute>> numbers,
             bool tied) const {
    OperationState state(loc, OpT::getOperationName());
    state.addOperands(operands);
    state.addTypes(type);
    for (auto [name, number] : numbers)
      state.addAttribute(name, number);
    Operation *op = builder.create(state);
    cast<TorchOperatorInterface>(op).permitTie(tied);
    return op->getResult(0);
  }
  template <typename OpT>
  Value scale(Value value, double number, bool tied) const {
    return make<OpT>(value, value.getType(),
                     {{"other", builder.getF64FloatAttr(number)}}, tied);
  }
  Value add(Value value, Attribute number, bool tied) const {
    return make<AddScalarOp>(
        value, value.getType(),
        {{"other", number}, {"alpha", builder.getI64IntegerAttr(1)}}, tied);
  }
};
} // namespace

Value Dropout::build(OpBuilder &builder, Operation *op, Value storage) const {
  Maker maker{builder, op->getLoc()};
  Value input = op->getOperand(0);
  Type type = op->getResult(0).getType();
  bool tied = cast<TorchOperatorInterface>(op).isTied();
  Value noise = maker.make<BernoulliPOp>(
      storage, storage.getType(), {{"p", builder.getF64FloatAttr(1 - p)}},
      /*tied=*/true);
  if (!alpha) {
    noise = maker.scale<DivScalarOp>(noise, 1 - p, /*tied=*/false);
    return maker.make<MulTensorOp>({input, noise}, type, {}, tied);
  }
  // In the order of the source: rounding depends on it.
  constexpr double kAlpha = 1.7580993408473766;
  double scale = 1. / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  Value shift = maker.add(noise, builder.getI64IntegerAttr(-1), /*tied=*/false);
  shift = maker.scale<MulScalarOp>(shift, kAlpha * scale, /*tied=*/true);
  shift = maker.add(shift, builder.getF64FloatAttr(kAlpha * scale * p),
                    /*tied=*/true);
  noise = maker.scale<MulScalarOp>(noise, scale, /*tied=*/false);
  Value product = maker.make<MulTensorOp>({input, noise}, type, {}, tied);
  return maker.make<AddTensorOp>({product, shift}, type,
                                 {{"alpha", builder.getI64IntegerAttr(1)}},
                                 /*tied=*/true);
}

/// The reciprocal of the share that is kept as the fused kernel has it. It gets
/// the share in the type in which it computes, and rounds twice.
static double getFusedScale(double p, Type type) {
  double kept = 1 - p;
  return type.isF64() ? 1 / kept
                      : static_cast<float>(1. / static_cast<float>(kept));
}

Value Dropout::buildFused(OpBuilder &builder, Operation *op,
                          Value source) const {
  Maker maker{builder, op->getLoc()};
  auto drawn = cast<RankedTensorType>(source.getType());
  auto draw = NativeDropoutOp::create(
      builder, op->getLoc(), {drawn, drawn.clone(builder.getI1Type())}, source,
      {builder.getNamedAttr("p", builder.getF64FloatAttr(p)),
       builder.getNamedAttr("train", builder.getBoolAttr(true))});
  Type type = op->getResult(0).getType();
  // The kernel rounds once to the type of the input, behind both products. The
  // first is exact: it is one with zero or one.
  Value kept = maker.make<MulTensorOp>({op->getOperand(0), draw.getMask()},
                                       type, {}, /*tied=*/false);
  return maker.scale<MulScalarOp>(kept,
                                  getFusedScale(p, drawn.getElementType()),
                                  /*tied=*/true);
}
