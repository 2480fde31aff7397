//===- ElementwiseOp.td - What elementwise operators say ---*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_ELEMENTWISEOP_TD
#define KOILA_DIALECT_KOILA_IR_ELEMENTWISEOP_TD

include "mlir/IR/OpBase.td"

def Koila_ElementwiseOpInterface : OpInterface<"ElementwiseOpInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    An elementwise operator: rules of shapes and kernel models follow from what it
    makes of element types.
  }];
  let methods = [
    InterfaceMethod<"What it does beyond broadcasting its tensors.",
                    "::koila::rules::Elementwise", "getElementwise">,
    InterfaceMethod<[{
      Whether its numbers become 0-dim tensors on the way.
    }], "bool", "wrapsNumbers">
  ];
}

#endif // KOILA_DIALECT_KOILA_IR_ELEMENTWISEOP_TD
