//===- ClassLossShapes.cpp - Rules of losses on classes -------------------===//

#include "../Rules/LossRules.h"
#include "../Rules/ReductionRules.h"

using namespace mlir;
using namespace koila;

static bool differ(DimExpr lhs, DimExpr rhs) {
  return proveEqual(lhs, rhs) == TriBool::No;
}

/// The extents of each loss: those of `self` without the classes.
static SmallVector<DimExpr> dropClasses(const TensorInfo &self) {
  SmallVector<DimExpr> dims(*self.dims);
  dims.erase(dims.begin() + (dims.size() == 1 ? 0 : 1));
  return dims;
}

/// Whether the target holds a probability for each class: it then has the shape
/// of the input.
static bool hasProbabilities(const TensorInfo &self, const TensorInfo &target,
                             rules::ClassLoss loss) {
  if (loss != rules::ClassLoss::CrossEntropy ||
      self.getRank() != target.getRank())
    return false;
  if (self.getRank() > 1 || self.dim(0) == target.dim(0))
    return true;
  // A single sample: a target of one element may be its class.
  return !differ(self.dim(0), target.dim(0)) && target.elementType &&
         !isa<IntegerType>(target.elementType);
}

static LogicalResult checkTarget(ShapeRule &rule, const TensorInfo &self,
                                 const TensorInfo &target) {
  auto fail = [&] {
    auto error = rule.emitError()
                 << "a target of rank " << target.getRank()
                 << " does not fit an input of rank " << self.getRank();
    return error;
  };
  SmallVector<DimExpr> wanted = dropClasses(self);
  // A single sample may come with a target of one element.
  if (self.getRank() == 1) {
    if (target.getRank() == 0 ||
        (target.getRank() == 1 && !differ(target.dim(0), rule.constant(1))))
      return success();
    return fail();
  }
  if (target.getRank() != static_cast<int64_t>(wanted.size()))
    return fail();
  for (auto [index, extent] : llvm::enumerate(wanted))
    if (differ(extent, target.dim(index)))
      return rule.emitError()
             << "expects extent " << extent.str() << " in dim " << index
             << " of the target, got " << target.dim(index).str();
  return success();
}

LogicalResult rules::inferClassLoss(ShapeRule &rule, ClassLoss loss,
                                    Value weight) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  TensorInfo target = rule.tensor(rule.getOp()->getOperand(1));
  TensorInfo weights = rule.tensor(weight), each;
  double smoothing = 0;
  if (auto attr = rule.getOp()->getAttrOfType<FloatAttr>("label_smoothing"))
    smoothing = attr.getValueAsDouble();
  if (!(smoothing >= 0 && smoothing <= 1))
    return rule.emitError() << "label_smoothing is " << smoothing;
  if (!self.hasRank() || !target.hasRank()) {
    if (loss != ClassLoss::CrossEntropy)
      each.elementType = self.elementType;
    return setLoss(rule, each);
  }
  int64_t rank = self.getRank();
  if (rank == 0 || (loss == ClassLoss::Nll && rank > 2) ||
      (loss == ClassLoss::Nll2d && rank != 4))
    return rule.emitError() << "takes no input of rank " << rank;
  DimExpr classes = self.dim(rank == 1 ? 0 : 1);
  if (weights.hasRank() &&
      (weights.getRank() != 1 || differ(weights.dim(0), classes)))
    return rule.emitError() << "the weight must have one element for each of "
                            << classes.str() << " classes";
  if (hasProbabilities(self, target, loss)) {
    if (target.elementType && isa<IntegerType>(target.elementType))
      return rule.emitError()
             << "probabilities of classes are of " << target.elementType;
    for (int64_t dim = 0; dim < rank; ++dim)
      if (differ(self.dim(dim), target.dim(dim)))
        return rule.emitError()
               << "expects extent " << self.dim(dim).str() << " in dim " << dim
               << " of the target, got " << target.dim(dim).str();
    Type type = promoteTypes(self, target);
    if (weight && type && weights.elementType)
      type = promoteTypes(type, true, weights.elementType, true);
    return setLoss(rule, TensorInfo::contiguous(dropClasses(self), type));
  }
  if (failed(checkTarget(rule, self, target)))
    return failure();
  // What is spread over the classes of one sample has no dims.
  if (smoothing > 0 && rank == 1 && target.getRank() == 1)
    return rule.emitError() << "label_smoothing of a single sample takes a "
                               "target without dims";
  if (Type type = target.elementType;
      type && !type.isInteger(64) && !type.isUnsignedInteger(8))
    return rule.emitError() << "classes are int64, not " << type;
  if (self.elementType && weights.elementType &&
      self.elementType != weights.elementType)
    return rule.emitError() << "the weight is of " << weights.elementType
                            << ", self of " << self.elementType;
  return setLoss(rule,
                 TensorInfo::contiguous(dropClasses(self), self.elementType));
}

