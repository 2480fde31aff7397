//===- GradientBuilder.cpp - What backward passes are written with --------===//

#include "GradientBuilder.h"
#include "koila/Dialect/Koila/IR/BinaryOps.h"
#include "koila/Dialect/Koila/IR/LossOps.h"

using namespace mlir;
using namespace koila;

Value koila::addGradients(OpBuilder &builder, Location loc,
                          ArrayRef<Value> parts,
                          llvm::function_ref<void(Operation *)> made) {
  Value sum = parts.front();
  for (Value part : parts.drop_front()) {
    sum = AddTensorOp::create(builder, loc, sum.getType(), sum, part,
                              builder.getI64IntegerAttr(1), /*tied=*/false,
                              ValueRange());
    made(sum.getDefiningOp());
  }
  return sum;
}

Operation *koila::createBackward(OpBuilder &builder, ValueRange operands) {
  OperationState state(operands.front().getLoc(),
                       BackwardOp::getOperationName());
  state.addOperands(operands);
  state.addAttribute("create_graph", builder.getBoolAttr(false));
  return builder.create(state);
}
