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
  KernelLibrary *base = libraries().addBase("base");
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
  SmallVector<StringRef> targets = libraries().getTargets();
  EXPECT_TRUE(llvm::is_contained(targets, "own"));
  EXPECT_TRUE(llvm::is_contained(targets, "cuda"));
  EXPECT_FALSE(llvm::is_contained(targets, "base"));
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

TEST(DeviceProfile, PropertiesAreChecked) {
  auto getProblemOf = [](StringRef properties) {
    return getProblem(
        (R"({"device": "a", "rows": [], "properties": )" + properties + "}")
            .str());
  };
  EXPECT_EQ(getProblemOf(R"({"capability": {"value": [9, 0], "source": "s"},
      "multiprocessors": {"value": 132, "source": "s"}})"),
            "");
  EXPECT_EQ(getProblemOf(R"({"multiprocessors": {"value": 132}})"),
            "a device profile: property 'multiprocessors' needs 'value' and "
            "'source'");
  EXPECT_EQ(getProblemOf(R"({"capability": {"value": [9], "source": "s"}})"),
            "a device profile: property 'capability' is a list of two numbers");
  EXPECT_EQ(getProblemOf(R"({"total_bytes": {"value": 0, "source": "s"}})"),
            "a device profile: property 'total_bytes' is a number above zero");
  EXPECT_EQ(getProblemOf(R"({"speed": {"value": 1, "source": "s"}})"),
            "a device profile: property 'speed' is unknown");
  EXPECT_EQ(getProblem(R"({"schema": 2, "device": "a", "rows": []})"),
            "a device profile: schema 2 is not known; this version reads "
            "schema 1");
}

// They are what the page says.
TEST(DeviceProfile, ThoseThatAreShipped) {
  llvm::StringMap<const DeviceProfile *> shipped;
  for (const DeviceProfile &profile : DeviceProfile::getShipped())
    shipped[profile.getDevice()] = &profile;
  ASSERT_TRUE(shipped.contains("h100-80gb-hbm3"));
  const DeviceProperties &h100 = shipped["h100-80gb-hbm3"]->getProperties();
  EXPECT_EQ(h100.major, 9);
  EXPECT_EQ(h100.multiprocessors, 132);
  EXPECT_EQ(h100.threadsPerMultiprocessor, 2048);
  ASSERT_TRUE(shipped.contains("rtx-3060"));
  EXPECT_EQ(shipped["rtx-3060"]->getProperties().threadsPerMultiprocessor,
            1536);
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