/// Of `reduction` none.
static void inferClassLossApart(BatchRule &rule, Value weight) {
  rule.takeAnyRows();
  Operation *op = rule.getOp();
  StringRef name = rules::getOperatorName(op);
  TensorInfo self = rule.tensor(op->getOperand(0));
  TensorInfo target = rule.tensor(op->getOperand(1));
  BatchFact fact = rule.fact(op->getOperand(0));
  BatchFact classes = rule.fact(op->getOperand(1));
  if (!rule.fact(weight).isFree() ||
      !rule.argumentFact("ignore_index").isFree())
    return rule.mix("the weight of " + name + " depends on the batch");
  if (!fact.isAt() || !self.hasRank() || !target.hasRank() ||
      self.getRank() < 2)
    return rule.mix(name + " does not have the batch in its input");
  if (fact.dim == 1)
    return rule.mix(name + " over the batch dim mixes samples");
  bool probabilities = self.getRank() == target.getRank();
  BatchFact result = fact;
  result.dim -= fact.dim > 1;
  if (!(classes == (probabilities ? fact : result)))
    return rule.mix("the target of " + name +
                    " does not carry the batch as its input does");
  rule.setAll(result);
}

void rules::inferClassLossBatch(BatchRule &rule, Value weight) {
  inferClassLossApart(rule, weight);
  // The weights of all targets, or of those not ignored, divide a mean.
  reduceLossBatch(rule, Combine::None);
}

//===----------------------------------------------------------------------===//
// Losses of rows; aten/src/ATen/native/LossMultiMargin.cpp
//===----------------------------------------------------------------------===//

static LogicalResult checkRows(ShapeRule &rule, const TensorInfo &self) {
  if (!self.hasRank())
    return success();
  if (self.getRank() > 2 ||
      (self.getRank() > 0 && self.dims->back().isConstant(0)))
    return rule.emitError() << "expects a row or a matrix that is not empty";
  return success();
}

LogicalResult rules::inferMultiMarginLoss(ShapeRule &rule, Value weight) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  TensorInfo target = rule.tensor(rule.getOp()->getOperand(1));
  TensorInfo weights = rule.tensor(weight), each;
  if (failed(checkRows(rule, self)))
    return failure();
  Attribute p = rule.getOp()->getAttr("p");
  double power = 1;
  if (auto number = dyn_cast<FloatAttr>(p))
    power = number.getValueAsDouble();
  else if (auto number = dyn_cast<IntegerAttr>(p))
    power = number.getInt();
  if (power != 1 && power != 2)
    return rule.emitError() << "p is " << power << ", not 1 or 2";
  if (target.elementType && !target.elementType.isInteger(64))
    return rule.emitError() << "classes are int64, not " << target.elementType;
  if (self.elementType && weights.elementType &&
      self.elementType != weights.elementType)
    return rule.emitError() << "the weight is of " << weights.elementType
                            << ", self of " << self.elementType;
  each.elementType = self.elementType;
  if (self.hasRank() && target.hasRank()) {
    DimExpr rows = self.getRank() == 2 ? self.dim(0) : rule.constant(1);
    DimExpr classes = self.getRank() ? self.dims->back() : rule.constant(1);
    if (target.getRank() > 1 ||
        (self.getRank() == 2 && target.getRank() == 0) ||
        (target.getRank() == 1 && differ(target.dim(0), rows)))
      return rule.emitError()
             << "expects a target of " << rows.str() << " classes";
    if (weights.hasRank() &&
        (weights.getRank() != 1 || differ(weights.dim(0), classes)))
      return rule.emitError()
             << "expects a weight of " << classes.str() << " elements";
    each = TensorInfo::contiguous(*target.dims, self.elementType);
  }
  return setLoss(rule, each);
}

