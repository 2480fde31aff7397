//===- ExternalModels.cpp - koila's rules for upstream ops --------===//
//
// The integer arithmetic and the slices that tiled programs are made of.
//
//===----------------------------------------------------------------------===//

#include "koila/ExternalModels/ExternalModels.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// arith: integers as dim expressions
//===----------------------------------------------------------------------===//

namespace {
/// Expressions know no width: they stand for numbers of 64 bits, which no size
/// that fits in memory fills.
bool isWide(Type type) { return isa<IndexType>(type) || type.isInteger(64); }

/// Gives result 0 the number `value`; in types that are narrower, where it
/// would wrap around, only if it is known to fit.
void setNumber(Operation *op, ShapeRule &rule, DimExpr value) {
  Type type = op->getResult(0).getType();
  auto number = value.getConstant();
  bool fits =
      isWide(type) ||
      (number && type.isSignlessInteger() && !type.isInteger(1) &&
       llvm::isIntN(std::min(type.getIntOrFloatBitWidth(), 64u), *number));
  if (fits)
    rule.setInteger(0, value);
}

struct ConstantModel
    : ShapeRuleInterface::ExternalModel<ConstantModel, arith::ConstantOp> {
  LogicalResult inferShapes(Operation *op, ShapeRule &rule) const {
    auto constant = cast<arith::ConstantOp>(op);
    ValueInfo info;
    info.literal = constant.getValue();
    if (isa<BoolAttr, FloatAttr>(info.literal))
      rule.setInfo(0, info);
    else if (auto value = dyn_cast<IntegerAttr>(constant.getValue()))
      if (value.getValue().getSignificantBits() <= 64)
        rule.setInteger(0, rule.constant(value.getValue().getSExtValue()));
    return success();
  }
};

/// `compute` of two known expressions.
template <typename Derived, typename OpTy>
struct BinaryModel : ShapeRuleInterface::ExternalModel<Derived, OpTy> {
  LogicalResult inferShapes(Operation *op, ShapeRule &rule) const {
    DimExpr lhs = rule.integer(op->getOperand(0));
    DimExpr rhs = rule.integer(op->getOperand(1));
    if (lhs && rhs)
      if (DimExpr value = Derived::compute(lhs, rhs))
        setNumber(op, rule, value);
    return success();
  }
};
/// `exact`, null if the numbers wrap around.
template <typename Overflows>
DimExpr unlessWrapped(DimExpr lhs, DimExpr rhs, Overflows overflows,
                      DimExpr exact) {
  auto left = lhs.getConstant(), right = rhs.getConstant();
  int64_t ignored;
  return left && right && overflows(*left, *right, ignored) ? DimExpr() : exact;
}
struct AddModel : BinaryModel<AddModel, arith::AddIOp> {
  static DimExpr compute(DimExpr lhs, DimExpr rhs) {
    return unlessWrapped(lhs, rhs, llvm::AddOverflow<int64_t>, lhs + rhs);
  }
};
struct SubModel : BinaryModel<SubModel, arith::SubIOp> {
  static DimExpr compute(DimExpr lhs, DimExpr rhs) {
    return unlessWrapped(lhs, rhs, llvm::SubOverflow<int64_t>, lhs - rhs);
  }
};
struct MulModel : BinaryModel<MulModel, arith::MulIOp> {
  /// Repeated squaring would write out polynomials of any size; no shape
  /// needs them.
  static DimExpr compute(DimExpr lhs, DimExpr rhs) {
    constexpr size_t kMostTerms = 64, kMostFactors = 16;
    auto degree = [](DimExpr expr) {
      size_t most = 0;
      for (ArrayAttr monomial : expr.getAttr().getMonomials())
        most = std::max(most, monomial.size());
      return most;
    };
    size_t terms = lhs.getAttr().getMonomials().size() *
                   rhs.getAttr().getMonomials().size();
    if (terms > kMostTerms || degree(lhs) + degree(rhs) > kMostFactors)
      return {};
    return unlessWrapped(lhs, rhs, llvm::MulOverflow<int64_t>, lhs * rhs);
  }
};
struct FloorDivModel : BinaryModel<FloorDivModel, arith::FloorDivSIOp> {
  static DimExpr compute(DimExpr lhs, DimExpr rhs) { return lhs.floorDiv(rhs); }
};
struct MinModel : BinaryModel<MinModel, arith::MinSIOp> {
  static DimExpr compute(DimExpr lhs, DimExpr rhs) { return lhs.min(rhs); }
};
struct MaxModel : BinaryModel<MaxModel, arith::MaxSIOp> {
  static DimExpr compute(DimExpr lhs, DimExpr rhs) { return lhs.max(rhs); }
};
/// Whether numbers without a sign are compared; of those below zero that is
/// another order.
bool isUnsigned(arith::CmpIPredicate predicate) {
  return predicate == arith::CmpIPredicate::ult ||
         predicate == arith::CmpIPredicate::ule ||
         predicate == arith::CmpIPredicate::ugt ||
         predicate == arith::CmpIPredicate::uge;
}

/// Decided where both are numbers, or where the difference is one or certainly
/// not zero.
struct CmpModel : ShapeRuleInterface::ExternalModel<CmpModel, arith::CmpIOp> {
  LogicalResult inferShapes(Operation *op, ShapeRule &rule) const {
    DimExpr lhs = rule.integer(op->getOperand(0));
    DimExpr rhs = rule.integer(op->getOperand(1));
    if (!lhs || !rhs)
      return success();
    arith::CmpIPredicate predicate = cast<arith::CmpIOp>(op).getPredicate();
    bool equality = predicate == arith::CmpIPredicate::eq ||
                    predicate == arith::CmpIPredicate::ne;
    auto first = lhs.getConstant(), second = rhs.getConstant();
    if (!first || !second) {
      first = (lhs - rhs).getConstant();
      second = 0;
      if (!first && equality && proveEqual(lhs, rhs) == TriBool::No)
        first = 1;
      if (!first || (*first != 0 && isUnsigned(predicate)))
        return success();
    }
    APInt left(64, *first, /*isSigned=*/true),
        right(64, *second, /*isSigned=*/true);
    ValueInfo info;
    info.literal = BoolAttr::get(
        op->getContext(), arith::applyCmpPredicate(predicate, left, right));
    rule.setInfo(0, info);
    return success();
  }
};
/// Either operand; both where they agree.
struct SelectModel
    : ShapeRuleInterface::ExternalModel<SelectModel, arith::SelectOp> {
  LogicalResult inferShapes(Operation *op, ShapeRule &rule) const {
    auto flag =
        dyn_cast_or_null<BoolAttr>(rule.info(op->getOperand(0)).literal);
    ValueInfo lhs = rule.info(op->getOperand(1));
    ValueInfo rhs = rule.info(op->getOperand(2));
    if (flag)
      rule.setInfo(0, flag.getValue() ? lhs : rhs);
    else if (lhs.tensor && rhs.tensor && lhs.tensor->dims == rhs.tensor->dims &&
             lhs.tensor->elementType == rhs.tensor->elementType) {
      if (lhs.tensor->strides != rhs.tensor->strides)
        lhs.tensor->strides.reset();
      rule.setResult(0, *lhs.tensor);
    } else if (lhs.integer && lhs.integer == rhs.integer) {
      rule.setInteger(0, lhs.integer);
    }
    return success();
  }
};
struct IndexCastModel
    : ShapeRuleInterface::ExternalModel<IndexCastModel, arith::IndexCastOp> {
  LogicalResult inferShapes(Operation *op, ShapeRule &rule) const {
    if (DimExpr value = rule.integer(op->getOperand(0)))
      setNumber(op, rule, value);
    return success();
  }
};

/// A number of samples times a constant follows the batch as well.
struct MulBatch : BatchRuleInterface::ExternalModel<MulBatch, arith::MulIOp> {
  void inferBatch(Operation *op, BatchRule &rule) const {
    for (unsigned side : {0, 1}) {
      BatchFact fact = rule.fact(op->getOperand(side));
      APInt factor;
      if (!fact.isAt() ||
          !matchPattern(op->getOperand(1 - side), m_ConstantInt(&factor)) ||
          !factor.isStrictlyPositive() || factor.getActiveBits() > 31)
        continue;
      fact.factor *= factor.getSExtValue();
      return rule.setResult(0, fact);
    }
  }
};
/// Halves of 2*B samples are B: where the division is exact.
struct FloorDivBatch
    : BatchRuleInterface::ExternalModel<FloorDivBatch, arith::FloorDivSIOp> {
  void inferBatch(Operation *op, BatchRule &rule) const {
    BatchFact fact = rule.fact(op->getOperand(0));
    APInt divisor;
    if (fact.isAt() && rule.fact(op->getOperand(1)).isFree() &&
        matchPattern(op->getOperand(1), m_ConstantInt(&divisor)) &&
        divisor.isStrictlyPositive() && divisor.getActiveBits() <= 31 &&
        fact.factor % divisor.getSExtValue() == 0) {
      fact.factor /= divisor.getSExtValue();
      rule.setResult(0, fact);
    }
  }
};
struct IndexCastBatch
    : BatchRuleInterface::ExternalModel<IndexCastBatch, arith::IndexCastOp> {
  void inferBatch(Operation *op, BatchRule &rule) const {
    rule.setResult(0, rule.fact(op->getOperand(0)));
  }
};

//===----------------------------------------------------------------------===//
// tensor
//===----------------------------------------------------------------------===//

/// Mixed sizes as expressions; a size that nothing is known of is left to the
/// symbol of its value, which `ShapeRule::integer` gives.
SmallVector<DimExpr> getSizes(ArrayRef<OpFoldResult> sizes,
                              const ShapeRule &rule) {
  SmallVector<DimExpr> dims;
  for (OpFoldResult size : sizes) {
    if (auto attr = dyn_cast<Attribute>(size))
      dims.push_back(rule.constant(cast<IntegerAttr>(attr).getInt()));
    else
      dims.push_back(rule.integer(cast<Value>(size)));
  }
  return dims;
}

struct EmptyShape
    : ShapeRuleInterface::ExternalModel<EmptyShape, tensor::EmptyOp> {
  LogicalResult inferShapes(Operation *op, ShapeRule &rule) const {
    auto empty = cast<tensor::EmptyOp>(op);
    SmallVector<DimExpr> dims = getSizes(empty.getMixedSizes(), rule);
    if (llvm::all_of(dims, [](DimExpr dim) { return bool(dim); }))
      rule.setResult(
          0, TensorInfo::contiguous(dims, empty.getType().getElementType()));
    return success();
  }
};

struct DimShape : ShapeRuleInterface::ExternalModel<DimShape, tensor::DimOp> {
  LogicalResult inferShapes(Operation *op, ShapeRule &rule) const {
    auto dim = cast<tensor::DimOp>(op);
    TensorInfo info = rule.tensor(dim.getSource());
    DimExpr index = rule.integer(dim.getIndex());
    auto number = index ? index.getConstant() : std::nullopt;
    if (info.hasRank() && number && *number >= 0 && *number < info.getRank())
      rule.setInteger(0, info.dim(*number));
    return success();
  }
};

struct ExtractShape
    : ShapeRuleInterface::ExternalModel<ExtractShape, tensor::ExtractSliceOp> {
  LogicalResult inferShapes(Operation *op, ShapeRule &rule) const {
    auto slice = cast<tensor::ExtractSliceOp>(op);
    TensorInfo source = rule.tensor(slice.getSource());
    SmallVector<DimExpr> dims = getSizes(slice.getMixedSizes(), rule);
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    if (!llvm::all_of(dims, [](DimExpr dim) { return bool(dim); }) ||
        dropped.any())
      return success();
    // What has another rank than its type at these sizes is never sliced.
    if (source.hasRank() &&
        source.getRank() != static_cast<int64_t>(dims.size()))
      return success();
    TensorInfo result;
    result.dims = dims;
    result.elementType = slice.getType().getElementType();
    // A view keeps the strides; steps other than one would scale them.
    if (source.strides &&
        llvm::all_of(slice.getMixedStrides(), [](OpFoldResult stride) {
          return isConstantIntValue(stride, 1);
        }))
      result.strides = source.strides;
    rule.setResult(0, result);
    return success();
  }
};

struct InsertShape
    : ShapeRuleInterface::ExternalModel<InsertShape, tensor::InsertSliceOp> {
  LogicalResult inferShapes(Operation *op, ShapeRule &rule) const {
    rule.setResult(0, rule.tensor(cast<tensor::InsertSliceOp>(op).getDest()));
    return success();
  }
};

struct CastShape
    : ShapeRuleInterface::ExternalModel<CastShape, tensor::CastOp> {
  LogicalResult inferShapes(Operation *op, ShapeRule &rule) const {
    rule.setResult(0, rule.tensor(op->getOperand(0)));
    return success();
  }
};

/// Runs no kernel.
template <typename OpTy>
struct NoKernel : AllocationInterface::ExternalModel<NoKernel<OpTy>, OpTy> {};
template <typename OpTy>
struct NewStorage : MemoryRuleInterface::ExternalModel<NewStorage<OpTy>, OpTy> {
  void describeStorage(Operation *, StorageRule &) const {}
};
template <typename OpTy>
struct ViewStorage
    : MemoryRuleInterface::ExternalModel<ViewStorage<OpTy>, OpTy> {
  void describeStorage(Operation *op, StorageRule &rule) const {
    rule.setAlias(0, op->getOperand(0));
  }
};
struct InsertStorage
    : MemoryRuleInterface::ExternalModel<InsertStorage, tensor::InsertSliceOp> {
  void describeStorage(Operation *op, StorageRule &rule) const {
    rule.setTied(0, cast<tensor::InsertSliceOp>(op).getDest());
  }
};
} // namespace

