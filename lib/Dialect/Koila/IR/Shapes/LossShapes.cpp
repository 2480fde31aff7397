//===- LossShapes.cpp - Rules of elementwise losses -----------------------===//
//
// Source of shapes, types and strides: the expressions in
// aten/src/ATen/native/Loss.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Rules/LossRules.h"
#include "../Rules/ReductionRules.h"
#include "koila/Dialect/Koila/IR/Elementwise.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Reduction
//===----------------------------------------------------------------------===//

static int64_t getReduction(Operation *op) {
  return op->getAttrOfType<IntegerAttr>("reduction").getInt();
}

LogicalResult rules::setLoss(ShapeRule &rule, TensorInfo each) {
  int64_t reduction = getReduction(rule.getOp());
  if (reduction < 0 || reduction > 2)
    return rule.emitError() << "reduction " << reduction << " is unknown";
  if (reduction != 0) {
    Type type = each.elementType;
    if (type && isa<IntegerType>(type)) {
      if (reduction == 1)
        return rule.emitError() << "a mean of integers";
      type = IntegerType::get(rule.getContext(), 64);
    }
    each = TensorInfo::contiguous({}, type);
  }
  rule.setResult(0, each);
  return success();
}

void rules::reduceLossBatch(BatchRule &rule, Combine mean) {
  int64_t reduction = getReduction(rule.getOp());
  if (reduction == 0)
    return;
  // Every operand is asked: samples are mixed wherever the batch is.
  for (Value operand : rule.getOp()->getOperands())
    (void)rule.fact(operand);
  bool apart = rule.getResults()[0].isAt();
  rule.mix(getOperatorName(rule.getOp()) + " with reduction '" +
               (reduction == 1 ? "mean" : "sum") + "' mixes samples",
           !apart           ? Combine::None
           : reduction == 1 ? mean
                            : Combine::Sum);
}

//===----------------------------------------------------------------------===//
// Elementwise expressions
//===----------------------------------------------------------------------===//

/// bool, integer, floating point, complex.
static int getCategory(Type type) {
  if (isa<ComplexType>(type))
    return 3;
  if (isa<FloatType>(type))
    return 2;
  return type.isInteger(1) ? 0 : 1;
}

/// What an elementwise operator makes of operands that broadcast to
/// extents known to be legal; an operand of unknown rank makes it unknown.
static TensorInfo combine(ShapeRule &rule, ArrayRef<TensorInfo> operands) {
  TensorInfo info;
  int64_t rank = 0;
  for (const TensorInfo &operand : operands) {
    if (!operand.hasRank())
      return info;
    rank = std::max(rank, operand.getRank());
  }
  SmallVector<DimExpr> dims(rank, rule.constant(1));
  for (const TensorInfo &operand : operands)
    for (auto [dim, extent] :
         llvm::zip(llvm::reverse(dims), llvm::reverse(*operand.dims)))
      dim = dim.broadcast(extent);
  info.strides = computeElementwiseStrides(operands, dims);
  info.dims = dims;
  return info;
}

static TensorInfo combine(ShapeRule &rule, const TensorInfo &lhs,
                          const TensorInfo &rhs) {
  Type type = rules::promoteTypes(lhs, rhs);
  TensorInfo info = combine(
      rule, {rules::getCastLayout(lhs, type), rules::getCastLayout(rhs, type)});
  info.elementType = type;
  return info;
}

static TensorInfo combine(const TensorInfo &info) {
  TensorInfo result = info;
  if (info.hasRank())
    result.strides = computeElementwiseStrides(info, *info.dims);
  return result;
}

static TensorInfo toFloat(TensorInfo info) {
  info.elementType = rules::getFloatType(info.elementType);
  return info;
}

/// Refuses what an in-place operator refuses: a common type of a higher
/// category, or a shape that does not fit.
static LogicalResult checkWritten(ShapeRule &rule, const TensorInfo &written,
                                  ArrayRef<TensorInfo> operands) {
  SmallVector<TensorInfo> all{written};
  llvm::append_range(all, operands);
  for (const TensorInfo &operand : operands) {
    Type common = rules::promoteTypes(written, operand);
    if (common && getCategory(common) > getCategory(written.elementType))
      return rule.emitError()
             << "result type " << common << " cannot be written into "
             << written.elementType;
  }
  auto dims = rules::broadcastOperands(rule, all);
  if (failed(dims))
    return failure();
  if (!*dims)
    return success();
  bool fits = static_cast<int64_t>((*dims)->size()) == written.getRank();
  for (int64_t dim = 0; fits && dim < written.getRank(); ++dim)
    fits = proveEqual((**dims)[dim], written.dim(dim)) != TriBool::No;
  if (!fits)
    return rule.emitError() << "an operand does not fit the shape of the "
                               "tensor that the loss is computed in";
  return success();
}

static LogicalResult refuseBooleans(ShapeRule &rule,
                                    ArrayRef<TensorInfo> operands) {
  for (const TensorInfo &info : operands)
    if (info.elementType && info.elementType.isInteger(1))
      return rule.emitError() << "booleans cannot be subtracted";
  return success();
}

