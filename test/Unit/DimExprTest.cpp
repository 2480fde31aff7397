//===- DimExprTest.cpp - Normal form and arithmetic of dim expressions ----===//

#include "koila/Dialect/Koila/IR/DimExpr.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/Layout.h"
#include "mlir/AsmParser/AsmParser.h"
#include "llvm/ADT/StringMap.h"
#include "gtest/gtest.h"
#include <random>

using namespace mlir;
using namespace koila;

namespace {
class DimExprTest : public ::testing::Test {
protected:
  DimExprTest() {
    context.loadDialect<KoilaDialect>();
    b = symbol("B");
    s = symbol("S");
  }

  DimExpr symbol(StringRef name) { return DimExpr::symbol(&context, name); }
  DimExpr constant(int64_t value) { return DimExpr::constant(&context, value); }
  DimExpr parse(const std::string &text) {
    auto attr = dyn_cast_or_null<DimExprAttr>(
        parseAttribute("#koila.expr<" + text + ">", &context));
    return attr ? DimExpr(attr) : DimExpr();
  }
  static std::optional<int64_t>
  evaluate(DimExpr expr,
           std::initializer_list<std::pair<StringRef, int64_t>> values = {}) {
    return expr.evaluate([&](DimSymbol symbol) -> std::optional<int64_t> {
      for (auto [known, value] : values)
        if (symbol.isNamed(known))
          return value;
      return std::nullopt;
    });
  }

  MLIRContext context;
  DimExpr b, s;
};
} // namespace

TEST_F(DimExprTest, EqualExpressionsAreOneAttribute) {
  EXPECT_EQ(b + s, s + b);
  EXPECT_EQ(b * s, s * b);
  EXPECT_EQ((b + 1) * (b - 1), b * b - 1);
  EXPECT_EQ(b + b, b * 2);
  EXPECT_EQ((b - b).getConstant(), 0);
  EXPECT_EQ(b.min(s), s.min(b));
  EXPECT_EQ(b.max(s), s.max(b));
  EXPECT_EQ(b.broadcast(s), s.broadcast(b));
  EXPECT_NE(b * s, b + s);
}

TEST_F(DimExprTest, PrintsHighDegreesFirstAndReadsBack) {
  for (const char *text :
       {"0", "-1", "B", "4*B + 2", "B*B - B", "-B*S + 3", "floordiv(B, 8)",
        "floordiv(B - 1, 2) + 1", "min(B, S)", "max(3, B)", "broadcast(B, S)",
        "9223372036854775807"}) {
    DimExpr expr = parse(text);
    ASSERT_TRUE(expr) << text;
    EXPECT_EQ(expr.str(), text);
    EXPECT_EQ(parse(expr.str()), expr);
  }
  EXPECT_EQ(parse("2 + B*(B + 1)").str(), "B*B + B + 2");
}

TEST_F(DimExprTest, UnparsableTextIsRefused) {
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) {});
  for (const char *text : {"", "B +", "pow(B, 2)", "floordiv(B)", "4 B", "(B",
                           "floordiv(B, 2", "9223372036854775808"})
    EXPECT_FALSE(parse(text)) << text;
}

TEST_F(DimExprTest, ExactDivisionsAreCarriedOut) {
  EXPECT_EQ((b * 4).floorDiv(2), b * 2);
  EXPECT_EQ((b * s * 4).floorDiv(s * 2), b * 2);
  EXPECT_EQ((b * 4 + 6).floorDiv(2), b * 2 + 3);
  EXPECT_EQ(constant(-7).floorDiv(2).getConstant(), -4);
  // 3*B does not divide by two for every B.
  EXPECT_EQ((b * 3).floorDiv(2).str(), "floordiv(3*B, 2)");
  EXPECT_EQ((b * 4 + 1).floorDiv(2), b * 2);
}

TEST_F(DimExprTest, RoundingIsTowardsMinusInfinity) {
  DimExpr half = b.floorDiv(2);
  EXPECT_EQ(evaluate(half, {{"B", 7}}), 3);
  EXPECT_EQ(evaluate(half, {{"B", -7}}), -4);
  EXPECT_EQ(evaluate(b.mod(constant(4)), {{"B", 10}}), 2);
  EXPECT_EQ(evaluate(b.mod(constant(4)), {{"B", -1}}), 3);
}

