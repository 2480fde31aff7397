//===- MatmulShapes.cpp - Rules of products with matrices -----------------===//

#include "../Rules/MatmulRules.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace koila;
using rules::Labels;

LogicalResult rules::checkOneElementType(const ShapeRule &rule, Type input,
                                         Type other, StringRef name) {
  if (!input || !other || input == other)
    return success();
  return rule.emitError() << "input is " << input << ", " << name << " is "
                          << other;
}

//===----------------------------------------------------------------------===//
// Products with labelled dims
//===----------------------------------------------------------------------===//

LogicalResult rules::checkAdded(ShapeRule &rule, const TensorInfo &added,
                                TensorInfo &result) {
  if (!added.hasRank())
    return success();
  auto op = dyn_cast<TorchOperatorInterface>(rule.getOp());
  bool tied = op && op.isTied();
  int64_t offset = result.getRank() - added.getRank();
  if (offset < 0 || (tied && offset != 0))
    return rule.emitError() << "adds a tensor of rank " << added.getRank()
                            << " to a result of rank " << result.getRank();
  for (auto [index, dim] : llvm::enumerate(*added.dims)) {
    DimExpr whole = result.dim(offset + index);
    if ((tied || !dim.isConstant(1)) && proveEqual(dim, whole) == TriBool::No)
      return rule.emitError() << "adds " << dim.str() << " elements to "
                              << whole.str() << " in dim " << offset + index;
  }
  if (tied)
    result = added;
  return success();
}

LogicalResult rules::inferLabelled(ShapeRule &rule, const Labels &labels,
                                   ArrayRef<Value> factors, Value added) {
  TensorInfo result, first = rule.tensor(factors.front());
  SmallVector<Value> operands(factors);
  operands.push_back(added);
  for (Value operand : operands) {
    TensorInfo info = rule.tensor(operand);
    if (failed(checkOneElementType(rule, first.elementType, info.elementType,
                                   "another operand")))
      return failure();
    if (!result.elementType)
      result.elementType = info.elementType;
  }
  llvm::SmallDenseMap<int, DimExpr> extents;
  for (auto [factor, own] : llvm::zip_equal(factors, labels.factors)) {
    TensorInfo info = rule.tensor(factor);
    for (auto [dim, label] : llvm::zip_equal(*info.dims, own)) {
      auto [known, isNew] = extents.try_emplace(label, dim);
      if (isNew)
        continue;
      DimExpr other = known->second;
      bool repeats = label >= Labels::kBroadcast;
      if (proveEqual(other, dim) == TriBool::No &&
          !(repeats && (dim.isConstant(1) || other.isConstant(1)))) {
        if (!repeats && !llvm::is_contained(labels.result, label))
          return rule.emitError() << "cannot multiply " << other.str()
                                  << " columns with " << dim.str() << " rows";
        return rule.emitError() << "has extents " << other.str() << " and "
                                << dim.str() << " in one dim";
      }
      known->second = repeats             ? other.broadcast(dim)
                      : dim.getConstant() ? dim
                                          : other;
    }
  }
  SmallVector<DimExpr> dims;
  for (int label : labels.result)
    dims.push_back(extents.lookup(label));
  result = TensorInfo::contiguous(dims, result.elementType);
  if (failed(checkAdded(rule, rule.tensor(added), result)))
    return failure();
  rule.setResult(0, result);
  return success();
}

void rules::inferProductBatch(BatchRule &rule, const Labels &labels,
                              ArrayRef<Value> factors, Value added) {
  // A product is linear in each factor, so that parts of the sum add up.
  if (!added)
    return inferLabelledBatch(rule, labels, factors, Combine::Sum);
  TensorInfo info = rule.tensor(added);
  if (!info.hasRank() ||
      info.getRank() > static_cast<int64_t>(labels.result.size()))
    return rule.mix("the rank of what " +
                    rule.getOp()->getName().stripDialect() +
                    " adds is unknown");
  SmallVector<Value> operands(factors);
  operands.push_back(added);
  Labels all = labels;
  all.factors.emplace_back(ArrayRef(labels.result).take_back(info.getRank()));
  // What is added would be added by each tile.
  inferLabelledBatch(rule, all, operands, Combine::None);
}

void rules::inferLabelledBatch(BatchRule &rule, const Labels &labels,
                               ArrayRef<Value> factors, Combine overBatch) {
  StringRef name = rule.getOp()->getName().stripDialect();
  SmallVector<std::pair<Value, ArrayRef<int>>> operands;
  for (auto [factor, own] : llvm::zip_equal(factors, labels.factors))
    operands.emplace_back(factor, own);
  std::optional<int> label;
  int64_t factor = 1;
  for (auto [value, own] : operands) {
    BatchFact fact = rule.fact(value);
    if (fact.isFree())
      continue;
    if (!fact.isAt() || fact.dim < 0)
      return;
    if (label && (own[fact.dim] != *label || factor != fact.factor))
      return rule.mix("the operands of " + name +
                      " carry the batch in different dims, so that every "
                      "sample meets every other");
    label = own[fact.dim];
    factor = fact.factor;
  }
  if (!label)
    return rule.setAll(BatchFact::free());
  for (auto [value, own] : operands) {
    bool carries = !rule.fact(value).isFree();
    if (carries && llvm::count(own, *label) > 1)
      return rule.mix(name + " takes the diagonal of the batch dim");
    for (auto [index, mine] : llvm::enumerate(own))
      if (!carries && mine == *label &&
          !rule.tensor(value).dim(index).isConstant(1))
        return rule.mix(
            "an operand of " + name + " without the batch has extent " +
            rule.tensor(value).dim(index).str() + " in the batch dim");
  }
  const int *place = llvm::find(labels.result, *label);
  if (place == labels.result.end())
    return rule.mix(name + " sums over the batch dim", overBatch);
  rule.setAll(BatchFact::at(place - labels.result.begin(), factor));
}

