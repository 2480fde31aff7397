//===- DType.cpp - Names of torch's element types -------------------------===//

#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace koila;

namespace {
struct DType {
  StringRef name;
  /// torch's other name; empty if there is none.
  StringRef alias;
  /// c10::ScalarType.
  int64_t code;
};
} // namespace

static constexpr DType kDTypes[] = {
    {"float32", "float", 6}, {"float64", "double", 7}, {"float16", "half", 5},
    {"bfloat16", "", 15},    {"int64", "long", 4},     {"int32", "int", 3},
    {"int16", "short", 2},   {"int8", "", 1},          {"uint8", "", 0},
    {"bool", "", 11},        {"complex64", "", 9},     {"complex128", "", 10},
};

StringRef koila::getCanonicalDType(StringRef name) {
  name.consume_front("torch.");
  for (const DType &known : kDTypes)
    if (name == known.name || (!known.alias.empty() && name == known.alias))
      return known.name;
  return {};
}

std::optional<int64_t> koila::getScalarTypeCode(StringRef dtype) {
  for (const DType &known : kDTypes)
    if (dtype == known.name)
      return known.code;
  return std::nullopt;
}

Type koila::getDTypeElementType(MLIRContext *context, StringRef dtype) {
  std::optional<int64_t> code = getScalarTypeCode(dtype);
  return code ? rules::getTypeForScalarTypeCode(context, *code) : Type();
}

StringRef koila::getDTypeName(Type type) {
  // By hand: every verifier asks, of each of its tensors.
  if (type.isF32())
    return "float32";
  if (type.isF64())
    return "float64";
  if (type.isF16())
    return "float16";
  if (type.isBF16())
    return "bfloat16";
  if (auto complex = dyn_cast<ComplexType>(type)) {
    if (complex.getElementType().isF32())
      return "complex64";
    return complex.getElementType().isF64() ? "complex128" : "";
  }
  if (type.isUnsignedInteger(8))
    return "uint8";
  if (!type.isSignlessInteger())
    return {};
  switch (type.getIntOrFloatBitWidth()) {
  case 1:
    return "bool";
  case 8:
    return "int8";
  case 16:
    return "int16";
  case 32:
    return "int32";
  case 64:
    return "int64";
  default:
    return {};
  }
}

bool koila::isHalf(Type elementType) {
  return elementType.isF16() || elementType.isBF16();
}

std::string koila::listDTypes() {
  return llvm::join(
      llvm::map_range(kDTypes, [](const DType &known) { return known.name; }),
      ", ");
}
