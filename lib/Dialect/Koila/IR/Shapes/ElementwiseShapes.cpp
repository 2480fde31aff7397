//===- ElementwiseShapes.cpp - Shapes of elementwise operators ------------===//

#include "../Rules/ElementwiseRules.h"
#include "../Rules/ViewRules.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/Layout.h"

using namespace mlir;
using namespace koila;
using rules::Elementwise;

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

OperandRange rules::getTensors(Operation *op) {
  return op->getOperands().drop_back(OperatorArguments(op).getDynamic().size());
}

std::optional<double> rules::getLiteralNumber(Operation *op, StringRef name) {
  Attribute attr = op->getAttr(name);
  if (auto number = dyn_cast_or_null<FloatAttr>(attr))
    return number.getValueAsDouble();
  auto integer = dyn_cast_or_null<IntegerAttr>(attr);
  if (!integer || OperatorArguments(op).getDynamic(name))
    return std::nullopt;
  return integer.getType().isInteger(1)
             ? double(integer.getValue().getZExtValue())
             : double(integer.getInt());
}

bool rules::isInPlace(Operation *op) {
  auto torchOp = dyn_cast<TorchOperatorInterface>(op);
  return torchOp && torchOp.isTied();
}

//===----------------------------------------------------------------------===//
// Element types
//===----------------------------------------------------------------------===//

LogicalResult rules::checkCategory(ShapeRule &rule, Type type,
                                   StringRef refused) {
  if (!isTorchType(type) || !refused.contains("bifc"[getCategory(type)]))
    return success();
  return rule.emitError() << "is not defined for elements of type " << type;
}

/// Source: alpha_check in aten/src/ATen/native/BinaryOps.h.
static LogicalResult checkAlpha(ShapeRule &rule, Type common) {
  Type alpha = rule.numberType("alpha");
  if (!alpha || !rules::isTorchType(common))
    return success();
  if (alpha.isInteger(1) && !common.isInteger(1))
    return rule.emitError() << "takes a bool as alpha only for bool results, "
                            << "not for " << common;
  if (alpha.isF64() && rules::getCategory(common) < 2)
    return rule.emitError() << "takes no floating-point alpha for results of "
                            << "type " << common;
  return success();
}

/// Refuses element types that PyTorch refuses whatever the shapes are.
static LogicalResult checkTypes(ShapeRule &rule, const Elementwise &kind,
                                ArrayRef<TensorInfo> operands,
                                ArrayRef<Type> numbers, Type common) {
  ArrayRef<TensorInfo> typed =
      operands.drop_front(kind.conditions).drop_back(kind.weights);
  for (const TensorInfo &condition : operands.take_front(kind.conditions))
    if (Type type = condition.elementType; rules::isTorchType(type) &&
                                           !type.isInteger(1) &&
                                           !type.isUnsignedInteger(8))
      return rule.emitError()
             << "takes a bool tensor as condition, not one of " << type;
  for (const TensorInfo &operand : typed) {
    Type type = operand.elementType, first = typed.front().elementType;
    if (kind.refusesBool && type && type.isInteger(1))
      return rule.emitError() << "is not defined for bool tensors";
    if (kind.sameTypes && rules::isTorchType(first) &&
        rules::isTorchType(type) && type != first)
      return rule.emitError() << "takes operands of one element type, not "
                              << first << " and " << type;
  }
  for (Type number : numbers)
    if (kind.refusesBool && number && number.isInteger(1))
      return rule.emitError() << "is not defined for a bool number";
  for (const TensorInfo &weight : operands.take_back(kind.weights))
    if (weight.hasRank() && weight.getRank() != 0 && common &&
        rules::isTorchType(weight.elementType) && weight.elementType != common)
      return rule.emitError()
             << "takes weights of the element type of the "
             << "operands, " << common << ", not " << weight.elementType;
  if (kind.hasAlpha && failed(checkAlpha(rule, common)))
    return failure();
  return rules::checkCategory(rule, common, kind.refused);
}

/// Null if `computed` is.
static Type getResultType(Elementwise::Result result, Type computed,
                          MLIRContext *context) {
  if (result == Elementwise::Bool)
    return IntegerType::get(context, 1);
  if (!rules::isTorchType(computed))
    return computed;
  auto complex = dyn_cast<ComplexType>(computed);
  if (result == Elementwise::Real || result == Elementwise::RealFloat)
    return complex ? complex.getElementType() : computed;
  if (result == Elementwise::Complex)
    return complex ? computed : Type(ComplexType::get(computed));
  return computed;
}

