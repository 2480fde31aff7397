//===- RulesPadMemory.cpp - What padding holds inside ---------------------===//
//
// Sources: native/PadNd.cpp, native/ReflectionPad.cpp,
// native/ReplicationPadding.cpp.
//
//===----------------------------------------------------------------------===//

#include "Footprint.h"
#include "koila/Dialect/Koila/IR/KoilaIndexOps.h"
#include "koila/Dialect/Koila/IR/WorkspaceRules.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::footprint;

void rules::describePadWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  auto copy = [&] { rule.setTransient(getSuggestedCopyBytes(*input)); };
  llvm::TypeSwitch<Operation *>(op)
      // Parts of the result are filled in place.
      .Case<ConstantPadNdOp, PadCircularOp>([](auto) {})
      .Case<PadOp>([&](auto pad) {
        if (pad.getMode() == "reflect" || pad.getMode() == "replicate")
          copy();
      })
      .Default([&](Operation *) { copy(); });
}