/// A positive number, or not a negative one.
static LogicalResult checkSign(ShapeRule &rule, StringRef name, bool orZero) {
  auto attr = rule.getOp()->getAttrOfType<FloatAttr>(name);
  if (!attr || attr.getValueAsDouble() > 0 ||
      (orZero && attr.getValueAsDouble() == 0))
    return success();
  return rule.emitError() << name << " is " << attr.getValueAsDouble();
}

/// Drops extents of one.
static TensorInfo squeeze(TensorInfo info) {
  if (info.hasRank())
    llvm::erase_if(*info.dims, [](DimExpr dim) { return dim.isConstant(1); });
  info.strides.reset();
  return info;
}

LogicalResult rules::inferElementwiseLoss(ShapeRule &rule, Loss loss) {
  SmallVector<TensorInfo> infos;
  for (Value operand : rule.getOp()->getOperands())
    infos.push_back(rule.tensor(operand));
  const TensorInfo &self = infos[0], &target = infos[1];
  ArrayRef<TensorInfo> weights = ArrayRef(infos).drop_front(2);
  auto checkBroadcast = [&] { return broadcastOperands(rule, infos); };
  auto known = [](const TensorInfo &info) { return bool(info.elementType); };
  TensorInfo result;
  switch (loss) {
  case Loss::Squared:
    if (failed(checkSign(rule, "beta", true)) || failed(checkBroadcast()))
      return failure();
    result = combine(rule, self, target);
    break;
  case Loss::Absolute:
    if (failed(refuseBooleans(rule, infos)) || failed(checkBroadcast()))
      return failure();
    result = combine(rule, self, target);
    result.elementType = getRealType(result.elementType);
    break;
  case Loss::Huber:
    if (failed(checkSign(rule, "delta", false)) || failed(checkBroadcast()))
      return failure();
    result = combine(rule, self, target);
    if (result.elementType &&
        getCategory(result.elementType) > getCategory(self.elementType))
      return rule.emitError() << "the target's type " << target.elementType
                              << " does not go into " << self.elementType;
    result.elementType = self.elementType;
    break;
  case Loss::Binary: {
    if (known(self) && known(target) && self.elementType != target.elementType)
      return rule.emitError() << "self is of " << self.elementType
                              << ", the target of " << target.elementType;
    // Extents of one do not matter in the kernel; the result has self's.
    if (failed(broadcastOperands(rule, {squeeze(self), squeeze(target)})) ||
        failed(checkWritten(rule, self, weights)))
      return failure();
    result = self;
    result.strides = computePreservedStrides(self);
    if (!self.hasRank() || !target.hasRank() || *self.dims != *target.dims)
      result.strides.reset();
    break;
  }
  case Loss::BinaryWithLogits: {
    if (target.elementType && target.elementType.isInteger(1))
      return rule.emitError() << "a target of booleans cannot be subtracted";
    SmallVector<TensorInfo> others{self};
    llvm::append_range(others, weights);
    // The weight of positives is multiplied into log_sigmoid(self).
    auto logits = cast<BinaryCrossEntropyWithLogitsOp>(rule.getOp());
    if (Value positive = logits.getPosWeight();
        positive &&
        failed(checkWritten(rule, self, {target, rule.tensor(positive)})))
      return failure();
    if (failed(checkWritten(rule, target, others)))
      return failure();
    result = combine(target);
    break;
  }
  case Loss::Divergence:
    for (const TensorInfo &info : infos)
      if (known(info) && !isa<FloatType>(info.elementType))
        return rule.emitError()
               << "takes floating-point numbers, not " << info.elementType;
    if (failed(checkBroadcast()))
      return failure();
    result = combine(rule, combine(target), combine(rule, target, self));
    break;
  case Loss::SoftMargin:
    if (known(self) && isa<IntegerType>(self.elementType))
      return rule.emitError()
             << "takes floating-point numbers, not " << self.elementType;
    if (failed(checkWritten(rule, self, target)))
      return failure();
    result = combine(self);
    break;
  case Loss::Hinge: {
    if (failed(refuseBooleans(rule, self)) || failed(checkBroadcast()))
      return failure();
    // where(target != 1, margin - self, 0) + where(target != -1, self, 0).
    TensorInfo chosen = combine(target), zeros = self;
    if (self.hasRank())
      zeros.strides = computePreservedStrides(self);
    result = combine(rule, combine(rule, {chosen, combine(self), zeros}),
                     combine(rule, {chosen, self, zeros}));
    result.elementType = self.elementType;
    break;
  }
  case Loss::MarginRanking:
    if (failed(refuseBooleans(rule, infos)) || failed(checkBroadcast()))
      return failure();
    result = toFloat(
        combine(rule, combine(infos[2]), combine(rule, infos[0], infos[1])));
    break;
  case Loss::Poisson: {
    if (failed(checkBroadcast()))
      return failure();
    auto isLog = rule.getOp()->getAttrOfType<BoolAttr>("log_input");
    TensorInfo smooth = toFloat(combine(self));
    result = isLog.getValue()
                 ? combine(rule, smooth, combine(rule, target, self))
                 : combine(rule, self, combine(rule, target, smooth));
    break;
  }
  }
  return setLoss(rule, result);
}

void rules::inferElementwiseLossBatch(BatchRule &rule) {
  SmallVector<Value> operands(rule.getOp()->getOperands());
  inferBroadcastBatch(rule, operands);
  reduceLossBatch(rule, Combine::Mean);
}
