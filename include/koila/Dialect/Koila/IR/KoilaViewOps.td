//===- KoilaViewOps.td - Views -----------------------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAVIEWOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILAVIEWOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

def Koila_FlattenOp : Koila_TorchOp<"flatten_using_ints",
  "aten::flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)"> {
  let summary = "merges neighbouring dims";
  let description = [{
    Dims `start_dim` to `end_dim` become one, whose extent is their product.
    The batch stays if it is before the merged dims or the first of them. An
    alias where the strides allow, as they do for contiguous tensors; a copy
    otherwise.
  }];
  let arguments = (ins AnyTensor:$self,
                       DefaultValuedAttr<I64Attr, "0">:$start_dim,
                       DefaultValuedAttr<I64Attr, "-1">:$end_dim);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = "$self attr-dict `:` functional-type($self, $result)";
}

/// Takes a list of sizes, of which any may be an SSA value.
class Koila_ReshapeFamilyOp<string mnemonic, string schema, string sizeName>
    : Koila_TorchOp<mnemonic, schema> {
  let summary = "another shape over the same elements, as `" # schema # "`";
  let description = [{
    One extent may be -1 and is what is left. Refused: sizes whose product is
    known to differ. The batch stays if its dim starts a group of merged or
    split dims and the sizes are sizes of the batch, not literals. An alias
    where the strides allow.
  }];
  let results = (outs AnyTensor:$result);
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::inferShapes(::koila::ShapeRule &rule) {
      return ::koila::rules::inferReshape(rule, getSelf(), }] # sizeName # [{(),
                                          getDynamic());
    }
    void $cppClass::inferBatch(::koila::BatchRule &rule) {
      ::koila::rules::inferReshapeBatch(rule, getSelf(), }] # sizeName # [{(),
                                        getDynamic());
    }
    void $cppClass::describeStorage(::koila::StorageRule &rule) {
      ::koila::rules::describeReshapeStorage(rule, getSelf());
    }
    void $cppClass::describeWorkspace(::koila::WorkspaceRule &rule) {}
  }];
}

def Koila_ViewOp : Koila_ReshapeFamilyOp<"view",
  "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", "getSize"> {
  let arguments = (ins AnyTensor:$self, DenseI64ArrayAttr:$size,
                       Variadic<AnyType>:$dynamic);
  let assemblyFormat = [{
    $self (`sizes` `(` $dynamic^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def Koila_ReshapeOp : Koila_ReshapeFamilyOp<"reshape",
  "aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", "getShape"> {
  let arguments = (ins AnyTensor:$self, DenseI64ArrayAttr:$shape,
                       Variadic<AnyType>:$dynamic);
  let assemblyFormat = [{
    $self (`sizes` `(` $dynamic^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def Koila_SizeIntOp : Koila_TorchOp<"size_int",
  "aten::size.int(Tensor self, int dim) -> int"> {
  let summary = "the extent of one dim";
  let description = [{
    An integer whose value is a dim expression. Of the batch dim, it is the
    number of samples here: in a tile, the size of the tile.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$dim);
  let results = (outs I64:$result);
  let assemblyFormat = "$self attr-dict `:` functional-type($self, $result)";
}

def Koila_NumToTensorOp : Koila_RuledOp<"num_to_tensor",
  "prim::NumToTensor.Scalar(Scalar a) -> Tensor"> {
  let description = [{
    A number as a 0-dim tensor, as tracing makes them of sizes. int64, float64
    or bool, as the number is.
  }];
  let arguments = (ins Koila_ScalarAttr:$a, Variadic<AnyType>:$dynamic);
  let shapeRule = [{
    rule.setResult(0, ::koila::TensorInfo::contiguous({}, rule.numberType("a")));
    return ::mlir::success();
  }];
  let batchRule = [{
    (void)rule.argumentFact("a");
    rule.mix("the number of samples is computed with; a tile has another one");
  }];
  let workspaceRule = "";
}

#endif // KOILA_DIALECT_KOILA_IR_KOILAVIEWOPS_TD
