//===- WorkspaceTableTest.cpp - Rows of the table of workspaces -----------===//

#include "koila/KernelModels/WorkspaceTable.h"
#include "gtest/gtest.h"

using namespace koila;
using llvm::StringRef;

static WorkspaceKey makeKey(StringRef op, StringRef isa = "avx512_core_bf16",
                            int64_t threads = 2) {
  return {op, "float32", "contiguous", isa, threads, kTorchVersion};
}

static WorkspaceTable parse(StringRef rows) {
  return llvm::cantFail(WorkspaceTable::parse(
      ("{\"schema\": 1, \"rows\": [" + rows + "]}").str()));
}

static std::string getProblem(StringRef text) {
  auto table = WorkspaceTable::parse(text);
  return table ? "" : llvm::toString(table.takeError());
}

namespace {

TEST(WorkspaceTable, TheFirstRowThatMatchesWins) {
  WorkspaceTable table = parse(R"(
    {"op": ["aten::conv?d"], "figure": "bound", "why": "guess"},
    {"op": ["*"], "figure": "exact"})");
  EXPECT_EQ(table.find(makeKey("aten::conv2d"))->why, "guess");
  EXPECT_EQ(table.find(makeKey("aten::convolution"))->trust, Trust::Exact);
}

TEST(WorkspaceTable, EveryPartOfTheKeyCounts) {
  WorkspaceTable table = parse(R"(
    {"op": ["aten::mm"], "dtype": ["float32"], "memory_format": ["contiguous"],
     "isa": ["avx512*"], "threads": [2, 4], "torch": ["2.13.*"],
     "figure": "exact"})");
  WorkspaceKey key = makeKey("aten::mm");
  EXPECT_NE(table.find(key), nullptr);
  auto differs = [&](auto change) {
    WorkspaceKey other = key;
    change(other);
    return table.find(other) == nullptr;
  };
  EXPECT_TRUE(differs([](WorkspaceKey &other) { other.op = "aten::bmm"; }));
  EXPECT_TRUE(differs([](WorkspaceKey &other) { other.dtype = "float64"; }));
  EXPECT_TRUE(
      differs([](WorkspaceKey &other) { other.memoryFormat = "strided"; }));
  EXPECT_TRUE(differs([](WorkspaceKey &other) { other.isa = "avx2"; }));
  EXPECT_TRUE(differs([](WorkspaceKey &other) { other.threads = 1; }));
  EXPECT_TRUE(differs([](WorkspaceKey &other) { other.threads = 5; }));
  EXPECT_TRUE(differs([](WorkspaceKey &other) { other.torch = "2.14.0"; }));
  EXPECT_FALSE(differs([](WorkspaceKey &other) { other.threads = 4; }));
}

TEST(WorkspaceTable, WhatIsShippedKnowsItsLimits) {
  const WorkspaceTable &table = WorkspaceTable::getShipped();
  auto trust = [&](StringRef op, StringRef isa, int64_t threads) {
    const WorkspaceRow *row = table.find(makeKey(op, isa, threads));
    return row ? std::optional(row->trust) : std::nullopt;
  };
  EXPECT_EQ(trust("aten::conv2d", "avx512_core_bf16", 2), Trust::Exact);
  EXPECT_EQ(trust("aten::conv2d", "avx512_core_bf16", 64), Trust::UpperBound);
  EXPECT_EQ(trust("aten::_convolution", "avx512_core_amx", 2), Trust::Exact);
  EXPECT_EQ(trust("aten::_convolution", "avx2_vnni_2", 2), Trust::UpperBound);
  EXPECT_EQ(trust("aten::lstm", "avx512_core_amx", 2), Trust::Exact);
  EXPECT_EQ(trust("aten::lstm", "avx2_vnni_2", 2), Trust::Unknown);
  EXPECT_EQ(trust("aten::relu", "avx512_core_amx", 64), Trust::Exact);
  EXPECT_EQ(trust("aten::relu", "generic", 2), Trust::Unknown);
  EXPECT_EQ(trust("aten::relu", "avx1024", 2), std::nullopt);
  // What was not measured.
  auto trustAttention = [&](StringRef dtype, StringRef isa) {
    WorkspaceKey key = makeKey("aten::scaled_dot_product_attention", isa);
    key.dtype = dtype;
    return table.find(key)->trust;
  };
  EXPECT_EQ(trustAttention("bfloat16", "avx512_core_fp16"), Trust::Exact);
  EXPECT_EQ(trustAttention("bfloat16", "avx512_core_amx"), Trust::Exact);
  EXPECT_EQ(trustAttention("float16", "avx512_core_amx"), Trust::Exact);
  EXPECT_EQ(trustAttention("float16", "avx512_core_amx_fp16"), Trust::Unknown);
}

TEST(WorkspaceTable, IsWrittenAsItIsRead) {
  WorkspaceTable table = parse(R"(
    {"op": ["aten::mm", "aten::bmm"], "isa": ["avx2"], "threads": [3, null],
     "figure": "unknown", "why": "not measured", "source": "here",
     "calls": 12})");
  std::string text;
  llvm::raw_string_ostream(text) << table.toJSON();
  auto again = llvm::cantFail(WorkspaceTable::parse(text));
  ASSERT_EQ(again.getRows().size(), 1u);
  const WorkspaceRow &row = again.getRows().front();
  EXPECT_EQ(row.op, (NamePatterns{"aten::mm", "aten::bmm"}));
  EXPECT_EQ(row.isa, NamePatterns{"avx2"});
  EXPECT_EQ(row.leastThreads, 3);
  EXPECT_EQ(row.mostThreads, std::nullopt);
  EXPECT_EQ(row.trust, Trust::Unknown);
  EXPECT_EQ(row.why, "not measured");
  EXPECT_EQ(row.source, "here");
  EXPECT_EQ(row.calls, 12);
}

TEST(WorkspaceTable, ProblemsNameTheirPlace) {
  auto row = [](StringRef text) {
    return getProblem(("{\"schema\": 1, \"rows\": [" + text + "]}").str());
  };
  EXPECT_NE(getProblem("{").find("[1:1"), std::string::npos);
  EXPECT_EQ(getProblem("[]"),
            "expected an object with 'schema' and 'rows' when parsing table");
  EXPECT_EQ(getProblem(R"({"schema": 2, "rows": []})"),
            "expected 1, the schema that koila knows at table.schema");
  EXPECT_EQ(row(R"({"op": ["*"]})"),
            "a row needs 'op' and 'figure' at table.rows[0]");
  EXPECT_EQ(row(R"({"op": ["*"], "figure": "about"})"),
            "expected exact, bound or unknown at table.rows[0].figure");
  EXPECT_EQ(row(R"({"op": ["*"], "figure": "bound"})"),
            "a row that is not exact needs 'why', for the report at "
            "table.rows[0]");
  EXPECT_EQ(row(R"({"op": ["*"], "figure": "exact", "threads": [4, 2]})"),
            "expected null or a number not below the first at "
            "table.rows[0].threads[1]");
  EXPECT_EQ(row(R"({"op": ["*"], "figure": "exact", "bytes": 4})"),
            "unknown key at table.rows[0].bytes");
  EXPECT_EQ(row(R"({"op": [], "figure": "exact"})"),
            "expected a name at least; leave the key out for all at "
            "table.rows[0].op");
  EXPECT_EQ(row(R"({"op": ["aten::add", "aten::[a"], "figure": "exact"})"),
            "expected a name, in which * stands for any letters at "
            "table.rows[0].op[1]");
}

} // namespace
