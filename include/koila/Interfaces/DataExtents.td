//===- DataExtents.td - Extents that data decide -----------*- tablegen -*-===//

#ifndef KOILA_INTERFACES_DATAEXTENTS_TD
#define KOILA_INTERFACES_DATAEXTENTS_TD

include "mlir/IR/OpBase.td"

def Koila_DataExtentInterface : OpInterface<"DataExtentInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    An operation with results of which the data of its operands decide an
    extent. Such an extent is a symbol that no one can give a value; what it can
    be at most follows from the extents of the operands.
  }];
  let methods = [
    InterfaceMethod<[{
      What bounds extent `dim` of result `result`; none where not data decide
      it. `facts` are what is known of the operands.
    }], "std::optional<::koila::ExtentBound>", "getExtentBound",
    (ins "unsigned":$result, "unsigned":$dim,
         "::koila::ShapeRule::Lookup":$facts)>
  ];
}

#endif // KOILA_INTERFACES_DATAEXTENTS_TD
