//===- RulesElementwise.cpp - Rules of elementwise operators --------------===//

#include "koila/Dialect/Koila/IR/KoilaPointwiseOps.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Element types
//===----------------------------------------------------------------------===//

Type rules::getTypeForScalarTypeCode(MLIRContext *context, int64_t code) {
  Builder builder(context);
  switch (code) { // c10/core/ScalarType.h
  case 0:
    return builder.getIntegerType(8, /*isSigned=*/false);
  case 1:
    return builder.getI8Type();
  case 2:
    return builder.getI16Type();
  case 3:
    return builder.getI32Type();
  case 4:
    return builder.getI64Type();
  case 5:
    return builder.getF16Type();
  case 6:
    return builder.getF32Type();
  case 7:
    return builder.getF64Type();
  case 9:
    return ComplexType::get(builder.getF32Type());
  case 10:
    return ComplexType::get(builder.getF64Type());
  case 11:
    return builder.getI1Type();
  case 15:
    return builder.getBF16Type();
  default:
    return {};
  }
}

/// Whether a tensor of PyTorch can have this element type.
static bool isTorchType(Type type) {
  return isa<IntegerType, FloatType, ComplexType>(type);
}

/// bool, integer, floating point, complex.
static int category(Type type) {
  if (isa<ComplexType>(type))
    return 3;
  if (isa<FloatType>(type))
    return 2;
  return type.isInteger(1) ? 0 : 1;
}

/// torch.promote_types for two types of any category.
static Type promotePair(Type lhs, Type rhs) {
  if (lhs == rhs)
    return lhs;
  if (category(lhs) < category(rhs))
    std::swap(lhs, rhs);
  if (category(lhs) != category(rhs)) {
    // A complex number of the wider part: complex64 with float64 is
    // complex128.
    auto complex = dyn_cast<ComplexType>(lhs);
    if (complex && isa<FloatType>(rhs) && rhs.isF64())
      return ComplexType::get(rhs);
    return lhs;
  }
  if (category(lhs) == 3)
    return lhs.getContext() && cast<ComplexType>(lhs).getElementType().isF64()
               ? lhs
               : rhs;
  unsigned left = lhs.getIntOrFloatBitWidth(),
           right = rhs.getIntOrFloatBitWidth();
  if (category(lhs) == 2) {
    if (left == right) // float16 with bfloat16
      return Float32Type::get(lhs.getContext());
    return left > right ? lhs : rhs;
  }
  // uint8 with int8 is int16; with wider ones it gives way.
  if (left == right)
    return IntegerType::get(lhs.getContext(), 16);
  return left > right ? lhs : rhs;
}

Type rules::promoteTypes(const TensorInfo &lhs, const TensorInfo &rhs) {
  if (!lhs.elementType || !rhs.elementType)
    return {};
  if (lhs.elementType == rhs.elementType)
    return lhs.elementType;
  if (!isTorchType(lhs.elementType) || !isTorchType(rhs.elementType))
    return {};
  if (!lhs.hasRank() || !rhs.hasRank())
    return {};
  return promoteTypes(lhs.elementType, lhs.getRank() != 0, rhs.elementType,
                      rhs.getRank() != 0);
}

Type rules::promoteTypes(Type lhs, bool lhsHasDims, Type rhs, bool rhsHasDims) {
  // A 0-dim tensor takes part only with its category
  // (aten/src/ATen/native/TypeProperties.cpp).
  if (lhsHasDims != rhsHasDims) {
    Type dimmed = lhsHasDims ? lhs : rhs, scalar = lhsHasDims ? rhs : lhs;
    return category(dimmed) >= category(scalar) ? dimmed : scalar;
  }
  return promotePair(lhs, rhs);
}

/// Whether the operation stands for the in-place form, whose result has the
/// type and shape of its first operand.
static bool isInPlace(const ShapeRule &rule) {
  auto op = dyn_cast<TorchOperatorInterface>(rule.getOp());
  return op && op.isTied();
}