/// Refuses what PyTorch refuses of an in-place operator: a result type of a
/// higher category than the written tensor's.
static LogicalResult checkWrittenType(ShapeRule &rule, const Elementwise &kind,
                                      Type written, Type computed) {
  // What compares is cast to any type.
  if (!rules::isTorchType(written) || !rules::isTorchType(computed) ||
      kind.result == Elementwise::Bool)
    return success();
  if (kind.result == Elementwise::Real && isa<ComplexType>(computed))
    return rule.emitError()
           << "cannot write real numbers into " << written << " in place";
  if (rules::getCategory(computed) <= rules::getCategory(written))
    return success();
  return rule.emitError() << "result type " << computed
                          << " cannot be written into " << written
                          << " in place";
}

//===----------------------------------------------------------------------===//
// Extents
//===----------------------------------------------------------------------===//

FailureOr<std::optional<SmallVector<DimExpr>>>
rules::broadcastDims(ShapeRule &rule, ArrayRef<TensorInfo> operands) {
  SmallVector<DimExpr> dims;
  bool known = true;
  for (const TensorInfo &operand : operands) {
    if (!operand.hasRank()) {
      known = false;
      continue;
    }
    int64_t rank = std::max<int64_t>(dims.size(), operand.getRank());
    int64_t added = rank - static_cast<int64_t>(dims.size());
    dims.insert(dims.begin(), operand.dims->begin(),
                operand.dims->begin() + added);
    int64_t offset = rank - operand.getRank();
    for (int64_t index = std::max(added, offset); index < rank; ++index) {
      DimExpr a = dims[index], b = operand.dim(index - offset);
      auto left = a.getConstant(), right = b.getConstant();
      if (left && right && *left != *right && *left != 1 && *right != 1)
        return rule.emitError() << "cannot broadcast extents " << *left
                                << " and " << *right << " in dim " << index;
      dims[index] = a.broadcast(b);
    }
  }
  if (!known)
    return std::optional<SmallVector<DimExpr>>();
  return std::optional(std::move(dims));
}

LogicalResult
rules::checkWrittenDims(ShapeRule &rule, const TensorInfo &written,
                        const std::optional<SmallVector<DimExpr>> &dims) {
  if (!dims || !written.hasRank())
    return success();
  bool fits = written.getRank() == static_cast<int64_t>(dims->size());
  for (int64_t index = 0; fits && index < written.getRank(); ++index) {
    DimExpr extent = (*dims)[index];
    TriBool equal = proveEqual(extent, written.dim(index));
    // An extent of one that is written must stay one.
    bool mayFit = !written.dim(index).isConstant(1) ||
                  (extent && !isBakedIn(rule.getOp(), extent, 1));
    fits = equal == TriBool::Yes || (equal == TriBool::Unknown && mayFit);
  }
  if (fits)
    return success();
  return rule.emitError() << "the broadcast shape does not fit the tensor that "
                          << "is written in place";
}

/// Refuses to write a tensor of which several elements are one in memory.
/// Source: has_internal_overlap in aten/src/ATen/MemoryOverlap.cpp.
static LogicalResult checkOverlap(ShapeRule &rule, const TensorInfo &written) {
  if (!written.hasRank() || !written.strides ||
      llvm::any_of(*written.dims,
                   [](DimExpr dim) { return dim.isConstant(0); }))
    return success();
  for (auto [index, dim] : llvm::enumerate(*written.dims))
    if ((*written.strides)[index].isConstant(0) && dim.getConstant() &&
        !dim.isConstant(1))
      return rule.emitError() << "cannot write a tensor in place whose dim "
                              << index << " repeats the same elements";
  return success();
}

//===----------------------------------------------------------------------===//
// The shape rule
//===----------------------------------------------------------------------===//

TensorInfo rules::getCastLayout(TensorInfo info, Type computed) {
  if (!info.strides || (computed && info.elementType == computed) ||
      isNonOverlappingAndDense(info) == TriBool::Yes)
    return info;
  if (isTorchType(info.elementType) && isTorchType(computed))
    info.strides = computePreservedStrides(info);
  else
    info.strides.reset();
  return info;
}

bool rules::isNumber(Operation *op, const Elementwise &kind, unsigned index) {
  if (!kind.takesConstants || index != 1 || isInPlace(op))
    return false;
  // Import marks the reads of such constants.
  auto read = op->getOperand(index).getDefiningOp<ParamGetOp>();
  return read && read->hasAttr("wrapped");
}

