//===- KoilaOps.td - Operations that are no ATen operators -*- tablegen -*-===//
//
// Start reading here: weights, assumptions, refinement and the opaque
// operator; the ATen operators follow by family.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILAOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

def Koila_ParamOp : Koila_Op<"param", [Symbol]> {
  let summary = "a parameter, buffer or tensor constant of the module";
  let description = [{
    Weights are symbols, never dense attributes: analyses need their types
    only. `keys` are all names of the tensor in the state dict (two for a tied
    weight), `strides` its strides in elements, `constant` its index among the
    tensor constants of the program if it is one of those.

    ```mlir
    koila.param @"fc.weight" : tensor<10x64xf32> keys ["fc.weight"]
        strides [64, 1] requires_grad
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<AnyTensor>:$type,
    StrArrayAttr:$keys, DenseI64ArrayAttr:$strides,
    DefaultValuedAttr<StrAttr, "\"\"">:$storage,
    DefaultValuedAttr<I64Attr, "0">:$offset,
    UnitAttr:$requires_grad, UnitAttr:$buffer,
    OptionalAttr<I64Attr>:$constant);
  let assemblyFormat = [{
    $sym_name `:` $type `keys` $keys `strides` $strides
    (`requires_grad` $requires_grad^)? (`buffer` $buffer^)?
    (`constant` $constant^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Koila_ParamGetOp : Koila_Op<"param.get", [
    Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<Koila_ShapeRuleInterface>,
    DeclareOpInterfaceMethods<Koila_BatchRuleInterface>,
    DeclareOpInterfaceMethods<Koila_MemoryRuleInterface,
                              ["describeStorage"]>, Koila_AllocationInterface]> {
  let summary = "reads a weight";
  let description = [{
    The value has the type of the `koila.param` it names, and its storage is
    the module's, never counted as allocated by the call.

    ```mlir
    %w = koila.param.get @"fc.weight" : tensor<10x64xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$param);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = "$param attr-dict `:` type($result)";
}

//===----------------------------------------------------------------------===//
// Types and assumptions
//===----------------------------------------------------------------------===//

def Koila_RefineOp : Koila_Op<"refine", [
    Pure, DeclareOpInterfaceMethods<Koila_ShapeRuleInterface>,
    DeclareOpInterfaceMethods<Koila_BatchRuleInterface>,
    DeclareOpInterfaceMethods<Koila_MemoryRuleInterface,
                              ["describeStorage"]>, Koila_AllocationInterface]> {
  let summary = "the same tensor under a type that says more, or less";
  let description = [{
    `tensor.cast` cannot cross between an unknown and a known element type;
    this can. It does nothing at run time. The types must be compatible: each
    rank, extent and element type known on both sides is equal.

    ```mlir
    %1 = koila.refine %0 : tensor<*x!koila.any> to tensor<?x64xf32>
    ```
  }];
  let arguments = (ins AnyTensor:$source);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Koila_AssumptionResource : Resource<"::koila::AssumptionResource">;

def Koila_AssumeOp : Koila_Op<"assume", [
    MemoryEffects<[MemWrite<Koila_AssumptionResource>]>]> {
  let summary = "a fact that the program relies on and does not check";
  let description = [{
    Emission turns the assumptions of a rewritten function into one guard at
    its entry; if it fails, the untouched program runs after a warning that
    names the fact, or an exception is raised.

    `dtype`, `rank`, `extent`, `contiguous` and `device` speak of the tensor
    `value`, `value` of any argument (None is `unit`), `training` of the module,
    and `attribute` of the attribute at `path`. An extent is an expression over symbols: the
    first argument dim that is just a symbol defines it, others are compared.

    ```mlir
    koila.assume extent %x : tensor<?x64xf32> [1] is #koila.expr<64>
    koila.assume dtype %x : tensor<?x64xf32> is f32
    koila.assume rank %x : tensor<?x64xf32> is 2
    koila.assume training is false
    koila.assume attribute "layer1.0.inplace" is true
    koila.assume value %mask : !koila.optional<tensor<*x!koila.any>> is unit
    ```
  }];
  let arguments = (ins Koila_Fact:$fact, Optional<AnyType>:$value,
                       OptionalAttr<I64Attr>:$dim, AnyAttr:$expected,
                       OptionalAttr<StrAttr>:$path);
  let assemblyFormat = [{
    $fact ($path^)? ($value^ `:` type($value))? (`[` $dim^ `]`)? `is` $expected
    attr-dict
  }];
  let hasVerifier = 1;
}

def Koila_LifetimeResource : Resource<"::koila::LifetimeResource">;

def Koila_KeepAliveOp : Koila_Op<"keep_alive", [
    MemoryEffects<[MemWrite<Koila_LifetimeResource>]>]> {
  let summary = "where PyTorch lets go of tensors that nothing reads any more";
  let description = [{
    TorchScript keeps a tensor until the branch or loop that read it ends, and
    what is in a list until the list goes. Where such a branch, loop or list is
    gone from a program, this says how long the tensors, or what is in the
    containers, still lived. It does nothing at run time, and is no part of what
    is written as TorchScript: there lifetimes are those of what is written.

    ```mlir
    koila.keep_alive %x, %y : tensor<?x64xf32>, tensor<?xf32>
    ```
  }];
  let arguments = (ins Variadic<AnyType>:$kept);
  let assemblyFormat = "$kept attr-dict `:` type($kept)";
}

//===----------------------------------------------------------------------===//
// Containers
//===----------------------------------------------------------------------===//

def Koila_ConstantOp : Koila_Op<"constant", [
    Pure, DeclareOpInterfaceMethods<Koila_ShapeRuleInterface>]> {
  let summary = "a literal that is neither a number nor a tensor";
  let description = [{
    None (`unit`), a string, a device, or a list of literals.

    ```mlir
    %0 = koila.constant "features" -> !koila.torch<"str">
    ```
  }];
  let arguments = (ins AnyAttr:$value);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$value attr-dict `->` type($result)";
}

def Koila_Container : I32EnumAttr<"Container", "kind of a container", [
  I32EnumAttrCase<"List", 0, "list">, I32EnumAttrCase<"Tuple", 1, "tuple">,
  I32EnumAttrCase<"Dict", 2, "dict">]> {
  let cppNamespace = "::koila";
}

class Koila_ContainerOp<string mnemonic> : Koila_Op<mnemonic, Koila_Ordered # [
    DeclareOpInterfaceMethods<Koila_ShapeRuleInterface>,
    DeclareOpInterfaceMethods<Koila_BatchRuleInterface>,
    DeclareOpInterfaceMethods<Koila_MemoryRuleInterface,
                              ["describeStorage"]>, Koila_AllocationInterface]>;

def Koila_ConstructOp : Koila_ContainerOp<"construct"> {
  let summary = "a list, tuple or dict of its operands";
  let description = [{
    Of a dict the operands are key, value, key, value. The container keeps its
    elements alive and has no bytes of its own.

    ```mlir
    %0 = koila.construct tuple(%a, %b) : (tensor<?xf32>, tensor<?xf32>)
        -> tuple<tensor<?xf32>, tensor<?xf32>>
    ```
  }];
  let arguments = (ins Koila_Container:$container,
                       Variadic<AnyType>:$elements);
  let results = (outs AnyType:$result);
  let assemblyFormat = [{
    $container `(` $elements `)` attr-dict
    `:` functional-type($elements, $result)
  }];
}

def Koila_UnpackOp : Koila_ContainerOp<"unpack"> {
  let summary = "all elements of a tuple or list";
  let description = [{
    A list must have as many elements as there are results when it runs.
  }];
  let arguments = (ins AnyType:$container);
  let results = (outs Variadic<AnyType>:$results);
  let assemblyFormat = "$container attr-dict `:` functional-type($container, $results)";
}

def Koila_ElementOp : Koila_ContainerOp<"element"> {
  let summary = "one element of a tuple, list or dict";
  let description = [{
    `at` is an index, which counts from the end if negative, or a key.

    ```mlir
    %0 = koila.element %d["ids"] : (!koila.dict<!koila.torch<"str">,
                                    tensor<*x!koila.any>>) -> tensor<?x8xi64>
    ```
  }];
  let arguments = (ins AnyType:$container,
                       AnyAttrOf<[I64Attr, StrAttr]>:$at);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$container `[` $at `]` attr-dict `:` functional-type($container, $result)";
}

def Koila_UpcastOp : Koila_ContainerOp<"upcast"> {
  let summary = "the same value where a more general type is expected";
  let description = [{
    A tensor or None where an optional tensor is expected, for example. It does
    nothing at run time.

    ```mlir
    %0 = koila.upcast %x : (tensor<*x!koila.any>)
        -> !koila.optional<tensor<*x!koila.any>>
    ```
  }];
  let arguments = (ins AnyType:$source);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$source attr-dict `:` functional-type($source, $result)";
}

def Koila_UncheckedCastOp : Koila_ContainerOp<"unchecked_cast"> {
  let summary = "the same value, known to have a narrower type";
  let description = [{
    What `prim::unchecked_cast` does after a test for None or a type.

    ```mlir
    %0 = koila.unchecked_cast %x
        : (!koila.optional<tensor<*x!koila.any>>) -> tensor<*x!koila.any>
    ```
  }];
  let arguments = (ins AnyType:$source);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$source attr-dict `:` functional-type($source, $result)";
}

def Koila_UninitializedOp : Koila_ContainerOp<"uninitialized"> {
  let summary = "what a variable holds where nothing reads it";
  let description = [{
    `prim::Uninitialized`: a branch that raises leaves the variables it would
    have set with this. Where branches merge, the other one decides.

    ```mlir
    %0 = koila.uninitialized : tensor<*x!koila.any>
    ```
  }];
  let results = (outs AnyType:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

//===----------------------------------------------------------------------===//
// The opaque operator
//===----------------------------------------------------------------------===//

def Koila_OpaqueResource : Resource<"::koila::OpaqueResource">;

def Koila_Effects : I32EnumAttr<"Effects", "effects of an opaque operator", [
  I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Rng", 1, "rng">,
  I32EnumAttrCase<"Write", 2, "write">,
  I32EnumAttrCase<"Unknown", 3, "unknown">]> {
  let cppNamespace = "::koila";
}

def Koila_TorchOpaqueOp : Koila_Op<"torch_op", [
    Koila_CarriedOperatorInterface,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "an operator carried through unchanged";
  let description = [{
    Every operator without an operation of its own. `arguments` has one entry
    per argument of the TorchScript node: the index of an operand (as
    `#koila.operand<i>`), or a constant (`unit` is None). Operators with
    unknown effects keep their order and are never tiled or removed.
    `aliases` lists, per result, the operands that it may share storage with.

    ```mlir
    %0 = koila.torch_op "aten::special_i0e"(%x) args [#koila.operand<0>]
        effects none : (tensor<?xf32>) -> tensor<*x!koila.any>
    ```
  }];
  let arguments = (ins StrAttr:$callee, Variadic<AnyType>:$operands,
                       ArrayAttr:$arguments, Koila_Effects:$effects,
                       OptionalAttr<ArrayAttr>:$aliases);
  let results = (outs Variadic<AnyType>:$outputs);
  let assemblyFormat = [{
    $callee `(` $operands `)` `args` $arguments `effects` $effects
    (`aliases` $aliases^)? attr-dict `:` functional-type($operands, $outputs)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Operators with rules of the program's own
//===----------------------------------------------------------------------===//

def Koila_CustomOp : Koila_Op<"custom_op", Koila_Ordered # [
    Koila_CarriedOperatorInterface,
    DeclareOpInterfaceMethods<Koila_BatchRuleInterface>,
    DeclareOpInterfaceMethods<Koila_MemoryRuleInterface, ["describeStorage"]>,
    DeclareOpInterfaceMethods<Koila_AllocationInterface,
        ["describeWorkspace", "describeSaved", "describeBackward"]>,
    DeclareOpInterfaceMethods<Koila_DifferentiationInterface>]> {
  let summary = "an operator whose rules were registered";
  let description = [{
    What `koila.register` knows in Python: an operator of a library or of the
    program itself, which reads its operands and makes its results. Whoever runs
    the passes adds the rules to the dialect (`CustomOperatorSource`); without
    them nothing is known of it, and every rule says so. `arguments` is as that
    of `koila.torch_op`.

    ```mlir
    %0 = koila.custom_op "mylib::scaled_gelu"(%x) args [#koila.operand<0>, 2.0]
        : (tensor<?xf32>) -> tensor<*x!koila.any>
    ```
  }];
  let arguments = (ins StrAttr:$callee, Variadic<AnyType>:$operands,
                       ArrayAttr:$arguments);
  let results = (outs Variadic<AnyType>:$outputs);
  let assemblyFormat = [{
    $callee `(` $operands `)` `args` $arguments attr-dict
    `:` functional-type($operands, $outputs)
  }];
  let hasVerifier = 1;
}

#endif // KOILA_DIALECT_KOILA_IR_KOILAOPS_TD