LogicalResult rules::inferTypeOnly(ShapeRule &rule, Value self) {
  TensorInfo result;
  result.elementType = rule.tensor(self).elementType;
  rule.setResult(0, result);
  return success();
}

LogicalResult rules::inferProduct(ShapeRule &rule, const Product &product) {
  auto ranks = getRanks(rule, product.factors);
  if (!ranks)
    return inferTypeOnly(rule, product.factors.front());
  std::string error;
  auto labels = parseEquation(product.equation, *ranks, error);
  if (!labels)
    return rule.emitError() << error;
  return inferLabelled(rule, *labels, product.factors, product.added);
}

void rules::inferProductBatch(BatchRule &rule, const Product &product) {
  auto ranks = getRanks(rule, product.factors);
  std::string error;
  auto labels =
      ranks ? parseEquation(product.equation, *ranks, error) : std::nullopt;
  if (!labels)
    return rule.mix("the rank of an operand is unknown");
  inferProductBatch(rule, *labels, product.factors, product.added);
}

//===----------------------------------------------------------------------===//
// linear, addmm
//===----------------------------------------------------------------------===//

static StringRef getLinearEquation(const TensorInfo &weight) {
  return weight.hasRank() && weight.getRank() == 1 ? "...i,i->..."
                                                   : "...i,oi->...o";
}

LogicalResult LinearOp::inferShapes(ShapeRule &rule) {
  TensorInfo input = rule.tensor(getInput()), weight = rule.tensor(getWeight());
  if (failed(rules::checkOneElementType(rule, input.elementType,
                                        weight.elementType)))
    return failure();
  if (input.hasRank() && weight.hasRank() && input.getRank() > 0 &&
      weight.getRank() > 0) {
    auto features = input.dim(input.getRank() - 1).getConstant();
    auto expected = weight.dim(weight.getRank() - 1).getConstant();
    if (features && expected && *features != *expected)
      return rule.emitError() << "the weight takes " << *expected
                              << " features, the input has " << *features;
  }
  if (getBias() && weight.hasRank() && weight.getRank() == 1 &&
      input.hasRank() && input.getRank() == 2)
    return rule.emitError() << "a bias needs a weight of rank 2";
  return rules::inferProduct(
      rule, {{getInput(), getWeight()}, getLinearEquation(weight), getBias()});
}

void LinearOp::inferBatch(BatchRule &rule) {
  rule.takeAnyRows();
  rules::inferProductBatch(rule, {{getInput(), getWeight()},
                                  getLinearEquation(rule.tensor(getWeight())),
                                  getBias()});
}

KernelWork LinearOp::describeWork(GetShape getShape) {
  return rules::describeMatrixWork(getShape, getInput(), getResult());
}

void LinearOp::describeStorage(StorageRule &) {}

bool LinearOp::hasBackwardOperator(ShapeRule::Lookup) {
  auto input = dyn_cast<RankedTensorType>(getInput().getType());
  auto weight = dyn_cast<RankedTensorType>(getWeight().getType());
  return input && weight && input.getRank() >= 2 && weight.getRank() == 2 &&
         isa<FloatType>(input.getElementType()) &&
         input.getElementType() == weight.getElementType() &&
         !weight.isDynamicDim(0) &&
         (!getBias() || getBias().getType() ==
                            RankedTensorType::get({weight.getDimSize(0)},
                                                  weight.getElementType()));
}

bool LinearOp::readsOperand(unsigned index) { return index < 2; }

/// The products of autograd's own backward pass, of rows.
SmallVector<Value> LinearOp::buildGradients(OpBuilder &builder, Value gradient,
                                            ValueRange operands,
                                            ArrayRef<bool> wanted) {
  auto input = cast<RankedTensorType>(getInput().getType());
  auto weight = cast<RankedTensorType>(getWeight().getType());
  Type type = input.getElementType();
  auto multiply = [&](Type result, Value lhs, Value rhs) -> Value {
    return MatmulOp::create(builder, getLoc(), TypeRange(result),
                            ValueRange{lhs, rhs});
  };
  auto getRows = [&](Value value, int64_t columns) -> Value {
    if (input.getRank() == 2)
      return value;
    auto rows = RankedTensorType::get({ShapedType::kDynamic, columns}, type);
    return FlattenOp::create(
        builder, getLoc(), TypeRange(rows), ValueRange(value),
        {builder.getNamedAttr("start_dim", builder.getI64IntegerAttr(0)),
         builder.getNamedAttr("end_dim",
                              builder.getI64IntegerAttr(input.getRank() - 2))});
  };
  SmallVector<Value> gradients(operands.size());
  if (wanted[0])
    gradients[0] = multiply(input, gradient, operands[1]);
  bool wantsBias = wanted.size() > 2 && wanted[2];
  if (!wanted[1] && !wantsBias)
    return gradients;
  Value rows = getRows(gradient, weight.getDimSize(0));
  if (wanted[1]) {
    auto columns = RankedTensorType::get(
        {weight.getDimSize(0), ShapedType::kDynamic}, type);
    Value turned =
        TOp::create(builder, getLoc(), TypeRange(columns), ValueRange(rows));
    gradients[1] =
        multiply(weight, turned, getRows(operands[0], weight.getDimSize(1)));
  }
  if (wantsBias)
    gradients[2] = SumDimOp::create(builder, getLoc(), getBias().getType(),
                                    rows, builder.getDenseI64ArrayAttr(0),
                                    builder.getBoolAttr(false),
                                    /*dtype=*/nullptr);
  return gradients;
}
