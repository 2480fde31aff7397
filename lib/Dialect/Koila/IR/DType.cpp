//===- DType.cpp - Names of torch's element types -------------------------===//

#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/IR/TypePromotion.h"
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

StringRef koila::getDTypeName(Type elementType) {
  for (const DType &known : kDTypes)
    if (rules::getTypeForScalarTypeCode(elementType.getContext(), known.code) ==
        elementType)
      return known.name;
  return {};
}

std::string koila::listDTypes() {
  return llvm::join(
      llvm::map_range(kDTypes, [](const DType &known) { return known.name; }),
      ", ");
}
