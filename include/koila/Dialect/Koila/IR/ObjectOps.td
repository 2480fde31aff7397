//===- ObjectOps.td - Attributes and methods of objects ----*- tablegen -*-===//
//
// What a program reads from, assigns to and calls on its module, and on objects
// of classes. These are nodes of TorchScript, no operators of ATen: no schema
// describes them.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_OBJECTOPS_TD
#define KOILA_DIALECT_KOILA_IR_OBJECTOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

/// The effects are those of the marks `koila.reads` and `koila.writes`
/// (Interfaces/MutableStorage.h), and reads and writes of
/// `ModuleStateResource`.
class Koila_ObjectOp<string mnemonic, list<Trait> traits = []>
    : Koila_Op<mnemonic,
               [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>] # traits>;

def Koila_AttrGetOp : Koila_ObjectOp<"attr.get", [
    DeclareOpInterfaceMethods<Koila_ShapeRuleInterface>]> {
  let summary = "reads an attribute of the module or of an object";
  let description = [{
    Without `object`, `path` leads from the module through its submodules, as
    in a state dict; the empty path is the module itself. With `object` it is
    the name of one attribute.

    The mark `koila.reads` says that the function assigns the attribute, or may
    do so: the read keeps its place among assignments and calls, and nothing is
    known of the result but its type. A read without the mark has no effects.
    Tensors that the function does not assign are `koila.param`s instead.

    ```mlir
    %modes = koila.attr.get "encoder.modes" -> !koila.list<!koila.torch<"str">>
    %steps = koila.attr.get "steps" {koila.reads} -> i64
    %mean = koila.attr.get "mean" of %state : !koila.torch<"__torch__.State">
        {koila.reads} -> tensor<*x!koila.any>
    ```
  }];
  let arguments = (ins StrAttr:$path, Optional<Koila_TorchType>:$object);
  let results = (outs AnyType:$result);
  let assemblyFormat = [{
    $path (`of` $object^ `:` type($object))? attr-dict `->` type($result)
  }];
  let hasVerifier = 1;
}

def Koila_AttrSetOp : Koila_ObjectOp<"attr.set"> {
  let summary = "assigns an attribute of the module or of an object";
  let description = [{
    `path` and `object` are as in `koila.attr.get`. The attribute holds `value`
    from here on, and keeps it alive. The assignment writes the state of the
    module: it is never removed, merged, tiled, or moved past a marked read,
    another assignment or a call.

    ```mlir
    koila.attr.set "steps" = %next : i64
    koila.attr.set "mean" of %state : !koila.torch<"__torch__.State">
        = %x : tensor<?x64xf32>
    ```
  }];
  let arguments = (ins StrAttr:$path, Optional<Koila_TorchType>:$object,
                       AnyType:$value);
  let assemblyFormat = [{
    $path (`of` $object^ `:` type($object))? `=` $value `:` type($value)
    attr-dict
  }];
  let hasVerifier = 1;
}

def Koila_CallMethodOp : Koila_ObjectOp<"call_method", [
    DeclareOpInterfaceMethods<Koila_ShapeRuleInterface>,
    DeclareOpInterfaceMethods<Koila_BatchRuleInterface>]> {
  let summary = "calls a method that only the object knows";
  let description = [{
    Import inlines methods of classes. What is left are calls through an
    interface: the type of `object` declares `method`, and the archive decides
    which code runs. So the effects are unknown: the call may read and write
    everything, draw random numbers and keep its operands, and nothing is known
    of the result but its type.

    ```mlir
    %0 = koila.call_method "embed" of %object(%x)
        : (!koila.torch<"__torch__.Embedder">, tensor<?x64xf32>)
        -> tensor<*x!koila.any>
    ```
  }];
  let arguments = (ins StrAttr:$method, Koila_TorchType:$object,
                       Variadic<AnyType>:$inputs);
  let results = (outs AnyType:$result);
  let assemblyFormat = [{
    $method `of` $object `(` $inputs `)` attr-dict
    `:` functional-type(operands, $result)
  }];
  let hasVerifier = 1;
}

#endif // KOILA_DIALECT_KOILA_IR_OBJECTOPS_TD
