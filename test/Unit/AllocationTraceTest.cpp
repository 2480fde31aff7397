//===- AllocationTraceTest.cpp - Events of kernels ------------------------===//

#include "koila/Interfaces/AllocationTrace.h"
#include "gtest/gtest.h"
#include <string>

using namespace koila;
using Kind = AllocationTrace::Event::Kind;

static std::string spell(const AllocationTrace &trace) {
  std::string text;
  for (const AllocationTrace::Event &event : trace.getEvents())
    text += (event.kind == Kind::Allocate ? "+"
             : event.kind == Kind::Free   ? "-"
             : event.kind == Kind::Lump   ? "~"
                                          : "!") +
            std::to_string(event.bytes);
  return text;
}

TEST(AllocationTrace, PeakIsTheLargestSum) {
  AllocationTrace trace;
  auto first = trace.allocate(8);
  trace.allocate(64);
  trace.allocateTemporary(4);
  trace.free(first);
  EXPECT_EQ(spell(trace), "+8+64+4-4-8");
  EXPECT_EQ(trace.getPeak(), 76);
  EXPECT_EQ(trace.getLeft(), 64);
  EXPECT_EQ(trace.getTransient(), 12);
  EXPECT_TRUE(trace.isItemized());
}

// It is there before, but for the first call.
TEST(AllocationTrace, WhatALibraryKeepsCountsInNoSum) {
  AllocationTrace trace;
  trace.allocate(8);
  trace.share(AllocationTrace::Library::CuBLAS, 64);
  EXPECT_EQ(trace.getPeak(), 8);
  EXPECT_EQ(trace.getLeft(), 8);
  EXPECT_TRUE(trace.isItemized());
  ASSERT_EQ(trace.getEvents().size(), 2u);
  EXPECT_EQ(trace.getEvents().back().kind, Kind::Shared);
  EXPECT_EQ(trace.getEvents().back().library, AllocationTrace::Library::CuBLAS);
  EXPECT_EQ(trace.getEvents().back().bytes, 64);
}

TEST(AllocationTrace, NothingIsAllocatedForZeroBytes) {
  AllocationTrace trace;
  EXPECT_TRUE(trace.allocate(0).isEmpty());
  trace.free(trace.allocate(0));
  trace.lump(0);
  EXPECT_EQ(spell(trace), "");
  EXPECT_TRUE(trace.isItemized());
}

TEST(AllocationTrace, BytesNameTheLastBlockOfThatSize) {
  AllocationTrace trace;
  auto first = trace.allocate(8);
  auto second = trace.allocate(8);
  trace.free(8);
  EXPECT_TRUE(trace.isLeft(first));
  EXPECT_FALSE(trace.isLeft(second));
  // Two at once, the last one first.
  trace.allocate(4);
  trace.free(12);
  EXPECT_EQ(spell(trace), "+8+8-8+4-4-8");
  EXPECT_TRUE(trace.isItemized());
  // What it never had was there before.
  trace.free(100);
  EXPECT_EQ(spell(trace), "+8+8-8+4-4-8!100");
  EXPECT_FALSE(trace.isItemized());
}

TEST(AllocationTrace, WhatIsKeptIsNotFreed) {
  AllocationTrace trace;
  trace.allocateTemporary(16);
  trace.allocateTemporary(32);
  EXPECT_EQ(trace.getPeak(), 32);
  ASSERT_TRUE(trace.keep(16));
  EXPECT_EQ(spell(trace), "+16+32-32");
  EXPECT_EQ(trace.getPeak(), 48);
  EXPECT_FALSE(trace.keep(16));
  trace.freeAll();
  EXPECT_EQ(trace.getLeft(), 0);
}

TEST(AllocationTrace, ALumpIsNoBlock) {
  AllocationTrace trace;
  trace.allocate(8);
  trace.lump(100);
  EXPECT_EQ(spell(trace), "+8~100");
  EXPECT_EQ(trace.getPeak(), 108);
  EXPECT_EQ(trace.getLeft(), 8);
  EXPECT_FALSE(trace.isItemized());
}