void koila::attachExternalModels(MLIRContext *context) {
  arith::ConstantOp::attachInterface<ConstantModel>(*context);
  arith::CmpIOp::attachInterface<CmpModel>(*context);
  arith::SelectOp::attachInterface<SelectModel>(*context);
  arith::AddIOp::attachInterface<AddModel>(*context);
  arith::SubIOp::attachInterface<SubModel>(*context);
  arith::MulIOp::attachInterface<MulModel>(*context);
  arith::FloorDivSIOp::attachInterface<FloorDivModel>(*context);
  arith::MinSIOp::attachInterface<MinModel>(*context);
  arith::MaxSIOp::attachInterface<MaxModel>(*context);
  arith::IndexCastOp::attachInterface<IndexCastModel>(*context);
  arith::MulIOp::attachInterface<MulBatch>(*context);
  arith::FloorDivSIOp::attachInterface<FloorDivBatch>(*context);
  arith::IndexCastOp::attachInterface<IndexCastBatch>(*context);
  tensor::EmptyOp::attachInterface<EmptyShape>(*context);
  tensor::DimOp::attachInterface<DimShape>(*context);
  tensor::ExtractSliceOp::attachInterface<ExtractShape>(*context);
  tensor::InsertSliceOp::attachInterface<InsertShape>(*context);
  tensor::CastOp::attachInterface<CastShape>(*context);
  tensor::EmptyOp::attachInterface<NewStorage<tensor::EmptyOp>>(*context);
  tensor::ExtractSliceOp::attachInterface<ViewStorage<tensor::ExtractSliceOp>>(
      *context);
  tensor::CastOp::attachInterface<ViewStorage<tensor::CastOp>>(*context);
  tensor::InsertSliceOp::attachInterface<InsertStorage>(*context);
  tensor::EmptyOp::attachInterface<NoKernel<tensor::EmptyOp>>(*context);
  tensor::ExtractSliceOp::attachInterface<NoKernel<tensor::ExtractSliceOp>>(
      *context);
  tensor::CastOp::attachInterface<NoKernel<tensor::CastOp>>(*context);
  tensor::InsertSliceOp::attachInterface<NoKernel<tensor::InsertSliceOp>>(
      *context);
}
