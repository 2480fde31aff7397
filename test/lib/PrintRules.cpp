//===- PrintRules.cpp - What is known of each operator --------------------===//
//
// For tools/dev/operator_coverage.py, which writes docs/reference/Coverage.md
// of it and of ODS.
//
//===----------------------------------------------------------------------===//

#include "Dialect/Koila/IR/SavedTable.h"
#include "TestPasses.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/KernelModels/KernelModel.h"
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

/// Which models each target has of an operation.
static json::Object listModels(RegisteredOperationName name) {
  json::Object targets;
  auto *libraries = name.getDialect().getRegisteredInterface<KernelLibraries>();
  if (!libraries)
    return targets;
  for (StringRef target : libraries->getTargets()) {
    // A card has the models of all of them.
    if (libraries->lookup(target)->isEmpty())
      continue;
    KernelModel model = libraries->lookup(target)->find(name.getTypeID());
    targets[target] = json::Object{{"forward", model.forward != nullptr},
                                   {"saved", model.saved != nullptr},
                                   {"backward", model.backward != nullptr}};
  }
  return targets;
}

static json::Object describe(RegisteredOperationName registered,
                             const TorchOperatorInterface::Concept &op) {
  StringRef name = getName(op.getTorchSchema());
  const saved::Entry *entry = saved::lookUp(name);
  StringRef kept = !entry ? "unknown" : entry->isDetached() ? "none" : "table";
  return json::Object{{"schema", op.getTorchSchema().take_until(
                                     [](char c) { return c == '('; })},
                      {"saved", kept},
                      {"models", listModels(registered)}};
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
        llvm::errs() << json::Value(describe(name, *op)) << "\n";
    markAllAnalysesPreserved();
  }
};
} // namespace

void koila::registerPrintRulesPass() { PassRegistration<PrintRulesPass>(); }
