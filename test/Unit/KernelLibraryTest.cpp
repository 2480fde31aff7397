//===- KernelLibraryTest.cpp - Models by target ---------------------------===//

#include "AnalysisFixture.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Dialect/Koila/IR/PointwiseOps.h"
#include "koila/KernelModels/KernelModel.h"
#include "llvm/Support/Error.h"

using namespace mlir;
using namespace koila;

namespace {
class KernelLibraryTest : public AnalysisTest {
protected:
  KernelLibraries &libraries() {
    return KernelLibraries::getOrAdd(*context.getLoadedDialect<KoilaDialect>());
  }
};

void first(WorkspaceRule &) {}
void second(WorkspaceRule &) {}
void saved(SavedRule &) {}
} // namespace

TEST_F(KernelLibraryTest, OwnRowsComeBeforeThoseOfTheBase) {
  KernelLibrary *base = libraries().add("base");
  base->add<ReluOp>({.forward = first, .saved = saved});
  base->add<ExpOp>({.forward = first});
  KernelLibrary *own = libraries().add("own", base);
  own->add<ReluOp>({.forward = second});
  EXPECT_EQ(own->find(TypeID::get<ReluOp>()).forward, second);
  // Member by member.
  EXPECT_EQ(own->find(TypeID::get<ReluOp>()).saved, saved);
  EXPECT_EQ(own->find(TypeID::get<ExpOp>()).forward, first);
  EXPECT_EQ(own->find(TypeID::get<SigmoidOp>()).forward, nullptr);
  EXPECT_EQ(libraries().add("own"), nullptr);
  // What others are built on is no target.
  EXPECT_EQ(libraries().getTargets(), (SmallVector<StringRef>{"cpu", "own"}));
}

TEST_F(KernelLibraryTest, TwoRowsOfOneOperationAreAnError) {
  KernelLibrary *own = libraries().add("own");
  own->add<ReluOp>({.forward = first});
  own->add<ReluOp>({.saved = saved});
  EXPECT_DEATH(own->add<ReluOp>({.forward = second}),
               "two kernel models of 'koila.relu' in 'own'");
}

// The list may only become shorter.
TEST_F(KernelLibraryTest, WhatTheCPUHasNoModelOf) {
  SmallVector<RegisteredOperationName> operations(
      context.getRegisteredOperationsByDialect("koila"));
  EXPECT_GT(operations.size(), 600u);
  EXPECT_EQ(libraries().lookup("cpu")->findMissing(operations),
            (SmallVector<StringRef>{
                "koila._pack_padded_sequence", "koila._pad_packed_sequence",
                "koila._scaled_dot_product_attention_math", "koila.bincount",
                "koila.conv_tbc", "koila.histc", "koila.linalg_qr",
                "koila.pinverse", "koila.repeat_interleave_Tensor",
                "koila.repeat_interleave_self_Tensor", "koila.unique_dim"}));
}

TEST_F(KernelLibraryTest, ARegistryMayBeAppliedTwice) {
  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  context.appendDialectRegistry(registry);
  EXPECT_TRUE(libraries().lookup("cpu"));
}

TEST(KernelLibraries, ForgettingTheRegistrationIsAnError) {
  DialectRegistry registry;
  registerAllDialects(registry);
  MLIRContext context(registry);
  context.loadDialect<KoilaDialect>();
  auto module = parseSourceString<ModuleOp>(
      R"(func.func @f(%x: tensor<4xf32>) {
        %0 = koila.relu %x : (tensor<4xf32>) -> tensor<4xf32>
        return })",
      &context);
  std::string error;
  ScopedDiagnosticHandler handler(
      &context, [&](Diagnostic &diagnostic) { error = diagnostic.str(); });
  func::FuncOp function = *module->getOps<func::FuncOp>().begin();
  EXPECT_FALSE(PeakMemoryAnalysis(function).isValid());
  EXPECT_EQ(error, "no kernel models are registered; a tool calls "
                   "koila::registerAllExtensions(registry)");
}

static std::string getProblem(StringRef json) {
  auto profile = DeviceProfile::parse(json);
  return profile ? "" : llvm::toString(profile.takeError());
}

TEST(DeviceProfile, RowsAreChecked) {
  EXPECT_EQ(getProblem(R"({"device": "a", "rows": [{"key": "k", "bytes": 1,
      "trust": "exact", "source": "s"}]})"),
            "");
  EXPECT_EQ(getProblem("{}"),
            "a device profile: an object with 'device' and 'rows' is expected");
  for (StringRef row :
       {R"({"bytes": 1, "trust": "exact", "source": "s"})",
        R"({"key": "k", "bytes": -1, "trust": "exact", "source": "s"})",
        R"({"key": "k", "bytes": 1, "trust": "perhaps", "source": "s"})",
        R"({"key": "k", "bytes": 1, "trust": "exact"})", "3"})
    EXPECT_EQ(getProblem((R"({"device": "a", "rows": [)" + row + "]}").str()),
              "a device profile: row 0 needs 'key', 'bytes' of zero or more, "
              "'source', and 'trust', which is exact, bound or unknown");
  EXPECT_EQ(getProblem(R"({"device": "a", "rows": [
      {"key": "k", "bytes": 1, "trust": "exact", "source": "s"},
      {"key": "k", "bytes": 2, "trust": "exact", "source": "s"}]})"),
            "a device profile: row 1 has the key 'k' once more");
}

TEST(DeviceProfile, ABoundIsSaidWithItsSource) {
  DeviceProfile profile("a");
  profile.add("k", {7, Trust::UpperBound, "a table"});
  WorkspaceTarget target;
  auto lookup = [](Value) { return std::optional<ConcreteTensor>(); };
  WorkspaceRule rule(nullptr, target, lookup);
  EXPECT_EQ(profile.read(rule, "k"), 7);
  ASSERT_EQ(rule.getDoubts().getAll().size(), 1u);
  const Doubt &doubt = rule.getDoubts().getAll().front();
  EXPECT_EQ(doubt.trust, Trust::UpperBound);
  EXPECT_EQ(doubt.reason, "'k' of the profile of 'a'");
  EXPECT_EQ(doubt.source, "a table");
}
