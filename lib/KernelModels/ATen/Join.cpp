//===- Join.cpp - What joining tensors holds inside -----------------------===//

#include "../WorkspaceRules.h"
#include "TensorBytes.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;

/// The grids of all operands, each flattened and then stacked: copies but where
/// a grid has one extent alone.
/// Source: cartesian_prod in native/Itertools.cpp.
static void describeGridRows(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  auto result = rule.tensor(op->getResult(0));
  if (!result)
    return rule.setInexact("the shape of the result is unknown");
  // One operand is returned itself.
  if (op->getNumOperands() == 1)
    return;
  int64_t longer = 0;
  for (Value value : op->getOperands()) {
    auto operand = rule.tensor(value);
    auto strides = operand ? operand->getStrides() : std::nullopt;
    if (!strides || strides->size() != 1 || strides->front() == 0)
      return rule.setInexact("the strides of an operand are unknown");
    longer += operand->numElements() != 1;
  }
  // A grid that repeats one element, or is one row, is a view.
  if (longer > 1)
    rule.setTransient(longer * (result->numBytes() / op->getNumOperands()));
}

/// An operand of another type than the result is copied into its slice by way
/// of a temporary of its own type, one operand after the other.
/// Source: cat_out_cpu in native/TensorShape.cpp.
void rules::describeJoinWorkspace(WorkspaceRule &rule) {
  Operation *op = rule.getOp();
  if (isa<CartesianProdOp>(op))
    return describeGridRows(rule);
  // Copied into places of a matrix of zeros.
  if (isa<BlockDiagOp>(op))
    return;
  auto result = rule.tensor(op->getResult(0));
  if (!result)
    return rule.setInexact("the shape of the result is unknown");
  AllocationTrace trace;
  for (Value value : op->getOperands()) {
    auto operand = rule.tensor(value);
    if (!operand)
      return rule.setInexact("the shape of an operand is unknown");
    if (operand->elementType != result->elementType)
      trace.allocateTemporary(operand->numBytes());
  }
  rule.setTrace(std::move(trace));
}
