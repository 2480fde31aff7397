//===- KoilaAttributes.td - Attributes of the dialect ------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAATTRIBUTES_TD
#define KOILA_DIALECT_KOILA_IR_KOILAATTRIBUTES_TD

include "koila/Dialect/Koila/IR/KoilaDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class Koila_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Koila_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def Koila_DimExprAttr : Koila_Attr<"DimExpr", "expr"> {
  let summary = "an integer expression over symbols, in normal form";
  let description = [{
    A polynomial with integer coefficients over symbols and atoms
    (`floordiv`, `mod`, `min`, `max` of two expressions). One normal form:
    terms with equal monomials are merged, zero terms dropped, and terms and
    factors ordered by spelling, so that equal attributes are equal
    expressions. Use the value class `koila::DimExpr` for arithmetic.

    ```mlir
    #koila.expr<4*B + 2>
    #koila.expr<floordiv(B, 8)>
    ```
  }];
  let parameters = (ins
    ArrayRefParameter<"int64_t">:$coefficients,
    ArrayRefParameter<"::mlir::ArrayAttr", "sorted factors">:$monomials);
  let hasCustomAssemblyFormat = 1;
}

def Koila_LocalSymbolAttr : AttrDef<Koila_Dialect, "LocalSymbol"> {
  let summary = "a factor of a dim expression which is a symbol of an analysis";
  let description = [{
    A symbol that a user names is a string. One that an analysis makes is known
    by its kind, too; it has no textual form, since it is in no IR. Use the value
    class `koila::DimSymbol` for both.
  }];
  let attrName = "koila.local_symbol";
  let parameters = (ins StringRefParameter<>:$name,
                        "::koila::SymbolKind":$kind);
}

def Koila_DimAtomAttr : Koila_Attr<"DimAtom", "atom"> {
  let summary = "a factor of a dim expression which is not a symbol";
  let parameters = (ins "::mlir::StringAttr":$function,
                        "::koila::DimExprAttr":$lhs,
                        "::koila::DimExprAttr":$rhs);
  let assemblyFormat = "`<` $function `,` $lhs `,` $rhs `>`";
}

def Koila_DimsAttr : Koila_Attr<"Dims", "dims"> {
  let summary = "one dim expression per dimension";
  let description = [{
    ```mlir
    #koila.dims<[B, 3, 224, 224]>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"::koila::DimExprAttr">:$exprs);
  let hasCustomAssemblyFormat = 1;
}

def Koila_SymbolAttr : Koila_Attr<"Symbol", "symbol"> {
  let summary = "a symbol of dim expressions";
  let description = [{
    `value` is what analyses use where a number is needed; it never
    specialises the program. `lower` and `upper` bound the values the program
    may meet (upper -1: unbounded). `batch` marks the batch symbol.

    ```mlir
    #koila.symbol<name = "B", value = 64, batch = true>
    ```
  }];
  let parameters = (ins
    StringRefParameter<>:$name,
    DefaultValuedParameter<"int64_t", "-1", "value, -1 if none">:$value,
    DefaultValuedParameter<"int64_t", "0">:$lower,
    DefaultValuedParameter<"int64_t", "-1">:$upper,
    DefaultValuedParameter<"bool", "false">:$batch);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Koila_ArchiveAttr : Koila_Attr<"Archive", "archive"> {
  let summary = "the TorchScript file a module came from";
  let description = [{
    `fingerprint` is taken over the archive's records; emission refuses
    another file than the one that was analysed.
  }];
  let parameters = (ins StringRefParameter<>:$path,
                        StringRefParameter<>:$fingerprint,
                        StringRefParameter<>:$function);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Koila_TargetAttr : Koila_Attr<"Target", "target"> {
  let summary = "the machine whose kernels run";
  let description = [{
    `device` names a library of kernel models, `isa` is oneDNN's name of the
    instruction set, and the data caches of one core are in bytes. Zero and an empty
    name leave a thing out. As `koila.target` of a module it stands for what options
    of passes do not say.

    ```mlir
    #koila.target<device = "cpu", threads = 2, isa = "avx512_core">
    ```
  }];
  let parameters = (ins
    StringRefParameter<>:$device,
    DefaultValuedParameter<"int64_t", "0">:$threads,
    StringRefParameter<"", "\"\"">:$isa,
    DefaultValuedParameter<"int64_t", "0">:$l1_bytes,
    DefaultValuedParameter<"int64_t", "0">:$l2_bytes);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Koila_RangeAttr : Koila_Attr<"Range", "range"> {
  let summary = "half-open range of the values of an integer argument";
  let parameters = (ins "::koila::DimExprAttr":$from, "::koila::DimExprAttr":$to);
  let hasCustomAssemblyFormat = 1;
}

def Koila_OperandAttr : Koila_Attr<"Operand", "operand"> {
  let summary = "an argument of an opaque operator that is an operand";
  let parameters = (ins "int64_t":$index);
  let assemblyFormat = "`<` $index `>`";
}

def Koila_DynamicAttr : Koila_Attr<"Dynamic", "dynamic"> {
  let summary = "a number argument that is an operand";
  let description = [{
    Stands where the literal of a number would: the value is the next operand
    of the last operand group.
  }];
  let parameters = (ins);
}

def Koila_Fact : I32EnumAttr<"Fact", "what an assumption says", [
  I32EnumAttrCase<"DType", 0, "dtype">,
  I32EnumAttrCase<"Rank", 1, "rank">,
  I32EnumAttrCase<"Extent", 2, "extent">,
  I32EnumAttrCase<"Contiguous", 3, "contiguous">,
  I32EnumAttrCase<"Training", 4, "training">,
  I32EnumAttrCase<"Device", 5, "device">,
  I32EnumAttrCase<"Attribute", 6, "attribute">,
  I32EnumAttrCase<"Value", 7, "value">]> {
  let cppNamespace = "::koila";
}

#endif // KOILA_DIALECT_KOILA_IR_KOILAATTRIBUTES_TD
