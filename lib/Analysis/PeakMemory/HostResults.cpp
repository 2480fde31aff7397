//===- HostResults.cpp - Results that leave a device in tiles -------------===//

#include "koila/Analysis/HostResults.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace koila;

bool koila::isHostResult(Operation *op) {
  auto empty = dyn_cast<tensor::EmptyOp>(op);
  if (!empty || empty.getType().getRank() == 0)
    return false;
  auto function = op->getParentOfType<FunctionOpInterface>();
  if (!function || !function->hasAttr(kHostResultsAttr))
    return false;
  bool isReturned = false;
  llvm::SetVector<Value> shown;
  shown.insert(empty.getResult());
  for (size_t index = 0; index < shown.size(); ++index)
    for (OpOperand &use : shown[index].getUses()) {
      Operation *user = use.getOwner();
      if (auto loop = dyn_cast<scf::ForOp>(user)) {
        OpResult result = loop.getTiedLoopResult(&use);
        if (!result)
          return false;
        shown.insert(loop.getTiedLoopRegionIterArg(&use));
        shown.insert(result);
      } else if (auto insert = dyn_cast<tensor::InsertSliceOp>(user)) {
        if (use.get() != insert.getDest() || use.get() == insert.getSource())
          return false;
        shown.insert(insert.getResult());
      } else if (isa<tensor::CastOp, DetachOp>(user)) {
        shown.insert(user->getResult(0));
      } else if (isa<ConstructOp>(user) &&
                 isa<TupleType>(user->getResultTypes()[0])) {
        shown.insert(user->getResult(0));
      } else if (user->hasTrait<OpTrait::ReturnLike>() &&
                 isa<FunctionOpInterface>(user->getParentOp())) {
        isReturned = true;
      } else if (!isa<scf::YieldOp, tensor::DimOp>(user)) {
        return false;
      }
    }
  return isReturned;
}
