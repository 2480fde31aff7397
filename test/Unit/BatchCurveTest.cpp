//===- BatchCurveTest.cpp - Peaks as pieces of polynomials ----------------===//

#include "koila/Analysis/BatchCurve.h"
#include "gtest/gtest.h"
#include <random>

using namespace koila;

static void expectPieces(PeakFunction peak, int64_t from, int64_t to,
                         size_t most) {
  std::vector<BatchPiece> pieces = computeBatchPieces(peak, from, to);
  ASSERT_FALSE(pieces.empty());
  EXPECT_LE(pieces.size(), most);
  int64_t batch = from;
  for (const BatchPiece &piece : pieces) {
    EXPECT_EQ(piece.from, batch);
    for (; batch <= piece.to; ++batch)
      EXPECT_EQ(piece.evaluate(batch), *peak(batch)) << batch;
  }
  EXPECT_EQ(batch, to + 1);
}

TEST(BatchCurve, LinesAndParabolasAreOnePiece) {
  expectPieces([](int64_t) { return 7; }, 1, 40, 1);
  expectPieces([](int64_t b) { return 4096 * b + 12; }, 1, 40, 1);
  expectPieces([](int64_t b) { return 4 * b * b + 100 * b; }, 2, 64, 1);
  expectPieces([](int64_t b) { return b; }, 5, 5, 1);
}

TEST(BatchCurve, MaximumOfTwoIsTwoPieces) {
  auto peak = [](int64_t b) { return std::max(1000 + 4 * b, 64 * b); };
  expectPieces(peak, 1, 100, 2);
  std::vector<BatchPiece> pieces = computeBatchPieces(peak, 1, 100);
  EXPECT_EQ(pieces[0].coefficients, (std::array<int64_t, 3>{1000, 4, 0}));
  EXPECT_EQ(pieces[0].to, 16);
  EXPECT_EQ(pieces[1].coefficients, (std::array<int64_t, 3>{0, 64, 0}));
}

TEST(BatchCurve, ThresholdsAndOddSteps) {
  expectPieces([](int64_t b) { return b < 16 ? 64 * b : 48 * b + 9; }, 1, 64,
               2);
  // b(b-1)/2 has no integer coefficients, and every figure is right anyway.
  expectPieces([](int64_t b) { return b * (b - 1) / 2; }, 1, 30, 30);
  expectPieces([](int64_t b) { return (b + 7) / 8 * 512; }, 1, 64, 16);
}

TEST(BatchCurve, AnyFiguresAreReproduced) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<int64_t> figures(50);
    for (int64_t &figure : figures)
      figure = static_cast<int64_t>(random() % 5);
    expectPieces([&](int64_t b) { return figures[b - 3]; }, 3, 52, 50);
  }
}

TEST(BatchCurve, EndsWhereNothingIsKnown) {
  auto peak = [](int64_t b) {
    return b <= 9 ? std::optional<int64_t>(b) : std::nullopt;
  };
  std::vector<BatchPiece> pieces = computeBatchPieces(peak, 1, 40);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].to, 9);
  EXPECT_FALSE(findMaxBatch(peak, 100).has_value());
}

TEST(BatchCurve, LargestBatchFitsAndOneMoreDoesNot) {
  auto peak = [](int64_t b) { return 1000 + 24 * b; };
  EXPECT_EQ(findMaxBatch(peak, 1000 + 24 * 77)->batch, 77);
  EXPECT_EQ(findMaxBatch(peak, 1000 + 24 * 77 + 23)->batch, 77);
  EXPECT_EQ(findMaxBatch(peak, 1023)->batch, 0);
  EXPECT_FALSE(findMaxBatch(peak, 1023)->isUnbounded);
  EXPECT_TRUE(findMaxBatch([](int64_t) { return 10; }, 10)->isUnbounded);
}
