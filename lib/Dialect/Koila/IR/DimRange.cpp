//===- DimRange.cpp - What expressions can be at most ---------------------===//

#include "koila/Dialect/Koila/IR/DimRange.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace koila;

/// The hull of what `apply` gives for the ends of both ranges: exact for what
/// is monotone in each of its operands.
template <typename Apply>
static std::optional<DimRange> combine(DimRange lhs, DimRange rhs,
                                       Apply apply) {
  std::optional<DimRange> hull;
  for (int64_t left : {lhs.least, lhs.most})
    for (int64_t right : {rhs.least, rhs.most}) {
      std::optional<int64_t> value = apply(left, right);
      if (!value)
        return std::nullopt;
      hull = hull ? DimRange{std::min(hull->least, *value),
                             std::max(hull->most, *value)}
                  : DimRange{*value, *value};
    }
  return hull;
}

static std::optional<int64_t> add(int64_t lhs, int64_t rhs) {
  int64_t sum;
  return llvm::AddOverflow(lhs, rhs, sum) ? std::nullopt : std::optional(sum);
}

static std::optional<int64_t> multiply(int64_t lhs, int64_t rhs) {
  int64_t product;
  return llvm::MulOverflow(lhs, rhs, product) ? std::nullopt
                                              : std::optional(product);
}

static std::optional<int64_t> divide(int64_t lhs, int64_t rhs) {
  if (rhs == -1 && lhs == std::numeric_limits<int64_t>::min())
    return std::nullopt;
  return llvm::divideFloorSigned(lhs, rhs);
}

static std::optional<DimRange> evaluateAtom(Attribute atom,
                                            SymbolRanges ranges) {
  if (auto symbol = dyn_cast<DimSymbol>(atom))
    return ranges(symbol);
  auto call = cast<DimAtomAttr>(atom);
  auto lhs = evaluateRange(call.getLhs(), ranges);
  auto rhs = evaluateRange(call.getRhs(), ranges);
  if (!lhs || !rhs)
    return std::nullopt;
  StringRef function = call.getFunction().getValue();
  if (function == "min")
    return combine(*lhs, *rhs, [](int64_t left, int64_t right) {
      return std::optional(std::min(left, right));
    });
  if (function == "max")
    return combine(*lhs, *rhs, [](int64_t left, int64_t right) {
      return std::optional(std::max(left, right));
    });
  // One of both, where the other is the same or one.
  if (function == "broadcast")
    return DimRange{std::min(lhs->least, rhs->least),
                    std::max(lhs->most, rhs->most)};
  if (rhs->most > 0)
    rhs->least = std::max<int64_t>(rhs->least, 1);
  else if (rhs->most == 0)
    return std::nullopt;
  return combine(*lhs, *rhs, divide);
}

std::optional<DimRange> koila::evaluateRange(DimExpr expr,
                                             SymbolRanges ranges) {
  DimRange sum{0, 0};
  for (auto [coefficient, monomial] : llvm::zip_equal(
           expr.getAttr().getCoefficients(), expr.getAttr().getMonomials())) {
    std::optional<DimRange> term = DimRange{coefficient, coefficient};
    for (Attribute atom : monomial) {
      auto factor = evaluateAtom(atom, ranges);
      term = factor ? combine(*term, *factor, multiply) : std::nullopt;
      if (!term)
        return std::nullopt;
    }
    auto least = add(sum.least, term->least), most = add(sum.most, term->most);
    if (!least || !most)
      return std::nullopt;
    sum = {*least, *most};
  }
  return sum;
}
