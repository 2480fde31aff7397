//===- BackwardOperator.td - Gradients by operators --------*- tablegen -*-===//

#ifndef KOILA_INTERFACES_BACKWARDOPERATOR_TD
#define KOILA_INTERFACES_BACKWARDOPERATOR_TD

include "mlir/IR/OpBase.td"

def Koila_BackwardOperatorInterface : OpInterface<"BackwardOperatorInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    An operation of one result whose gradients are operations themselves, of the
    gradient of its result and of its operands: who has those need not run it
    again, as a backward pass of autograd would.
  }];
  let methods = [
    InterfaceMethod<[{
      Whether buildGradients() can. `lookup` gives what is known of a value.
    }], "bool", "hasBackwardOperator",
    (ins "::koila::ShapeRule::Lookup":$lookup)>,
    InterfaceMethod<[{
      Whether buildGradients() reads operand `index`.
    }], "bool", "readsOperand", (ins "unsigned":$index), "", "return true;">,
    InterfaceMethod<[{
      Builds the gradients of the operands that `wanted` names, of the `gradient`
      of the result; `operands` stand for those of the operation, and have their
      shapes; one that is not read may be null. Each gradient has the shape of
      its operand; those of operands without the batch are sums over it. One may
      be `gradient` itself. Null where none is wanted.
    }], "::llvm::SmallVector<::mlir::Value>", "buildGradients",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::Value":$gradient,
         "::mlir::ValueRange":$operands, "::llvm::ArrayRef<bool>":$wanted)>
  ];
}

#endif // KOILA_INTERFACES_BACKWARDOPERATOR_TD