TEST_F(DimExprTest, EvaluationWithholdsWhatItCannotSay) {
  EXPECT_EQ(evaluate(b + s, {{"B", 1}}), std::nullopt);
  EXPECT_EQ(evaluate(b.floorDiv(s), {{"B", 1}, {"S", 0}}), std::nullopt);
  EXPECT_EQ(evaluate(b * b, {{"B", int64_t(1) << 40}}), std::nullopt);
  EXPECT_EQ(evaluate(b + 1, {{"B", INT64_MAX}}), std::nullopt);
  EXPECT_EQ(evaluate(b.broadcast(s), {{"B", 3}, {"S", 4}}), std::nullopt);
  EXPECT_EQ(evaluate(b.broadcast(s), {{"B", 1}, {"S", 4}}), 4);
  EXPECT_EQ(evaluate(b.broadcast(s), {{"B", 0}, {"S", 1}}), 0);
}

TEST_F(DimExprTest, BroadcastTakesTheExtentThatDecides) {
  EXPECT_EQ(b.broadcast(constant(1)), b);
  EXPECT_EQ(constant(1).broadcast(b), b);
  EXPECT_EQ(b.broadcast(b), b);
  // B is 3 or 1, and the result is 3.
  EXPECT_EQ(b.broadcast(constant(3)).getConstant(), 3);
}

TEST_F(DimExprTest, EqualityIsProvedRefutedOrOpen) {
  EXPECT_EQ(proveEqual(b * 2, b + b), TriBool::Yes);
  EXPECT_EQ(proveEqual(b, b + 1), TriBool::No);
  EXPECT_EQ(proveEqual(constant(3), constant(4)), TriBool::No);
  EXPECT_EQ(proveEqual(b, s), TriBool::Unknown);
  EXPECT_EQ(proveEqual(b * b, b), TriBool::Unknown);
  // No multiple of 4 is 1, whatever is multiplied; 6 is one of 2 but not of 4.
  EXPECT_EQ(proveEqual(b * 4, constant(1)), TriBool::No);
  EXPECT_EQ(proveEqual(b * s * 4 - s * 8, constant(-6)), TriBool::No);
  EXPECT_EQ(proveEqual(b * 4 + s * 6, constant(2)), TriBool::Unknown);
  EXPECT_EQ(proveEqual(b * 4, constant(8)), TriBool::Unknown);
  EXPECT_EQ(proveEqual(b * 4, s * 2), TriBool::Unknown);
}

TEST_F(DimExprTest, MultiplesAreExactOnes) {
  EXPECT_EQ((b * 4).getMultipleOf("B"), 4);
  EXPECT_EQ(b.getMultipleOf("B"), 1);
  EXPECT_EQ((b * 4 + 1).getMultipleOf("B"), std::nullopt);
  EXPECT_EQ((b * b).getMultipleOf("B"), std::nullopt);
  EXPECT_EQ((b * -4).getMultipleOf("B"), std::nullopt);
  EXPECT_EQ((s * 4).getMultipleOf("B"), std::nullopt);
  EXPECT_EQ(constant(0).getMultipleOf("B"), std::nullopt);
}

TEST_F(DimExprTest, SymbolsInsideAtomsAreFoundAndReplaced) {
  DimExpr expr = (b * 3).floorDiv(2) + s;
  EXPECT_TRUE(expr.dependsOn("B"));
  EXPECT_TRUE(expr.dependsOn("S"));
  EXPECT_FALSE(expr.dependsOn("T"));
  DimExpr replaced = expr.substitute([&](DimSymbol symbol) {
    return symbol.isNamed("B") ? constant(4) : DimExpr();
  });
  EXPECT_EQ(replaced, s + 6);
}

