//===- ToyTargetTest.cpp - A target of somebody else ----------------------===//

#include "AnalysisFixture.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"
#include "koila/Dialect/Koila/IR/PointwiseOps.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"
#include "koila/KernelModels/KernelModel.h"

using namespace mlir;
using namespace koila;

// Three models and one profile.
static void relu(WorkspaceRule &) {}

static void multiply(WorkspaceRule &rule) {
  AllocationTrace trace;
  auto scratch =
      trace.allocate(rule.getTarget().profile->read(rule, "mm.scratch"));
  trace.allocate(rule.tensor(rule.getOp()->getResult(0))->numBytes());
  trace.free(scratch);
  rule.setTrace(std::move(trace));
}

static void sum(WorkspaceRule &rule) {
  rule.setTransient(rule.getTarget().profile->read(rule, "sum.partial"));
}

static void registerToy(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *, KoilaDialect *dialect) {
    KernelLibrary *toy = KernelLibraries::getOrAdd(*dialect).add("toy");
    if (!toy)
      return;
    toy->add<ReluOp>({.forward = relu});
    toy->add<MmOp>({.forward = multiply});
    toy->add<SumOp>({.forward = sum});
    auto profile = std::make_unique<DeviceProfile>("toy-1");
    profile->add("mm.scratch", {256, Trust::Exact, "this test"});
    toy->setProfile(std::move(profile));
  });
}

class ToyTargetTest : public AnalysisTest {
protected:
  ToyTargetTest() { options.device = "toy"; }
  void addToy() {
    DialectRegistry registry;
    registerToy(registry);
    context.appendDialectRegistry(registry);
  }
  /// Of `operation` on a matrix %x of four rows and columns.
  PeakReport report(StringRef operation, StringRef result) {
    function = parse(("func.func @f(%x: tensor<4x4xf32>) -> " + result +
                      " { %0 = " + operation + " : (tensor<4x4xf32>" +
                      (operation.contains("mm") ? ", tensor<4x4xf32>" : "") +
                      ") -> " + result + " return %0 : " + result + " }")
                         .str());
    return PeakMemoryAnalysis(function, options).report();
  }
  PeakMemoryOptions options;
  func::FuncOp function;
};

TEST_F(ToyTargetTest, ModelsAndProfileGiveFigures) {
  addToy();
  PeakReport found = report("koila.mm %x, %x", "tensor<4x4xf32>");
  EXPECT_TRUE(found.exact());
  EXPECT_EQ(found.device, "toy");
  EXPECT_EQ(found.peakBytes, 256 + 64);
  std::string missing, text;
  auto events = PeakMemoryAnalysis(function, options).listEvents(missing);
  for (const MemoryEvent &event : *events)
    text += (event.isFree ? "-" : "+") + std::to_string(event.bytes);
  EXPECT_EQ(text, "+256+64-256");
  EXPECT_EQ(report("koila.relu %x", "tensor<4x4xf32>").peakBytes, 64);
}

TEST_F(ToyTargetTest, WhatIsMissingIsUnknownAndNamed) {
  addToy();
  PeakReport model = report("koila.exp %x", "tensor<4x4xf32>");
  ASSERT_EQ(model.inexact.size(), 1u);
  EXPECT_EQ(model.inexact[0].reason, "no kernel model of 'koila.exp' on 'toy'");
  PeakReport row = report("koila.sum %x", "tensor<f32>");
  ASSERT_EQ(row.inexact.size(), 1u);
  EXPECT_EQ(row.inexact[0].reason,
            "the profile of 'toy-1' has no row 'sum.partial', which has to be "
            "measured there");
}

TEST_F(ToyTargetTest, ForgettingItsRegistrationIsAnError) {
  std::string error;
  ScopedDiagnosticHandler handler(
      &context, [&](Diagnostic &diagnostic) { error = diagnostic.str(); });
  func::FuncOp empty = parse("func.func @f() { return }");
  EXPECT_FALSE(PeakMemoryAnalysis(empty, options).isValid());
  EXPECT_TRUE(
      StringRef(error).starts_with("no kernel models are registered for "
                                   "device=toy; there are those of cpu"));
}
