//===- TrustTest.cpp - Doubts are joined ----------------------------------===//

#include "koila/Analysis/PeakMemory.h"
#include "koila/Interfaces/Rules.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace koila;

TEST(Trust, TheLesserOfTwoIsTheJoin) {
  EXPECT_EQ(join(Trust::Exact, Trust::Exact), Trust::Exact);
  EXPECT_EQ(join(Trust::Exact, Trust::UpperBound), Trust::UpperBound);
  EXPECT_EQ(join(Trust::Unknown, Trust::UpperBound), Trust::Unknown);
}

TEST(Trust, AllDoubtsAreKept) {
  Doubts doubts;
  EXPECT_EQ(doubts.getTrust(), Trust::Exact);
  doubts.add({Trust::Exact, "nothing"});
  EXPECT_TRUE(doubts.getAll().empty());
  doubts.add({Trust::UpperBound, "a bound", "a table"});
  EXPECT_EQ(doubts.getTrust(), Trust::UpperBound);
  doubts.add({Trust::Unknown, "a guess"});
  doubts.add({Trust::UpperBound, "another bound"});
  EXPECT_EQ(doubts.getTrust(), Trust::Unknown);
  ASSERT_EQ(doubts.getAll().size(), 3u);
  EXPECT_EQ(doubts.getAll().front().source, "a table");
}

/// Whatever a rule says afterwards, what it once said it does not know stays.
TEST(Trust, ARuleTakesNoDoubtBack) {
  WorkspaceTarget target;
  auto lookup = [](Value) { return std::optional<ConcreteTensor>(); };
  WorkspaceRule guess(nullptr, target, lookup), bound(nullptr, target, lookup);
  guess.setInexact("a guess");
  guess.setBound("a bound");
  EXPECT_FALSE(guess.isBounded());
  bound.setBound("a bound");
  EXPECT_TRUE(bound.isBounded());
  EXPECT_FALSE(bound.isExact());
  bound.setInexact("a guess");
  EXPECT_FALSE(bound.isBounded());
}

TEST(Trust, ReportsSayWhereAFigureIsFrom) {
  PeakReport report;
  report.peakBytes = 1;
  report.inexact.push_back({"op", {}, "a bound", true, "a table"});
  report.inexact.push_back({"op", {}, "a guess"});
  std::string text;
  llvm::raw_string_ostream os(text);
  report.print(os);
  EXPECT_NE(text.find(": a bound (a table)\n"), std::string::npos);
  EXPECT_NE(text.find(": a guess\n"), std::string::npos);
  llvm::json::Value json = report.toJSON();
  const llvm::json::Array &rows = *json.getAsObject()->getArray("inexact");
  EXPECT_EQ(rows[0].getAsObject()->getString("source"), "a table");
  EXPECT_EQ(rows[1].getAsObject()->get("source"), nullptr);
}