/// Refuses what PyTorch refuses of an in-place operator: a common type of a
/// higher category than the written tensor's.
static LogicalResult checkInPlaceType(const ShapeRule &rule, Type written,
                                      Type common) {
  if (!written || !common || !isTorchType(written) ||
      category(common) <= category(written))
    return success();
  return rule.emitError() << "result type " << common
                          << " cannot be written into " << written
                          << " in place";
}

std::optional<int64_t> rules::normalizeDim(int64_t dim, int64_t rank) {
  // A 0-dim tensor takes dims as if it had one.
  int64_t bound = std::max<int64_t>(rank, 1);
  if (dim < -bound || dim >= bound)
    return std::nullopt;
  return dim < 0 ? dim + bound : dim;
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

LogicalResult rules::inferUnary(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  // TensorIterator keeps strides of dense inputs and packs the others.
  if (!info.isDense())
    info.strides.reset();
  rule.setResult(0, info);
  return success();
}

LogicalResult rules::inferUnaryFloat(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  if (!info.isDense())
    info.strides.reset();
  if (info.elementType && isa<IntegerType>(info.elementType)) {
    Type common = Float32Type::get(rule.getContext());
    if (isInPlace(rule))
      return checkInPlaceType(rule, info.elementType, common);
    info.elementType = common;
  }
  rule.setResult(0, info);
  return success();
}

LogicalResult rules::inferBinary(ShapeRule &rule, Value self, Value other) {
  TensorInfo lhs = rule.tensor(self), rhs = rule.tensor(other);
  TensorInfo result;
  result.elementType = promoteTypes(lhs, rhs);
  if (!lhs.hasRank() || !rhs.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  int64_t rank = std::max(lhs.getRank(), rhs.getRank());
  SmallVector<DimExpr> dims;
  for (int64_t index = 0; index < rank; ++index) {
    int64_t left = index - (rank - lhs.getRank());
    int64_t right = index - (rank - rhs.getRank());
    if (left < 0 || right < 0) {
      dims.push_back(left < 0 ? rhs.dim(right) : lhs.dim(left));
      continue;
    }
    DimExpr a = lhs.dim(left), b = rhs.dim(right);
    auto aExtent = a.getConstant(), bExtent = b.getConstant();
    if (aExtent && bExtent && *aExtent != *bExtent && *aExtent != 1 &&
        *bExtent != 1)
      return rule.emitError() << "cannot broadcast extents " << *aExtent
                              << " and " << *bExtent << " in dim " << index;
    dims.push_back(a.broadcast(b));
  }
  Type type = result.elementType;
  if (isInPlace(rule)) {
    if (failed(checkInPlaceType(rule, lhs.elementType, type)))
      return failure();
    for (int64_t index = 0; index < rank; ++index) {
      int64_t left = index - (rank - lhs.getRank());
      // An extent of one that is written must stay one.
      if (left < 0 ||
          (lhs.dim(left).isConstant(1) &&
           proveEqual(dims[index], lhs.dim(left)) != Proof::Yes) ||
          proveEqual(dims[index], lhs.dim(left)) == Proof::No)
        return rule.emitError()
               << "the broadcast shape does not fit the tensor that is "
               << "written in place";
    }
    rule.setResult(0, lhs);
    return success();
  }
  result.dims = dims;
  bool sameShape = *lhs.dims == *rhs.dims;
  if (lhs.isContiguous() == Proof::Yes && rhs.isContiguous() == Proof::Yes)
    result = TensorInfo::contiguous(dims, type);
  else if (sameShape && lhs.isChannelsLast() == Proof::Yes &&
           rhs.isChannelsLast() == Proof::Yes)
    result = TensorInfo::channelsLast(dims, type);
  rule.setResult(0, result);
  return success();
}

LogicalResult rules::inferTrueDivision(ShapeRule &rule, Value self,
                                       Value other) {
  if (failed(inferBinary(rule, self, other)))
    return failure();
  TensorInfo info = *rule.getResults()[0].tensor;
  if (info.elementType && isa<IntegerType>(info.elementType)) {
    Type common = Float32Type::get(rule.getContext());
    if (isInPlace(rule))
      return checkInPlaceType(rule, info.elementType, common);
    info.elementType = common;
  }
  rule.setResult(0, info);
  return success();
}

//===----------------------------------------------------------------------===//
// Batch
//===----------------------------------------------------------------------===//

void rules::inferBroadcastBatch(BatchRule &rule, ArrayRef<Value> operands) {
  int64_t rank = 0;
  for (Value operand : operands) {
    TensorInfo info = rule.tensor(operand);
    if (!info.hasRank())
      return rule.mix("the rank of an operand is unknown");
    rank = std::max(rank, info.getRank());
  }
  std::optional<BatchFact> common;
  for (Value operand : operands) {
    BatchFact fact = rule.fact(operand);
    if (!fact.isAt())
      continue;
    fact.dim += rank - rule.tensor(operand).getRank();
    if (common && !(*common == fact))
      return rule.mix("the operands carry the batch in different dims, so "
                      "that every sample meets every other");
    common = fact;
  }
  if (!common)
    return rule.setAll(BatchFact::free());
  for (Value operand : operands) {
    TensorInfo info = rule.tensor(operand);
    int64_t dim = common->dim - (rank - info.getRank());
    if (rule.fact(operand).isAt() || dim < 0 || info.dim(dim).isConstant(1))
      continue;
    return rule.mix("an operand without the batch has extent " +
                    info.dim(dim).str() + " in the batch dim");
  }
  rule.setAll(*common);
}

//===----------------------------------------------------------------------===//
// Storage, workspace
//===----------------------------------------------------------------------===//

void rules::describeNewStorage(StorageRule &rule) {
  auto op = dyn_cast<TorchOperatorInterface>(rule.getOp());
  if (op && op.isTied())
    rule.setTied(0, rule.getOp()->getOperand(0));
}

void rules::describeUnknownWorkspace(WorkspaceRule &rule) {
  rule.setInexact("the bytes that '" + rule.getOp()->getName().getStringRef() +
                  "' holds inside itself have no rule yet");
}

void rules::describeUnaryWorkspace(WorkspaceRule &rule, Value self) {
  auto input = rule.tensor(self);
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!input || !result)
    return rule.setInexact("a shape of the operator is unknown");
  // TensorIterator casts an input of another type into a temporary.
  if (input->elementType != result->elementType)
    rule.setTransient(result->numBytes());
}

void rules::describeBinaryWorkspace(WorkspaceRule &rule, Value self,
                                    Value other) {
  auto lhs = rule.tensor(self), rhs = rule.tensor(other);
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (!lhs || !rhs || !result)
    return rule.setInexact("a shape of the operator is unknown");
  if (!isTorchType(lhs->elementType) || !isTorchType(rhs->elementType))
    return rule.setInexact("an element type that PyTorch has not");
  Type common = promoteTypes(lhs->elementType, !lhs->dims.empty(),
                             rhs->elementType, !rhs->dims.empty());
  // True division of integers computes in float32.
  if (isa<IntegerType>(common) && isa<FloatType>(result->elementType))
    common = result->elementType;
  // TensorIterator casts each operand of another type into a temporary; an
  // in-place form also computes into one.
  int64_t bytes = 0;
  for (const ConcreteTensor &operand : {*lhs, *rhs})
    if (operand.elementType != common)
      bytes += operand.numElements() * getElementBytes(common);
  auto op = dyn_cast<TorchOperatorInterface>(rule.getOp());
  if (op && op.isTied() && lhs->elementType != common)
    bytes += lhs->numElements() * getElementBytes(common);
  rule.setTransient(bytes);
  if (lhs->elementType != rhs->elementType &&
      (lhs->dims.empty() || rhs->dims.empty())) {
    // A constant of the program is copied once more than a tensor is.
    rule.setTransient(bytes + 8);
    rule.setInexact("a 0-dim operand of another element type; the figure is "
                    "an upper bound");
  }
}
