//===- Pad.cpp - What padding holds inside --------------------------------===//
//
// Sources: native/PadNd.cpp, native/ReflectionPad.cpp,
// native/ReplicationPadding.cpp.
//
//===----------------------------------------------------------------------===//

#include "../WorkspaceRules.h"
#include "AllocationTrace.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

void rules::describePadWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  // An unbatched volume has the four dims of images, but not their layout.
  bool isVolume =
      input->dims.size() == 4 && isa<ReflectionPad3dOp, ReplicationPad3dOp>(op);
  auto copy = [&] {
    rule.setTransient(
        (isVolume ? getCopyBytes(*input) : getSuggestedCopyBytes(*input)) +
        getBlockBytes(*input));
    if (isVolume && suggestsChannelsLast(*input))
      rule.setInexact("an unbatched volume in the layout of images");
  };
  llvm::TypeSwitch<Operation *>(op)
      // Parts of the result are filled in place.
      .Case<ConstantPadNdOp, PadCircularOp>([](auto) {})
      .Case<PadOp>([&](auto pad) {
        // Six numbers pad three dims.
        isVolume = input->dims.size() == 4 && pad.getPad().size() == 6;
        if (pad.getMode() == "reflect" || pad.getMode() == "replicate")
          copy();
      })
      .Default([&](Operation *) { copy(); });
}
