//===- RulesSortMemory.cpp - What sorting and sums hold inside ------------===//
//
// Sources: native/TensorTopk.cpp, native/ReduceOps.cpp (cumulative operators).
//
//===----------------------------------------------------------------------===//

#include "Footprint.h"
#include "koila/Dialect/Koila/IR/KoilaSortOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;

void rules::describeSortWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  llvm::TypeSwitch<Operation *>(op)
      .Case<TopkOp, CummaxOp, CumminOp, LogcumsumexpOp>([](auto) {})
      .Case<CumsumOp, CumprodOp>([&](auto) {
        auto input = rule.tensor(op->getOperand(0));
        auto result = rule.tensor(op->getResult(0));
        if (!input || !result)
          return rule.setInexact("a shape of the operator is unknown");
        if (isa<ComplexType>(result->elementType))
          return rule.setInexact("a cumulative operator of complex numbers");
        // A single number is just copied.
        if (!input->dims.empty())
          rule.setTransient(getCastBytes(*input, result->elementType));
      })
      .Default([&](Operation *) { describeUnknownWorkspace(rule); });
}
