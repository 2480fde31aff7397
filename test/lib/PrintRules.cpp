//===- PrintRules.cpp - What is known of each operator --------------------===//
//
// For tools/dev/operator_coverage.py, which writes docs/reference/Coverage.md
// of it and of ODS.
//
//===----------------------------------------------------------------------===//

#include "Dialect/Koila/IR/SavedTable.h"
#include "KernelModels/ATen/Backward/BackwardFormulas.h"
#include "TestPasses.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/Pass/Pass.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace koila;
namespace json = llvm::json;

/// `mul.Tensor` of a schema.
static StringRef getName(StringRef schema) {
  schema.consume_front("aten::");
  return schema.take_until([](char c) { return c == '('; });
}

static json::Object describe(const TorchOperatorInterface::Concept &op) {
  StringRef name = getName(op.getTorchSchema());
  const saved::Entry *entry = saved::lookUp(name);
  StringRef kept = !entry ? "unknown" : entry->isDetached() ? "none" : "table";
  return json::Object{
      {"schema",
       op.getTorchSchema().take_until([](char c) { return c == '('; })},
      {"saved", kept},
      {"formula", rules::hasBackwardFormula(name.split('.').first)}};
}

namespace {
struct PrintRulesPass
    : public PassWrapper<PrintRulesPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PrintRulesPass)

  StringRef getArgument() const final { return "koila-print-rules"; }
  StringRef getDescription() const final {
    return "print, of each operator, what the tables of autograd know of it";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<KoilaDialect>();
  }
  void runOnOperation() override {
    for (RegisteredOperationName name : getContext().getRegisteredOperations())
      if (auto *op = name.getInterface<TorchOperatorInterface>())
        llvm::errs() << json::Value(describe(*op)) << "\n";
    markAllAnalysesPreserved();
  }
};
} // namespace

void koila::registerPrintRulesPass() { PassRegistration<PrintRulesPass>(); }
