//===- BackwardOps.cpp - Rules of the backward pass -----------------------===//

#include "koila/Dialect/Koila/IR/LossOps.h"

using namespace mlir;
using namespace koila;

LogicalResult BackwardOp::inferShapes(ShapeRule &rule) {
  TensorInfo self = rule.tensor(getSelf()),
             gradient = rule.tensor(getGradient());
  if (self.elementType && isa<IntegerType>(self.elementType))
    return rule.emitError() << "a gradient of " << self.elementType;
  if (!self.hasRank())
    return success();
  if (!getGradient()) {
    for (DimExpr dim : *self.dims)
      if (proveEqual(dim, rule.constant(1)) == TriBool::No)
        return rule.emitError()
               << "the loss has extent " << dim.str()
               << "; only of one element there is a gradient; name a "
                  "loss of it, for example loss=cross_entropy";
    return success();
  }
  if (gradient.hasRank() && gradient.getRank() != self.getRank())
    return rule.emitError() << "a gradient of rank " << gradient.getRank()
                            << " for a tensor of rank " << self.getRank();
  return success();
}

void BackwardOp::inferBatch(BatchRule &) {}

void BackwardOp::describeStorage(StorageRule &) {}

//===----------------------------------------------------------------------===//
// Leaves
//===----------------------------------------------------------------------===//

LogicalResult LeafOp::verify() { return koila::detail::verifyShapeRule(*this); }

LogicalResult LeafOp::inferShapes(ShapeRule &rule) {
  TensorInfo source = rule.tensor(getSource());
  if (source.elementType && !isa<FloatType, ComplexType>(source.elementType))
    return rule.emitError() << "a gradient of " << source.elementType;
  rule.setResult(0, source);
  return success();
}

void LeafOp::inferBatch(BatchRule &rule) {
  rule.setResult(0, rule.fact(getSource()));
}

void LeafOp::describeStorage(StorageRule &rule) {
  rule.setAlias(0, getSource());
}

void LeafOp::describeDifferentiation(DifferentiationRule &rule) {
  rule.setDetached();
}

LeafOp LeafGradOp::getLeafOp() { return getLeaf().getDefiningOp<LeafOp>(); }

LogicalResult LeafGradOp::verify() {
  if (!getLeafOp())
    return emitOpError() << "reads the gradient of what is no koila.leaf";
  return koila::detail::verifyShapeRule(*this);
}

/// Strided as the leaf if that is dense, else contiguous. Source:
/// autograd/utils/grad_layout_contract.h.
LogicalResult LeafGradOp::inferShapes(ShapeRule &rule) {
  TensorInfo info = rule.tensor(getLeaf());
  TriBool isDense = info.isDense();
  if (isDense == TriBool::No)
    info = TensorInfo::contiguous(*info.dims, info.elementType);
  else if (isDense == TriBool::Unknown)
    info.strides.reset();
  rule.setResult(0, info);
  return success();
}

void LeafGradOp::inferBatch(BatchRule &rule) {
  rule.setResult(0, rule.fact(getLeaf()));
}

void LeafGradOp::describeStorage(StorageRule &) {}

void LeafGradOp::describeDifferentiation(DifferentiationRule &rule) {
  rule.setDetached();
}
