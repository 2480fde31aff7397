//===- KoilaViewOps.td - Views -----------------------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAVIEWOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILAVIEWOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

/// A view of `self`. The rules of a family say which dim of `self` each dim of
/// the result goes through.
class Koila_AliasOp<string mnemonic, string schema, list<Trait> traits = []>
    : Koila_RuledOp<mnemonic, schema, "", traits> {
  let description = [{
    A view: the results share the storage of `self`, with strides of their own.
    Refused: what PyTorch refuses, where extents and dims are known. The batch
    stays with its dim as long as the whole of that dim is taken.
  }];
  let storageRule = "::koila::rules::describeViews(rule, getSelf());";
  let workspaceRule = "";
}

//===----------------------------------------------------------------------===//
// Another order of the dims
//===----------------------------------------------------------------------===//

/// `order` is C++ for the DimOrder of an operand of rank `rank`.
class Koila_PermuteFamilyOp<string mnemonic, string schema, dag extra,
                            code order>
    : Koila_AliasOp<mnemonic, schema> {
  let arguments = !con((ins AnyTensor:$self), extra);
  let shapeRule = [{
    return ::koila::rules::inferPermuted(rule, getSelf(), [&](int64_t rank) {
      return ::koila::rules::}] # order # [{;
    });
  }];
  let batchRule = [{
    ::koila::rules::inferPermutedBatch(rule, getSelf(), [&](int64_t rank) {
      return ::koila::rules::}] # order # [{;
    });
  }];
}

def Koila_PermuteOp : Koila_PermuteFamilyOp<"permute",
  "aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)",
  (ins DenseI64ArrayAttr:$dims), "orderPermute(rank, getDims())">;

//===----------------------------------------------------------------------===//
// A part of a dim
//===----------------------------------------------------------------------===//

def Koila_SliceOp : Koila_AliasOp<"slice_Tensor",
  "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)"> {
  let arguments = (ins AnyTensor:$self, I64Attr:$dim,
                       OptionalAttr<I64Attr>:$start,
                       OptionalAttr<I64Attr>:$end, I64Attr:$step,
                       Variadic<AnyType>:$dynamic);
  let shapeRule = "return ::koila::rules::inferSlice(rule, getSelf(), getDim());";
  let batchRule = "::koila::rules::inferSliceBatch(rule, getSelf());";
}

//===----------------------------------------------------------------------===//
// Repetition without a copy
//===----------------------------------------------------------------------===//

def Koila_ExpandOp : Koila_AliasOp<"expand",
  "aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)"> {
  let arguments = (ins AnyTensor:$self, DenseI64ArrayAttr:$size,
                       BoolAttr:$implicit, Variadic<AnyType>:$dynamic);
  let shapeRule = [{
    return ::koila::rules::inferExpand(rule, getSelf(),
                                       rule.integerList("size"));
  }];
  let batchRule = "::koila::rules::inferExpandBatch(rule, getSelf(), {});";
}

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
