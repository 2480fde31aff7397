//===- RulesElementwise.cpp - Rules of elementwise operators --------------===//

#include "koila/Dialect/Koila/IR/Koila.h"

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
  if (!lhs.hasRank() || !rhs.hasRank())
    return {};
  // A 0-dim tensor takes part only with its category
  // (c10/core, aten/src/ATen/native/TypeProperties.cpp).
  bool leftScalar = lhs.getRank() == 0, rightScalar = rhs.getRank() == 0;
  if (leftScalar != rightScalar) {
    Type dimmed = leftScalar ? rhs.elementType : lhs.elementType;
    Type scalar = leftScalar ? lhs.elementType : rhs.elementType;
    if (category(dimmed) >= category(scalar))
      return dimmed;
    return scalar;
  }
  return promotePair(lhs.elementType, rhs.elementType);
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
  if (info.elementType && isa<IntegerType>(info.elementType))
    info.elementType = Float32Type::get(rule.getContext());
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
  if (info.elementType && isa<IntegerType>(info.elementType))
    info.elementType = Float32Type::get(rule.getContext());
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
// Workspace
//===----------------------------------------------------------------------===//

void rules::describeUnaryWorkspace(WorkspaceRule &rule, Value self) {}

void rules::describeBinaryWorkspace(WorkspaceRule &rule, Value self,
                                    Value other) {
  auto lhs = rule.tensor(self), rhs = rule.tensor(other);
  if (lhs && rhs && lhs->elementType != rhs->elementType)
    rule.setInexact("operands of different element types are cast inside");
}
