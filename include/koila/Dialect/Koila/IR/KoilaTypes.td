//===- KoilaTypes.td - Types of the koila dialect ----------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILATYPES_TD
#define KOILA_DIALECT_KOILA_IR_KOILATYPES_TD

include "koila/Dialect/Koila/IR/KoilaDialect.td"
include "mlir/IR/AttrTypeBase.td"

class Koila_Type<string name, string typeMnemonic, list<Trait> traits = []>
    : TypeDef<Koila_Dialect, name, traits> {
  let mnemonic = typeMnemonic;
}

def Koila_AnyType : Koila_Type<"Any", "any"> {
  let summary = "element type that inference has not found yet";
  let description = [{
    Stands for an unknown element type inside `tensor<...>`; it has no size.
  }];
}

def Koila_ListType : Koila_Type<"List", "list"> {
  let summary = "TorchScript List[T]";
  let parameters = (ins "::mlir::Type":$elementType);
  let assemblyFormat = "`<` $elementType `>`";
}

def Koila_OptionalType : Koila_Type<"Optional", "optional"> {
  let summary = "TorchScript Optional[T]";
  let parameters = (ins "::mlir::Type":$valueType);
  let assemblyFormat = "`<` $valueType `>`";
}

def Koila_DictType : Koila_Type<"Dict", "dict"> {
  let summary = "TorchScript Dict[K, V]";
  let parameters = (ins "::mlir::Type":$keyType, "::mlir::Type":$valueType);
  let assemblyFormat = "`<` $keyType `,` $valueType `>`";
}

def Koila_TorchType : Koila_Type<"Torch", "torch"> {
  let summary = "any other TorchScript type, spelled canonically";
  let parameters = (ins StringRefParameter<"canonical spelling">:$spelling);
  let assemblyFormat = "`<` $spelling `>`";
}

#endif // KOILA_DIALECT_KOILA_IR_KOILATYPES_TD
