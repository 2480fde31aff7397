//===- ScalarConversionShapes.cpp - Rules of numbers read from tensors ----===//
//
// Source: aten/src/ATen/native/Scalar.cpp, torch/csrc/jit/runtime/
// register_prim_ops.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Rules/CopyRules.h"
#include "../Rules/NewTensors.h"
#include "../Rules/ViewRules.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace koila;

LogicalResult rules::checkOneElement(const ShapeRule &rule, Value tensor) {
  TensorInfo info = rule.tensor(tensor);
  if (!info.hasRank())
    return success();
  DimExpr count = product(rule.getContext(), *info.dims);
  auto elements = count.getConstant();
  if (!elements || *elements == 1)
    return success();
  return rule.emitError() << "a tensor of " << *elements
                          << " elements is not one number";
}

LogicalResult rules::checkNoDims(const ShapeRule &rule, Value tensor) {
  TensorInfo info = rule.tensor(tensor);
  if (!info.hasRank() || info.getRank() == 0)
    return success();
  return rule.emitError() << "a tensor of " << info.getRank()
                          << " dims is not taken as a number";
}

void rules::describeNumberStorage(StorageRule &rule) {
  // LibTorch gives who reads the number the number itself (PeepholeOptimize in
  // torch/csrc/jit/passes/peephole.cpp), and drops what nobody reads. What was
  // computed of other tensors is the result of an operator, and stays.
  Operation *op = rule.getOp();
  // Import marks what the program computed in place.
  if (op->hasAttr("tied"))
    return rule.setTied(0, op->getOperand(0));
  if (llvm::none_of(op->getOperandTypes(), llvm::IsaPred<TensorType>) &&
      llvm::all_of(op->getUsers(),
                   llvm::IsaPred<IntTensorOp, FloatTensorOp, IntImplicitOp,
                                 FloatImplicitOp, ScalarImplicitOp>))
    rule.setKeeps(0);
}

Value NumToTensorOp::getComputedInteger() {
  Value number = OperatorArguments(*this).getDynamic("a");
  return number && number.getType().isInteger(64) ? number : Value();
}

OpFoldResult IntTensorOp::fold(FoldAdaptor) {
  auto holder = getA().getDefiningOp<NumToTensorOp>();
  // What is written in between may have changed the tensor.
  if (!holder || !isMemoryEffectFree(holder) || !isMemoryEffectFree(*this))
    return {};
  return holder.getComputedInteger();
}
