//===- TypePromotion.cpp - The type in which operands meet ----------------===//

#include "../Rules/ElementwiseRules.h"
#include "koila/Dialect/Koila/IR/Koila.h"

using namespace mlir;
using namespace koila;

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

std::optional<int64_t> rules::getScalarTypeCode(Type type) {
  constexpr int64_t kEnd = 16;
  for (int64_t code = 0; type && code < kEnd; ++code)
    if (getTypeForScalarTypeCode(type.getContext(), code) == type)
      return code;
  return std::nullopt;
}

bool rules::isTorchType(Type type) {
  return isa_and_nonnull<IntegerType, FloatType, ComplexType>(type);
}

int rules::getCategory(Type type) {
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
  if (rules::getCategory(lhs) < rules::getCategory(rhs))
    std::swap(lhs, rhs);
  int category = rules::getCategory(lhs);
  if (category != rules::getCategory(rhs)) {
    // A complex number of the wider part: complex64 with float64 is
    // complex128.
    auto complex = dyn_cast<ComplexType>(lhs);
    if (complex && isa<FloatType>(rhs) && rhs.isF64())
      return ComplexType::get(rhs);
    return lhs;
  }
  if (category == 3)
    return cast<ComplexType>(lhs).getElementType().isF64() ? lhs : rhs;
  unsigned left = lhs.getIntOrFloatBitWidth(),
           right = rhs.getIntOrFloatBitWidth();
  if (category == 2) {
    if (left == right) // float16 with bfloat16
      return Float32Type::get(lhs.getContext());
    return left > right ? lhs : rhs;
  }
  // uint8 with int8 is int16; with wider ones it gives way.
  if (left == right)
    return IntegerType::get(lhs.getContext(), 16);
  return left > right ? lhs : rhs;
}

/// `strong` is the type of the operands that have dims, `weak` that of those
/// that have none or are numbers; null: there are none.
/// Source: combine_categories in aten/src/ATen/native/TypeProperties.cpp.
static Type combine(Type strong, Type weak) {
  if (!strong || !weak)
    return strong ? strong : weak;
  int left = rules::getCategory(strong), right = rules::getCategory(weak);
  if (left == 3)
    return strong;
  if (left == 2 && right == 3)
    // bfloat16 has the range of float32.
    return ComplexType::get(
        strong.isBF16() ? Float32Type::get(strong.getContext()) : strong);
  if (left == 2)
    return strong;
  return left == 0 || right >= 2 ? promotePair(strong, weak) : strong;
}

Type rules::promoteTypes(const TensorInfo &lhs, const TensorInfo &rhs) {
  return getCommonType({lhs, rhs}, {});
}

Type rules::promoteTypes(Type lhs, bool lhsHasDims, Type rhs, bool rhsHasDims) {
  if (lhsHasDims == rhsHasDims)
    return promotePair(lhs, rhs);
  return lhsHasDims ? combine(lhs, rhs) : combine(rhs, lhs);
}

Type rules::getCommonType(ArrayRef<TensorInfo> operands,
                          ArrayRef<Type> numbers) {
  bool equal = llvm::all_of(operands, [&](const TensorInfo &operand) {
    return operand.elementType == operands.front().elementType;
  });
  if (equal && !operands.empty() && numbers.empty())
    return operands.front().elementType;
  Type dimmed, scalar, number;
  for (const TensorInfo &operand : operands) {
    // Ranks matter only between different types.
    if (!isTorchType(operand.elementType) || (!equal && !operand.hasRank()))
      return {};
    Type &type = equal || operand.getRank() != 0 ? dimmed : scalar;
    type = type ? promotePair(type, operand.elementType) : operand.elementType;
  }
  for (Type type : numbers) {
    // What is not known may be of any category that numbers have.
    if (!type) {
      Type tensors = combine(dimmed, scalar);
      return tensors && getCategory(tensors) >= 2 ? tensors : Type();
    }
    // A Python float counts as the default element type.
    if (type.isF64())
      type = Float32Type::get(type.getContext());
    number = number ? promotePair(number, type) : type;
  }
  return combine(dimmed, combine(scalar, number));
}

Type rules::getComputedType(Elementwise::Result result, Type common) {
  if (!isTorchType(common))
    return common;
  bool floating =
      result == Elementwise::Float || result == Elementwise::RealFloat;
  if (floating && getCategory(common) < 2)
    return Float32Type::get(common.getContext());
  if (result == Elementwise::Integer && getCategory(common) == 0)
    return IntegerType::get(common.getContext(), 64);
  return common;
}

std::optional<int64_t> rules::normalizeDim(int64_t dim, int64_t rank) {
  // A 0-dim tensor takes dims as if it had one.
  int64_t bound = std::max<int64_t>(rank, 1);
  if (dim < -bound || dim >= bound)
    return std::nullopt;
  return dim < 0 ? dim + bound : dim;
}
