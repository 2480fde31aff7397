//===- Pad.cpp - What padding holds inside --------------------------------===//
//
// Sources: native/PadNd.cpp, native/ReflectionPad.cpp,
// native/ReplicationPadding.cpp.
//
//===----------------------------------------------------------------------===//

#include "Pad.h"
#include "../WorkspaceRules.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

bool kernels::padsUnbatchedVolume(Operation *op, const ConcreteTensor &input) {
  if (input.dims.size() != 4)
    return false;
  // Six numbers pad three dims.
  auto pad = dyn_cast<PadOp>(op);
  return pad ? pad.getPad().size() == 6
             : isa<ReflectionPad3dOp, ReplicationPad3dOp>(op);
}

void rules::describePadWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto input = rule.tensor(op->getOperand(0));
  if (!input)
    return rule.setInexact("the shape of the input is unknown");
  bool isVolume = padsUnbatchedVolume(op, *input);
  auto copy = [&] {
    AllocationTrace trace;
    trace.allocate(isVolume ? getCopyBytes(*input)
                            : getSuggestedCopyBytes(*input));
    trace.allocate(getBlockBytes(*input));
    rule.setTrace(std::move(trace), 0);
    if (isVolume && suggestsChannelsLast(*input))
      rule.setInexact("an unbatched volume in the layout of images");
  };
  llvm::TypeSwitch<Operation *>(op)
      // Parts of the result are filled in place.
      .Case<ConstantPadNdOp, PadCircularOp>([](auto) {})
      .Case<PadOp>([&](auto pad) {
        if (pad.getMode() == "reflect" || pad.getMode() == "replicate")
          copy();
      })
      .Default([&](Operation *) { copy(); });
}