// No name that a user chooses is that of a symbol which an analysis made.
TEST_F(DimExprTest, SymbolsAreTheSameByNameAndKind) {
  DimExpr named = symbol("_0d1");
  DimExpr local = DimExpr::symbol(&context, "_0d1", SymbolKind::Extent);
  DimExpr integer = DimExpr::symbol(&context, "_0d1", SymbolKind::Integer);
  EXPECT_EQ(local, DimExpr::symbol(&context, "_0d1", SymbolKind::Extent));
  EXPECT_NE(named, local);
  EXPECT_NE(local, integer);
  EXPECT_EQ(named.str(), local.str());
  EXPECT_EQ(parse("_0d1"), named);
  EXPECT_FALSE(named.hasLocalSymbol());
  EXPECT_TRUE((named + local.floorDiv(2)).hasLocalSymbol());
  EXPECT_EQ((named * local - local * named).getConstant(), 0);
  EXPECT_EQ(named + local, local + named);
  EXPECT_EQ(named.min(local), local.min(named));
  EXPECT_EQ(named.broadcast(integer), integer.broadcast(named));
  EXPECT_EQ((named - local).getConstant(), std::nullopt);
  EXPECT_TRUE(named.dependsOn("_0d1"));
  EXPECT_FALSE(local.dependsOn("_0d1"));
  EXPECT_EQ(named.getMultipleOf("_0d1"), 1);
  EXPECT_EQ((local * 3).getMultipleOf("_0d1"), std::nullopt);
  EXPECT_EQ((local * 3).getMultipleOf(local.getSymbol()), 3);
  EXPECT_FALSE((local * 3).getSymbol());
  EXPECT_EQ(evaluate(named, {{"_0d1", 5}}), 5);
  EXPECT_EQ(evaluate(local, {{"_0d1", 5}}), std::nullopt);
  EXPECT_TRUE(local.getSymbol().isExtent());
  EXPECT_FALSE(integer.getSymbol().isExtent());
}

TEST_F(DimExprTest, OverflowNeverBecomesASmallNumber) {
  DimExpr huge = constant(INT64_MAX);
  for (DimExpr expr : {huge * 2, huge + 1, huge * huge, huge * b + huge * b}) {
    auto value = evaluate(expr, {{"B", 1}});
    EXPECT_TRUE(!value || *value == INT64_MAX) << expr.str();
  }
}

// The normal form means what the tree means: random trees are built twice, as
// expressions and as numbers.
TEST_F(DimExprTest, RandomTreesKeepTheirValue) {
  constexpr unsigned kSeed = 20240607;
  std::mt19937 random(kSeed);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 500; ++round) {
    int64_t bValue = pick(0, 9), sValue = pick(0, 9);
    std::vector<std::pair<DimExpr, std::optional<int64_t>>> nodes{{b, bValue},
                                                                  {s, sValue}};
    for (int step = 0; step < 8; ++step) {
      auto [x, xValue] = nodes[pick(0, nodes.size() - 1)];
      auto [y, yValue] = nodes[pick(0, nodes.size() - 1)];
      if (pick(0, 2) == 0) {
        yValue = pick(-3, 6);
        y = constant(*yValue);
      }
      auto both = [&](auto function) -> std::optional<int64_t> {
        if (!xValue || !yValue)
          return std::nullopt;
        return function(*xValue, *yValue);
      };
      auto floorDiv = [](int64_t p, int64_t q) -> std::optional<int64_t> {
        if (q == 0)
          return std::nullopt;
        int64_t quotient = p / q;
        return quotient - (p % q != 0 && (p < 0) != (q < 0));
      };
      switch (pick(0, 5)) {
      case 0:
        nodes.push_back({x + y, both(std::plus<>())});
        break;
      case 1:
        nodes.push_back({x - y, both(std::minus<>())});
        break;
      case 2:
        if (xValue && yValue && std::abs(*xValue * *yValue) < 10000)
          nodes.push_back({x * y, both(std::multiplies<>())});
        break;
      case 3:
        nodes.push_back({x.floorDiv(y), both(floorDiv)});
        break;
      case 4:
        nodes.push_back(
            {x.min(y), both([](auto p, auto q) { return std::min(p, q); })});
        break;
      case 5:
        nodes.push_back(
            {x.max(y), both([](auto p, auto q) { return std::max(p, q); })});
        break;
      }
    }
    for (auto &[expr, value] : nodes) {
      // A division by zero may be divided out or multiplied by zero; only
      // values that are defined must agree.
      auto found = evaluate(expr, {{"B", bValue}, {"S", sValue}});
      if (value && found) {
        ASSERT_EQ(*found, *value)
            << expr.str() << " at B = " << bValue << ", S = " << sValue
            << ", round " << round << " of seed " << kSeed;
      }
      ASSERT_EQ(parse(expr.str()), expr) << expr.str();
    }
  }
}

// An order holds for every symbol: those that analyses make are one or more,
// too.
TEST_F(DimExprTest, OrdersLocalSymbols) {
  DimExpr four = DimExpr::constant(&context, 4);
  for (SymbolKind kind : {SymbolKind::Named, SymbolKind::Extent}) {
    DimExpr rows = DimExpr::symbol(&context, "_0d0", kind);
    EXPECT_EQ(proveAtMost(four, four * rows), TriBool::Yes);
    EXPECT_EQ(proveAtMost(four * rows + 1, rows), TriBool::No);
  }
}