/// The integer in a 0-dim result of two that hold integers.
static void inferHeldInteger(ShapeRule &rule, ArrayRef<Value> tensors,
                             Elementwise::Held held) {
  if (held == Elementwise::NotHeld || tensors.size() != 2)
    return;
  DimExpr lhs = rule.integer(tensors[0]), rhs = rule.integer(tensors[1]);
  if (!lhs || !rhs)
    return;
  rule.setInteger(0, held == Elementwise::Quotient ? lhs.floorDiv(rhs)
                                                   : lhs.mod(rhs));
}

LogicalResult rules::inferElementwise(ShapeRule &rule,
                                      const Elementwise &kind) {
  return inferElementwise(rule, SmallVector<Value>(getTensors(rule.getOp())),
                          kind);
}

LogicalResult rules::inferElementwise(ShapeRule &rule, ArrayRef<Value> tensors,
                                      const Elementwise &kind) {
  SmallVector<TensorInfo> operands;
  for (Value tensor : tensors)
    operands.push_back(rule.tensor(tensor));
  SmallVector<Type> numbers;
  for (StringRef name : kind.numbers)
    if (rule.hasArgument(name))
      numbers.push_back(rule.numberType(name));
  // A number that the program holds as a constant tensor has no more say in
  // the type than a number argument.
  SmallVector<TensorInfo> typed;
  SmallVector<Type> allNumbers(numbers);
  for (size_t index = kind.conditions; index < operands.size() - kind.weights;
       ++index) {
    if (isNumber(rule.getOp(), kind, index))
      allNumbers.push_back(operands[index].elementType);
    else
      typed.push_back(operands[index]);
  }
  Type common = getCommonType(typed, allNumbers);
  if (failed(checkTypes(rule, kind, operands, numbers, common)))
    return failure();
  Type computed = getComputedType(kind.result, common);
  auto dims = broadcastDims(rule, operands);
  if (failed(dims))
    return failure();

  if (isInPlace(rule.getOp())) {
    const TensorInfo &written = operands.front();
    if (failed(checkWrittenType(rule, kind, written.elementType, computed)) ||
        failed(checkWrittenDims(rule, written, *dims)) ||
        failed(checkOverlap(rule, written)))
      return failure();
    rule.setResult(0, written);
    return success();
  }

  TensorInfo result;
  result.elementType = getResultType(kind.result, computed, rule.getContext());
  result.dims = *dims;
  if (!result.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  // The angle of complex numbers is copied into rows (angle in
  // aten/src/ATen/native/UnaryOps.cpp).
  bool isCopied = kind.result == Elementwise::RealFloat &&
                  isa_and_nonnull<ComplexType>(computed);
  if (kind.rowMajor || isCopied) {
    rule.setResult(0, TensorInfo::contiguous(*result.dims, result.elementType));
    return success();
  }
  SmallVector<TensorInfo> layouts;
  for (auto [index, operand] : llvm::enumerate(operands)) {
    // 0-dim operands have no say in the order of dims.
    if (operand.getRank() == 0)
      continue;
    bool isCast =
        index >= kind.conditions && index < operands.size() - kind.weights;
    layouts.push_back(isCast ? getCastLayout(operand, computed) : operand);
  }
  if (kind.reversed)
    std::reverse(layouts.begin(), layouts.end());
  result.strides = computeElementwiseStrides(layouts, *result.dims);
  rule.setResult(0, result);
  inferHeldInteger(rule, tensors, kind.held);
  return success();
}

LogicalResult rules::inferBinary(ShapeRule &rule, Value self, Value other) {
  return inferElementwise(rule, {self, other}, Elementwise{});
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// Of a sum that neither broadcasts nor promotes, nor scales an operand.
bool AddTensorOp::hasBackwardOperator(ShapeRule::Lookup lookup) {
  auto alpha = dyn_cast<IntegerAttr>(getAlpha());
  if (getTied() || !alpha || alpha.getInt() != 1 || !getDynamic().empty())
    return false;
  std::optional<TensorInfo> result = lookup(getResult()).tensor;
  return result && result->hasRank() &&
         isa_and_nonnull<FloatType>(result->elementType) &&
         llvm::all_of(ArrayRef<Value>{getSelf(), getOther()}, [&](Value value) {
           std::optional<TensorInfo> info = lookup(value).tensor;
           return info && info->dims == result->dims &&
                  info->elementType == result->elementType;
         });
}

bool AddTensorOp::readsOperand(unsigned) { return false; }

SmallVector<Value> AddTensorOp::buildGradients(OpBuilder &, Value gradient,
                                               ValueRange,
                                               ArrayRef<bool> wanted) {
  return {wanted[0] ? gradient : Value(), wanted[1] ? gradient : Value()};
}
