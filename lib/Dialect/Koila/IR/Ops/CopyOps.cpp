//===- CopyOps.cpp - Generated parts of one family ------------------------===//

#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "../Rules/CopyRules.h"
#include "../Rules/NewTensors.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/CopyOps.cpp.inc"

void KoilaDialect::registerCopyOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/CopyOps.cpp.inc"
      >();
}

Operation *koila::withdrawTie(TorchOperatorInterface op) {
  if (!isa<CopyOp>(op.getOperation())) {
    op.permitTie(false);
    return nullptr;
  }
  OpBuilder builder(op);
  Value self = op->getOperand(0);
  auto copy = CloneTensorOp::create(builder, op.getLoc(), self.getType(), self,
                                    /*memory_format=*/nullptr);
  op->setOperand(0, copy.getResult());
  return copy;
}
