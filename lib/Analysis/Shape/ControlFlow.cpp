//===- ControlFlow.cpp - Which control flow passes follow -----------------===//

#include "koila/Analysis/ControlFlow.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace koila;

Operation *koila::findSeveralBlocks(Operation *function) {
  Operation *found = nullptr;
  function->walk<WalkOrder::PreOrder>([&](Operation *op) {
    for (Region &region : op->getRegions())
      if (!region.empty() && !region.hasOneBlock()) {
        found = op;
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  return found;
}

bool koila::countsUnsigned(Operation *loop) {
  auto known = dyn_cast<scf::ForOp>(loop);
  return known && known.getUnsignedCmp();
}
