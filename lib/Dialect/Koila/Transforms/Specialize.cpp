//===- Specialize.cpp - What is decided before tiling ---------------------===//

#include "Specialize.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/KoilaCopyOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace koila;

/// Moves the operations of `region` to where `branch` stands.
static void inlineRegion(scf::IfOp branch, Region &region) {
  if (!region.empty()) {
    Block &block = region.front();
    Operation *terminator = block.getTerminator();
    SmallVector<Value> results(terminator->getOperands());
    terminator->erase();
    branch->getBlock()->getOperations().splice(Block::iterator(branch),
                                               block.getOperations());
    branch->replaceAllUsesWith(results);
  }
  branch->erase();
}

/// Drops operations that nothing asks for any more.
static void eraseDead(FunctionOpInterface function) {
  // Users stand after their operands.
  SmallVector<Operation *> operations;
  function->walk([&](Operation *op) { operations.push_back(op); });
  for (Operation *op : llvm::reverse(operations))
    if (op->getNumRegions() == 0 && isOpTriviallyDead(op))
      op->erase();
}

void koila::foldNumbers(FunctionOpInterface function) {
  bool folded = false;
  function->walk([&](IntTensorOp read) {
    SmallVector<OpFoldResult, 1> number;
    if (failed(read->fold(number)) || number.empty())
      return;
    read.getResult().replaceAllUsesWith(cast<Value>(number.front()));
    folded = true;
  });
  if (folded)
    eraseDead(function);
}

bool koila::inlineDecidedBranches(FunctionOpInterface function) {
  DimAnalysis dims(function);
  if (!dims.isValid())
    return false;
  SmallVector<std::pair<scf::IfOp, Region *>> decided;
  // Inner ones first: what is inside moves along.
  function->walk([&](scf::IfOp branch) {
    auto isDead = [&](Region &region) {
      return !region.empty() && dims.isDead(&region.front());
    };
    Region &thenRegion = branch.getThenRegion();
    Region &elseRegion = branch.getElseRegion();
    if (dims.isDead(branch))
      return;
    if (isDead(elseRegion))
      decided.emplace_back(branch, &thenRegion);
    else if (isDead(thenRegion))
      decided.emplace_back(branch, &elseRegion);
  });
  // Arithmetic of the program where the assumptions say what comes out: no
  // batch rule speaks of `len(x.size())`, and one asks for a literal factor.
  bool folded = false;
  function->walk([&](Operation *op) {
    if (op->getNumRegions() > 0 || isa<arith::ConstantOp>(op) ||
        !isMemoryEffectFree(op) || dims.isDead(op))
      return;
    for (Value result : op->getResults()) {
      const ValueInfo &info = dims.lookup(result);
      TypedAttr known;
      if (result.getType().isInteger(64) && info.integer) {
        if (auto constant = info.integer.getConstant())
          known = IntegerAttr::get(result.getType(), *constant);
      } else if (result.getType().isInteger(1)) {
        known = dyn_cast_or_null<BoolAttr>(info.literal);
      }
      if (!known || result.use_empty())
        continue;
      OpBuilder builder(op);
      result.replaceAllUsesWith(
          arith::ConstantOp::create(builder, op->getLoc(), known));
      folded = true;
    }
  });
  for (auto [branch, region] : decided)
    inlineRegion(branch, *region);
  if (decided.empty() && !folded)
    return false;
  eraseDead(function);
  return true;
}
