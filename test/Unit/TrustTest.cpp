//===- TrustTest.cpp - Doubts are joined ----------------------------------===//

#include "koila/Interfaces/Rules.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace koila;

TEST(Trust, TheLesserOfTwoIsTheJoin) {
  EXPECT_EQ(join(Trust::Exact, Trust::Exact), Trust::Exact);
  EXPECT_EQ(join(Trust::Exact, Trust::UpperBound), Trust::UpperBound);
  EXPECT_EQ(join(Trust::Unknown, Trust::UpperBound), Trust::Unknown);
}

TEST(Trust, TheFirstOfTheGravestDoubtsIsNamed) {
  Doubts doubts;
  EXPECT_EQ(doubts.getTrust(), Trust::Exact);
  EXPECT_EQ(doubts.getGravest(), nullptr);
  doubts.add(Trust::Exact, "nothing");
  EXPECT_EQ(doubts.getGravest(), nullptr);
  doubts.add(Trust::UpperBound, "a bound");
  doubts.add(Trust::Unknown, "a guess");
  doubts.add(Trust::Unknown, "another guess");
  doubts.add(Trust::UpperBound, "another bound");
  EXPECT_EQ(doubts.getTrust(), Trust::Unknown);
  EXPECT_EQ(doubts.getGravest()->reason, "a guess");
  EXPECT_EQ(doubts.getAll().size(), 4u);
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