LogicalResult rules::inferMultilabelMarginLoss(ShapeRule &rule) {
  TensorInfo self = rule.tensor(rule.getOp()->getOperand(0));
  TensorInfo target = rule.tensor(rule.getOp()->getOperand(1)), each;
  if (failed(checkRows(rule, self)))
    return failure();
  if (target.elementType && !target.elementType.isInteger(64))
    return rule.emitError() << "classes are int64, not " << target.elementType;
  each.elementType = self.elementType;
  if (self.hasRank() && target.hasRank()) {
    bool fits = self.getRank() == target.getRank();
    for (int64_t dim = 0; fits && dim < self.getRank(); ++dim)
      fits = !differ(self.dim(dim), target.dim(dim));
    if (!fits)
      return rule.emitError() << "the target must have the shape of self";
    each = TensorInfo::contiguous(
        ArrayRef(*self.dims).take_front(self.getRank() == 2), self.elementType);
  }
  return setLoss(rule, each);
}

/// Of `reduction` none.
static void inferRowLossApart(BatchRule &rule, Value weight) {
  StringRef name = rules::getOperatorName(rule.getOp());
  BatchFact fact = rule.fact(rule.getOp()->getOperand(0));
  if (!rule.fact(weight).isFree())
    return rule.mix("the weight of " + name + " depends on the batch");
  for (Value operand : rule.getOp()->getOperands())
    if (operand != weight && !(rule.fact(operand) == fact))
      return rule.mix("the operands of " + name +
                      " do not all carry the batch in one dim");
  if (!fact.isAt() || fact.dim != 0 ||
      rule.tensor(rule.getOp()->getOperand(0)).getRank() != 2)
    return rule.mix(name + " over the batch dim mixes samples");
  rule.setAll(fact);
}

void rules::inferRowLossBatch(BatchRule &rule, Value weight) {
  inferRowLossApart(rule, weight);
  reduceLossBatch(rule, Combine::Mean);
}

//===----------------------------------------------------------------------===//
// ctc_loss; aten/src/ATen/native/LossCTC.cpp
//===----------------------------------------------------------------------===//

LogicalResult rules::inferCtcLoss(ShapeRule &rule, int64_t blank) {
  Operation *op = rule.getOp();
  TensorInfo probabilities = rule.tensor(op->getOperand(0)), each;
  each.elementType = probabilities.elementType;
  if (!probabilities.hasRank())
    return setLoss(rule, each);
  int64_t rank = probabilities.getRank();
  if (rank != 2 && rank != 3)
    return rule.emitError() << "takes no log_probs of rank " << rank;
  auto classes = probabilities.dims->back().getConstant();
  if (blank < 0 || (classes && blank >= *classes))
    return rule.emitError() << "blank is " << blank;
  DimExpr samples = rank == 3 ? probabilities.dim(1) : rule.constant(1);
  for (Value lengths : op->getOperands().drop_front(2)) {
    TensorInfo info = rule.tensor(lengths);
    if (info.elementType && !isa<IntegerType>(info.elementType))
      return rule.emitError()
             << "lengths are integers, not " << info.elementType;
    if (!info.hasRank())
      continue;
    DimExpr count = product(rule.getContext(), *info.dims);
    if (differ(count, samples))
      return rule.emitError()
             << "expects " << samples.str() << " lengths, got " << count.str();
  }
  TensorInfo targets = rule.tensor(op->getOperand(1));
  if (targets.hasRank() && targets.getRank() == 2 &&
      differ(targets.dim(0), samples))
    return rule.emitError() << "expects " << samples.str() << " targets, got "
                            << targets.dim(0).str();
  SmallVector<DimExpr> dims;
  if (rank == 3)
    dims.push_back(samples);
  return setLoss(rule, TensorInfo::contiguous(dims, each.elementType));
}

/// Of `reduction` none.
static void inferCtcLossApart(BatchRule &rule) {
  Operation *op = rule.getOp();
  BatchFact fact = rule.fact(op->getOperand(0));
  TensorInfo info = rule.tensor(op->getOperand(0));
  if (!fact.isAt() || fact.dim != 1 || !info.hasRank() || info.getRank() != 3)
    return rule.mix("ctc_loss does not have the batch in dim 1");
  fact.dim = 0;
  for (Value operand : op->getOperands().drop_front())
    if (!(rule.fact(operand) == fact) || rule.tensor(operand).getRank() == 0)
      return rule.mix("targets or lengths of ctc_loss do not carry the batch "
                      "in dim 0");
  // Targets in one row begin where those of the samples before end.
  if (rule.tensor(op->getOperand(1)).getRank() != 2)
    return rule.mix("ctc_loss of targets in one row mixes samples");
  rule.setAll(fact);
}

void rules::inferCtcLossBatch(BatchRule &rule) {
  inferCtcLossApart(rule);
  // Each sample is divided by the length of its target first.
  reduceLossBatch(rule, Combine::Mean);
}
